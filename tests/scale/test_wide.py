"""Rows of very many classes: half precision, bfloat16, chunks of classes."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrant
from calibrant import TemperatureScaling, scale
from calibrant.files import read_predictions, write_predictions

RNG = np.random.default_rng(0)
ROWS, CLASSES = 120, 2000
LOGITS = (3.0 * RNG.normal(size=(ROWS, CLASSES))).astype(np.float16)
LABELS = (LOGITS / 2.0 + RNG.gumbel(size=LOGITS.shape)).argmax(axis=1)


def lists(logits: np.ndarray) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(logits.reshape(-1)), logits.shape[1])


def ragged(logits: np.ndarray) -> pa.Array:
    return pa.array(list(logits))


def bits_of(logits: np.ndarray) -> np.ndarray:
    """bfloat16 by cutting float32 short."""
    return (logits.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def from_bits(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)


def same_as_in_memory(path: Path, logits: np.ndarray) -> None:
    np.testing.assert_array_equal(read_predictions(path).logits, logits)
    whole = calibrant.evaluate(logits=logits, labels=LABELS, n_resamples=20)
    apart = scale.evaluate(path)
    for name in ("nll", "brier", "ece", "classwise_ece"):
        assert apart[name].value == pytest.approx(whole[name].value, rel=0, abs=1e-9)
    fitted = TemperatureScaling().fit(logits, LABELS)
    found = scale.fit(TemperatureScaling(), path)
    assert found.temperature_ == pytest.approx(fitted.temperature_, rel=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("as_lists", [lists, ragged])
def test_half_precision(tmp_path, as_lists):
    table = pa.table({"label": LABELS, "logits": as_lists(LOGITS)})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=25)
    same_as_in_memory(tmp_path / "a.parquet", LOGITS)


@pytest.mark.parametrize("signed", [False, True])
def test_bfloat16(tmp_path, signed):
    bits = bits_of(LOGITS)
    stored = bits.view(np.int16) if signed else bits
    table = pa.table({"label": LABELS, "logits_bfloat16": lists(stored)})
    pq.write_table(table, tmp_path / "a.parquet")
    same_as_in_memory(tmp_path / "a.parquet", from_bits(bits))


def test_bfloat16_is_not_taken_for_numbers(tmp_path):
    table = pa.table({"label": LABELS, "logits_bfloat16": lists(LOGITS)})
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(
        ValueError, match=r"bits of bfloat16.*found float16.*name the column logits"
    ):
        scale.evaluate(tmp_path)


@pytest.mark.parametrize("bfloat16", [False, True])
def test_chunks_of_classes(tmp_path, bfloat16):
    stem, stored = ("logits_bfloat16", bits_of(LOGITS)) if bfloat16 else ("logits", LOGITS)
    cuts = [0, 1000, 1001, CLASSES]
    chunks = {
        f"{stem}_chunk_{i}": lists(np.ascontiguousarray(stored[:, a:b]))
        for i, (a, b) in enumerate(pairwise(cuts))
    }
    pq.write_table(pa.table({"label": LABELS, **chunks}), tmp_path / "a.parquet", row_group_size=9)
    same_as_in_memory(tmp_path / "a.parquet", from_bits(stored) if bfloat16 else LOGITS)


def test_a_chunk_that_is_cut_short(tmp_path):
    second = [row[1000:] for row in LOGITS]
    second[7] = second[7][:-1]
    chunks = {"logits_chunk_0": lists(LOGITS[:, :1000].copy()), "logits_chunk_1": second}
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"label": LABELS, **chunks}), file)
    with pytest.raises(ValueError, match=r"row group 0: the lists of logits_chunk_1.*row 7"):
        scale.evaluate(file)
    assert scale.evaluate(file, skip_bad=True).n == ROWS - 1
    pq.write_table(
        pq.read_table(file).rename_columns(["label", "logits_chunk_0", "logits_chunk_2"]), file
    )
    with pytest.raises(ValueError, match="logits_chunk_2 but no logits_chunk_1"):
        scale.evaluate(file)


@pytest.mark.parametrize("dtype", ["float16", "float32", "bfloat16"])
@pytest.mark.parametrize("n_classes", [4, 1001])
def test_what_is_written_is_read(tmp_path, dtype, n_classes):
    torch = pytest.importorskip("torch")
    logits = torch.tensor(LOGITS[:, :n_classes].copy()).to(getattr(torch, dtype))
    labels = LABELS % n_classes
    write_predictions(tmp_path / "a.parquet", logits=logits, labels=labels)
    read = read_predictions(tmp_path / "a.parquet")
    np.testing.assert_array_equal(read.logits, logits.float().numpy())
    assert read.logits.dtype == (np.float16 if dtype == "float16" else np.float32)
    assert scale.evaluate(tmp_path).n_classes == n_classes
    assert len(pq.ParquetFile(tmp_path / "a.parquet").schema_arrow.names) in (2, n_classes + 1)


def test_calibrated_probabilities_of_many_classes_are_lists(tmp_path):
    write_predictions(tmp_path / "a.parquet", logits=LOGITS, labels=LABELS)
    calibrator = TemperatureScaling().fit(LOGITS, LABELS)
    scale.apply(calibrator, tmp_path / "a.parquet", tmp_path / "out")
    written = read_predictions(tmp_path / "out" / "a.parquet")
    np.testing.assert_array_equal(written.probs, calibrator.predict_proba(LOGITS))


def test_tensors_of_bfloat16_in_memory():
    torch = pytest.importorskip("torch")
    logits = torch.tensor(LOGITS[:, :5].copy()).to(torch.bfloat16)
    wide = logits.float()
    labels = torch.tensor((wide.numpy() / 2.0 + RNG.gumbel(size=wide.shape)).argmax(axis=1))
    fitted = TemperatureScaling().fit(logits, labels)
    assert fitted.temperature_ == TemperatureScaling().fit(wide, labels).temperature_
    narrow, exact = fitted.predict_proba(logits), fitted.predict_proba(wide)
    np.testing.assert_allclose(narrow.float(), exact, rtol=1e-2)
    measured = calibrant.evaluate(logits=logits, labels=labels, n_resamples=20)
    assert measured == calibrant.evaluate(logits=wide, labels=labels, n_resamples=20)


def test_columns_too_many_to_read_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr("calibrant._thresholds.MOST_PAGE_BYTES", 1 << 16)
    columns = {f"logit_{k}": LOGITS[:, k].copy() for k in range(1200)}
    pq.write_table(pa.table({"label": LABELS % 1200, **columns}), tmp_path / "a.parquet")
    with pytest.raises(ValueError, match=r"1200 score columns\. Write the scores as one column of"):
        scale.evaluate(tmp_path)
