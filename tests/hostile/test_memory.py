"""Files that declare more than the memory holds get one line, whoever runs out of it."""

from __future__ import annotations

import io
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import calibrant
from calibrant.files import read_predictions
from tests.processes import run_python

WIDTH = 1 << 27
# What is compiled and loaded before does not count, so that the room is that of the data.
COMMAND = """
import contextlib, resource, sys
from calibrant.cli import main

room = int(sys.argv.pop(1))
with contextlib.redirect_stdout(None):
    main(["evaluate", "small.npz"], standalone_mode=False)
with open("/proc/self/statm") as file:
    used = int(file.read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + room, used + room))
main(prog_name="calibrant")
"""
on_linux = pytest.mark.skipif(
    not sys.platform.startswith("linux"), reason="the memory of a process is limited as on Linux"
)


def with_room(room: int, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that has ``room`` bytes for its data."""
    return run_python(
        "-c", COMMAND, room, *arguments, cwd=folder, environment={"NUMBA_NUM_THREADS": "2"}
    )


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files of one row with 134 million zeros."""
    folder = tmp_path_factory.mktemp("wide")
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 40)
    logits = rng.normal(size=(40, 3)).astype(np.float32) + 2.0 * np.eye(3, dtype="f4")[labels]
    np.savez(folder / "small.npz", logits=logits, labels=labels)
    calibrant.Identity().fit(logits, labels).save(folder / "cal.json")
    for name, dtype in (("int8", np.int8), ("float16", np.float16)):
        row = np.zeros((1, WIDTH), dtype=dtype)
        np.savez_compressed(folder / f"{name}.npz", logits=row, labels=[0])
    lists = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(WIDTH, dtype=np.float32)), WIDTH)
    pq.write_table(pa.table({"logits": lists, "label": [0]}), folder / "lists.parquet")
    return folder


ROOM = {
    "int8.npz": 1 << 29,  # for the file, and not for its numbers in double precision
    "float16.npz": 3 << 28,  # for these, and not for what a compiled pass makes of them
    "lists.parquet": 1 << 28,  # not for the file
}


@on_linux
@pytest.mark.parametrize(
    ("file", "arguments"),
    [
        *((file, ("evaluate", "FILE")) for file in ROOM),
        ("float16.npz", ("fit", "FILE", "--method", "temperature", "-o", "new.json")),
        ("float16.npz", ("apply", "cal.json", "FILE", "-o", "out.npz")),
        ("int8.npz", ("compare", "FILE", "FILE", "--method", "temperature")),
        ("lists.parquet", ("report", "FILE", "FILE", "--method", "temperature")),
    ],
)
def test_a_row_that_does_not_fit(wide: Path, file: str, arguments: tuple[str, ...]) -> None:
    before = set(wide.iterdir())
    done = with_room(ROOM[file], wide, *(file if word == "FILE" else word for word in arguments))
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("Error: ")
    # The scores of a row are counted before the calibrator of three classes sees them.
    assert "memory" in line or f"fitted on 3 classes; found {WIDTH}" in line
    assert set(wide.iterdir()) == before


def claiming(path: Path, width: int) -> Path:
    """An archive of a few bytes whose directory and header agree on a row of float32."""
    stream = io.BytesIO()
    shape = {"descr": "<f4", "fortran_order": False, "shape": (1, width)}
    np.lib.format.write_array_header_1_0(stream, shape)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("logits.npy", stream.getvalue())
    data = bytearray(path.read_bytes())
    entry = data.index(b"PK\x01\x02")
    struct.pack_into("<I", data, entry + 24, len(stream.getvalue()) + 4 * width)
    path.write_bytes(data)
    return path


def test_a_few_bytes_that_claim_four_gigabytes(tmp_path: Path) -> None:
    path = claiming(tmp_path / "a.npz", (1 << 30) - 100)
    assert path.stat().st_size < 1000
    with pytest.raises(ValueError, match=r"a\.npz (cannot be read|does not fit)") as line:
        read_predictions(path)
    assert "\n" not in str(line.value)


@pytest.mark.parametrize("threads", ["1", "2"])
def test_a_compiled_pass_that_runs_out_of_memory_says_so(tmp_path: Path, threads: str) -> None:
    """Also where it runs on threads."""
    file = tmp_path / "allocating.py"
    file.write_text(
        "import numpy as np\n"
        "from calibrant._numerics.compiled import over_rows\n"
        "@over_rows\n"
        "def allocate(start, stop, out, size):\n"
        "    for i in range(start, stop):\n"
        "        out[i] = np.empty(size)[0]\n"
        "try:\n"
        "    allocate(np.zeros(1 << 21), 1 << 50)\n"
        "except MemoryError:\n"
        "    print('out of memory')\n"
    )
    done = run_python(file, environment={"NUMBA_NUM_THREADS": threads})
    assert done.stdout == "out of memory\n", done.stderr
