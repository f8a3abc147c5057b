"""Every data set out of tiny files in the form its makers publish."""

from __future__ import annotations

import csv
import gzip
import io
import json
import lzma
import pickle
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from scipy.io import savemat
from torch import nn

from calibrant.training.datasets import DATASETS, DataSet, TreeBatch, load, pictures

SEED = 5


@dataclass
class Made:
    """Files in a folder, how to read them, and what they hold."""

    name: str
    folder: Path | None
    options: dict[str, Any] = field(default_factory=dict)
    train: Any = None
    train_labels: Any = None
    test: Any = None
    test_labels: Any = None
    lossy: bool = False

    def load(self, **more: Any) -> DataSet:
        return load(self.name, self.folder, **{"random_state": SEED, **self.options, **more})


def colours(n: int, size: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (n, 3, size, size), dtype=np.uint8)


def classes(n: int, k: int) -> np.ndarray:
    return np.arange(n) * 7 % k


# CIFAR


def python2_pickle(pixels: np.ndarray, key: str, labels: list[int]) -> bytes:
    """What Python 2 wrote: protocol 2, strings of bytes, NumPy's old module names."""

    def text(value: str) -> bytes:
        return b"U" + bytes([len(value)]) + value.encode()

    n, width = pixels.shape
    raw = pixels.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\ncnumpy\nndarray\nK\x00\x85" + text("b") + b"\x87R"
        b"(K\x01" + b"M" + struct.pack("<H", n) + b"M" + struct.pack("<H", width) + b"\x86"
        b"cnumpy\ndtype\n" + text("u1") + b"K\x00K\x01\x87R"
        b"(K\x03" + text("|") + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb"
        b"\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    )
    listed = b"](" + b"".join(b"K" + bytes([label]) for label in labels) + b"e"
    return b"\x80\x02}(" + text("data") + array + text(key) + listed + b"u."


def packed(path: Path, files: dict[str, bytes]) -> None:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


def unpacked(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def cifar(folder: Path, *, k: int, binary: bool, archive: bool, modern: bool = False) -> Made:
    batches = [f"data_batch_{i}" for i in range(1, 6)] if k == 10 else ["train"]
    last = "test_batch" if k == 10 else "test"
    images = {name: colours(4 if k == 10 else 20, 32, i) for i, name in enumerate(batches)}
    images[last] = colours(6, 32, 99)
    labels = {name: classes(len(pixels), k) + 0 for name, pixels in images.items()}
    root = f"cifar-{k}-" + {10: ("batches-py", "batches-bin"), 100: ("python", "binary")}[k][binary]
    files = {f"{root}/readme.html": b"not looked at"}
    for name, pixels in images.items():
        flat = pixels.reshape(len(pixels), -1)
        if binary:
            before = [labels[name]] if k == 10 else [labels[name] // 5, labels[name]]
            rows = np.column_stack([*(b.astype(np.uint8) for b in before), flat])
            files[f"{root}/{name}.bin"] = rows.tobytes()
        else:
            key = "labels" if k == 10 else "fine_labels"
            held = [int(label) for label in labels[name]]
            stored = {b"data": flat, key.encode(): held, b"filenames": [b"a.png"] * len(held)}
            files[f"{root}/{name}"] = (
                pickle.dumps(stored, protocol=2) if modern else python2_pickle(flat, key, held)
            )
    if archive:
        packed(folder / f"cifar-{k}-{'binary' if binary else 'python'}.tar.gz", files)
    else:
        unpacked(folder, files)
    return Made(
        f"cifar{k}",
        folder,
        {"val_size": 5},
        np.concatenate([images[name] for name in batches]),
        np.concatenate([labels[name] for name in batches]),
        images[last],
        labels[last],
    )


# SVHN


def svhn(folder: Path) -> Made:
    made = Made("svhn", folder, {"val_size": 5})
    for part, n in (("train", 20), ("test", 6), ("extra", 8)):
        pixels, digits = colours(n, 32, n), classes(n, 10)
        stored = np.where(digits == 0, 10, digits).astype(np.uint8)[:, None]
        savemat(folder / f"{part}_32x32.mat", {"X": pixels.transpose(2, 3, 1, 0), "y": stored})
        if part != "extra":
            setattr(made, part, pixels)
            setattr(made, f"{part}_labels", digits)
    return made


def svhn_subset(folder: Path) -> Made:
    arrays = {}
    for part, n in (("train", 20), ("val", 5), ("test", 6)):
        arrays[f"{part}_x"] = colours(n, 32, n).transpose(0, 2, 3, 1)
        arrays[f"{part}_y"] = classes(n, 10).astype(np.uint8)
    np.savez(folder / "svhn32_subset.npz", **arrays)
    return Made("svhn-subset", folder)


# Pictures


def jpeg(pixels: np.ndarray) -> bytes:
    held = io.BytesIO()
    Image.fromarray(pixels).save(held, "JPEG", quality=95)
    return held.getvalue()


def tiny_imagenet(folder: Path, *, archive: bool = False) -> Made:
    wnids = ["n03", "n01", "n02"]
    files = {
        "wnids.txt": "\n".join(wnids).encode(),
        "words.txt": b"n01\tgoldfish, Carassius auratus\nn02\tstove\nn09\tnot among them\n",
    }
    annotations = []
    for i, wnid in enumerate(wnids):
        for j in range(6):
            flat = np.full((64, 64, 3), 40 * i + j, dtype=np.uint8)
            picture = flat[:, :, 0] if j == 0 else flat  # some pictures are grey
            files[f"train/{wnid}/images/{wnid}_{j}.JPEG"] = jpeg(picture)
        for j in range(2):
            files[f"val/images/val_{i}_{j}.JPEG"] = jpeg(np.full((64, 64, 3), 99 + i, np.uint8))
            annotations.append(f"val_{i}_{j}.JPEG\t{wnid}\t0\t0\t62\t62\n")
    files["val/val_annotations.txt"] = "".join(annotations).encode()
    files["test/images/test_0.JPEG"] = b"never opened"
    files = {f"tiny-imagenet-200/{name}": content for name, content in files.items()}
    if archive:
        with zipfile.ZipFile(folder / "tiny-imagenet-200.zip", "w") as target:
            for name, content in files.items():
                target.writestr(name, content)
    else:
        unpacked(folder, files)
    order = [(1, j) for j in range(6)] + [(2, j) for j in range(6)] + [(0, j) for j in range(6)]
    train = np.array([np.full((3, 64, 64), 40 * i + j) for i, j in order])
    labels = np.repeat([0, 1, 2], 6)
    shades = [99, 99, 100, 100, 101, 101]
    test = np.array([np.full((3, 64, 64), shade) for shade in shades])
    test_labels = np.array([2, 2, 0, 0, 1, 1])
    return Made(
        "tinyimagenet", folder, {"val_size": 5}, train, labels, test, test_labels, lossy=True
    )


NAMES = ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"]


def cifar10_jpeg(folder: Path) -> Made:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as archive:
        for part, n in (("train", 2), ("test", 1)):
            for k, name in enumerate(NAMES):
                for j in range(n):
                    content = jpeg(np.full((32, 32, 3), 20 * k + j, dtype=np.uint8))
                    info = tarfile.TarInfo(f"{part}/{name}/{j:04}.jpg")
                    info.size = len(content)
                    archive.addfile(info, io.BytesIO(content))
    (folder / "cifar10_jpegq75.tar.xz").write_bytes(lzma.compress(target.getvalue()))
    shades = np.array([20 * k + j for k in range(10) for j in range(2)])
    return Made(
        "cifar10-jpeg",
        folder,
        {"val_size": 5},
        np.broadcast_to(shades[:, None, None, None], (20, 3, 32, 32)),
        np.repeat(np.arange(10), 2),
        np.broadcast_to(20 * np.arange(10)[:, None, None, None], (10, 3, 32, 32)),
        np.arange(10),
        lossy=True,
    )


# MNIST


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">I{array.ndim}I", 0x800 + array.ndim, *array.shape) + array.tobytes()


def mnist(folder: Path, name: str, *, zipped: bool) -> Made:
    made = Made(name, folder, {"val_size": 5})
    for part, prefix, n in (("train", "train", 20), ("test", "t10k", 6)):
        pixels = colours(n, 28, n)[:, :1]
        digits = classes(n, 10)
        for kind, array in (("images-idx3", pixels[:, 0]), ("labels-idx1", digits)):
            content = idx(array.astype(np.uint8))
            path = folder / f"{prefix}-{kind}-ubyte"
            if zipped:
                path.with_name(path.name + ".gz").write_bytes(gzip.compress(content))
            else:
                path.write_bytes(content)
        setattr(made, part, pixels)
        setattr(made, f"{part}_labels", digits)
    return made


# Text


def messages(part: str, n: int) -> list[tuple[str, str, str]]:
    return [
        (
            ["sci.space", "rec.autos"][i % 2],
            str(1000 + i),
            f"From: someone{i}\nSubject: x\n\nThe {part} word{i % 3} ORBIT's engine_{i}! caf\xe9",
        )
        for i in range(n)
    ]


def newsgroups(folder: Path, form: str) -> Made:
    files = {}
    for part, n in (("train", 20), ("test", 6)):
        if form == "lines":
            lines = [
                json.dumps({"label": 9, "group": group, "id": name, "text": text})
                for group, name, text in messages(part, n)
            ]
            content = gzip.compress("\n".join(lines).encode())
            (folder / f"20news_bydate_{part}.jsonl.gz").write_bytes(content)
        for group, name, text in messages(part, n):
            files[f"20news-bydate-{part}/{group}/{name}"] = text.encode("latin-1")
    if form == "folder":
        unpacked(folder, files)
    if form == "archive":
        packed(folder / "20news-bydate.tar.gz", files)
    vectors = folder / "vectors.txt"
    vectors.write_text("the 1 2 3\nthe . . 7 8 9\norbit 0.5 -0.5 0\nunheard 9 9 9\n")
    return Made("20newsgroups", folder, {"val_size": 5, "embeddings": vectors})


TREES = {
    "train": [
        "(3 (2 The) (4 (3 (2 good) (2 -LRB-)) (3 fun)))",
        "(1 (1 bad) (2 film))",
        "(2 (2 a) (2 film))",
        "(4 great)",
        "(0 (0 awful) (2 (2 The) (2 end)))",
    ],
    "dev": ["(3 (3 Good) (2 end))", "(2 (2 so) (2 so))", "(0 (2 unheard) (1 bad))"],
    "test": ["(1 bad)", "(4 (2 the) (4 great))"],
}


def treebank(folder: Path, name: str, form: str) -> Made:
    texts = {part: "\n".join(lines) + "\n" for part, lines in TREES.items()}
    if form == "archive":
        with zipfile.ZipFile(folder / "trainDevTestTrees_PTB.zip", "w") as target:
            for part, text in texts.items():
                target.writestr(f"trees/{part}.txt", text)
    for part, text in texts.items():
        if form == "folder":
            unpacked(folder, {f"trees/{part}.txt": text.encode()})
        if form == "packed":
            (folder / f"sst_trees_{part}.txt.gz").write_bytes(gzip.compress(text.encode()))
    np.savez(
        folder / "vectors.npz",
        words=np.array(["the", "(", "unheard"]),
        vectors=np.array([[1, 2], [3, 4], [5, 6]], dtype=np.float16),
    )
    return Made(name, folder, {"embeddings": folder / "vectors.npz"})


# Tables


def table(folder: Path, form: str) -> Made:
    generator = np.random.default_rng(0)
    numbers = generator.normal(3.0, 2.0, (40, 3))
    numbers[:, 1] = 7.0
    labels = np.arange(40) % 3
    if form == "npz":
        names = np.array(["low", "mid", "high"])
        np.savez(folder / "a.npz", X=numbers.astype(np.float32), y=labels, classes=names)
        return Made("tabular", folder / "a.npz")
    with (folder / "a.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["length", "constant", "gap", "Class", "colour"])
        for i, row in enumerate(numbers):
            gap = "?" if i % 7 == 0 else repr(float(row[2]))
            writer.writerow([row[0], row[1], gap, "abc"[labels[i]], ["red", "blue"][i % 2]])
    return Made("tabular", folder / "a.csv")


MAKE: dict[str, Callable[[Path], Made]] = {
    "cifar10 python": lambda f: cifar(f, k=10, binary=False, archive=False),
    "cifar10 python, new": lambda f: cifar(f, k=10, binary=False, archive=False, modern=True),
    "cifar10 python.tar.gz": lambda f: cifar(f, k=10, binary=False, archive=True),
    "cifar10 binary": lambda f: cifar(f, k=10, binary=True, archive=False),
    "cifar10 binary.tar.gz": lambda f: cifar(f, k=10, binary=True, archive=True),
    "cifar100 python": lambda f: cifar(f, k=100, binary=False, archive=False),
    "cifar100 python.tar.gz": lambda f: cifar(f, k=100, binary=False, archive=True),
    "cifar100 binary": lambda f: cifar(f, k=100, binary=True, archive=False),
    "cifar100 binary.tar.gz": lambda f: cifar(f, k=100, binary=True, archive=True),
    "cifar10-jpeg": cifar10_jpeg,
    "svhn": svhn,
    "svhn-subset": svhn_subset,
    "tinyimagenet": tiny_imagenet,
    "tinyimagenet.zip": lambda f: tiny_imagenet(f, archive=True),
    "mnist": lambda f: mnist(f, "mnist", zipped=False),
    "mnist gz": lambda f: mnist(f, "mnist", zipped=True),
    "fashion-mnist gz": lambda f: mnist(f, "fashion-mnist", zipped=True),
    "20newsgroups folder": lambda f: newsgroups(f, "folder"),
    "20newsgroups.tar.gz": lambda f: newsgroups(f, "archive"),
    "20newsgroups lines": lambda f: newsgroups(f, "lines"),
    "sst-binary folder": lambda f: treebank(f, "sst-binary", "folder"),
    "sst-binary.zip": lambda f: treebank(f, "sst-binary", "archive"),
    "sst-fine gz": lambda f: treebank(f, "sst-fine", "packed"),
    "tabular npz": lambda f: table(f, "npz"),
    "tabular csv": lambda f: table(f, "csv"),
    "digits": lambda _: Made("digits", None),
}


@pytest.fixture(params=sorted(MAKE))
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    return MAKE[request.param](tmp_path)


def test_every_data_set_is_among_them():
    assert {name.partition(" ")[0].partition(".")[0] for name in MAKE} == set(DATASETS)


def whole(part: Any) -> tuple[Any, torch.Tensor]:
    return part.batch(torch.arange(len(part)))


def test_splits_are_disjoint_and_recorded(made):
    data = made.load()
    ids = np.concatenate([part.ids for part in (data.train, data.val, data.test)])
    assert len(set(ids)) == len(ids)
    sizes = {"train": len(data.train), "val": len(data.val), "test": len(data.test)}
    assert data.record["sizes"] == sizes
    assert json.loads(json.dumps(data.record, allow_nan=False)) == data.record
    assert data.record["seed"] == SEED
    assert data.record["name"] == data.name == made.name
    if made.folder is not None:
        assert data.record["files"]
        assert str(made.folder) not in json.dumps(data.record)
    for part in (data.train, data.val, data.test):
        assert len(part.ids) == len(part) == len(part.labels)
        assert part.labels.dtype == torch.int64
        assert 0 <= part.labels.min() <= part.labels.max() < data.n_classes


def same(first: Any, second: Any) -> bool:
    if isinstance(first, TreeBatch):
        fields = ("tokens", "children", "roots", "rows")
        return all(same(getattr(first, f), getattr(second, f)) for f in fields)
    return first.shape == second.shape and torch.equal(first, second)


def test_the_seed_decides(made):
    first, again, other = made.load(), made.load(), made.load(random_state=SEED + 1)
    for part in ("train", "val", "test"):
        one, two = getattr(first, part), getattr(again, part)
        assert (one.ids == two.ids).all()
        assert same(whole(one)[0], whole(two)[0])
        assert torch.equal(whole(one)[1], whole(two)[1])
    assert first.record == again.record
    assert first.train.ids.tolist() != other.train.ids.tolist()


def test_batches_follow_the_indices(made):
    data = made.load()
    for part in (data.train.evaluation(), data.val, data.test):
        indices = torch.tensor([len(part) - 1, 0, len(part) - 1])
        inputs, targets = part.batch(indices)
        assert torch.equal(targets, part.labels[indices])
        assert targets.dtype == torch.int64
        if data.kind == "trees":
            assert len(inputs) == 3
        elif data.kind == "tokens":
            assert inputs.dtype == torch.int64
            assert inputs.shape[0] == 3
            assert inputs.shape[1] <= data.input_shape[0]
        else:
            assert inputs.dtype == torch.float32
            assert inputs.shape == (3, *data.input_shape)
            assert torch.isfinite(inputs).all()
            assert torch.equal(inputs[0], inputs[2])


def test_limit_takes_the_first_of_the_seeded_order(made):
    data, fewer = made.load(), made.load(limit=3)
    assert fewer.train.ids.tolist() == data.train.ids[:3].tolist()
    assert fewer.val.ids.tolist() == data.val.ids.tolist()
    assert fewer.test.ids.tolist() == data.test.ids.tolist()
    assert fewer.record["limit"] == 3
    assert fewer.record["sizes"]["train"] == 3


IMAGES = [name for name in sorted(MAKE) if name.startswith(("cifar", "svhn", "tiny", "mn", "fa"))]


@pytest.mark.parametrize("form", [form for form in IMAGES if form != "svhn-subset"])
def test_images_are_those_in_the_files(form, tmp_path):
    """Undoing the normalisation gives the bytes back; its constants are the training split's."""
    made = MAKE[form](tmp_path)
    data = made.load(limit=11)
    mean, sd = (np.array(data.record["normalisation"][k]).reshape(-1, 1, 1) for k in ("mean", "sd"))
    stored = {"train": (made.train, made.train_labels)}
    stored["test"] = stored["validation"] = (made.test, made.test_labels)
    for part in (data.train, data.val, data.test):
        inputs, targets = whole(part)
        for place, name in enumerate(part.ids):
            source, _, row = name.partition("/")
            pixels, labels = stored[source]
            found = inputs[place].numpy() * sd + mean
            off = 1.01 if made.lossy else 1e-3
            np.testing.assert_allclose(found, pixels[int(row)], atol=off)
            assert targets[place] == labels[int(row)]
    rows = [int(name.partition("/")[2]) for name in data.train.ids]
    kept = made.train[rows].astype(float)
    np.testing.assert_allclose(kept.mean(axis=(0, 2, 3)), mean.ravel(), atol=2 * made.lossy + 1e-9)
    np.testing.assert_allclose(kept.std(axis=(0, 2, 3)), sd.ravel(), atol=2 * made.lossy + 1e-9)


class Step(nn.Module):
    """The smallest network that takes what the data set gives."""

    def __init__(self, data: DataSet) -> None:
        super().__init__()
        if data.vocabulary is not None:
            self.words = nn.Embedding(len(data.vocabulary), 8, padding_idx=0)
        size = 8 if data.vocabulary is not None else int(np.prod(data.input_shape))
        self.join = nn.Linear(16, 8)
        self.classifier = nn.Linear(size, data.n_classes)

    def forward(self, inputs: Any) -> torch.Tensor:
        if isinstance(inputs, TreeBatch):
            states = self.words(inputs.tokens)
            for level in inputs.levels[1:]:
                below = states[inputs.children[level]].flatten(1)
                states = torch.cat([states, self.join(below).tanh()])
            return self.classifier(states[inputs.rows])
        if inputs.dtype == torch.int64:
            return self.classifier(self.words(inputs).sum(1))
        return self.classifier(inputs.flatten(1))


def test_a_network_learns_from_it(made):
    data = made.load()
    torch.manual_seed(0)
    network = Step(data)
    optimiser = torch.optim.Adam(network.parameters(), lr=1e-4)
    losses = []
    for _ in range(5):
        inputs, targets = data.train.batch(torch.arange(min(16, len(data.train))))
        loss = nn.functional.cross_entropy(network(inputs), targets)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert losses[-1] < losses[0]
    if data.augment is not None:
        changed = data.augment(inputs, torch.Generator().manual_seed(1))
        nn.functional.cross_entropy(network(changed), targets).backward()
        assert all(torch.isfinite(p.grad).all() for p in network.classifier.parameters())
    with torch.no_grad():
        for part in (data.train.evaluation(), data.val, data.test):
            assert len(network(whole(part)[0])) == len(part)


def test_decoded_images_are_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(pictures, "MANY", 1)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cifar10_jpeg(tmp_path)

    def images():
        train = load("cifar10-jpeg", tmp_path, val_size=5).train
        return train.batch(torch.arange(len(train)))[0]

    first = images()
    (stored,) = (tmp_path / "cache" / "calibrant").iterdir()
    whole = stored.read_bytes()
    with monkeypatch.context() as patched:
        patched.setattr(pictures, "_cifar10_jpeg_pools", lambda path: pytest.fail("decoded again"))
        assert torch.equal(images(), first)
    stored.write_bytes(whole[: len(whole) // 2])
    assert torch.equal(images(), first)
    assert stored.read_bytes() == whole  # the damaged one was replaced
    stored.unlink()
    stored.parent.rmdir()
    stored.parent.write_text("a file in the way")
    assert torch.equal(images(), first)
