"""``calibrant demo``: from training to a report, on the digits of scikit-learn."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calibrant import _inputs
from calibrant._tables import text_table
from calibrant._writing import write_whole
from calibrant.calibrators import CALIBRATORS
from calibrant.calibrators.registry import required_params
from calibrant.cli.demo.page import SHOWN, Trained, index_page
from calibrant.cli.options import OUTPUT
from calibrant.cli.progress import progress_bar

if TYPE_CHECKING:
    from calibrant.cli.demo.folder import DemoFolder
    from calibrant.training import Recipe
    from calibrant.training.datasets import DataSet

TRAINED_WITH = {
    "ce": "cross-entropy",
    "fl-3": "focal, gamma 3",
    "flsd-53": "FLSD-53",
    "adafocal": "AdaFocal",
}
"""Losses out of ``LOSSES``, and their titles on the page."""
NEEDED = ("torch", "lightning", "sklearn", "jinja2", "markupsafe")
"""Packages that the demo imports."""
EXTRAS = "lightning,sklearn,report"
"""The extras that install them."""
SEEDS = range(2**32)
WATCHED = (
    "AdaFocal uses the validation part during training, so its calibrators are fitted on samples "
    "that it has already seen."
)


@click.command()
@click.option(
    "--out",
    type=OUTPUT,
    default=Path("calibrant-demo"),
    show_default=True,
    metavar="DIR",
    help="Folder to write to. An earlier demo in it is overwritten.",
)
@click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    help="Random seed of data, networks and resampling.",
)
def demo(out: Path, seed: int) -> None:
    """Train, calibrate and report in about a minute.

    Four small networks learn the 1797 digits of scikit-learn, with 2% of the labels drawn at
    random: with cross-entropy, focal loss, FLSD-53 and AdaFocal. Every calibrator is fitted on
    held-out samples of each network and measured on others. For each loss, DIR gets the folder of
    a training run, the logits (.npz) and a report; index.html compares the losses. Needs Lightning
    and scikit-learn.

    \b
    Examples:
      calibrant demo
      calibrant demo --out /tmp/demo --seed 1
    """
    _inputs.whole_number(seed, "--seed", allowed=SEEDS)
    _inputs.installed(*NEEDED, extra=EXTRAS, purpose="the demo")
    run(out, seed=seed)


def run(
    out: Path,
    *,
    seed: int = 0,
    epochs: int | None = None,
    losses: Mapping[str, str] = TRAINED_WITH,
    methods: list[str] | None = None,
) -> Path:
    """Do everything that the command does; returns the page that it wrote."""
    from calibrant.cli.demo.folder import DemoFolder
    from calibrant.cli.demo.training import data_of, gamma_of, recipe_of, train_network

    folder = DemoFolder(out, losses)
    folder.prepare()
    lasting = {} if epochs is None else {"epochs": epochs}
    recipes = {name: recipe_of(name, seed=seed, **lasting) for name in losses}
    recipe = next(iter(recipes.values()))
    data = data_of(recipe)
    noise = about_noise(data)
    click.echo(f"Digits of scikit-learn: {about_parts(data)}.\n{noise}\n")
    for name, title in losses.items():
        folder.make_room(name)
        with stage(f"training with {title}", recipe.epochs) as step:
            train_network(
                recipes[name],
                data,
                folder.run(name),
                folder.predictions(name),
                after_epoch=step,
            )
    trained = [
        report(
            folder,
            name,
            title,
            notes=[noise, WATCHED] if name == "adafocal" else [noise],
            gamma=gamma_of(recipes[name]),
            seed=seed,
            methods=methods,
        )
        for name, title in losses.items()
    ]
    lines = next_lines(out, next(iter(losses)))
    notes = about(recipe, data, losses)
    write_whole(folder.page, index_page(trained, notes, lines).encode())
    click.echo(f"\n{table(trained)}\n\nOpen {folder.page}\n\nNext steps:")
    click.echo("\n".join(f"  {line}" for line in lines))
    return folder.page


def about_parts(data: DataSet) -> str:
    """The number of samples for each purpose."""
    return (
        f"{len(data.train)} images to train on, {len(data.val)} to calibrate on, "
        f"{len(data.test)} to measure on"
    )


def about_noise(data: DataSet) -> str:
    """The number of random labels."""
    noise = data.record["label_noise"]
    return (
        f"Label noise: {noise['share']:.0%} of all labels, in every part, are drawn at random "
        f"({noise['changed']} of {noise['of']} changed). No model can predict them."
    )


def about(recipe: Recipe, data: DataSet, losses: Mapping[str, str]) -> list[str]:
    """Notes on how the page was made."""
    layers = " and ".join(str(size) for size in recipe.model_options["hidden"])
    notes = [
        f"Data: the digits (8 x 8 pixels) of scikit-learn, {about_parts(data)}.",
        about_noise(data),
        f"Network: hidden layers of {layers} units, {recipe.epochs} epochs of Adam, "
        f"seed {recipe.seed}. This is one run of one seed on {len(data.test)} samples: differences "
        "between losses within their intervals mean nothing.",
        "Sizes, epochs and noise were chosen out of about fifteen settings because they show the "
        "usual result; with more noise, and for some other sizes and seeds, a single temperature "
        "made errors larger. For evidence see the scoreboard in the documentation.",
        "Training is that of calibrant train. The files of each run (config.json, metrics.jsonl, "
        f"checkpoints, result.json) are in {', '.join(f'{name}/' for name in losses)} next to this "
        "page.",
    ]
    return [*notes, WATCHED] if "adafocal" in losses else notes


def report(
    folder: DemoFolder,
    name: str,
    title: str,
    *,
    notes: list[str],
    gamma: float | None,
    seed: int,
    methods: list[str] | None,
) -> Trained:
    """Write the report of one network; returns its content."""
    from calibrant.report import write_report

    names = [
        method
        for method in methods or CALIBRATORS
        if gamma is not None or not required_params(CALIBRATORS[method])
    ]
    file, page = folder.predictions(name), folder.report(name)
    with stage(f"calibrating {title}", len(names) + 1) as step:
        summary = write_report(
            f"{file}::val",
            f"{file}::test",
            page,
            title=f"Digits, trained with {title}",
            notes=notes,
            methods=names,
            gamma=gamma,
            random_state=seed,
            progress=step,
        )
    return Trained(title=title, report=page.name, summary=summary)


def next_lines(out: Path, name: str) -> list[str]:
    """Three commands to try next, on the first network."""
    val, test = (shlex.quote(f"{out / name}.npz::{part}") for part in ("val", "test"))
    return [
        f"calibrant report {val} {test} -o report.html",
        f"calibrant fit {val} -o cal.json",
        f"calibrant apply cal.json {test} -o calibrated.npz",
    ]


def table(trained: list[Trained]) -> str:
    """The main table of the page, as text."""
    rows = [["", "confidence %", "accuracy %", "error % as trained", "temperature", "auto"]]
    for each in trained:
        errors = (each.error(name) for name in SHOWN)
        figures = (each.mean_confidence, each.accuracy, *errors)
        rows.append([each.title, *(f"{100 * figure:.1f}" for figure in figures)])
    return "\n".join(text_table(rows, "<>>>>>"))


@contextmanager
def stage(label: str, length: int) -> Iterator[Callable[..., None]]:
    """A bar on a terminal, a line elsewhere; call what it gives with the name of each step."""
    if not sys.stderr.isatty():
        click.echo(label, err=True)
    with progress_bar(label.ljust(32), length) as bar:
        yield lambda item=None: bar.update(1, item)
