"""Registries: names with hyphens or underscores, and typos."""

from __future__ import annotations

import copy
import pickle

import pytest

import calibrant
from calibrant.errors import CalibrantError
from calibrant.losses import LOSSES
from calibrant.training.datasets import DATASETS
from calibrant.training.models import MODELS
from tests.processes import run_python

REGISTRIES = {
    "calibrators": (calibrant.CALIBRATORS, "top_rest", "temprature", "'temperature'"),
    "metrics": (calibrant.METRICS, "ada-ece", "brrier", "'brier'"),
    "losses": (LOSSES, "fl_3", "flsd53", "'flsd-53'"),
    "models": (MODELS, "text_cnn", "resnet-20", "'resnet20'"),
    "data sets": (DATASETS, "fashion_mnist", "cifar", "'cifar10'"),
}


@pytest.mark.parametrize("name", REGISTRIES)
def test_hyphens_underscores_and_typos(name):
    registry, other, typo, meant = REGISTRIES[name]
    assert registry[other] is registry[registry.key(other)]
    for kind in (CalibrantError, KeyError):
        with pytest.raises(kind, match=f"found '{typo}'. Did you mean {meant}") as caught:
            registry[typo]
        assert str(caught.value).startswith(registry.what)
        assert all(known in str(caught.value) for known in registry)
    assert typo not in registry
    assert registry.get(typo) is None


def test_either_form_on_the_way_in(tmp_path):
    import numpy as np

    rng = np.random.default_rng(0)
    logits = rng.normal(size=(300, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    compared = calibrant.compare(logits, labels, logits, labels, methods=["top_rest", "identity"])
    assert compared["top-rest"].params is not None
    measured = calibrant.evaluate(logits=logits, labels=labels, metrics=["ada-ece"])
    assert measured["ada_ece"].value >= 0.0


def test_an_unknown_name_can_be_copied_and_sent():
    with pytest.raises(KeyError) as caught:
        calibrant.CALIBRATORS["nothing"]
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert copy.copy(caught.value).args == caught.value.args


def test_packages_load_on_first_use():
    code = (
        "import sys, calibrant\n"
        "assert 'calibrant.report' not in sys.modules\n"
        "assert 'torch' not in sys.modules\n"
        "for name in calibrant.ON_FIRST_USE:\n"
        "    assert getattr(calibrant, name).__name__ == f'calibrant.{name}'\n"
        "assert callable(calibrant.report) and callable(calibrant.export)\n"
        "assert callable(calibrant.compare)\n"
    )
    run_python("-c", code, check=True)
