"""Files are data: nothing that calibrant reads from one is imported, called or unpickled."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
import json
import pickle
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result

import calibrant
from calibrant.files import read_predictions
from calibrant.integrations.hugging_face import TrainerLoss
from calibrant.losses import LOSSES
from calibrant.training import Recipe, recipe, train
from calibrant.training.datasets import load as load_data
from calibrant.training.grid import read_grid, run_grid
from tests.processes import run_calibrant

CANARY = "canary_of_files"
OWN = f"{CANARY}:network"
CPU = ("--accelerator", "cpu")
SHORT = ("--preset", "cpu", "--epochs", 1, "--limit", 64, "--observed", 0, *CPU)


@pytest.fixture
def canary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A module that can be imported, and the file that appears when it is."""
    folder, marker = tmp_path / "modules", tmp_path / "imported"
    folder.mkdir()
    (folder / f"{CANARY}.py").write_text(
        f"from pathlib import Path\nfrom torch import nn\nPath({str(marker)!r}).touch()\n\n"
        "def network(n_classes, **options):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, n_classes))\n"
    )
    monkeypatch.syspath_prepend(folder)
    yield marker
    sys.modules.pop(CANARY, None)


run = functools.partial(run_calibrant, "train")


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of a network of calibrant."""
    folder = tmp_path_factory.mktemp("runs") / "registered"
    done = run("digits", *SHORT, "-o", folder)
    assert done.exit_code == 0, done.output
    return folder


def changed(run_folder: Path, target: Path, **fields: Any) -> Path:
    """A copy of a run, whose ``config.json`` has another recipe."""
    shutil.copytree(run_folder, target)
    config = json.loads((target / "config.json").read_text())
    config["recipe"] |= fields
    (target / "config.json").write_text(json.dumps(config))
    return target


def refused(result: Result, *words: str) -> None:
    assert result.exit_code == 2, result.output
    (line,) = result.stderr.splitlines()
    for word in words:
        assert word in line


# ---------------------------------------------------------------- run folders


@pytest.mark.parametrize("finished", [True, False])
def test_a_run_folder_cannot_name_code(registered, tmp_path, canary, finished):
    folder = changed(registered, tmp_path / "run", model=OWN)
    if not finished:
        (folder / "result.json").unlink()
        (folder / "predictions.npz").unlink()
        shutil.rmtree(folder / "checkpoints")
    refused(
        run("--resume", folder, *CPU),
        "may only name networks of calibrant",
        f"--model '{OWN}' again",
    )
    refused(run("--resume", folder, "--model", "mlp", *CPU), "'mlp' was given", OWN)
    refused(run("digits", "--preset", "cpu", "--resume", folder, *CPU), OWN)
    with pytest.raises(ValueError, match="may only name networks of calibrant"):
        train(recipe("digits"), folder, resume=True, accelerator="cpu")
    assert not canary.exists()


def test_a_shell_command_in_a_run_folder_does_not_run(registered, tmp_path):
    marker = tmp_path / "executed"
    options = {"file": "touch", "args": ["touch", str(marker)]}
    folder = changed(registered, tmp_path / "run", model="os:spawnvp", model_options=options)
    (folder / "result.json").unlink()
    refused(run("--resume", folder, *CPU), "'os:spawnvp', which is code to import and run")
    assert not marker.exists()


def test_a_run_with_a_network_of_ones_own_is_resumed_when_it_is_named_again(tmp_path, canary):
    folder = tmp_path / "run"
    begun = run("digits", "--model", OWN, *SHORT, "-o", folder)
    assert begun.exit_code == 0, begun.output
    logits = np.load(folder / "predictions.npz")["test_logits"]
    for name in ("result.json", "predictions.npz"):
        (folder / name).unlink()
    canary.unlink()
    refused(run("--resume", folder, *CPU), f"found '{OWN}'", "If you trust it, pass --model")
    refused(run("--resume", folder, "--model", f"{OWN}s", *CPU), f"'{OWN}s' was given")
    refused(run("--resume", folder, "--model", OWN, "--loss", "fl-3", *CPU), "--loss cannot be")
    resumed = run("--resume", folder, "--model", OWN, *CPU)
    assert resumed.exit_code == 0, resumed.output
    np.testing.assert_array_equal(np.load(folder / "predictions.npz")["test_logits"], logits)


def test_a_registered_network_is_not_named_again(registered):
    refused(
        run("--resume", registered, "--model", "mlp", *CPU),
        "--model cannot be",
        "leave it",
    )


@pytest.mark.parametrize("field", ["loss", "data", "optimizer", "choice"])
def test_other_fields_are_names_out_of_a_list(registered, tmp_path, canary, field):
    folder = changed(registered, tmp_path / "run", **{field: OWN})
    refused(run("--resume", folder, *CPU), OWN)
    assert not canary.exists()


def test_plain_data_names_code_only_if_the_caller_does_too(canary):
    plain = recipe("digits", model=OWN).to_dict()
    with pytest.raises(ValueError, match=f"found '{OWN}'.* If you trust it, pass own_model="):
        Recipe.from_dict(plain)
    with pytest.raises(ValueError, match="'os:system' was given"):
        Recipe.from_dict(plain, own_model="os:system")
    assert Recipe.from_dict(plain, own_model=OWN).model == OWN
    assert not canary.exists()


# ---------------------------------------------------------------- grids


@pytest.mark.parametrize("models", [OWN, ["mlp", OWN]])
@pytest.mark.parametrize("ending", ["json", "toml"])
def test_a_grid_in_a_file_cannot_name_code(tmp_path, canary, ending, models):
    path = tmp_path / f"grid.{ending}"
    text = json.dumps(models)
    path.write_text(
        f'{{"data": "digits", "model": {text}}}'
        if ending == "json"
        else f'data = "digits"\nmodel = {text}\n'
    )
    refused(run("--grid", path, "-o", tmp_path / "out"), OWN, "run_grid in Python")
    with pytest.raises(ValueError, match="may only name networks of calibrant"):
        read_grid(path)
    assert not (tmp_path / "out").exists()
    assert not canary.exists()


def test_a_grid_in_python_may_and_its_runs_are_resumed(tmp_path, canary):
    settings = {"epochs": 1, "limit": 64, "observed": 0}
    grid = {"data": "digits", "model": OWN, "settings": settings}
    result = run_grid(grid, tmp_path / "out", processes=1)
    assert result.failures == {}
    assert canary.exists()
    for path in (tmp_path / "out").glob("*/result.json"):
        path.unlink()
    again = run_grid(grid, tmp_path / "out", processes=1)
    assert again.failures == {}
    assert len(again.results) == 1


def test_the_runs_of_a_grid_import_nothing_from_the_working_folder(tmp_path, monkeypatch):
    """A folder that came with a grid may hold files by the names of packages."""
    for name in ("lightning", "torch", "calibrant", "one_run"):
        (tmp_path / f"{name}.py").write_text("open('imported', 'w')\n")
    settings = {"epochs": 1, "limit": 64, "observed": 0}
    (tmp_path / "grid.json").write_text(json.dumps({"data": "digits", "settings": settings}))
    monkeypatch.chdir(tmp_path)
    done = run("--grid", "grid.json", "-o", "out", "--processes", 1)
    assert done.exit_code == 0, done.output
    assert not (tmp_path / "imported").exists()


# ---------------------------------------------------------------- every other reader

PAYLOAD = f"c{CANARY}\nnetwork\n(K\x0atR.".encode()
"""A pickle that imports the canary and calls it."""


def objects() -> bytes:
    """A ``.npy`` of Python objects."""
    content = io.BytesIO()
    header = {"descr": "|O", "fortran_order": False, "shape": (1,)}
    np.lib.format.write_array_header_1_0(content, header)
    return content.getvalue() + PAYLOAD


def zipped(path: Path, entries: dict[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in entries.items():
            archive.writestr(name, content)
    return path


def checkpoint(path: Path) -> Path:
    return zipped(path, {"a/data.pkl": PAYLOAD, "a/version": b"3\n", "a/byteorder": b"little"})


def read_npz(folder: Path, _: Path) -> None:
    read_predictions(zipped(folder / "a.npz", {"logits.npy": objects(), "labels.npy": objects()}))


def read_pickle_as_npz(folder: Path, _: Path) -> None:
    (folder / "a.npz").write_bytes(PAYLOAD)
    read_predictions(folder / "a.npz")


def read_parquet(folder: Path, _: Path) -> None:
    """With a type of its own, which old versions of PyArrow unpickled."""
    about = {"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": PAYLOAD}
    field = pa.field("logit_0", pa.float64(), metadata=about)
    table = pa.table([pa.array([0.5])], schema=pa.schema([field], metadata={"pandas": PAYLOAD}))
    pq.write_table(table, folder / "a.parquet")
    read_predictions(folder / "a.parquet")


def load_calibrator(folder: Path, _: Path) -> None:
    labels = np.arange(400) % 3
    calibrant.Identity().fit(np.eye(3)[labels], labels).save(folder / "cal.json")
    (folder / "cal.json").write_text(
        (folder / "cal.json").read_text().replace('"identity"', f'"{OWN}"', 1)
    )
    calibrant.load(folder / "cal.json")


def load_calibrator_of_a_plugin(folder: Path, _: Path) -> None:
    labels = np.arange(400) % 3
    calibrant.Identity().fit(np.eye(3)[labels], labels).save(folder / "cal.json")
    content = json.loads((folder / "cal.json").read_text())
    content |= {"method": CANARY, "plugin": {"module": CANARY, "package": f"{CANARY} 1.0"}}
    (folder / "cal.json").write_text(json.dumps(content))
    refused(
        run_calibrant("info", folder / "cal.json"),
        f"the file says that the plug-in '{CANARY} 1.0' wrote it",
        f"If you trust it, install it, or add --plugin '{CANARY}'",
    )


def load_pickle_as_calibrator(folder: Path, _: Path) -> None:
    (folder / "cal.json").write_bytes(PAYLOAD)
    calibrant.load(folder / "cal.json")


def read_cifar(folder: Path, _: Path) -> None:
    for name in ("train", "test"):
        (folder / name).write_bytes(b"\x80\x02}U\x04data" + PAYLOAD[:-1] + b"s.")
    load_data("cifar100", folder)


def read_table(folder: Path, _: Path) -> None:
    load_data("tabular", zipped(folder / "a.npz", {"X.npy": objects(), "y.npy": objects()}))


def read_svhn_subset(folder: Path, _: Path) -> None:
    entries = {f"{part}_{axis}.npy": objects() for part in ("train", "val") for axis in "xy"}
    zipped(folder / "svhn32_subset.npz", entries)
    load_data("svhn-subset", folder)


def read_word_vectors(folder: Path, _: Path) -> None:
    for part in ("train", "test"):
        lines = [
            json.dumps({"group": group, "id": i, "text": "word"}) for i, group in enumerate("ab")
        ]
        (folder / f"20news_bydate_{part}.jsonl").write_text("\n".join(lines))
    vectors = zipped(folder / "words.npz", {"words.npy": objects(), "vectors.npy": objects()})
    load_data("20newsgroups", folder, val_size=1, embeddings=vectors)


def resume_from_checkpoints(folder: Path, registered: Path) -> None:
    place = shutil.copytree(registered, folder / "run")
    (place / "predictions.npz").unlink()
    for path in (place / "checkpoints").iterdir():
        checkpoint(path)
    assert run("--resume", place, *CPU).exit_code == 0  # it begins anew


def resume_with_predictions(folder: Path, registered: Path) -> None:
    place = shutil.copytree(registered, folder / "run")
    names = ("val_logits", "val_labels", "test_logits", "test_labels")
    zipped(place / "predictions.npz", {f"{name}.npy": objects() for name in names})
    refused(run("--resume", place, *CPU), "predictions.npz")


def resume_with_plain_files(folder: Path, registered: Path) -> None:
    for name in ("config.json", "environment.json", "result.json", "metrics.jsonl"):
        place = shutil.copytree(registered, folder / name)
        (place / "predictions.npz").unlink()
        (place / name).write_bytes(PAYLOAD)
        run("--resume", place, *CPU)


def resume_a_trainer(folder: Path, _: Path) -> None:
    (folder / "checkpoint-6").mkdir()
    checkpoint(folder / "checkpoint-6" / "calibrant_loss.pt")
    arguments: Any = SimpleNamespace(
        output_dir=folder, label_smoothing_factor=0.0, eval_strategy="epoch"
    )
    loss = TrainerLoss(LOSSES["adafocal"]())
    loss.on_train_begin(arguments, SimpleNamespace(global_step=6), SimpleNamespace())


READERS: tuple[Callable[[Path, Path], None], ...] = (
    *(read_npz, read_pickle_as_npz, read_parquet, load_calibrator, load_pickle_as_calibrator),
    load_calibrator_of_a_plugin,
    *(read_cifar, read_table, read_svhn_subset, read_word_vectors),
    *(resume_from_checkpoints, resume_with_predictions, resume_with_plain_files, resume_a_trainer),
)


@pytest.mark.filterwarnings("ignore:pickle-based deserialization")
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.__name__)
def test_no_reader_imports_what_a_file_names(reader, registered, tmp_path, canary):
    folder = tmp_path / "files"
    folder.mkdir()
    with contextlib.suppress(ValueError, TypeError, OSError):
        reader(folder, registered)
    assert not canary.exists()


def test_the_canary_sings(canary):
    pickle.loads(PAYLOAD)
    assert canary.exists()


# ---------------------------------------------------------------- the source itself

SOURCE = Path(calibrant.__file__).parent
RUNNERS = frozenset(
    {"import_module", "__import__", "find_spec", "exec_module", "run_path", "entry_points"}
)
BUILTINS = frozenset({"eval", "exec", "compile"})
MODULES = frozenset(
    {
        *("pickle", "_pickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "copyreg"),
        *("runpy", "code", "codeop", "imp", "yaml", "subprocess"),
    }
)
ALLOWED = {
    ("__init__.py", "import_module"): "one of ON_FIRST_USE, which are constant names",
    ("_inputs/values.py", "find_spec"): "of the packages of an extra; of a network of one's own",
    ("_numerics/compiled.py", "pickle"): "the cache of compiled functions, in a trusted folder",
    ("_registry.py", "entry_points"): "plug-ins that are installed, in groups of constant names",
    ("calibrators/export/torch_program.py", "getattr of torch"): "one of DTYPES",
    ("calibrators/origin.py", "entry_points"): "the name of a package, which is not imported",
    ("cli/__init__.py", "getattr of signal"): "of constant names",
    ("cli/options.py", "import_module"): "--plugin of the command line",
    ("cli/train.py", "own_model"): "--model of the command line",
    ("scale/workers.py", "pickle"): "between this process and the workers that it started",
    ("scale/workers.py", "subprocess"): "those workers",
    ("training/datasets/pickles.py", "pickle"): "the class of an error alone",
    ("training/folders.py", "own_model"): "passed on; the recipe that the caller gave",
    ("training/folders.py", "subprocess"): "git, for the commit of a checkout",
    ("training/grid.py", "subprocess"): "the runs of a grid",
    ("training/models/registry.py", "import_module"): "build: a network of one's own",
    ("training/one_run.py", "own_model"): "from the parent process, which let it pass",
    ("training/papers.py", "own_model"): "the model of a recipe that was made already",
}
"""What may import, run or unpickle something, and what decides what that is: never a file."""


def dangers(tree: ast.Module) -> Iterator[str]:
    """What in a module could run something that a string names."""
    imported: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
            yield from (
                name for alias in node.names if (name := alias.name.split(".")[0]) in MODULES
            )
        elif isinstance(node, ast.ImportFrom):
            if node.module in ("calibrant", "torch", "numpy", "os", "importlib"):
                imported |= {alias.asname or alias.name for alias in node.names}
            if (node.module or "").split(".")[0] in MODULES:
                yield str(node.module).split(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and node.id in RUNNERS | BUILTINS:
            yield node.id
        elif isinstance(node, ast.Attribute) and node.attr in RUNNERS:
            yield node.attr
        elif isinstance(node, ast.Call):
            yield from dangers_of_call(node, imported)


def dangers_of_call(call: ast.Call, imported: set[str]) -> Iterator[str]:
    given = {word.arg: word.value for word in call.keywords}
    function = ast.unparse(call.func)
    safe = {"allow_pickle": False, "weights_only": True}
    for name, value in safe.items():
        constant = given.get(name)
        if name in given and not (isinstance(constant, ast.Constant) and constant.value is value):
            yield f"{function} with {name}"
    for loader, name in (("torch.load", "weights_only"), ("np.load", "allow_pickle")):
        if function == loader and name not in given:
            yield f"{function} without {name}"
    if function in ("getattr", "setattr") and ast.unparse(call.args[0]) in imported:
        yield f"{function} of {ast.unparse(call.args[0])}"
    if "own_model" in given:
        yield "own_model"


def test_nothing_else_in_the_source_runs_what_a_string_names():
    found = {
        (file.relative_to(SOURCE).as_posix(), danger)
        for file in SOURCE.rglob("*.py")
        for danger in dangers(ast.parse(file.read_text(encoding="utf-8")))
    }
    assert found == set(ALLOWED)


@pytest.mark.parametrize(
    "code",
    [
        *("import pickle", "from pickle import loads", "import yaml as y", "eval(text)"),
        *("__import__(name)", "importlib.import_module(name)", "f = import_module", "exec(text)"),
        *("torch.load(path)", "torch.load(path, weights_only=False)", "np.load(path)"),
        *("np.load(path, allow_pickle=True)", "loaded(path, allow_pickle=flag)"),
        *("import os\ngetattr(os, name)", "Recipe.from_dict(plain, own_model=name)"),
    ],
)
def test_what_would_be_found(code):
    assert list(dangers(ast.parse(code)))
