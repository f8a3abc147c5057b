"""What is in a file comes back, whole or in batches, whatever the format."""

from __future__ import annotations

import csv
import gzip
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from calibrant.files import (
    Predictions,
    count_rows,
    iter_predictions,
    read_predictions,
    write_predictions,
)
from tests.processes import run_python

ROWS, CLASSES = 23, 4
FIELDS = ("logits", "probs", "labels", "confidence", "correct", "ids")
RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(ROWS, CLASSES))
PROBS = RNG.dirichlet(np.ones(CLASSES), size=ROWS)
LABELS = RNG.integers(CLASSES, size=ROWS)
IDS = np.array([f"row-{i:02d}" for i in range(ROWS)])
NAMES = ("ant", "bee", "cat", "dög")


def columns(scores: np.ndarray, stem: str, prefix: str = "") -> dict[str, np.ndarray]:
    return {f"{prefix}{stem}_{k}": scores[:, k].copy() for k in range(scores.shape[1])}


def save_npz(path: Path, **content: object) -> Path:
    np.savez(path, **content)
    return path


def save_parquet(path: Path, content: dict, **options: object) -> Path:
    pq.write_table(pa.table(content), path, **options)
    return path


def save_csv(path: Path, content: dict) -> Path:
    pyarrow.csv.write_csv(pa.table(content), path)
    return path


def same(a: Predictions, b: Predictions) -> None:
    assert a.class_names == b.class_names
    for field in FIELDS:
        one, other = getattr(a, field), getattr(b, field)
        assert (one is None) == (other is None), field
        if one is not None:
            np.testing.assert_array_equal(one, other)
            assert one.dtype.kind == other.dtype.kind
            assert one.dtype.kind == "U" or one.dtype == other.dtype


def joined(batches: list[Predictions]) -> Predictions:
    together = {}
    for field in FIELDS:
        parts = [getattr(batch, field) for batch in batches]
        together[field] = None if parts[0] is None else np.concatenate(parts)
    return Predictions(**together, class_names=batches[0].class_names)


@pytest.fixture(params=["npz", "compressed", "fortran", "parquet", "list", "folder", "csv", "gz"])
def any_kind(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The same logits, labels and ids in every kind of file."""
    arrays = {"logits": LOGITS, "labels": LABELS, "ids": IDS}
    table = {"id": IDS, "label": LABELS, **columns(LOGITS, "logit")}
    match request.param:
        case "npz":
            return save_npz(tmp_path / "a.npz", **arrays)
        case "compressed":
            np.savez_compressed(tmp_path / "a.npz", **arrays)
            return tmp_path / "a.npz"
        case "fortran":
            return save_npz(tmp_path / "a.npz", **arrays | {"logits": np.asfortranarray(LOGITS)})
        case "parquet":
            return save_parquet(tmp_path / "a.parquet", table, row_group_size=5)
        case "list":
            lists = {"labels": LABELS, "ids": IDS, "logits": list(LOGITS)}
            return save_parquet(tmp_path / "a.parquet", lists, row_group_size=7)
        case "folder":
            for start in range(0, ROWS, 10):
                piece = {name: column[start : start + 10] for name, column in table.items()}
                save_parquet(tmp_path / f"part-{start:02d}.parquet", piece)
            save_parquet(tmp_path / "part-05.parquet", {"label": pa.nulls(0)})  # no rows, no types
            (tmp_path / "_SUCCESS").touch()
            return tmp_path
        case "csv":
            return save_csv(tmp_path / "a.csv", table)
        case _:
            text = save_csv(tmp_path / "a.csv", table).read_bytes()
            (tmp_path / "b.csv.gz").write_bytes(gzip.compress(text))
            return tmp_path / "b.csv.gz"


def test_every_kind_gives_the_same_arrays(any_kind):
    expected = Predictions(logits=LOGITS, labels=LABELS, ids=IDS)
    same(read_predictions(any_kind), expected)
    same(read_predictions(str(any_kind)), expected)
    assert len(read_predictions(any_kind)) == ROWS
    assert read_predictions(any_kind).logits.flags.c_contiguous
    assert count_rows(any_kind) == (None if "csv" in any_kind.name else ROWS)


@pytest.mark.parametrize("batch_rows", [1, 2, 7, ROWS - 1, ROWS, ROWS + 1, 1000])
def test_batches_are_the_whole_file(any_kind, batch_rows):
    batches = list(iter_predictions(any_kind, batch_rows=batch_rows))
    sizes = [len(batch) for batch in batches]
    assert sizes[:-1] == [batch_rows] * (len(sizes) - 1)
    assert 1 <= sizes[-1] <= batch_rows
    same(joined(batches), read_predictions(any_kind))


def test_csv_in_many_blocks(tmp_path, monkeypatch):
    """Blocks and batches of rows have nothing to do with each other."""
    monkeypatch.setattr("calibrant.files.csv._BLOCK", 1500)
    ids = np.arange(ROWS) * 3
    ids[-1] = -7
    path = save_csv(tmp_path / "a.csv", {"label": LABELS, "id": ids, **columns(LOGITS, "logit")})
    for batch_rows in (1, 5, 100):
        batches = list(iter_predictions(path, batch_rows=batch_rows))
        same(joined(batches), Predictions(logits=LOGITS, labels=LABELS, ids=ids))
    # The last id decides for all of them, also for the first batch.
    path.write_text(path.read_text().rstrip().rsplit("\n", 1)[0] + "\n0,007,1,2,3,4\n")
    first = next(iter_predictions(path, batch_rows=2))
    assert first.ids.tolist() == ["0", "3"]


@pytest.mark.parametrize("batch_rows", [0, -1])
def test_a_batch_has_at_least_one_row(tmp_path, batch_rows):
    path = save_npz(tmp_path / "a.npz", logits=LOGITS)
    with pytest.raises(ValueError, match="batch_rows"):
        iter_predictions(path, batch_rows=batch_rows)
    with pytest.raises(ValueError, match="batch_rows"):
        iter_predictions(path, batch_rows=2.5)


# What is written comes back


@pytest.mark.parametrize("ending", [".npz", ".parquet", ".csv"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("ids", [None, IDS, np.arange(ROWS) - 5], ids=["none", "text", "whole"])
def test_round_trip(tmp_path, ending, dtype, ids):
    path = tmp_path / f"out{ending}"
    probs = PROBS.astype(dtype)
    names = None if ending == ".csv" else NAMES
    write_predictions(path, probs=probs, labels=LABELS, ids=ids, class_names=names)
    read = read_predictions(path)
    if ending == ".csv":  # no types, but the same numbers
        probs = probs.astype(np.float64)
    same(read, Predictions(probs=probs, labels=LABELS, ids=ids, class_names=names))
    same(joined(list(iter_predictions(path, batch_rows=4))), read)


@pytest.mark.parametrize("ending", [".npz", ".parquet", ".csv"])
@given(first=arrays(np.float64, st.integers(1, 20), elements=st.floats(0, 1, allow_subnormal=True)))
def test_any_float_survives(tmp_path_factory, ending, first):
    probs = np.stack([first, 1 - first], axis=-1)
    path = tmp_path_factory.mktemp("floats") / f"out{ending}"
    write_predictions(path, probs=probs)
    read = read_predictions(path)
    np.testing.assert_array_equal(read.probs, probs)
    assert read.labels is None


@given(ids=st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0")), min_size=1))
@pytest.mark.parametrize("ending", [".npz", ".parquet", ".csv"])
def test_any_id_survives(tmp_path_factory, ending, ids):
    """Commas, quotes, line ends, spaces, nothing at all."""
    path = tmp_path_factory.mktemp("ids") / f"out{ending}"
    write_predictions(path, probs=np.full((len(ids), 2), 0.5), ids=ids)
    read = read_predictions(path).ids
    assert [str(name) for name in read] == ids


def test_tensors_lists_and_other_orders_are_written(tmp_path):
    path = tmp_path / "out.npz"
    write_predictions(path, probs=torch.tensor([[0.5, 0.5]], requires_grad=True), labels=[1])
    np.testing.assert_array_equal(read_predictions(path).probs, [[0.5, 0.5]])
    write_predictions(path, probs=np.asfortranarray(PROBS))
    with np.load(path) as file:
        assert file["probs"].flags.c_contiguous


def test_what_cannot_be_written_is_refused(tmp_path):
    path = tmp_path / "out.npz"
    for wrong, message in [
        ({"probs": PROBS * 2}, "sum to 1"),
        ({"probs": PROBS[None]}, "shape"),
        ({"probs": PROBS[:0]}, "at least one row"),
        ({"probs": PROBS, "labels": LABELS[:3]}, "labels"),
        ({"probs": PROBS, "ids": IDS[:3]}, "ids must have one entry"),
        ({"probs": PROBS, "ids": PROBS[:, 0]}, "ids must be whole numbers or strings"),
        ({"probs": PROBS, "class_names": "abcd"}, "sequence of strings"),
        ({"probs": PROBS, "class_names": ["a", "b"]}, "one name per class, 4 in all; found 2"),
    ]:
        with pytest.raises((ValueError, TypeError), match=message):
            write_predictions(path, **wrong)
    with pytest.raises(ValueError, match=r"must end in \.npz, \.parquet, \.csv; found '\.txt'"):
        write_predictions(tmp_path / "out.txt", probs=PROBS)
    assert list(tmp_path.iterdir()) == []


# Parts


def test_parts_of_a_file(tmp_path):
    path = save_npz(
        tmp_path / "a.npz",
        val_logits=LOGITS,
        val_labels=LABELS,
        val_ids=IDS,
        test_probs=PROBS[:5],
        class_names=NAMES,
    )
    val = Predictions(logits=LOGITS, labels=LABELS, ids=IDS, class_names=NAMES)
    same(read_predictions(f"{path}::val"), val)
    same(read_predictions(Path(f"{path}::val")), val)
    same(read_predictions(f"{path}::test"), Predictions(probs=PROBS[:5], class_names=NAMES))
    assert count_rows(f"{path}::test") == 5
    with pytest.raises(ValueError, match=r"a\.npz holds the parts val, test: add ::val or ::test"):
        read_predictions(path)
    with pytest.raises(ValueError, match=r"no part vl; .* parts val, test. Ask for ::val or"):
        read_predictions(f"{path}::vl")
    with pytest.raises(ValueError, match="names no part after"):
        read_predictions(f"{path}::")


def test_plain_names_come_before_parts(tmp_path):
    path = save_npz(tmp_path / "a.npz", logits=LOGITS, val_probs=PROBS[:3])
    same(read_predictions(path), Predictions(logits=LOGITS))
    same(read_predictions(f"{path}::val"), Predictions(probs=PROBS[:3]))
    path = save_npz(tmp_path / "plain.npz", logits=LOGITS, labels=LABELS)
    with pytest.raises(ValueError, match=r"arrays logits, labels.* Drop ::val"):
        read_predictions(f"{path}::val")


def test_a_name_with_colons_is_a_name(tmp_path):
    path = save_npz(tmp_path / "a::b.npz", logits=LOGITS)
    same(read_predictions(path), Predictions(logits=LOGITS))


@pytest.mark.parametrize("save", [save_parquet, save_csv])
def test_parts_of_a_table(tmp_path, save):
    content = {"val_label": LABELS, **columns(LOGITS, "logit", "val_")}
    path = save(tmp_path / ("a.csv" if save is save_csv else "a.parquet"), content)
    same(read_predictions(f"{path}::val"), Predictions(logits=LOGITS, labels=LABELS))
    with pytest.raises(ValueError, match="holds the parts val: add ::val"):
        read_predictions(path)


# Shapes that files come in


@pytest.mark.parametrize("save", [save_parquet, save_csv])
def test_columns_go_by_number(tmp_path, save):
    scores = RNG.normal(size=(3, 12))
    by_number = columns(scores, "logit")
    content = {name: by_number[name] for name in sorted(by_number)}  # logit_10 before logit_2
    content["other"] = np.array(["x", "y", "z"])
    path = save(tmp_path / ("a.csv" if save is save_csv else "a.parquet"), content)
    same(read_predictions(path), Predictions(logits=scores))


def test_class_names_of_bytes(tmp_path):
    path = save_npz(tmp_path / "a.npz", probs=PROBS, class_names=[n.encode() for n in NAMES])
    assert read_predictions(path).class_names == NAMES


@pytest.mark.parametrize("dtype", ["float16", "float32", ">f4", "float64", "longdouble", "int8"])
def test_precision_is_kept(tmp_path, dtype):
    scores = np.array([[1.5, -2.0], [0.0, 3.0]]).astype(dtype)
    read = read_predictions(save_npz(tmp_path / "a.npz", logits=scores)).logits
    expected = {"longdouble": "float64", "int8": "float64", ">f4": "float32"}.get(dtype, dtype)
    assert read.dtype == expected
    np.testing.assert_array_equal(read, scores)


def test_precision_of_parquet(tmp_path):
    half = LOGITS.astype(np.float16)
    path = save_parquet(tmp_path / "a.parquet", columns(half, "logit"))
    same(read_predictions(path), Predictions(logits=half))
    mixed = columns(LOGITS.astype(np.float32), "logit")
    mixed["logit_1"] = LOGITS[:, 1]
    assert read_predictions(save_parquet(tmp_path / "b.parquet", mixed)).logits.dtype == np.float64
    # In a folder the widest type of all files, from the first batch on.
    folder = tmp_path / "folder"
    folder.mkdir()
    save_parquet(folder / "1.parquet", columns(half, "logit"))
    save_parquet(folder / "2.parquet", mixed)
    assert {batch.logits.dtype for batch in iter_predictions(folder, batch_rows=5)} == {
        np.dtype(np.float64)
    }


@pytest.mark.parametrize(
    "kind",
    [
        pa.list_(pa.float32()),
        pa.large_list(pa.float64()),
        pa.list_(pa.float16(), CLASSES),
        pa.list_(pa.int64()),
        pa.fixed_shape_tensor(pa.float64(), [CLASSES]),
    ],
    ids=str,
)
def test_kinds_of_lists(tmp_path, kind):
    whole = np.arange(ROWS * CLASSES).reshape(ROWS, CLASSES)
    storage = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
    if pa.types.is_floating(storage.value_type):
        whole = whole.astype(f"float{storage.value_type.bit_width}")
    column = pa.array(list(whole), type=storage)
    if isinstance(kind, pa.BaseExtensionType):
        column = pa.ExtensionArray.from_storage(kind, column)
    path = save_parquet(tmp_path / "a.parquet", {"logits": column, "label": LABELS})
    for batch_rows in (5, 100):
        read = joined(list(iter_predictions(path, batch_rows=batch_rows)))
        np.testing.assert_array_equal(read.logits, whole)


def test_columns_of_other_types(tmp_path):
    """Categories and decimals, as data bases and data frames write them."""
    content = {
        "label": pa.array([1, 0, 1]).dictionary_encode(),
        "id": pa.array(["a", "b", "a"]).dictionary_encode(),
        "prob_0": pa.array([0.25, 0.5, 0.75]).cast(pa.decimal128(4, 2)),
        "prob_1": pa.array([1, 1, 1], type=pa.uint8()),
    }
    read = read_predictions(save_parquet(tmp_path / "a.parquet", content))
    assert read.labels.tolist() == [1, 0, 1]
    assert read.ids.tolist() == ["a", "b", "a"]
    assert read.probs.tolist() == [[0.25, 1], [0.5, 1], [0.75, 1]]


@pytest.mark.parametrize("text", ["[{}, {}]", "[{} {}]", "({},{})", " [  {} \n {} ] "])
def test_lists_in_csv(tmp_path, text):
    scores = np.array([[0.1, -1e-9], [3.0, -np.inf]])
    lines = [f'"{text.format(*row)}",{label}.0' for row, label in zip(scores, [1, 0], strict=True)]
    (tmp_path / "a.csv").write_text("logits,label\n" + "\n".join(lines))
    read = read_predictions(tmp_path / "a.csv")
    same(read, Predictions(logits=scores, labels=np.array([1, 0])))


def test_csv_as_others_write_it(tmp_path):
    """A byte-order mark, Windows line ends, blanks, whole labels as floats, nan as a number."""
    text = "\ufefflabel,prob_0,prob_1\r\n1.0, 0.5 ,nan\r\n\r\n0,-inf,1e-3\r\n"
    (tmp_path / "a.CSV").write_bytes(text.encode())
    read = read_predictions(tmp_path / "a.CSV")
    expected = np.array([[0.5, np.nan], [-np.inf, 1e-3]])
    same(read, Predictions(probs=expected, labels=np.array([1, 0])))


def test_long_and_quoted_cells_of_csv(tmp_path):
    """Lists longer than Python's usual limit, and commas, quotes and line ends in cells."""
    wide = np.random.default_rng(0).normal(size=(3, 20_000))
    lines = [f'"a,""{i}""\r\nb","{row.tolist()}",{i}' for i, row in enumerate(wide)]
    (tmp_path / "a.csv").write_text("id,logits,label\n" + "\n".join(lines), newline="")
    limit = csv.field_size_limit()
    read = read_predictions(tmp_path / "a.csv")
    assert csv.field_size_limit() == limit
    np.testing.assert_array_equal(read.logits, wide)
    assert read.ids.tolist() == [f'a,"{i}"\r\nb' for i in range(3)]


def test_chunks_of_lists_in_csv(tmp_path):
    (tmp_path / "a.csv").write_text("logits_chunk_0,logits_chunk_1\n[1 2],[3]\n[4 5],[6]\n")
    read = read_predictions(tmp_path / "a.csv")
    assert read.logits.tolist() == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("dtype", ["float64", "float16", "uint8", "int32", "uint64", "bool", ">i4"])
def test_labels_come_as_int64(tmp_path, dtype):
    labels = np.array([1, 0, 1]).astype(dtype)
    path = save_npz(tmp_path / "a.npz", logits=LOGITS[:3], labels=labels)
    read = read_predictions(path).labels
    assert read.dtype == np.int64
    assert read.tolist() == [1, 0, 1]


# Only the top class


@pytest.mark.parametrize(
    "correct", [np.array([True, False, True]), np.array([1, 0, 1]), np.array([1.0, 0.0, 1.0])]
)
def test_confidence_and_correct(tmp_path, correct):
    confidence = np.array([0.9, 0.6, 0.7])
    content = {"confidence": confidence, "correct": correct}
    expected = Predictions(confidence=confidence, correct=np.array([True, False, True]))
    same(read_predictions(save_npz(tmp_path / "a.npz", **content)), expected)
    same(read_predictions(save_parquet(tmp_path / "a.parquet", content)), expected)
    same(read_predictions(save_csv(tmp_path / "a.csv", content)), expected)
    assert len(expected) == count_rows(tmp_path / "a.npz") == 3


@pytest.mark.parametrize(
    ("true", "predicted"),
    [(np.int16([3, 1]), np.int16([3, 2])), (["cat", "dog"], ["cat", "cat"]), (["3", "a"], [3, 4])],
)
def test_confidence_and_two_labels(tmp_path, true, predicted):
    content = {
        "confidence": np.array([0.9, 0.6], dtype=np.float32),
        "true_label": np.array(true),
        "pred_label": np.array(predicted, dtype=np.array(true).dtype),
    }
    expected = Predictions(confidence=content["confidence"], correct=np.array([True, False]))
    same(read_predictions(save_npz(tmp_path / "a.npz", **content)), expected)
    same(read_predictions(save_parquet(tmp_path / "a.parquet", content)), expected)
    assert read_predictions(save_csv(tmp_path / "a.csv", content)).correct.tolist() == [True, False]


def test_names_and_numbers_do_not_mix_in_a_pair_of_labels(tmp_path):
    content = {"confidence": [0.9], "true_label": ["cat"], "pred_label": [1]}
    path = save_npz(tmp_path / "a.npz", **{name: np.array(v) for name, v in content.items()})
    with pytest.raises(ValueError, match="must both be numbers or both be names"):
        read_predictions(path)


def test_numbered_columns_that_do_not_begin_with_0_are_named_after_classes(tmp_path):
    content = {"prob_3": [0.9, 0.2], "prob_5": [0.1, 0.8], "label": [3, 5]}
    columns = {name: np.array(values) for name, values in content.items()}
    for path in (
        save_csv(tmp_path / "a.csv", columns),
        save_parquet(tmp_path / "a.parquet", columns),
    ):
        read = read_predictions(path)
        assert read.class_names == ("3", "5")
        assert read.labels.tolist() == [0, 1]
        assert read.probs.tolist() == [[0.9, 0.1], [0.2, 0.8]]


def test_scores_come_before_confidence(tmp_path):
    path = save_npz(tmp_path / "a.npz", probs=PROBS, confidence=PROBS.max(-1), correct=LABELS > 1)
    same(read_predictions(path), Predictions(probs=PROBS))


# Memory, and what is loaded


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_streaming_an_npz_holds_only_batches(tmp_path, save):
    logits = np.zeros((200_000, 20), dtype=np.float32)
    logits[:] = np.arange(20)
    save(tmp_path / "a.npz", logits=logits, labels=np.zeros(len(logits), dtype=np.int32))
    size, rows = logits.nbytes, len(logits)
    del logits
    tracemalloc.start()
    try:
        seen = sum(len(batch) for batch in iter_predictions(tmp_path / "a.npz", batch_rows=1000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen == rows
    assert peak < size / 4  # two batches of 80 kB, and 1 MB of the zip twice


def test_streaming_csv_holds_only_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr("calibrant.files.csv._BLOCK", 1 << 18)
    path = save_csv(tmp_path / "a.csv", columns(np.zeros((20_000, 20)), "logit"))
    tracemalloc.start()
    try:
        seen = sum(len(batch) for batch in iter_predictions(path, batch_rows=100))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert seen == 20_000
    assert peak < 1 << 20


@pytest.mark.slow
def test_streaming_a_parquet_file_holds_only_batches(tmp_path):
    """All rows in one row group, which is read a page at a time for each column."""
    scores = np.random.default_rng(0).normal(size=(300_000, 20))
    pages = {"row_group_size": len(scores), "use_dictionary": False, "data_page_size": 1 << 16}
    path = save_parquet(tmp_path / "a.parquet", columns(scores, "logit"), **pages)
    size, rows = scores.nbytes, len(scores)
    del scores
    code = (
        "import pyarrow, sys\n"
        "from calibrant.files import iter_predictions\n"
        "seen = sum(len(b) for b in iter_predictions(sys.argv[1], batch_rows=1000))\n"
        "print(seen, pyarrow.default_memory_pool().max_memory())\n"
    )
    done = run_python("-c", code, path, check=True)
    seen, peak = map(int, done.stdout.split())
    assert seen == rows
    assert peak < size / 4


def test_the_file_is_closed_when_reading_stops(tmp_path):
    """An unclosed file would be a ResourceWarning, which is an error here."""
    path = save_npz(tmp_path / "a.npz", logits=LOGITS)
    batches = iter_predictions(path, batch_rows=2)
    next(batches)
    batches.close()
    path.unlink()


def test_only_parquet_needs_pyarrow(tmp_path):
    save_npz(tmp_path / "a.npz", logits=LOGITS)
    code = (
        "import sys\n"
        "sys.modules['pyarrow'] = None\n"  # as if it were not installed
        "from calibrant.files import read_predictions, write_predictions\n"
        "read = read_predictions(sys.argv[1] + '/a.npz')\n"
        "write_predictions(sys.argv[1] + '/a.csv', logits=read.logits)\n"
        "print(len(read_predictions(sys.argv[1] + '/a.csv')))\n"
        "open(sys.argv[1] + '/a.parquet', 'w').write('PAR1')\n"
        "for use in (read_predictions, lambda p: write_predictions(p, probs=[[0.5, 0.5]])):\n"
        "    try:\n"
        "        use(sys.argv[1] + '/a.parquet')\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
    )
    done = run_python("-c", code, tmp_path, check=True)
    assert done.stdout.splitlines() == [
        str(ROWS),
        "reading Parquet needs pyarrow: pip install 'calibrant[files]'",
        "writing Parquet needs pyarrow: pip install 'calibrant[files]'",
    ]


def test_a_folder_is_read_with_its_subfolders(tmp_path):
    for file in ("a.parquet", "_temporary/b.parquet", "day/c.parquet"):
        (tmp_path / file).parent.mkdir(exist_ok=True)
        write_predictions(tmp_path / file, probs=PROBS, labels=LABELS)
    assert len(read_predictions(tmp_path)) == 2 * ROWS
    (tmp_path / "day" / "c.parquet").unlink()
    assert count_rows(tmp_path) == ROWS
