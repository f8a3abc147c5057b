"""The metrics of torchmetrics give what the functions give."""

from __future__ import annotations

import math
import textwrap

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MetricCollection

from calibrant import CalibrantError, ada_ece, brier, classwise_ece, ece, nll
from calibrant._numerics import precision
from calibrant.integrations.torchmetrics import (
    AdaptiveCalibrationError,
    BrierScore,
    CalibrationError,
    ClasswiseCalibrationError,
    NegativeLogLikelihood,
)
from tests.processes import run_ranks

RNG = np.random.default_rng(0)
LOGITS = torch.from_numpy(3.0 * RNG.standard_normal((1000, 7)))
LABELS = torch.from_numpy(RNG.integers(0, 7, 1000))
CASES = {
    "ece": (CalibrationError(), ece),
    "l2": (CalibrationError(norm="l2", n_bins=10), lambda **a: ece(norm="l2", n_bins=10, **a)),
    "mce": (CalibrationError(norm="max"), lambda **a: ece(norm="max", **a)),
    "classwise": (ClasswiseCalibrationError(num_classes=7), classwise_ece),
    "adaptive": (AdaptiveCalibrationError(), ada_ece),
    "adaptive_max": (
        AdaptiveCalibrationError(n_bins=20, norm="max"),
        lambda **a: ada_ece(n_bins=20, norm="max", **a),
    ),
    "nll": (NegativeLogLikelihood(), nll),
    "brier": (BrierScore(), brier),
}
EXPECTED = {name: function(logits=LOGITS, labels=LABELS) for name, (_, function) in CASES.items()}

every_metric = pytest.mark.parametrize("name", CASES)


def metric_of(name):
    metric = CASES[name][0].clone()
    metric.reset()
    return metric


def in_batches(metric, preds=LOGITS, target=LABELS):
    for start in range(0, len(preds), 130):
        metric.update(preds[start : start + 130], target[start : start + 130])
    return metric.compute()


@every_metric
def test_batches_give_what_the_function_gives(name):
    found = in_batches(metric_of(name))
    assert isinstance(found, torch.Tensor)
    assert found.shape == ()
    assert found.item() == pytest.approx(EXPECTED[name], rel=1e-12)


@every_metric
def test_probabilities_too(name):
    found = in_batches(metric_of(name), LOGITS.softmax(dim=1))
    assert found.item() == pytest.approx(EXPECTED[name], rel=1e-9)
    single = in_batches(metric_of(name), LOGITS.float().softmax(dim=1))
    assert single.item() == pytest.approx(EXPECTED[name], rel=1e-3)


@every_metric
def test_forward_gives_the_batch_and_counts_it(name):
    metric, function = metric_of(name), CASES[name][1]
    for rows in (slice(0, 400), slice(400, 1000)):
        found = metric(LOGITS[rows], LABELS[rows])
        expected = function(logits=LOGITS[rows], labels=LABELS[rows])
        assert found.item() == pytest.approx(expected, rel=1e-12)
    assert metric.compute().item() == pytest.approx(EXPECTED[name], rel=1e-12)


@every_metric
def test_classes_on_axis_1_of_images(name):
    preds = LOGITS.reshape(10, 10, 10, 7).movedim(-1, 1)
    metric = metric_of(name)
    metric.update(preds, LABELS.reshape(10, 10, 10))
    assert metric.compute().item() == pytest.approx(EXPECTED[name], rel=1e-12)


@every_metric
def test_no_samples_give_nan(name):
    metric = metric_of(name)
    metric.update(LOGITS, LABELS)
    metric.reset()
    with pytest.warns(UserWarning, match="was called before the ``update``"):
        assert math.isnan(metric.compute())


@every_metric
def test_casts_do_not_round_the_state(name):
    metric = metric_of(name)
    metric.update(LOGITS, LABELS)
    for cast in (metric.half, metric.bfloat16, lambda: metric.to(torch.float16)):
        cast()
        metric._computed = None
        assert metric.compute().item() == pytest.approx(EXPECTED[name], rel=1e-12)


@every_metric
def test_a_device_without_double_precision(name, monkeypatch):
    monkeypatch.setattr(precision, "WITHOUT_FLOAT64", ("cpu",))
    found = in_batches(metric_of(name).to("cpu"))
    assert found.dtype == torch.float32
    assert found.item() == pytest.approx(EXPECTED[name], rel=1e-5)


def test_ignored_targets():
    half = LABELS.clone()
    half[500:] = -100
    metric = CalibrationError(ignore_index=-100)
    metric.update(LOGITS, half)
    metric.update(LOGITS, torch.full_like(LABELS, -100))
    expected = ece(logits=LOGITS[:500], labels=LABELS[:500])
    assert metric.compute().item() == pytest.approx(expected, rel=1e-12)


def test_a_collection():
    collection = MetricCollection({name: metric_of(name) for name in CASES})
    for start in range(0, 1000, 250):
        collection.update(LOGITS[start : start + 250], LABELS[start : start + 250])
    found = collection.compute()
    assert {name: value.item() for name, value in found.items()} == pytest.approx(EXPECTED)
    assert ["brier", "nll"] in collection.compute_groups.values()
    assert ["ece", "mce"] in collection.compute_groups.values()


def test_a_collection_whose_first_batch_is_perfect():
    """torchmetrics shares the state of metrics whose states are equal after the first batch."""
    collection = MetricCollection({"nll": NegativeLogLikelihood(), "brier": BrierScore()})
    sure = 1e3 * torch.nn.functional.one_hot(LABELS, 7).double()
    collection.update(sure, LABELS)
    collection.update(LOGITS, LABELS)
    found = {name: value.item() for name, value in collection.compute().items()}
    assert found == pytest.approx({"nll": EXPECTED["nll"] / 2, "brier": EXPECTED["brier"] / 2})


@pytest.mark.filterwarnings("ignore:.*LeafSpec")
@pytest.mark.filterwarnings("ignore:.*does not have many workers")
def test_in_a_lightning_module_with_self_log(tmp_path):
    class Module(LightningModule):
        def __init__(self):
            super().__init__()
            self.error, self.adaptive = CalibrationError(), AdaptiveCalibrationError()

        def validation_step(self, batch, _):
            for name in ("error", "adaptive"):
                metric = getattr(self, name)
                metric.update(*batch)
                self.log(name, metric)

    trainer = Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    loader = DataLoader(TensorDataset(LOGITS, LABELS), batch_size=128)
    (found,) = trainer.validate(Module(), loader, verbose=False)
    expected = {"error": EXPECTED["ece"], "adaptive": EXPECTED["adaptive"]}
    assert found == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize(
    ("preds", "target", "message"),
    [
        (LOGITS[:, 0], LABELS, r"For binary probabilities p pass torch.stack\(\[1 - p, p\], dim=1"),
        (LOGITS, LABELS[:, None], r"found shapes \(1000, 7\) and \(1000, 1\)"),
        (LOGITS.sigmoid(), LABELS, "probs rows must sum to 1"),
        (LOGITS * float("nan"), LABELS, "logits must not contain NaN"),
        (LOGITS, LABELS + 1, "labels must be between 0 and 6 for 7 classes; found 7"),
    ],
)
def test_what_cannot_be_measured_is_refused(preds, target, message):
    with pytest.raises(CalibrantError, match=message):
        CalibrationError().update(preds, target)


def test_options_are_checked():
    with pytest.raises(CalibrantError, match="num_classes=5 classes on axis 1; found 7"):
        ClasswiseCalibrationError(num_classes=5).update(LOGITS, LABELS)
    with pytest.raises(CalibrantError, match="norm must be one of l1, l2, max"):
        CalibrationError(norm="l3")
    with pytest.raises(CalibrantError, match="n_bins must be from 1"):
        AdaptiveCalibrationError(n_bins=0)


@pytest.mark.slow
@pytest.mark.parametrize("first", [300, 0], ids=["uneven", "one process without samples"])
def test_two_processes_add_up(first, tmp_path):
    np.savez(tmp_path / "data.npz", logits=LOGITS.numpy(), labels=LABELS.numpy())
    program = textwrap.dedent(
        """
        import sys, warnings, numpy as np, torch
        from tests.integrations.test_torchmetrics import CASES
        warnings.simplefilter("ignore")
        rank, folder, first = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
        )
        with np.load(f"{folder}/data.npz") as data:
            logits, labels = torch.from_numpy(data["logits"]), torch.from_numpy(data["labels"])
        rows = slice(0, first) if rank == 0 else slice(first, None)
        for name, (metric, _) in CASES.items():
            for part in torch.arange(1000)[rows].split(200):
                metric.update(logits[part], labels[part])
            print(name, repr(metric.compute().item()))
        torch.distributed.destroy_process_group()
        """
    )
    for printed in run_ranks("-c", program, arguments=[tmp_path, first]):
        found = {line.split()[0]: float(line.split()[1]) for line in printed.splitlines()}
        assert found == pytest.approx(EXPECTED, rel=1e-12)
