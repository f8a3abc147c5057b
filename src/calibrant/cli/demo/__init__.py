"""``calibrant demo``: from training to a report, on data that scikit-learn brings along."""

from __future__ import annotations

import importlib.util
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import numpy as np

from calibrant import _checks
from calibrant.calibrators import CALIBRATORS
from calibrant.calibrators.comparison import required
from calibrant.cli.demo.page import SHOWN, Trained, index_page
from calibrant.files import Predictions, written_whole
from calibrant.metrics import confidence_gap, error_rate

TRAINED_WITH = {
    "ce": "cross-entropy",
    "fl-3": "focal, gamma 3",
    "flsd-53": "FLSD-53",
    "adafocal": "AdaFocal",
}
"""Losses out of ``LOSSES``, and what they are called on the page."""
GAMMA = {"fl-3": 3.0}
"""Of those whose gamma is one number, so that the focal map can be tried."""
NEEDED = {"torch": "torch", "sklearn": "sklearn", "jinja2": "report"}
"""Modules that the demo imports, and the extra that brings each."""
SEEDS = range(2**32)


@click.command()
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    default=Path("calibrant-demo"),
    show_default=True,
    metavar="DIR",
    help="The folder that is written to; files of an earlier demo in it are replaced.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Of data, networks, redraws.")
def demo(out: Path, seed: int) -> None:
    """Train, calibrate and report: the whole way, in about a minute.

    Four small networks learn the 1797 digits of scikit-learn, 2% of their labels drawn at
    random, with cross-entropy, focal loss, FLSD-53 and AdaFocal. Every calibrator is fitted on
    held-out samples of each network and measured on others. DIR gets the logits (.npz), a report
    for each loss, and index.html, which sets them side by side. Needs torch and scikit-learn.

    \b
    Examples:
      calibrant demo
      calibrant demo --out /tmp/demo --seed 1
    """
    _checks.whole_number(seed, "--seed", allowed=SEEDS)
    refuse_without(NEEDED)
    run(out, seed=seed)


def run(
    out: Path,
    *,
    seed: int = 0,
    epochs: int | None = None,
    losses: Mapping[str, str] = TRAINED_WITH,
    methods: list[str] | None = None,
) -> Path:
    """Everything the command does; the page it wrote."""
    from calibrant.cli.demo import training

    make_folder(out)
    digits = training.noisy_digits(seed)
    n = {part: digits.size(part) for part in ("train", "val", "test")}
    noise = (
        f"Label noise: {training.MISLABELLED:.0%} of all labels, in every part, are drawn at "
        f"random ({digits.n_changed} of {len(digits.labels)} changed). No model can know them."
    )
    click.echo(
        f"Digits of scikit-learn: {n['train']} images to train on, {n['val']} to calibrate on, "
        f"{n['test']} to measure on.\n{noise}\n"
    )
    epochs = training.EPOCHS if epochs is None else epochs
    said = {}
    for name, title in losses.items():
        with stage(f"training with {title}", epochs) as step:
            said[name] = training.train(name, digits, seed=seed, epochs=epochs, after_epoch=step)
        save(out / f"{name}.npz", said[name])
    notes = [
        f"Data: the {len(digits.labels)} digits (8 x 8 pixels) that come with scikit-learn, "
        f"{n['train']} to train on, {n['val']} to calibrate on, {n['test']} to measure on.",
        noise,
        f"Network: two hidden layers of {training.HIDDEN} units, {epochs} epochs of Adam, "
        f"seed {seed}. One run of one seed on {n['test']} samples: differences between losses "
        "that lie within their intervals say nothing.",
        "The sizes and the noise were picked out of about eight settings because the usual story "
        "shows in them; with 5 or 10% noise a single temperature made most errors larger. See the "
        "scoreboard in the documentation for evidence.",
    ]
    watched = (
        "AdaFocal sees the validation part while it trains, so its calibrators are fitted on "
        "samples that are no longer quite new to it."
    )
    trained = [
        report(
            out,
            name,
            title,
            said[name],
            notes=[noise, watched] if name == "adafocal" else [noise],
            seed=seed,
            methods=methods,
        )
        for name, title in losses.items()
    ]
    lines = next_lines(out, next(iter(losses)))
    page = out / "index.html"
    about = [*notes, *([watched] if "adafocal" in losses else [])]
    with written_whole(page) as temporary:
        temporary.write_text(index_page(trained, about, lines), encoding="utf-8")
    click.echo(f"\n{table(trained)}\n\nOpen {page}\n\nWhat you would write next:")
    click.echo("\n".join(f"  {line}" for line in lines))
    return page


def report(
    out: Path,
    name: str,
    title: str,
    said: Mapping[str, Predictions],
    *,
    notes: list[str],
    seed: int,
    methods: list[str] | None,
) -> Trained:
    """Write the report of one network; its figures."""
    from calibrant.report import write_report

    gamma = GAMMA.get(name)
    names = [
        method
        for method in methods or CALIBRATORS
        if gamma is not None or not required(CALIBRATORS[method])
    ]
    file = out / f"{name}.npz"
    with stage(f"calibrating {title}", len(names) + 1) as step:
        summary = write_report(
            f"{file}::val",
            f"{file}::test",
            out / f"{name}.html",
            title=f"Digits, trained with {title}",
            notes=notes,
            methods=names,
            gamma=gamma,
            seed=seed,
            progress=step,
        )
    test = said["test"]
    gap = confidence_gap(logits=test.logits, labels=test.labels)
    return Trained(
        title=title,
        file=file.name,
        report=f"{name}.html",
        mean_confidence=1.0 - error_rate(logits=test.logits, labels=test.labels) + gap,
        methods=summary.comparison,
    )


def save(path: Path, said: Mapping[str, Predictions]) -> None:
    """Logits, labels and ids of both parts in one file, as ``FILE.npz::val`` reads them."""
    arrays: dict[str, Any] = {}
    for part, predictions in said.items():
        arrays |= {
            f"{part}_logits": predictions.logits,
            f"{part}_labels": predictions.labels,
            f"{part}_ids": predictions.ids,
        }
        arrays["class_names"] = np.array(predictions.class_names)
    with written_whole(path) as temporary, temporary.open("wb") as file:
        np.savez(file, allow_pickle=False, **arrays)


def next_lines(out: Path, name: str) -> list[str]:
    """Three commands to go on with, on the first network."""
    val, test = (shlex.quote(f"{out / name}.npz::{part}") for part in ("val", "test"))
    return [
        f"calibrant report {val} {test} -o report.html",
        f"calibrant fit {val} -o cal.json",
        f"calibrant apply cal.json {test} -o calibrated.npz",
    ]


def table(trained: list[Trained]) -> str:
    """What the page says, in short."""
    rows = [["", "says %", "right %", "error % as trained", "temperature", "auto"]]
    for each in trained:
        errors = (each.error(name) for name in SHOWN)
        figures = (each.mean_confidence, each.accuracy, *errors)
        rows.append([each.title, *(f"{100 * figure:.1f}" for figure in figures)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    )


def make_folder(out: Path) -> None:
    """The folder to write to."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as taken:
        raise ValueError(
            f"--out must be a folder; {out} is, or lies in, a file. Name another"
        ) from taken


def refuse_without(modules: Mapping[str, str]) -> None:
    """One line with what to install, before anything is begun."""
    missing = [name for name in modules if importlib.util.find_spec(name) is None]
    if missing:
        extras = ",".join(dict.fromkeys(modules.values()))
        raise ModuleNotFoundError(
            f"the demo needs {' and '.join(missing)}: pip install 'calibrant[{extras}]'"
        )


@contextmanager
def stage(label: str, length: int) -> Iterator[Callable[..., None]]:
    """A bar on a terminal, a line elsewhere; call what it gives at each step, with its name."""
    hidden = not sys.stderr.isatty()
    if hidden:
        click.echo(label, err=True)
    with click.progressbar(
        length=length,
        label=label.ljust(32),
        item_show_func=lambda item: item or "",
        file=sys.stderr,
        hidden=hidden,
    ) as bar:

        def step(item: str | None = None) -> None:
            bar.update(1, item)

        yield step
