"""Training by the papers' recipes; an interrupted run resumes to the same bits.

    short = recipe("fashion-mnist", loss="flsd-53", preset="cpu")
    run = train(short, "out/fashion")
    print(run.comparison)

This package needs Lightning: ``pip install 'calibrant[lightning]'``.
"""

from calibrant import _inputs

_inputs.installed("torch", "lightning", extra="lightning", purpose="calibrant.training")

from calibrant.training.module import TrainingModule
from calibrant.training.observations import observe, predict
from calibrant.training.papers import CPU, OTHERS, PAPERS, PRESETS, RECIPES, recipe
from calibrant.training.recipes import Recipe
from calibrant.training.run import Run, train

__all__ = [
    "CPU",
    "OTHERS",
    "PAPERS",
    "PRESETS",
    "RECIPES",
    "Recipe",
    "Run",
    "TrainingModule",
    "observe",
    "predict",
    "recipe",
    "train",
]
