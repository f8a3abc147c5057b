"""The stateful metric: batches, devices, checkpoints and two processes."""

from __future__ import annotations

import math
import textwrap

import numpy as np
import pytest
import torch

from calibrant import ece, mce
from calibrant.metrics.torch import CalibrationError
from tests.processes import run_ranks

RNG = np.random.default_rng(0)
LOGITS = torch.from_numpy(3.0 * RNG.standard_normal((1000, 7)))
LABELS = torch.from_numpy(RNG.integers(0, 7, 1000))


@pytest.mark.parametrize("norm", ["l1", "l2", "max"])
def test_batches_give_what_the_whole_gives(norm):
    metric = CalibrationError(norm=norm)
    for start in range(0, 1000, 130):
        metric.update(logits=LOGITS[start : start + 130], labels=LABELS[start : start + 130])
    expected = ece(logits=LOGITS, labels=LABELS, norm=norm)
    assert metric.compute() == pytest.approx(expected, rel=1e-12)
    if norm == "max":
        assert expected == pytest.approx(mce(logits=LOGITS, labels=LABELS))
    metric.reset()
    assert math.isnan(metric.compute())


def test_state_is_saved_with_the_module():
    metric, other = CalibrationError(), CalibrationError()
    metric.update(torch.softmax(LOGITS, dim=-1), LABELS)
    other.load_state_dict(metric.state_dict())
    assert other.compute() == metric.compute()


def test_an_ignored_batch_changes_nothing():
    metric = CalibrationError(ignore_label=-100)
    metric.update(logits=LOGITS, labels=LABELS)
    before = metric.compute()
    metric.update(logits=LOGITS, labels=torch.full((1000,), -100))
    assert metric.compute() == before
    half = LABELS.clone()
    half[500:] = -100
    metric.reset()
    metric.update(logits=LOGITS, labels=half)
    assert metric.compute() == pytest.approx(ece(logits=LOGITS[:500], labels=LABELS[:500]))


def test_gradients_and_autocast_are_left_alone():
    logits = LOGITS.to(torch.bfloat16).requires_grad_()
    metric = CalibrationError()
    metric.update(logits=logits, labels=LABELS)
    assert not metric.sums.requires_grad


def test_half_precision_modules_still_count():
    metric = CalibrationError()
    metric.update(logits=LOGITS, labels=LABELS)
    before = metric.compute()
    for cast in (metric.half, metric.bfloat16, lambda: metric.to(torch.float16)):
        cast()
        assert metric.sums.dtype == torch.float64
        assert metric.count.dtype == torch.int64
        assert metric.compute() == before


@pytest.mark.slow
def test_two_processes_add_up(tmp_path):
    """Each of two gloo processes sees half of the rows; both get the error of all of them."""
    np.savez(tmp_path / "data.npz", logits=LOGITS.numpy(), labels=LABELS.numpy())
    program = textwrap.dedent(
        """
        import sys, numpy as np, torch
        from calibrant.metrics.torch import CalibrationError
        rank, folder = int(sys.argv[1]), sys.argv[2]
        torch.distributed.init_process_group(
            "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2
        )
        with np.load(f"{folder}/data.npz") as data:
            logits, labels = torch.from_numpy(data["logits"]), torch.from_numpy(data["labels"])
        metric = CalibrationError()
        rows = slice(0, 300) if rank == 0 else slice(300, None)
        metric.update(logits=logits[rows], labels=labels[rows])
        print(repr(metric.compute()), int(metric.count.sum()))
        torch.distributed.destroy_process_group()
        """
    )
    answers = [said.split() for said in run_ranks("-c", program, arguments=[tmp_path])]
    expected = ece(logits=LOGITS, labels=LABELS)
    for (value, own), rows in zip(answers, (300, 700), strict=True):
        assert float(value) == pytest.approx(expected, rel=1e-12)
        assert int(own) == rows  # the state itself stays that of the process
