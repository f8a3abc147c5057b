"""Files that are wrong get one line: what was wrong, what was found, what to do."""

from __future__ import annotations

import gzip
import io
import re
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from calibrant.errors import CalibrantError
from calibrant.files import count_rows, iter_predictions, read_predictions, write_predictions

RNG = np.random.default_rng(0)
LOGITS = RNG.normal(size=(6, 3))
PROBS = RNG.dirichlet(np.ones(3), size=6)
LABELS = np.array([0, 1, 2, 0, 1, 2])
TABLE = {"label": LABELS, **{f"prob_{k}": PROBS[:, k].copy() for k in range(3)}}


def refused(path: object, message: str, error: type[Exception] = ValueError) -> None:
    """Whole and in batches, with the same single line that names the file."""
    for read in (read_predictions, lambda p: list(iter_predictions(p, batch_rows=2))):
        with pytest.raises(error, match=message) as caught:
            read(path)
        text = str(caught.value)
        assert "\n" not in text
        assert str(path).partition("::")[0] in text
        assert type(caught.value) in (CalibrantError, FileNotFoundError)


def npz(tmp_path: Path, **content: object) -> Path:
    np.savez(tmp_path / "a.npz", **content)
    return tmp_path / "a.npz"


def parquet(tmp_path: Path, content: object, name: str = "a.parquet") -> Path:
    pq.write_table(content if isinstance(content, pa.Table) else pa.table(content), tmp_path / name)
    return tmp_path / name


def csv(tmp_path: Path, text: str | bytes) -> Path:
    (tmp_path / "a.csv").write_bytes(text.encode() if isinstance(text, str) else text)
    return tmp_path / "a.csv"


# Paths


def test_a_missing_file(tmp_path):
    npz(tmp_path, logits=LOGITS)
    refused(tmp_path / "b.npz", r"there is no file .*b\.npz\. Did you mean a\.npz\?", OSError)
    refused(f"{tmp_path}/b.npz::val", r"no file .*b\.npz\. Did you mean", FileNotFoundError)
    refused(tmp_path / "zzz", "Check the name", FileNotFoundError)
    refused(tmp_path / "no" / "a.npz", "its folder .* does not exist", FileNotFoundError)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        count_rows(tmp_path / "b.npz")


@pytest.mark.parametrize("path", [None, 3, b"a.npz", LOGITS])
def test_what_is_no_path(path):
    with pytest.raises(ValueError, match="must be a str or a Path; found"):
        read_predictions(path)


@pytest.mark.parametrize("name", ["a.npz", "a.parquet", "a.csv"])
def test_an_empty_file(tmp_path, name):
    (tmp_path / name).touch()
    refused(tmp_path / name, "is empty")


@pytest.mark.parametrize("name", ["a.txt", "a.npy", "a", "a.gz"])
def test_an_unknown_ending(tmp_path, name):
    (tmp_path / name).write_text("1")
    refused(
        tmp_path / name, r"one of \.npz, \.parquet, \.csv, \.csv\.gz, \.jsonl \(or be a folder of"
    )


def test_a_folder(tmp_path):
    refused(tmp_path, "expected .parquet files in .* found none")
    part = {name: column[:0] for name, column in TABLE.items()}
    parquet(tmp_path, part, "0.parquet")
    refused(tmp_path, "no rows")
    parquet(tmp_path, TABLE, "1.parquet")
    parquet(tmp_path, TABLE, "2.parquet")
    assert len(read_predictions(tmp_path)) == 12
    other = {name: column for name, column in TABLE.items() if name != "prob_2"}
    parquet(tmp_path, other, "2.parquet")
    refused(tmp_path, r"2\.parquet: the files of a folder must have the same columns; .*1\.parquet")
    parquet(tmp_path, TABLE | {"label": LABELS + 0.5}, "2.parquet")
    refused(tmp_path, r"2\.parquet: label must be whole numbers; found 0\.5 in row 0\.")
    (tmp_path / "2.parquet").write_bytes(b"nonsense")
    refused(tmp_path, r"2\.parquet cannot be read as Parquet")


def test_lists_of_a_folder_have_one_length(tmp_path):
    parquet(tmp_path, {"probs": list(PROBS)}, "1.parquet")
    parquet(tmp_path, {"probs": list(PROBS[:, :2])}, "2.parquet")
    refused(tmp_path, r"2\.parquet: the lists of probs must be of one length; .* 3 .* found 2")


# Bytes


def test_not_a_zip(tmp_path):
    path = tmp_path / "a.npz"
    path.write_text("these are no arrays")
    refused(path, "cannot be read as an .npz file: .*zip")
    with path.open("wb") as file:
        np.save(file, LOGITS)
    refused(path, r"single \.npy array .* np\.savez")


def test_a_zip_of_something_else(tmp_path):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")
    refused(path, "has the arrays nothing: neither logits nor probs")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("logits.npy", "hello")
    refused(path, "cannot be read as an .npz file")


def member(path: Path, data: bytes, name: str = "logits.npy") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, data)
    return path


def header(shape: object, descr: str = "<f8", version: int = 1) -> bytes:
    text = repr({"descr": descr, "fortran_order": False, "shape": shape}).encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(text).to_bytes(2, "little") + text


@pytest.mark.parametrize(
    "data",
    [
        header((10**12, 10)),
        header((-1, 3)) + bytes(24),
        header((2, 3)) + bytes(47),
        header((2, 3)) + bytes(49),
        header("(2, 3)") + bytes(48),
        header((2, 3), "whatever") + bytes(48),
        header((2, 3), version=9) + bytes(48),
        header((2, 3), "[" * 5000) + bytes(48),
        header((2, 3))[:20],
        b"\x93NUMPY",
    ],
)
def test_headers_that_lie(tmp_path, data):
    refused(member(tmp_path / "a.npz", data), "damaged")


def test_python_objects_are_never_unpickled(tmp_path):
    class Bomb:
        def __reduce__(self) -> tuple:
            return (pytest.fail, ("it was unpickled",))

    bombs = np.array([[Bomb(), Bomb()]])
    refused(npz(tmp_path, logits=bombs), "logits holds Python objects, which are never unpickled")
    refused(npz(tmp_path, logits=LOGITS, labels=bombs[0]), "labels holds Python objects")
    names = np.array(["a", "b", "c"], dtype=object)
    refused(npz(tmp_path, logits=LOGITS, class_names=names), "class_names holds Python objects")


def test_an_array_twice(tmp_path):
    path = npz(tmp_path, logits=LOGITS)
    with zipfile.ZipFile(path) as archive:
        data = archive.read("logits.npy")
    with zipfile.ZipFile(path, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("logits.npy", data)
    refused(path, "the array logits occurs 2 times")


def test_an_encrypted_zip(tmp_path):
    path = npz(tmp_path, logits=LOGITS)
    data = bytearray(path.read_bytes())
    for mark, flags in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        data[data.index(mark) + flags] |= 1
    path.write_bytes(data)
    refused(path, "encrypted")


def one_line_or_fine(path: Path) -> bool:
    """Whether the file was refused; anything but one line of ValueError or OSError fails."""
    try:
        read_predictions(path)
    except (ValueError, TypeError, OSError) as error:
        refusal = error
    else:
        return False
    assert type(refusal) is CalibrantError
    assert "\n" not in str(refusal)
    return True


def written(ending: str, tmp_path: Path) -> tuple[Path, bytes]:
    path = tmp_path / f"a{ending}"
    write_predictions(path, probs=PROBS, labels=LABELS, ids=[f"id{i}" for i in range(6)])
    return path, path.read_bytes()


def cuts(data: bytes) -> list[int]:
    """Many places, and all of the last ones, where both formats keep their directory."""
    return [*range(0, len(data) - 50, 7), *range(len(data) - 50, len(data))]


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_a_file_cut_anywhere(tmp_path, ending):
    path, data = written(ending, tmp_path)
    for length in cuts(data):
        path.write_bytes(data[:length])
        assert one_line_or_fine(path), f"cut at {length} of {len(data)}"


def test_compressed_files_cut_anywhere(tmp_path):
    buffer = io.BytesIO()
    np.savez_compressed(buffer, logits=LOGITS, labels=LABELS)
    text = gzip.compress(b"label,prob_0,prob_1\n" + b"0,0.25,0.75\n" * 50)
    for name, data in (("a.npz", buffer.getvalue()), ("a.csv.gz", text)):
        path = tmp_path / name
        path.write_bytes(data)
        assert not one_line_or_fine(path)
        for length in cuts(data):
            path.write_bytes(data[:length])
            assert one_line_or_fine(path), f"cut at {length} of {len(data)}"


@pytest.mark.parametrize("ending", [".npz", ".parquet", ".csv"])
def test_one_byte_changed(tmp_path, ending):
    """Not all damage can be seen, but none may come out as another error."""
    path, data = written(ending, tmp_path)
    for place in range(0, len(data), 5):
        changed = bytearray(data)
        changed[place] ^= 1 << (place % 8)
        path.write_bytes(changed)
        one_line_or_fine(path)


@pytest.mark.parametrize("ending", [".npz", ".parquet"])
def test_changed_numbers_are_noticed(tmp_path, ending):
    """Both formats carry checksums as we write them."""
    path, data = written(ending, tmp_path)
    value = np.sort(PROBS[:, 1])[3]  # the extremes stand in the header of a Parquet page as well
    place = data.index(value.tobytes())
    path.write_bytes(data[:place] + b"\x01\x02" + data[place + 2 :])
    refused(path, "cannot be read as")


def test_a_checksum_is_compared_at_the_end_of_a_stream(tmp_path):
    path = npz(tmp_path, logits=np.zeros((4000, 10)))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] = 1
    path.write_bytes(data)
    batches = iter_predictions(path, batch_rows=100)
    assert len(next(batches)) == 100
    with pytest.raises(ValueError, match="Bad CRC-32"):
        list(batches)


@pytest.mark.parametrize("ending", [".npz", ".parquet", ".csv", ".csv.gz"])
def test_noise(tmp_path, ending):
    for seed in range(30):
        path = tmp_path / f"a{ending}"
        path.write_bytes(np.random.default_rng(seed).bytes(400))
        assert one_line_or_fine(path)


def test_damaged_parquet(tmp_path):
    path = parquet(tmp_path, TABLE)
    path.write_bytes(b"PAR1 and then nothing")
    refused(path, "cannot be read as Parquet")


# Names


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["scores", "labels"], "has the arrays scores, labels: neither logits nor probs"),
        (["logits", "probs"], "one kind of score; found both logits and probs"),
        (["logits", "label", "labels"], "label and labels mean the same"),
        (["logits", "id", "ids"], "id and ids mean the same"),
        (["confidence"], "confidence but not whether predictions are correct"),
        (["confidence", "true_label"], "Add correct"),
        (["labels"], "neither logits nor probs"),
        (["a\nb"], r"has the arrays 'a\\nb': neither"),
        ([f"x{i}" for i in range(20)], r"x6, x7, \.\.\. \(20 in all\)"),
    ],
)
def test_names_of_an_npz(tmp_path, names, message):
    refused(npz(tmp_path, **dict.fromkeys(names, LOGITS)), message)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ("label,a,b", "has the columns label, a, b: neither logits nor probs"),
        ("label,prob_0,logit_0", "found both logit_0 and prob_0"),
        ("label,prob_0,probs", "found both probs and prob_0"),
        ("label,prob_0,prob_2", "found prob_2 but no prob_1. Count the classes from 0"),
        ("prob_0,prob_1,prob_3", "found prob_3 but no prob_2"),
        ("prob_0,prob_1,prob_1", "the column prob_1 occurs 2 times"),
        ("prob_0,prob_1,prob_01", "prob_1 and prob_01 have the same number"),
        ("label,label,prob_0,prob_1", "the column label occurs 2 times"),
        ("confidence,label,id", "Add correct"),
        ("label;prob_0;prob_1", "separated by commas; the first line is 'label;prob_0"),
    ],
)
def test_names_of_a_table(tmp_path, columns, message):
    refused(csv(tmp_path, columns + "\n" + re.sub(r"\w+", "1", columns) + "\n"), message)
    if ";" not in columns:
        names = columns.split(",")
        content = pa.Table.from_arrays([pa.array([1.0])] * len(names), names)
        refused(parquet(tmp_path, content), message)


# Shapes and types


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"logits": LOGITS[None]}, r"found \(1, 6, 3\)"),
        ({"logits": np.array(1.0)}, r"found \(\)"),
        ({"logits": LOGITS[:0]}, "logits has no rows"),
        ({"logits": LOGITS, "labels": np.eye(3)[LABELS]}, r"found exactly one in every row"),
        ({"logits": LOGITS, "labels": LABELS[:5]}, "labels and (val_)?logits .* found 5 and 6"),
        ({"logits": LOGITS, "ids": LABELS[:5]}, "ids and (val_)?logits .* found 5 and 6"),
        ({"logits": LOGITS, "ids": LOGITS}, r"ids must have the shape \(rows,\)"),
        ({"logits": LOGITS, "labels": LABELS + 0.5}, "whole numbers; found 0.5 in row 0"),
        ({"logits": LOGITS, "labels": [0, 1, 2, 0, 1, np.nan]}, "found nan in row 5"),
        ({"logits": LOGITS, "labels": [0, 1, 2, np.inf, 1, 2]}, "found inf in row 3"),
        ({"logits": LOGITS, "labels": np.full(6, 2**63, dtype=np.uint64)}, "found 922337203"),
        ({"logits": LOGITS, "class_names": ["a", "b"]}, r"class_names .* 3 in all; found .* \(2,"),
        ({"confidence": LOGITS, "correct": LABELS}, r"confidence must have the shape \(rows,\)"),
        (
            {"confidence": PROBS[:, 0], "correct": LABELS},
            "correct must be 0 or 1; found 2 in row 2",
        ),
        ({"confidence": PROBS[:, 0], "correct": LABELS[:4] > 0}, "found 4 and 6"),
    ],
)
def test_arrays_that_do_not_fit(tmp_path, content, message):
    refused(npz(tmp_path, **content), message)
    path = npz(tmp_path, **{f"val_{name}": array for name, array in content.items()})
    refused(f"{path}::val", message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"logits": LOGITS.astype(str)}, "logits must be numbers; found the type <U"),
        ({"logits": LOGITS.astype(complex)}, "logits must be numbers; found the type complex128"),
        ({"logits": LOGITS > 0}, "logits must be numbers; found the type bool"),
        ({"logits": LOGITS.astype("f2").view("V2")}, "logits must be numbers"),
        ({"logits": LOGITS, "class_names": [1, 2, 3]}, "class_names must be strings"),
        ({"confidence": PROBS[:, 0], "correct": ["y"] * 6}, "correct must be true or false"),
    ],
)
def test_arrays_of_other_types(tmp_path, content, message):
    refused(npz(tmp_path, **content), message)


def test_class_names_that_are_no_text(tmp_path):
    refused(npz(tmp_path, logits=LOGITS, class_names=[b"\xff", b"b", b"c"]), "cannot be read")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prob_1": [0.5, None, 0.5, 0.5, 0.5, 0.5]}, "prob_1 must have a value .* row 1"),
        ({"label": [0, 1, 2, 0, 1, None]}, "column label must have a value .* row 5"),
        ({"id": ["a", "b", "c", None, "e", "f"]}, "column id must have a value .* row 3"),
        ({"label": [None] * 6}, "column label must have a value .* row 0"),
        ({"label": [0.0, 1.0, 1.5, 0.0, 0.0, 0.0]}, "found 1.5 in row 2"),
        ({"label": [0.0, 1.0, 1.0, float("nan"), 0.0, 0.0]}, "found nan in row 3"),
    ],
)
def test_values_missing_in_parquet(tmp_path, changes, message):
    refused(parquet(tmp_path, TABLE | changes), message)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"prob_1": list("abcdef")}, "column prob_1 must hold numbers; found the type string"),
        ({"prob_1": [True] * 6}, "column prob_1 must hold numbers; found the type bool"),
        ({"label": list("abcdef")}, "3 columns need 3 different labels"),
        ({"prob_1": [[1.0]] * 6}, "column prob_1 must hold numbers; found the type list"),
        ({"id": [b"a"] * 6}, "column id must hold whole numbers or strings"),
    ],
)
def test_types_in_parquet(tmp_path, changes, message):
    refused(parquet(tmp_path, TABLE | changes), message)


@pytest.mark.parametrize(
    ("lists", "message"),
    [
        ([[1.0, 2.0], [1.0, 2.0], [1.0]], "of one length; .* 2 numbers, found 1 in row 2"),
        ([[1.0, 2.0], [1.0, None], [1.0, 2.0]], "a value at every position; found none in row 1"),
        ([[1.0, 2.0], [1.0, 2.0], None], "column logits must have a value .* row 2"),
    ],
)
def test_lists_that_do_not_fit(tmp_path, lists, message):
    refused(parquet(tmp_path, {"logits": lists}), message)


def test_lists_of_other_types(tmp_path):
    refused(parquet(tmp_path, {"logits": [1.0, 2.0]}), "one list of numbers per row")
    refused(parquet(tmp_path, {"logits": [["a"], ["b"]]}), "lists of logits must hold")


def test_text_that_is_no_text_in_parquet(tmp_path):
    ids = pa.array([b"\xe92"] * 6).view(pa.string())
    refused(parquet(tmp_path, TABLE | {"id": ids}), "column id cannot be read as text: 'utf-8'")


def test_class_names_in_parquet(tmp_path):
    for value, message in [
        (b'["a", "b"]', "3 in all; found 2"),
        (b'{"a": 1}', "not a JSON list"),
        (b"\xff", "cannot be read"),
    ]:
        table = pa.table(TABLE).replace_schema_metadata({b"calibrant.class_names": value})
        refused(parquet(tmp_path, table), message)


def test_parquet_without_rows(tmp_path):
    refused(parquet(tmp_path, {n: c[:0] for n, c in TABLE.items()}), "has no rows")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("label,prob_0,prob_1\n", "no rows"),
        ("label,prob_0,prob_1", "cannot be read as CSV|no rows"),
        ("\n\n", "has the columns nothing"),
        (
            "label,prob_0,prob_1\n1,0.5,0.5\n1,0.5,x\n",
            "prob_1 must hold numbers; found 'x' in row 1",
        ),
        ("label,prob_0,prob_1\n1,0.5,0.5\n0,1,0\ncat,0.5,0\n", "2 columns need 2 different labels"),
        (
            "other,prob_0,prob_1\n1,0.5,0.5\n1,0.5,x\n",
            "prob_1 must hold numbers; found 'x' in row 1",
        ),
        ("label,prob_0,prob_1\n1,0.5,0.5\n1,,0.5\n", "prob_0 must have a value .* row 1"),
        ("label,prob_0,prob_1\n1,0.5,0.5\n,0.5,0.5\n", "label must have a value .* row 1"),
        ("label,prob_0,prob_1\n1,0.5,0.5\n1,0.5\n", "the header, 3; found 2 in row 1"),
        ("label,prob_0,prob_1\n1,0.5,0.5\n0.5,0.5,1\n", "whole numbers or names; found '0.5'"),
        ("label,probs\n1,[0.5 0.5]\n1,[0.5 x]\n", "lists of numbers; found 'x' in row 1"),
        ("label,probs\n1,[0.5 0.5]\n1,[0.5]\n", "of one length, 2; found 1 in row 1"),
        ("confidence,correct\n0.5,true\n0.5,maybe\n", "true or false; found 'maybe' in row 1"),
        ("confidence,correct\n0.5,true\n0.5,\n", "true or false; found '' in row 1"),
        (b"id,prob_0\n\xff,1\n", "cannot be read as CSV"),
    ],
)
def test_csv_that_does_not_fit(tmp_path, text, message):
    refused(csv(tmp_path, text), message)


def test_rows_count_on_over_blocks_of_csv(tmp_path, monkeypatch):
    monkeypatch.setattr("calibrant.files.csv._BLOCK", 64)
    lines = ["0,0.5,0.5"] * 40
    for wrong, message in [
        ("0,0.5,x", "found 'x' in row 37"),
        ("0,0.5", "found 2 in row 37"),
        ("0,0.5,0.5,0.5", "found 4 in row 37"),
        (",0.5,0.5", "label must have a value .* row 37"),
        ("0,0.5,", "in row 37"),
    ]:
        lines[37] = wrong
        refused(csv(tmp_path, "label,prob_0,prob_1\n" + "\n".join(lines) + "\n"), message)


def test_names_and_shapes_are_checked_before_the_first_batch(tmp_path):
    with pytest.raises(ValueError, match="found 5 and 6"):
        iter_predictions(npz(tmp_path, logits=LOGITS, labels=LABELS[:5]))
    with pytest.raises(ValueError, match="neither"):
        iter_predictions(csv(tmp_path, "a,b\n1,2\n"))
