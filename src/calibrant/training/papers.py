"""The papers' recipes, and short ones for a CPU.

Paper 1 is Mukhoti et al. (2020), paper 2 Komisarenko and Kull (2024), paper 3 Charoenphakdee et al.
(2021). A comment marks every number that a paper leaves open.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from calibrant import _inputs
from calibrant.training import checks
from calibrant.training.recipes import Recipe

DOCUMENTS = ("20newsgroups", "sst-binary", "sst-fine")
MMCE_LOSSES = ("mmce", "mmce-weighted", "mmce-published")


@dataclass(frozen=True)
class Entry:
    """A paper's settings for some data sets and networks."""

    paper: str
    place: str
    data: tuple[str, ...]
    models: tuple[str, ...]
    settings: Mapping[str, Any]


PAPERS = ("mukhoti2020", "komisarenko2024", "charoenphakdee2021")
_SGD = {
    "optimizer": "sgd",
    "momentum": 0.9,
    "learning_rate": 0.1,
    "weight_decay": 5e-4,  # not in App. D of paper 1; from paper 2, mainly consistent with it
    "batch_size": 128,
}

RECIPES: tuple[Entry, ...] = (
    Entry(
        paper="mukhoti2020",
        place="App. D, first paragraph",
        data=("cifar10", "cifar100"),
        models=("resnet50", "resnet110-bottleneck", "wide-resnet-26-10", "densenet121"),
        settings={
            **_SGD,
            "steps": (150, 250),  # 0.1 for 150 epochs, 0.01 for the next 100, 0.001 for 100
            "epochs": 350,
            # Weights of the last epoch: not in App. D; paper 2 states it for its own runs.
            "data_options": {"augment": "crop-flip"},
        },
    ),
    Entry(
        paper="mukhoti2020",
        place="App. D, second paragraph",
        data=("20newsgroups",),
        models=("text-cnn",),
        settings={
            "optimizer": "adam",
            "learning_rate": 0.001,
            "betas": (0.9, 0.999),
            "epochs": 50,
            "choice": "best",
            "batch_size": 128,  # not in App. D; as for the images
        },
    ),
    Entry(
        paper="mukhoti2020",
        place="App. D, third paragraph",
        data=("sst-binary", "sst-fine"),  # the paper has only the binary form
        models=("tree-lstm",),
        settings={
            "optimizer": "adagrad",
            "learning_rate": 0.05,
            "weight_decay": 1e-4,
            "epochs": 25,
            "choice": "best",
            # Not in App. D, which only says that word vectors were tuned. Common for this network:
            # batches of 25, word vectors at a rate of 0.1.
            "batch_size": 25,
            "words_learning_rate": 0.1,
        },
    ),
    Entry(
        paper="komisarenko2024",
        place="Sec. 5.1",
        data=("cifar10", "cifar100"),
        models=("resnet50",),
        settings={
            **_SGD,
            "steps": (150, 250),
            "epochs": 350,
            "data_options": {"augment": "crop-flip"},  # not in Sec. 5.1; as paper 1
        },
    ),
    Entry(
        paper="komisarenko2024",
        place="Sec. 5.1",
        data=("tinyimagenet",),
        models=("resnet50-tiny",),
        settings={
            **_SGD,
            "steps": (40, 60),  # 0.1 for 40 epochs, 0.01 for 20, 0.001 for the last 40
            "epochs": 100,
            "batch_size": 64,
            "data_options": {"augment": "crop-flip"},  # not in Sec. 5.1
        },
    ),
    Entry(
        paper="charoenphakdee2021",
        place="Sec. 6, Hyperparameters",
        data=("cifar10",),
        models=("resnet8", "resnet20", "resnet44", "resnet110"),
        settings={
            **_SGD,
            "steps": (80, 150),
            "epochs": 200,
            "data_options": {"augment": "crop-flip"},  # not in Sec. 6
        },
    ),
    Entry(
        paper="charoenphakdee2021",
        place="Sec. 6, Hyperparameters",
        data=("svhn",),
        models=("resnet8", "resnet20", "resnet44", "resnet110"),
        settings={
            **_SGD,
            "steps": (25, 40),
            "epochs": 50,
            "data_options": {"augment": "crop"},  # not in Sec. 6; digits are not flipped
        },
    ),
)

_CIFAR, _SVHN = RECIPES[5].settings, RECIPES[6].settings
_MLP = {"model": "mlp", "optimizer": "adam", "learning_rate": 0.001, "epochs": 60}

OTHERS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # From no paper: digits and tables train in seconds, the rest like their relatives above.
        "digits": {**_MLP, "batch_size": 64},
        "tabular": {**_MLP, "batch_size": 128},
        "mnist": {**_SVHN, "model": "resnet20", "data_options": {}},
        "fashion-mnist": {**_SVHN, "model": "resnet20", "data_options": {}},
        "cifar10-jpeg": {**_CIFAR, "model": "resnet20"},
        "svhn-subset": {**_SVHN, "model": "resnet20"},
    }
)

_IMAGES = (
    *("mnist", "fashion-mnist", "svhn", "svhn-subset"),
    *("cifar10", "cifar10-jpeg", "cifar100", "tinyimagenet"),
)
_SHORT = MappingProxyType(
    {
        "model": "resnet8",
        "epochs": 12,
        "limit": 5_000,
        "observed": 1_000,
        "data_options": {"augment": "none"},
    }
)

CPU: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # Shorter runs of smaller networks on fewer samples: minutes on two cores, and not the
        # papers' figures. Steps keep their relative positions in the run. There is no
        # augmentation: with it, so few epochs would fit the training set even less.
        "digits": {"epochs": 40},
        "tabular": {"epochs": 40},
        **dict.fromkeys(_IMAGES, _SHORT),
        "20newsgroups": {"epochs": 10, "observed": 1_000, "data_options": {"length": 200}},
        "sst-binary": {"epochs": 10, "observed": 1_000},
        "sst-fine": {"epochs": 10, "observed": 1_000},
    }
)
PRESETS = ("paper", "cpu")


def recipe(
    data: str,
    *,
    model: str | None = None,
    loss: str = "ce",
    preset: str = "paper",
    paper: str | None = None,
    **changes: Any,
) -> Recipe:
    """The recipe for a data set, a network and a loss.

    Args:
        data: Name of the data set.
        model: Name of the network; None is the first that the paper trains on this data set.
        loss: Name of the loss. MMCE has the strength of paper 1: 2 for images, 8 for documents.
        preset: ``"paper"``, or ``"cpu"`` for a short run of a small network on a subset of the
            data.
        paper: One of ``PAPERS``. None is the first that trains this network on the data set, else
            the first that has the data set.
        changes: Any field of :class:`Recipe`. ``epochs`` rescales the steps of the learning rate;
            options are added to those of the recipe; ``limit=None`` takes all samples if the
            preset takes fewer.

    Examples:
        >>> from calibrant.training import recipe
        >>> whole = recipe("cifar10", model="resnet50", loss="flsd-53")
        >>> whole.epochs, whole.steps, whole.source
        (350, (150, 250), 'mukhoti2020, App. D, first paragraph')
        >>> recipe("cifar10", model="resnet20", epochs=20).steps
        (8, 15)
        >>> recipe("digits", preset="cpu").source
        'cpu preset; no paper has digits'
    """
    _inputs.choice(preset, "preset", PRESETS)
    known = sorted({*OTHERS, *(name for entry in RECIPES for name in entry.data)})
    _inputs.choice(data, "data", known)
    short = dict(CPU.get(data, {})) if preset == "cpu" else {}
    model = model or short.pop("model", None)
    short.pop("model", None)
    settings, source = _settings(data, model, paper)
    made = Recipe(
        data=data,
        model=model or settings["model"],
        loss=loss,
        loss_options=_options_of_loss(data, loss),
        source=f"cpu preset; {source}" if preset == "cpu" else source,
        **{name: value for name, value in settings.items() if name != "model"},
    )
    return changed(changed(made, short), changes)


def changed(made: Recipe, changes: Mapping[str, Any]) -> Recipe:
    """A recipe with other values; options are added to the existing ones."""
    rest = dict(changes)
    if "epochs" in rest:
        made = made.with_epochs(rest.pop("epochs"))
    for name in ("data_options", "model_options", "loss_options"):
        if name in rest:
            checks.plain_options(rest[name], name)
            rest[name] = {**getattr(made, name), **rest[name]}
    return Recipe.from_dict({**made.to_dict(), **rest}, own_model=made.model)


def _settings(data: str, model: str | None, paper: str | None) -> tuple[Mapping[str, Any], str]:
    """The settings for a data set, and their source."""
    if paper is not None:
        _inputs.choice(paper, "paper", PAPERS)
    entries = [e for e in RECIPES if data in e.data and paper in (None, e.paper)]
    if not entries:
        if paper is not None:
            _inputs.choice(data, f"data of {paper}", sorted(_data_of(paper)))
        return OTHERS[data], f"no paper has {data}"
    fitting = [entry for entry in entries if model in entry.models]
    entry = (fitting or entries)[0]
    source = f"{entry.paper}, {entry.place}"
    if model is not None and not fitting:
        source += f", where the networks are {', '.join(entry.models)}"
    return {"model": entry.models[0], **entry.settings}, source


def _data_of(paper: str) -> set[str]:
    return {name for entry in RECIPES if entry.paper == paper for name in entry.data}


def _options_of_loss(data: str, loss: str) -> dict[str, Any]:
    """Paper 1, App. D: the strength of MMCE is 2 for images and 8 for documents."""
    if loss not in MMCE_LOSSES:
        return {}
    return {"strength": 8.0 if data in DOCUMENTS else 2.0}
