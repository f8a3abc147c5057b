"""Files that are missing or wrong get one line: what is wrong, where to get it, what to do."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import pickle
import re
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from calibrant.training.datasets import DATASETS, load
from calibrant.training.datasets.pickles import StoredArray, read_plain_pickle
from tests.processes import run_python
from tests.training.datasets.test_formats import (
    MAKE,
    Made,
    cifar,
    idx,
    jpeg,
    mnist,
    newsgroups,
    packed,
    same,
    svhn,
    table,
    tiny_imagenet,
    treebank,
    whole,
)


def refused(made: Made, message: str, error: type[Exception] = ValueError, **more: Any) -> None:
    with pytest.raises(error, match=message) as caught:
        made.load(**more)
    assert "\n" not in str(caught.value)


FROM_FILES = [name for name in DATASETS if name not in ("digits", "tabular")]
CHECKSUMS = {
    "cifar10": "c58f30108f718f92721af3b95e74349a",
    "cifar100": "eb9058c3a382ffc7106e4002c42a8d85",
    "svhn": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "tinyimagenet": "90528d7ca1a48142e341f4ef8d21d0de",
    "mnist": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "fashion-mnist": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "20newsgroups": "8f1b2514ca22a5ade8fbb9cfa5727df95fa587f4c87b786e15c759fa66d95610",
}


@pytest.mark.parametrize("name", FROM_FILES)
@pytest.mark.parametrize("exists", [True, False])
def test_a_missing_file_says_where_to_get_it(name, exists, tmp_path):
    folder = tmp_path if exists else tmp_path / "nowhere"
    with pytest.raises(FileNotFoundError, match=f"^{name} needs .* put it there") as caught:
        load(name, folder)
    text = str(caught.value)
    assert "\n" not in text
    assert str(folder) in text
    assert "Get it from" in text
    assert CHECKSUMS.get(name, "") in text
    assert ("which does not exist yet" in text) is not exists


@pytest.mark.parametrize("name", [name for name in DATASETS if name not in ("digits",)])
def test_no_folder(name, monkeypatch):
    monkeypatch.setattr("calibrant.training.datasets.idx.FASHION_FOLDER", Path("nowhere"))
    with pytest.raises(ValueError, match=f"^{name} is read from files; found no folder"):
        load(name)
    with pytest.raises(ValueError, match=f"^the folder of {name} must be a str or a Path; found"):
        load(name, 3)


def test_wrong_arguments(tmp_path):
    with pytest.raises(ValueError, match=r"name must be one of .*Did you mean 'cifar10'"):
        load("cifar-10")
    with pytest.raises(
        ValueError, match=r"data set digits has no option 'sneed'. It has val_share"
    ):
        load("digits", sneed=3)
    with pytest.raises(ValueError, match="no option 'neutral'"):
        load("sst-fine", tmp_path, neutral="class")
    with pytest.raises(ValueError, match="random_state must be from 0"):
        load("digits", random_state=-1)
    with pytest.raises(ValueError, match="random_state must be a whole number"):
        load("digits", random_state=1.5)
    with pytest.raises(ValueError, match="limit must be from 1"):
        load("digits", limit=0)
    with pytest.raises(ValueError, match="augment must be one of crop-flip, crop, none"):
        load("digits", augment="flip")
    with pytest.raises(ValueError, match="val_share and test_share must be above 0"):
        load("digits", val_share=0.6, test_share=0.4)
    with pytest.raises(ValueError, match="label_noise must be at least 0 and below 1; found 1"):
        load("digits", label_noise=1)
    with pytest.raises(ValueError, match="val_size must be from 1 to 19; found 20"):
        mnist(tmp_path, "mnist", zipped=True).load(val_size=20)
    with pytest.raises(ValueError, match="neutral must be one of left-out, class"):
        treebank(tmp_path, "sst-binary", "folder").load(neutral="both")


BINARY = [name for name in sorted(MAKE) if name not in ("digits", "tabular csv")]
TEXT = ("20newsgroups folder", "sst-binary folder")


@pytest.mark.parametrize("form", [form for form in BINARY if form not in TEXT])
def test_every_file_cut_short_is_refused(form, tmp_path):
    """Each file of a data set in turn, cut in half, to a few bytes, and to nothing."""
    made = MAKE[form](tmp_path)
    made.options.pop("embeddings", None)
    files = [
        path
        for path in sorted(tmp_path.rglob("*"))
        if path.is_file()
        and not path.name.startswith(("readme", "extra", "vectors", "test_0", "words"))
    ]
    assert files
    if len(files) > 8:  # pictures are many and alike
        files = files[:3] + files[-3:]
    for path in files:
        content = path.read_bytes()
        for length in (len(content) // 2 + 1, 7, 0):
            path.write_bytes(content[:length])
            with pytest.raises(ValueError, match=re.escape(str(tmp_path))) as caught:
                made.load()
            assert "\n" not in str(caught.value)
        path.write_bytes(content)
    made.load()


@pytest.mark.parametrize(
    "form",
    [
        *("cifar10 python.tar.gz", "cifar10 binary.tar.gz", "mnist gz", "cifar10-jpeg"),
        *("20newsgroups.tar.gz", "20newsgroups lines", "sst-fine gz", "sst-binary.zip"),
        *("tabular npz", "svhn-subset"),
    ],
)
def test_a_changed_byte_is_refused_or_changes_nothing(form, tmp_path):
    """Packed files carry a checksum, which is looked at."""
    made = MAKE[form](tmp_path)
    made.options.pop("embeddings", None)
    (path,) = sorted(p for p in tmp_path.iterdir() if not p.name.startswith("vectors"))[:1]
    content = bytearray(path.read_bytes())
    before = made.load().train
    generator = np.random.default_rng(0)
    refusals = 0
    for place in generator.integers(12, len(content), 30):
        changed = bytearray(content)
        changed[place] ^= 0x41
        path.write_bytes(changed)
        try:
            after = made.load().train
        except ValueError:
            refusals += 1
            continue
        assert after.ids.tolist() == before.ids.tolist()
        for found, wanted in zip(whole(after), whole(before), strict=True):
            assert same(found, wanted)
    assert refusals > 5


# Pickles


class Attack:
    """What a hostile pickle does: it names a function, and has it called."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


@pytest.mark.parametrize("archive", [False, True])
def test_a_hostile_pickle_is_not_executed(tmp_path, archive):
    marker = tmp_path / "executed"
    content = pickle.dumps({"data": Attack(marker), "labels": [1]}, protocol=2)
    made = cifar(tmp_path, k=10, binary=False, archive=archive)
    if archive:
        names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
        files = {f"cifar-10-batches-py/{name}": content for name in names}
        packed(tmp_path / "cifar-10-python.tar.gz", files)
    else:
        (tmp_path / "cifar-10-batches-py" / "data_batch_2").write_bytes(content)
    refused(made, r"it asks for (posix|nt).system, which a file")
    assert not marker.exists()
    code = f"import pickle; pickle.loads({content!r})"  # it would have been, by pickle itself
    run_python("-c", code, check=True)
    assert marker.exists()


@pytest.mark.parametrize(
    "named",
    [
        *("builtins eval", "builtins getattr", "os system", "numpy load", "numpy.core.records rec"),
        *("numpy.core.multiarray fromfile", "functools partial", "copyreg _reconstructor"),
        *("_codecs decode", "codecs encode", "numpy.core.multiarray scalar"),
        "calibrant.training.datasets.pickles _Reader",
    ],
)
def test_only_four_names_are_known(named):
    module, name = named.split()
    with pytest.raises(pickle.UnpicklingError, match=f"asks for {module}.{name}"):
        read_plain_pickle(f"c{module}\n{name}\n.".encode())


@pytest.mark.parametrize(
    "stored",
    [
        {"labels": [1]},
        {"data": [1, 2], "labels": [1]},
        {"data": np.zeros((1, 3072)), "labels": [1]},
        {"data": np.zeros((1, 3071), np.uint8), "labels": [1]},
        {"data": np.zeros((1, 2, 1536), np.uint8), "labels": [1]},
        {"data": np.zeros((2, 3072), np.uint8), "labels": [1]},
        {"data": np.zeros((1, 3072), np.uint8), "labels": [10]},
        {"data": np.zeros((1, 3072), np.uint8), "labels": [-1]},
        {"data": np.zeros((1, 3072), np.uint8), "labels": [True]},
        {"data": np.zeros((1, 3072), np.uint8), "labels": ["1"]},
        {"data": np.zeros((1, 3072), np.uint8), "labels": 1},
        {"data": np.zeros((0, 3072), np.uint8), "labels": []},
        {"data": np.array([[None] * 3072]), "labels": [1]},
        [1, 2, 3],
    ],
)
def test_pickles_of_something_else(tmp_path, stored):
    made = cifar(tmp_path, k=10, binary=False, archive=False)
    path = tmp_path / "cifar-10-batches-py" / "data_batch_3"
    path.write_bytes(pickle.dumps(stored, protocol=2))
    refused(made, re.escape(str(path)))


def test_a_state_that_lies_about_the_array():
    holder = StoredArray()
    for state in (None, (), (1, (2, 3072), None, False, b""), (1, 5, 5, 5, 5)):
        holder.__setstate__(state)
        with pytest.raises((ValueError, TypeError)):
            holder.bytes_of((-1, 3072))


def test_fortran_order_is_undone():
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    stored = pickle.dumps({"a": np.asfortranarray(pixels)}, protocol=2)
    np.testing.assert_array_equal(read_plain_pickle(stored)["a"].bytes_of((-1, 3)), pixels)


# Formats


def test_an_archive_without_a_file(tmp_path):
    made = cifar(tmp_path, k=10, binary=True, archive=True)
    packed(tmp_path / "cifar-10-binary.tar.gz", {"cifar-10-batches-bin/data_batch_1.bin": b"x"})
    refused(made, "bytes in data_batch_1.bin, not a multiple of 3073")
    packed(tmp_path / "cifar-10-binary.tar.gz", {"readme.html": b"x"})
    refused(made, "lacks data_batch_1.bin, data_batch_2.bin, ")


def test_an_unpacked_folder_without_a_file(tmp_path):
    made = cifar(tmp_path, k=10, binary=False, archive=False)
    (tmp_path / "cifar-10-batches-py" / "data_batch_4").unlink()
    refused(made, "data_batch_4", FileNotFoundError)


def test_labels_out_of_range(tmp_path):
    made = cifar(tmp_path, k=100, binary=True, archive=False)
    path = tmp_path / "cifar-100-binary" / "test.bin"
    content = bytearray(path.read_bytes())
    content[1] = 100
    path.write_bytes(content)
    refused(made, "has a label outside 0 to 99 in test.bin")


def test_idx_of_another_shape(tmp_path):
    made = mnist(tmp_path, "mnist", zipped=False)
    path = tmp_path / "train-labels-idx1-ubyte"
    content = path.read_bytes()
    path.write_bytes(b"\0\0\x0d" + content[3:])
    refused(made, "does not start like an IDX file")
    path.write_bytes(content + b"\0")
    refused(made, "must have 20 bytes for the shape .20,.; it has 21")
    path.write_bytes(idx(np.full(20, 11, np.uint8)))
    refused(made, "holds the label 11")
    path.write_bytes(idx(np.zeros(19, np.uint8)))
    refused(made, "20 images and 19 labels")


def test_svhn_of_another_shape(tmp_path):
    made = svhn(tmp_path)
    good = {"X": np.zeros((32, 32, 3, 9), np.uint8), "y": np.ones((9, 1), np.uint8)}
    for bad, message in [
        ({"X": np.zeros((32, 32, 3, 8), np.uint8)}, "must have X of bytes"),
        ({"X": np.zeros((32, 32, 3, 9))}, "must have X of bytes"),
        ({"y": np.zeros((9, 1), np.uint8)}, "has labels from 0 to 0, not 1 to 10"),
        ({"y": np.array([["a"]])}, "cannot be read as|must have X"),
    ]:
        savemat(tmp_path / "train_32x32.mat", {**good, **bad})
        refused(made, message)
    savemat(tmp_path / "train_32x32.mat", {"X": good["X"]})
    refused(made, "cannot be read as a MATLAB file: 'y'")


@pytest.mark.parametrize("label", [1.5, 9.999, np.nan, 0.5, -1.5])
def test_svhn_labels_between_two_classes(tmp_path, label):
    made = svhn(tmp_path)
    labels = np.ones((9, 1))
    labels[4] = label
    images = np.zeros((32, 32, 3, 9), np.uint8)
    savemat(tmp_path / "train_32x32.mat", {"X": images, "y": labels})
    refused(made, f"must have whole numbers as labels y; found {label} in row 4")


@pytest.mark.parametrize("label", [np.inf, -np.inf])
def test_infinite_svhn_labels(tmp_path, label):
    made = svhn(tmp_path)
    stored = {"X": np.zeros((32, 32, 3, 9), np.uint8), "y": np.full((9, 1), label)}
    savemat(tmp_path / "train_32x32.mat", stored)
    refused(made, f"has labels from {label} to {label}, not 1 to 10")


@pytest.mark.parametrize("labels", [np.full(9, 1j), np.full(9, 1, object), np.full(9, "a")])
def test_svhn_labels_that_are_not_numbers(tmp_path, labels):
    made = svhn(tmp_path)
    stored = {"X": np.zeros((32, 32, 3, 9), np.uint8), "y": labels[:, None]}
    savemat(tmp_path / "train_32x32.mat", stored)
    refused(made, "must have labels y that are numbers; found the type")


def test_whole_svhn_labels_of_another_type(tmp_path):
    made = svhn(tmp_path)
    for part in ("train", "test"):
        path = tmp_path / f"{part}_32x32.mat"
        stored = loadmat(path)
        savemat(path, {"X": stored["X"], "y": stored["y"].astype(np.float64)})
    np.testing.assert_array_equal(made.load().test.labels, made.test_labels)


def test_svhn_with_the_extra_images(tmp_path):
    data = svhn(tmp_path).load(extra=True)
    assert len(data.train) == 20 + 8 - 5
    assert "with the extra training images" in data.record["notes"]


def test_a_half_unpacked_tiny_imagenet(tmp_path):
    made = tiny_imagenet(tmp_path)
    root = tmp_path / "tiny-imagenet-200"
    picture = root / "train/n02/images/n02_3.JPEG"
    content = picture.read_bytes()
    picture.unlink()
    refused(made, "has 5 images of one class and 6 of another")
    picture.write_bytes(jpeg(np.zeros((65, 64, 3), np.uint8)))
    refused(made, r"has an image of \(64, 65\) pixels, train/n02/images/n02_3.JPEG")
    picture.write_bytes(b"GIF89a" + content[6:])
    refused(made, "cannot be decoded, train/n02/images/n02_3.JPEG")
    picture.write_bytes(content)
    (root / "val/images/val_0_0.JPEG").unlink()
    refused(made, "has val/images/val_0_0.JPEG in only one of val/images and val_annotations.txt")
    (root / "val/val_annotations.txt").unlink()
    refused(made, "lacks val/val_annotations.txt")
    (root / "wnids.txt").write_text("n01 n02")
    (root / "val/val_annotations.txt").write_text("")
    refused(made, "has images of 'n03', which is not one of its classes")


def test_a_tar_of_something_else(tmp_path):
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("train/zebra/0.jpg"))
    (tmp_path / "any.tar.xz").write_bytes(lzma.compress(target.getvalue()))
    refused(Made("cifar10-jpeg", tmp_path / "any.tar.xz"), "images of 'zebra', which is not one")


def test_json_lines_of_something_else(tmp_path):
    made = newsgroups(tmp_path, "lines")
    path = tmp_path / "20news_bydate_train.jsonl.gz"
    for line in ('{"text": 3, "group": "a"}', '{"group": "a"}', "[1, 2]", "{", '"text"'):
        path.write_bytes(gzip.compress(line.encode()))
        refused(made, "cannot be read as JSON with group, id and text in line 1")
    path.write_bytes(gzip.compress(b"\n \n{"))
    refused(made, "cannot be read as JSON with group, id and text in line 3")
    path.write_bytes(gzip.compress(b"\xff\xfe"))
    refused(made, "cannot be read as lines of UTF-8 text")
    path.write_bytes(gzip.compress(b'{"text": "a", "group": "b"}\n{"text": "c", "group": "b"}'))
    refused(made, "has the group sci.space in its test messages only")
    path.write_bytes(gzip.compress(b'{"text": "a", "group": "b", "id": 1}\n' * 2))
    refused(made, "has messages of 20news-bydate-train with the same id")
    refused(made, "headers must be true or false; found str 'no'", headers="no")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("svhn", "train_32x32.mat"),
        ("svhn-subset", "svhn32_subset.npz"),
        ("mnist", "train-images-idx3-ubyte.gz"),
        ("cifar10-jpeg", "cifar10_jpegq75.tar.xz"),
        ("sst-fine", "trees/train.txt"),
    ],
)
def test_a_folder_where_a_file_is_looked_for(name, file, tmp_path):
    (tmp_path / file).mkdir(parents=True)
    refused(Made(name, tmp_path), "is a folder; expected a file")


def test_nobody_is_told_to_unpickle(tmp_path):
    (tmp_path / "a.npz").write_bytes(b"hello")
    refused(Made("svhn-subset", tmp_path / "a.npz"), "it is not a .zip archive of arrays")


def test_word_vectors_of_something_else(tmp_path):
    made = newsgroups(tmp_path, "folder")
    path = tmp_path / "vectors.txt"
    refused(made, "there is no file", FileNotFoundError, embeddings=tmp_path / "none.txt")
    for text, message in [
        ("nothing 1 2\n", "has no vector for any word of the training split"),
        ("the 1 2\norbit 1 2 3\n", "has 3 numbers, or one not finite, in line 2"),
        ("the 1 nan\n", "has 2 numbers, or one not finite, in line 1"),
        ("the a b\n", "cannot be read as lines of a word and its numbers"),
        ("the 1 2\norbit 1 b\n", "cannot be read as lines of a word and its numbers"),
    ]:
        path.write_text(text)
        refused(made, message)
    npz = tmp_path / "v.npz"
    for words, vectors in [
        (["the"], np.zeros((2, 3))),
        (["the"], np.zeros(1)),
        (["the"], np.full((1, 2), np.nan)),
        ([1], np.zeros((1, 2))),
        (["the"], np.array([[None]])),
    ]:
        np.savez(npz, words=np.array(words), vectors=vectors)
        refused(made, "cannot be read as (words and vectors|an .npz file)", embeddings=npz)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("(3 (2 a) (2 b)", "a bracket is not closed"),
        ("(3 (2 a) (2 b)))", "follows the end"),
        ("(3 (2 a))", "a node has 1 nodes, not one word or two nodes"),
        ("(3 (2 a) (2 b) (2 c))", "a node has 3 nodes"),
        ("(3 word (2 b))", "1 nodes and a word"),
        ("(3)", "a node has 0 nodes"),
        ("()", "a node has no label"),
        ("(3 a b)", "a node has two words, 'a' and 'b'"),
        ("(x a)", "expected a label, got 'x'"),
        ("(\u0663 a)", "expected a label, got"),
        ("(7 a)", "a label is not 0 to 4"),
        ("3 a", "'3' is outside the tree"),
    ],
)
def test_trees_of_something_else(tmp_path, line, message):
    made = treebank(tmp_path, "sst-binary", "folder")
    (tmp_path / "trees/dev.txt").write_text(f"(3 fine)\n\n{line}\n")
    refused(made, f"dev.txt cannot be read as trees, in line 3 of dev: .*{message}")


def test_only_neutral_sentences(tmp_path):
    made = treebank(tmp_path, "sst-binary", "folder")
    (tmp_path / "trees/test.txt").write_text("(2 fine)\n")
    refused(made, "has no sentence to use in test")


def test_tables_of_something_else(tmp_path):
    made = table(tmp_path, "npz")
    x, y = np.zeros((9, 2)), np.arange(9) % 2
    for arrays, message in [
        ({"X": x}, "must hold X and y; it holds X"),
        ({"X": x[0], "y": y}, "must have X of numbers"),
        ({"X": x, "y": y[:5]}, "must have X of numbers"),
        ({"X": x.astype(str), "y": y}, "must have X of numbers"),
        ({"X": np.full((9, 2), None), "y": y}, "cannot be read as an .npz file"),
        ({"X": x + np.inf, "y": y}, "has an infinite number in column 0"),
        ({"X": x[:, :0], "y": y}, "has no columns to learn from"),
        ({"X": x, "y": y, "classes": np.array(["a"])}, "has labels outside 0 to 0"),
        ({"X": x, "y": y * np.nan}, "has a label y that is not finite"),
        ({"X": x, "y": y * 0}, "must have two or more classes"),
        ({"X": x, "y": y * 0, "classes": np.array(["a", "b"])}, "two or more classes"),
        ({"X": x[:2], "y": y[:2]}, "each split must have a row; found 2 rows in all"),
    ]:
        np.savez(tmp_path / "a.npz", **arrays)
        refused(made, message)
    made = table(tmp_path, "csv")
    for text, message in [
        ("", "must have a header line and rows"),
        ("a,label\n", "must have a header line and rows; it has 1 lines"),
        ("a,b\n1,2\n", "one column must be named label, class, target, y; found 0 among a, b"),
        ("y,label\n1,2\n", "found 2 among y, label. Pass label='its name'"),
        ("a,label\n1,2\n1\n", "has 1 fields in row 2, not 2"),
        ("a,label\n1,2\ninf,3\n", "has an infinite number in a"),
        ("a,label\n" + "1,x\n2,y\n3,\n" * 9, "none in 9 of 27 rows. Leave these rows out"),
        ("a,label\n" + "1,x\n2,y\n3,?\n" * 9, "a class in the column 'label'; found none"),
        (
            "a,label\n" + "".join(f"1,{i / 7}\n" for i in range(50)),
            "two or more rows per class on average; found 50 classes in 50 rows",
        ),
        (
            "name,label\n" + "".join(f"n{i},{i % 2}\n" for i in range(3000)),
            "may have 1000 different ones; found 1800 in 'name'. Leave the column out",
        ),
    ]:
        (tmp_path / "a.csv").write_text(text)
        refused(made, message)
    (tmp_path / "a.csv").write_bytes(b"a,label\n\xff\xfe,2\n")
    refused(made, "cannot be read as CSV in UTF-8")
    refused(Made("tabular", tmp_path), "tabular needs a .npz", FileNotFoundError)
    (tmp_path / "a.xlsx").write_bytes(b"PK")
    refused(Made("tabular", tmp_path / "a.xlsx"), "must end in .npz, .csv or .csv.gz")
