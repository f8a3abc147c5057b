"""The map on images: measured on runs that are made up, whether the grids are complete or not."""

from __future__ import annotations

import json

import numpy as np
import pytest

from calibrant.training.folders import RunFolder
from calibrant.training.grid import folder_of, jobs_of, read_grid
from experiments.catalogue import NothingToReadError, catalogue
from experiments.map_on_images import run as images

PARAMETERS = catalogue()["map-on-images"].parameters
JOBS = [j for name in PARAMETERS["grids"] for j in jobs_of(read_grid(images.HERE / name))]

OF_ONE_PANEL = [
    job
    for job in JOBS
    if (job.recipe.data, job.recipe.limit) == ("svhn-subset", 512)
    and "label_smoothing" not in job.recipe.loss_options
]


def made_up(job, root, training_error=0.01):
    """A run with made-up logits of 200 samples."""
    place = RunFolder(folder_of(job, root))
    place.path.mkdir()
    rng = np.random.default_rng(job.recipe.seed)
    arrays = {}
    for part in ("val", "test"):
        logits = rng.normal(size=(200, 10)).astype(np.float32)
        arrays[f"{part}_logits"] = logits
        arrays[f"{part}_labels"] = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    np.savez(place.predictions, **arrays)
    place.metrics.write_text(json.dumps({"epoch": 0, "train": {"error": training_error}}) + "\n")
    place.result.write_text("{}")


def measured(root):
    return images.run({**PARAMETERS, "folder": str(root)})


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(images, "unpack", lambda jobs, folder: None)


def test_every_size_has_the_same_steps_and_schedule():
    recipes = [job.recipe for job in JOBS]
    assert {images.steps_of(recipe) for recipe in recipes} == {512}
    assert {tuple(s / each.epochs for s in each.steps) for each in recipes} == {(0.5, 0.75)}
    assert {job.recipe.batch_size for job in JOBS} == {64}
    assert len(JOBS) == 132


def test_without_a_whole_seed_there_is_nothing_to_read(tmp_path):
    made_up(JOBS[0], tmp_path)
    with pytest.raises(NothingToReadError, match="every gamma of a seed; found none"):
        measured(tmp_path)


def test_a_part_of_the_grids_gives_its_whole_seeds_and_names_the_rest(tmp_path):
    for job in OF_ONE_PANEL:
        if (job.recipe.loss, job.recipe.seed) != ("fl-3", 2):
            made_up(job, tmp_path)
    result = measured(tmp_path)
    assert result.values["runs"] == 132
    assert result.values["runs that finished"] == 11
    table = result.tables["errors"].rows
    assert {(row[0], row[1], row[3]) for row in table} == {
        (paradigm, "svhn-subset, resnet8, 512 images", "2") for paradigm in ("Standard", "TS_FL")
    }
    assert result.values["Standard: svhn-subset, resnet8, 512 images: training error %"] == 1.0
    (line,) = result.unfinished
    assert "11 of 132 runs are finished" in line
    assert "svhn-subset, resnet8, 2048 images, smoothed" in line


@pytest.mark.slow
def test_a_seed_with_a_network_that_has_learned_nothing_is_left_out(tmp_path):
    for job in OF_ONE_PANEL:
        idle = (job.recipe.loss, job.recipe.seed) == ("fl-1", 1)
        made_up(job, tmp_path, training_error=0.8 if idle else 0.01)
    result = measured(tmp_path)
    assert result.values["runs that have learned nothing"] == 1
    assert {row[3] for row in result.tables["errors"].rows} == {"2"}


@pytest.mark.slow
def test_complete_grids_have_every_panel_and_no_line_on_what_is_missing(tmp_path):
    for job in JOBS:
        made_up(job, tmp_path)
    result = measured(tmp_path)
    assert result.values["runs that finished"] == result.values["runs"] == 132
    assert len(result.tables["changes"].rows) == 2 * (2 * 3 + 2) + 2 * 2
    assert not result.unfinished
    assert "fig-6-ls-svhn-subset" in result.pictures
