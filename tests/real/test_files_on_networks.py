"""Every real prediction file can be read, whole and in batches."""

from __future__ import annotations

import numpy as np
import pytest

from calibrant.files import count_rows, iter_predictions, read_predictions, write_predictions


@pytest.mark.parametrize("kind", ["logits", "probs"])
def test_files_with_two_parts(shared_data, kind):
    files = sorted((shared_data / kind).glob("*.npz"))
    assert files
    for file in files:
        with pytest.raises(ValueError, match="holds the parts val, test: add ::val or ::test"):
            read_predictions(file)
        with np.load(file) as stored:
            for part in ("val", "test"):
                path = f"{file}::{part}"
                whole = read_predictions(path)
                scores = getattr(whole, kind)
                np.testing.assert_array_equal(scores, stored[f"{part}_{kind}"])
                assert scores.dtype == stored[f"{part}_{kind}"].dtype
                np.testing.assert_array_equal(whole.labels, stored[f"{part}_labels"])
                assert count_rows(path) == len(whole)
                batches = list(iter_predictions(path, batch_rows=999))
                assert all(len(batch) == 999 for batch in batches[:-1])
                np.testing.assert_array_equal(
                    np.concatenate([getattr(batch, kind) for batch in batches]), scores
                )
                np.testing.assert_array_equal(
                    np.concatenate([batch.labels for batch in batches]), whole.labels
                )


def test_files_with_the_top_class_only(shared_data):
    files = sorted((shared_data / "top1").glob("*.npz"))
    assert files
    for file in files:
        read = read_predictions(file)
        assert read.logits is None
        assert read.probs is None
        with np.load(file) as stored:
            np.testing.assert_array_equal(read.confidence, stored["confidence"])
            np.testing.assert_array_equal(
                read.correct, stored["true_label"] == stored["pred_label"]
            )
            assert read.labels is None  # correct says all that is needed of them
        assert count_rows(file) == len(read)


@pytest.mark.parametrize("ending", [".npz", ".parquet", ".csv"])
def test_real_probabilities_survive(shared_data, tmp_path, ending):
    """Exact zeros and all the digits of float32."""
    given = read_predictions(f"{shared_data}/probs/mnist_random_forest.npz::test")
    path = tmp_path / f"out{ending}"
    write_predictions(path, probs=given.probs, labels=given.labels)
    read = read_predictions(path)
    np.testing.assert_array_equal(read.probs, given.probs)
    np.testing.assert_array_equal(read.labels, given.labels)
