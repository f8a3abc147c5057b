"""The cache of compiled functions: absent, read-only, full, damaged or open to other users."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.processes import run_python

PACKAGE = Path(__file__).resolve().parents[2] / "src" / "calibrant"

# One small function: whatever is wrong with a cache shows in any of them.
BINS = """
import numpy as np
from calibrant._numerics.first_use import few_up_to
from calibrant.metrics.binning import width_index
with few_up_to(0):  # compiled, although there are few numbers
    print(width_index(np.linspace(0, 1, 7), 3).tolist())
"""
RESULT = "[0, 0, 0, 1, 1, 2, 2]"
WARNING = "compiled functions are not cached: "


def run(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process whose standard output says what is read from the cache and written to it."""
    return run_python(
        *arguments, environment={"NUMBA_DEBUG_CACHE": "1", "NUMBA_NUM_THREADS": "1", **environment}
    )


def bins(code: str = BINS, **environment: str) -> subprocess.CompletedProcess[str]:
    """A process that must succeed, whatever the cache is like."""
    done = run("-c", code, **environment)
    assert done.returncode == 0, done.stderr
    assert RESULT in done.stdout
    return done


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder as a first process leaves it."""
    folder = tmp_path_factory.mktemp("filled")
    assert "data saved" in bins(NUMBA_CACHE_DIR=str(folder)).stdout
    return folder


@pytest.fixture
def cache(filled: Path, tmp_path: Path) -> Path:
    """A copy of such a folder."""
    return shutil.copytree(filled, tmp_path / "cache")


@pytest.fixture(scope="module")
def read_only(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a process that finds no folder for a cache.

    Files stand where the folders would be, which stops the superuser too.
    """
    root = tmp_path_factory.mktemp("read-only")
    copy = shutil.copytree(PACKAGE, root / "calibrant", ignore=shutil.ignore_patterns("*.pyc"))
    for folder in [copy, *(path for path in copy.rglob("*") if path.is_dir())]:
        if folder.name != "__pycache__":
            shutil.rmtree(folder / "__pycache__", ignore_errors=True)
            (folder / "__pycache__").touch()
    (root / "file").touch()
    below = str(root / "file" / "folder")
    return {
        "PYTHONPATH": str(root),
        "HOME": below,
        "XDG_CACHE_HOME": below,
        "NUMBA_CACHE_DIR": "",
    }


def predictions(folder: Path) -> str:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 40)
    file = folder / "predictions.npz"
    np.savez(file, logits=rng.normal(size=(40, 3)) + 2.0 * np.eye(3)[labels], labels=labels)
    return str(file)


def test_a_second_process_compiles_nothing(cache: Path) -> None:
    again = bins(NUMBA_CACHE_DIR=str(cache))
    assert "data loaded" in again.stdout
    assert "saved" not in again.stdout
    assert again.stderr == ""


def test_a_settings_file_beside_the_data_does_not_choose_the_cache(tmp_path: Path) -> None:
    work, elsewhere = tmp_path / "work", tmp_path / "elsewhere"
    work.mkdir()
    (work / ".numba_config.yaml").write_text(f"cache_dir: {elsewhere}\n")
    code = f"import os; os.chdir({str(work)!r})\n{BINS}"
    bins(code, NUMBA_CACHE_DIR=str(tmp_path / "mine"))
    assert (tmp_path / "mine").is_dir()
    assert not elsewhere.exists()


def test_without_a_folder_functions_are_compiled_and_it_is_said_once(
    read_only: dict[str, str],
) -> None:
    done = bins(**read_only)
    assert done.stderr.count(WARNING) == 1
    assert "neither NUMBA_CACHE_DIR, the package nor the user's cache folder" in done.stderr
    assert "Set NUMBA_CACHE_DIR to a folder" in done.stderr


def test_commands_work_without_a_folder(read_only: dict[str, str], tmp_path: Path) -> None:
    done = run("-m", "calibrant", "evaluate", predictions(tmp_path), **read_only)
    assert done.returncode == 0, done.stderr
    assert "ECE" in done.stdout
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"Warning: {WARNING}")


def test_a_cache_folder_that_cannot_be_made_is_passed_over(
    read_only: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    below = str(tmp_path / "file" / "folder")
    assert WARNING in bins(**{**read_only, "NUMBA_CACHE_DIR": below}).stderr
    home = {**read_only, "NUMBA_CACHE_DIR": below, "XDG_CACHE_HOME": str(tmp_path / "home")}
    assert bins(**home).stderr == ""
    assert list((tmp_path / "home").rglob("*.nbi"))


def test_a_cache_folder_that_does_not_exist_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    assert bins(NUMBA_CACHE_DIR=str(folder)).stderr == ""
    assert list(folder.rglob("*.nbi"))


def test_a_full_disk(tmp_path: Path) -> None:
    """Files may have 4 kB: room for an index, and none for what it points to."""
    limit = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
    done = bins(limit + BINS, NUMBA_CACHE_DIR=str(tmp_path))
    assert done.stderr.count(WARNING) == 1
    assert "File too large" in done.stderr
    # An index without its data could point to what an earlier version has left.
    assert not list(tmp_path.rglob("*.nbi"))
    assert "data saved" in bins(NUMBA_CACHE_DIR=str(tmp_path)).stdout


def test_a_cache_folder_that_disappears_while_running(tmp_path: Path) -> None:
    folder = tmp_path / "cache"
    gone = f"""
import shutil, pathlib, calibrant.metrics.kernels
shutil.rmtree({str(folder)!r})
pathlib.Path({str(folder)!r}).touch()
"""
    assert bins(gone + BINS, NUMBA_CACHE_DIR=str(folder)).stderr.count(WARNING) == 1


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda data: b"",
    "cut short": lambda data: data[: len(data) // 2],
    "zeros": lambda data: bytes(len(data)),
    "text": lambda data: b"not a pickle",
    "something else": lambda data: pickle.dumps(17) + pickle.dumps(None),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("ending", ["nbi", "nbc"])
def test_damaged_files_are_replaced(cache: Path, ending: str, damage: str) -> None:
    files = list(cache.rglob(f"*.{ending}"))
    assert files
    for file in files:
        file.write_bytes(DAMAGE[damage](file.read_bytes()))
    done = bins(NUMBA_CACHE_DIR=str(cache))
    assert done.stderr == ""
    assert "data saved" in done.stdout
    again = bins(NUMBA_CACHE_DIR=str(cache))
    assert "data loaded" in again.stdout
    assert "saved" not in again.stdout


def test_damaged_machine_code_does_not_run(cache: Path) -> None:
    """A pickle may have its form and yet hold other bytes."""
    for file in cache.rglob("*.nbc"):
        data = bytearray(file.read_bytes())
        start = data.find(b"\x7fELF")
        if start < 0:
            pytest.skip("object files of this platform are of another kind")
        data[start + 64 : start + 4096] = bytes(4096 - 64)
        file.write_bytes(data)
    assert "data saved" in bins(NUMBA_CACHE_DIR=str(cache)).stdout


def test_commands_work_with_a_damaged_index(cache: Path, tmp_path: Path) -> None:
    file = predictions(tmp_path)
    environment = {"NUMBA_CACHE_DIR": str(cache)}
    first = run("-m", "calibrant", "evaluate", file, **environment)
    assert first.returncode == 0, first.stderr
    for index in cache.rglob("*.nbi"):
        index.write_bytes(b"")
    again = run("-m", "calibrant", "evaluate", file, **environment)
    assert again.returncode == 0, again.stderr
    assert "Aborted" not in again.stderr


class Trap:
    """A pickle that makes a file when it is read."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return Path.touch, (self.marker,)


def trapped(cache: Path, marker: Path) -> None:
    for index in cache.rglob("*.nbi"):
        index.write_bytes(pickle.dumps(Trap(marker)))


@pytest.mark.skipif(sys.platform == "win32", reason="modes do not show who may write")
def test_a_cache_that_others_can_write_to_is_not_read(cache: Path, tmp_path: Path) -> None:
    trapped(cache, tmp_path / "trapped")
    for folder in cache.iterdir():
        folder.chmod(0o777)
    done = bins(NUMBA_CACHE_DIR=str(cache))
    assert not (tmp_path / "trapped").exists()
    assert done.stderr.count(WARNING) == 1
    assert "other users can write to" in done.stderr


@pytest.mark.skipif(
    sys.platform == "win32" or os.geteuid() != 0, reason="only root gives files to others"
)
def test_a_cache_that_belongs_to_someone_else_is_not_read(cache: Path, tmp_path: Path) -> None:
    trapped(cache, tmp_path / "trapped")
    for folder in cache.iterdir():
        os.chown(folder, 65534, 65534)
    assert "other users can write to" in bins(NUMBA_CACHE_DIR=str(cache)).stderr
    assert not (tmp_path / "trapped").exists()
