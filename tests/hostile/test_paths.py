"""A path that names nothing is refused, by every command and every public reader and writer."""

from __future__ import annotations

import os

import click
import numpy as np
import pytest

from calibrant import TemperatureScaling, load
from calibrant.calibrators.export import export
from calibrant.cli import main
from calibrant.files import (
    Predictions,
    count_rows,
    iter_predictions,
    read_predictions,
    write_predictions,
    write_truncated_predictions,
    written_whole,
)
from calibrant.report import write_report
from calibrant.scale import apply, evaluate, fit
from calibrant.training import recipe, train
from calibrant.training.grid import read_grid, run_grid
from tests.processes import run_calibrant

RNG = np.random.default_rng(0)
LABELS = RNG.integers(0, 3, 300)
LOGITS = RNG.standard_normal((300, 3)) + 2.0 * np.eye(3)[LABELS]
CALIBRATOR = TemperatureScaling().fit(LOGITS, LABELS)
SAMPLES = Predictions(logits=LOGITS, labels=LABELS)
PATHS = {"FILE", "FILE...", "FOLDER", "DIR", "OUT", "VAL", "TEST", "CALIBRATOR"}
"""What the help calls a path."""
MESSAGE = "must be the name of a file or folder; found"

PARAMETERS = [
    pytest.param(command, parameter, id=f"{command.name} {parameter.name}")
    for command in main.commands.values()
    for parameter in command.params
    if parameter.metavar in PATHS
]


@pytest.fixture
def in_a_folder(tmp_path, monkeypatch):
    """The current folder, which an empty path would stand for, has predictions in it."""
    monkeypatch.chdir(tmp_path)
    write_predictions("rows.parquet", logits=LOGITS, labels=LABELS)
    CALIBRATOR.save("cal.json")
    return tmp_path


def arguments_of(command: click.Command, empty: click.Parameter) -> list[str]:
    """Everything that the command needs, with an empty path in one place."""
    given = []
    for parameter in command.params:
        value = "cal.json" if parameter.metavar == "CALIBRATOR" else "rows.parquet"
        if isinstance(parameter, click.Argument):
            given.append("" if parameter is empty else value)
        elif parameter is empty or parameter.required:
            given += [parameter.opts[-1], "" if parameter is empty else "out.json"]
    return given


@pytest.mark.parametrize(("command", "parameter"), PARAMETERS)
def test_every_command_refuses_an_empty_path(command, parameter, in_a_folder):
    before = sorted(os.listdir())
    result = run_calibrant(command.name, *arguments_of(command, parameter))
    assert result.exit_code == 2, result.output
    assert f"{MESSAGE} ''" in result.output
    assert len(result.output.splitlines()) == 1
    assert sorted(os.listdir()) == before


USES = {
    "read_predictions": read_predictions,
    "iter_predictions": lambda path: next(iter_predictions(path)),
    "count_rows": count_rows,
    "write_predictions": lambda path: write_predictions(path, logits=LOGITS),
    "write_truncated_predictions": lambda path: write_truncated_predictions(
        path, top_logprobs=[[-0.1]], top_classes=[[0]], n_classes=3
    ),
    "written_whole": lambda path: written_whole(path).__enter__(),
    "load": load,
    "save": CALIBRATOR.save,
    "export": lambda path: export(CALIBRATOR, path, format="numpy"),
    "write_report": lambda path: write_report(SAMPLES, SAMPLES, path),
    "write_report val": lambda path: write_report(path, SAMPLES, "page.html"),
    "scale.evaluate": evaluate,
    "scale.fit": lambda path: fit(TemperatureScaling(), path),
    "scale.apply": lambda path: apply(CALIBRATOR, path, "out"),
    "scale.apply output": lambda path: apply(CALIBRATOR, "rows.parquet", path),
    "train": lambda path: train(recipe("digits"), path),
    "run_grid": lambda path: run_grid([], path),
    "read_grid": read_grid,
}


@pytest.mark.parametrize("path", ["", "a\0.parquet"])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_every_reader_and_writer_refuses_a_path_without_a_name(use, path, in_a_folder):
    before = sorted(os.listdir())
    with pytest.raises(ValueError, match=MESSAGE) as caught:
        use(path)
    assert "\n" not in str(caught.value)
    assert sorted(os.listdir()) == before


def test_a_part_of_no_file(in_a_folder):
    with pytest.raises(ValueError, match=r"names no file before '::'"):
        read_predictions("::val")
