"""``calibrant demo``: from training to a report, on the digits of scikit-learn."""

from __future__ import annotations

import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from calibrant import _inputs
from calibrant._tables import text_table
from calibrant._writing import write_whole
from calibrant.calibrators.registry import make_calibrators
from calibrant.cli.demo.page import COLUMNS, Trained, index_page
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
N_SEEDS = 5
"""Networks trained for each loss."""
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
    """Train, calibrate and report in one to two minutes.

    Small networks learn the 1797 digits of scikit-learn with cross-entropy, focal loss, FLSD-53
    and AdaFocal, five seeds each. Calibrators are fitted on held-out samples of each network and
    measured on others. For each loss, DIR gets the folder of the first training run, its logits
    (.npz) and a report; index.html compares the losses. An example of two classes, a naive Bayes
    classifier of breast cancer, gets two CSV files and a report. Needs Lightning and scikit-learn.

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
    n_seeds: int = N_SEEDS,
    epochs: int | None = None,
    losses: Mapping[str, str] = TRAINED_WITH,
    methods: list[str] | None = None,
) -> Path:
    """Do everything that the command does; returns the page that it wrote."""
    from calibrant.cli.demo.folder import DemoFolder
    from calibrant.cli.demo.seeds import figures_of, spreads_of
    from calibrant.cli.demo.training import data_of, gamma_of, recipe_of, train_network
    from calibrant.cli.demo.two_classes import write_example

    folder = DemoFolder(out, losses)
    folder.prepare()
    lasting = {} if epochs is None else {"epochs": epochs}
    recipes = {name: recipe_of(name, seed=seed, **lasting) for name in losses}
    recipe = next(iter(recipes.values()))
    data = [data_of(replace(recipe, seed=seed + i)) for i in range(n_seeds)]
    click.echo(f"Digits of scikit-learn: {about_parts(data[0])}. {n_seeds} seeds.\n")
    spreads = {}
    for name, title in losses.items():
        folder.make_room(name)
        figures = []
        with (
            stage(f"training with {title}", n_seeds * recipe.epochs) as step,
            tempfile.TemporaryDirectory() as elsewhere,
        ):
            for i, parts in enumerate(data):
                wanted = replace(recipes[name], seed=seed + i)
                run_folder = Path(elsewhere, f"{i}") if i else folder.run(name)
                file = Path(elsewhere, f"{i}.npz") if i else folder.predictions(name)
                train_network(wanted, parts, run_folder, file, after_epoch=step)
                figures.append(figures_of(file))
        spreads[name] = spreads_of(figures)
    trained = [
        report(
            folder,
            name,
            title,
            notes=[WATCHED] if name == "adafocal" else [],
            gamma=gamma_of(recipes[name]),
            seed=seed,
            methods=methods,
        )
        for name, title in losses.items()
    ]
    with stage("two classes", 1):
        usable = usable_methods(methods)
        binary = write_example(*folder.two_classes, seed=seed, methods=usable)
    lines = next_lines(folder, next(iter(losses)))
    notes = about(recipe, data[0], losses, n_seeds)
    rows = [(losses[name], [str(each) for each in spreads[name]]) for name in losses]
    page = index_page(trained, rows, n_seeds, binary, folder.two_classes[2].name, notes, lines)
    write_whole(folder.page, page.encode())
    click.echo(f"\n{table(rows)}\n\nTwo classes: {binary.verdict()}\n")
    click.echo(f"Open {folder.page}\n\nNext steps:")
    click.echo("\n".join(f"  {line}" for line in lines))
    return folder.page


def about_parts(data: DataSet) -> str:
    """The number of samples for each purpose."""
    return (
        f"{len(data.train)} images to train on, {len(data.val)} to calibrate on, "
        f"{len(data.test)} to measure on"
    )


def about(recipe: Recipe, data: DataSet, losses: Mapping[str, str], n_seeds: int) -> list[str]:
    """Notes on how the page was made."""
    notes = [
        f"Data: the digits (8 x 8 pixels) of scikit-learn, {about_parts(data)}; another division "
        "for each seed.",
        f"Network: the recipe of calibrant train digits, {recipe.epochs} epochs of Adam, "
        f"seeds {recipe.seed} to {recipe.seed + n_seeds - 1}. Nothing was chosen for its result.",
        f"Reports and the table of all methods are of seed {recipe.seed} alone: differences within "
        "their intervals mean nothing.",
        "Training is that of calibrant train. The files of the first run (config.json, "
        "metrics.jsonl, checkpoints, result.json) are in "
        f"{', '.join(f'{name}/' for name in losses)} next to this page.",
    ]
    return [*notes, WATCHED] if "adafocal" in losses else notes


def usable_methods(methods: list[str] | None, gamma: float | None = None) -> list[str]:
    """Those of ``methods``, or of all, that need no parameter but a known gamma."""
    usable = make_calibrators(gamma=gamma)
    return [method for method in methods or usable if method in usable]


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

    names = usable_methods(methods, gamma)
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


def next_lines(folder: DemoFolder, name: str) -> list[str]:
    """Commands to try next, on the first network and on the example of two classes."""
    file = folder.predictions(name)
    val, test = (shlex.quote(f"{file}::{part}") for part in ("val", "test"))
    two = shlex.quote(str(folder.two_classes[1]))
    return [
        f"calibrant report {val} {test} -o report.html",
        f"calibrant fit {val} -o cal.json",
        f"calibrant apply cal.json {test} -o calibrated.npz",
        f"calibrant evaluate {two}",
    ]


def table(rows: list[tuple[str, list[str]]]) -> str:
    """The main table of the page, as text, in per cent."""
    head = ["", *(f"{name} %" for name in COLUMNS)]
    cells = [head, *([title, *figures] for title, figures in rows)]
    return "\n".join(text_table(cells, "<>>>>>"))


@contextmanager
def stage(label: str, length: int) -> Iterator[Callable[..., None]]:
    """A bar on a terminal, a line elsewhere; call what it gives with the name of each step."""
    if not sys.stderr.isatty():
        click.echo(label, err=True)
    with progress_bar(label.ljust(32), length) as bar:
        yield lambda item=None: bar.update(1, item)
