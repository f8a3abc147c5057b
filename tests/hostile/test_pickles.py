"""CIFAR pickles made to crash, to hang or to fill the memory of whoever reads them."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pytest

from calibrant.training.datasets.pickles import MOST_INSTRUCTIONS, read_plain_pickle
from tests.processes import run_python

DEEP = 300_000
WIDE = b")q\x00" + b"".join(b"h%c\x86q%c" % (i, i + 1) for i in range(60))
"""A tuple of the same tuple twice, of the same tuple twice, ...: 2 ** 60 leaves to look at."""
START, ENTRY = b"\x80\x02}", b"K\x01s."
BOMBS = {
    # Python hashes nested tuples on the C stack, without a limit.
    "a deep tuple as a key": START + b")" + b"\x85" * DEEP + ENTRY,
    "a deep tuple as a key, one of several": (
        START + b"(U\x01aK\x01)" + b"\x85" * DEEP + b"K\x02u."
    ),
    "a deep tuple as a key, by LIST and DICT": b"()" + b"\x85" * DEEP + b"I1\nd.",
    "a wide tuple as a key": START + WIDE + ENTRY,
    "a deep tuple in a set": b"\x80\x04\x8f()" + b"\x85" * DEEP + b"\x90.",
    "a deep tuple in a frozen set": b"\x80\x04()" + b"\x85" * DEEP + b"\x91.",
    "a deep list as a key": START + b"]" * DEEP + b"a" * (DEEP - 1) + ENTRY,
    "a list as a function": START + b"])R.",
    "a module name that is a deep tuple": b"\x80\x04)" + b"\x85" * DEEP + b"\x8c\x01a\x93.",
    "a string as arguments": START + b"cnumpy\nndarray\nU\x01aR.",
    "a state for a list": START + b"]Nb.",
    "an append to a dictionary": START + b"Na.",
    "keys without values": START + b"(U\x01au.",
    "a mark that is missing": START + b"u.",
    "nothing": b".",
    "nothing in the memo": b"h\x07.",
    "an extension": b"\x80\x02\x82\x01.",
    "a persistent id": b"Pid\n.",
    "a class by INST": b"(icalibrant.datasets.pickles\nStoredArray\n.",
    "a string of 2 GB": b"T" + struct.pack("<i", 2**31 - 1) + b"a.",
    "a string of a negative length": b"T" + struct.pack("<i", -1) + b"a.",
    "bytes of 2 ** 63": b"\x8e" + struct.pack("<Q", 2**63) + b"a.",
    "bytes of 2 ** 62": b"\x8e" + struct.pack("<Q", 2**62) + b"a.",
    "text of 2 ** 64": b"\x8d" + struct.pack("<Q", 2**64 - 1) + b"a.",
    "a number of 2 GB": b"\x8b" + struct.pack("<i", 2**31 - 1) + b"a.",
    "a frame of 2 ** 63 without content": b"\x80\x04\x95" + struct.pack("<Q", 2**63),
    "a number of many digits": b"L" + b"9" * 100_000 + b"L\n.",
    "too many instructions": b"}" * (MOST_INSTRUCTIONS + 1) + b".",
}
DEEP_VALUES = {
    "lists": b"]" * DEEP + b"a" * (DEEP - 1),
    "dictionaries": b"}" + b"U\x01a}" * (DEEP - 1) + b"s" * (DEEP - 1),
    "tuples": b")" + b"\x85" * DEEP,
    "wide tuples": WIDE,
    "a list in itself": b"]q\x00h\x00a",
}


PROGRAM = """
import resource, sys
from pathlib import Path
from calibrant.training.datasets.pickles import read_plain_pickle

resource.setrlimit(resource.RLIMIT_AS, (8 << 30, 8 << 30))
for file in sorted(Path(sys.argv[1]).iterdir()):
    try:
        read_plain_pickle(file.read_bytes())
        found = "read"
    except Exception as refusal:
        found = type(refusal).__name__
    print(file.name, found, sep=": ", flush=True)
"""


def test_bombs_are_refused(tmp_path):
    """In a process of their own: a crash or a flood of memory ends it, and not the tests."""
    for name, content in BOMBS.items():
        (tmp_path / name).write_bytes(content)
    done = run_python("-c", PROGRAM, tmp_path)
    said = dict(line.split(": ") for line in done.stdout.splitlines())
    assert done.returncode == 0, (done.returncode, said, done.stderr)
    assert said.keys() == BOMBS.keys()
    assert {*said.values()} <= {"UnpicklingError", "ValueError", "TypeError"}, said


@pytest.mark.parametrize("kind", DEEP_VALUES)
def test_deep_values_are_read_and_let_go(kind):
    found = read_plain_pickle(START + b"U\x01a" + DEEP_VALUES[kind] + b"s.")
    assert found.keys() == {"a"}


def test_a_memo_at_the_end_of_its_range_costs_nothing():
    assert read_plain_pickle(START + b"r\xff\xff\xff\xffj\xff\xff\xff\xff.") == {}


def test_a_shape_that_cannot_be_shown_is_refused():
    """A tuple of 2 ** 60 leaves, where the shape of an array must be."""
    array = b"cnumpy\nndarray\n)R(K\x01" + WIDE + b"cnumpy\ndtype\nU\x02u1\x85R\x89U\x00tb"
    found = read_plain_pickle(START + b"U\x01a" + array + b"s.")
    with pytest.raises(ValueError, match="does not consist of integers"):
        found["a"].bytes_of((-1, 3072))


@pytest.mark.parametrize("protocol", range(5))
def test_every_protocol_is_read(protocol):
    pixels = np.arange(12, dtype=np.uint8).reshape(4, 3) + 200
    stored = {
        "data": pixels,
        b"labels": [3, 70_000, -1],
        "others": [None, True, False, 1.5, "ä", b"\xff", (), (1,), (1, 2), (1, 2, 3), (1,) * 5, {}],
    }
    found = read_plain_pickle(pickle.dumps(stored, protocol=protocol))
    np.testing.assert_array_equal(found["data"].bytes_of((-1, 3)), pixels)
    assert found["labels"] == [3, 70_000, -1]
    as_text = [value if value != b"\xff" else found["others"][5] for value in stored["others"]]
    assert found["others"] == as_text
    assert found["others"][5] in (b"\xff", "\xff")


@pytest.mark.filterwarnings("ignore:invalid escape sequence")
def test_random_bytes_and_changed_bytes_are_read_or_refused():
    rng = np.random.default_rng(0)
    stored = {"data": np.zeros((2, 3), np.uint8), "labels": [1, 2], "filenames": [b"a", b"b"]}
    whole = [pickle.dumps(stored, protocol=protocol) for protocol in range(5)]
    codes = b"().0]}abdehijqrstuvXUTKMJIcR\x80\x85\x86\x87\x8c\x93\x94\x95"
    refusals = 0
    for trial in range(5000):
        content = bytearray(whole[trial % 5])
        if trial % 2:
            content[rng.integers(len(content))] = rng.integers(256)
        else:
            content = bytearray(rng.choice(list(codes), 40).astype(np.uint8)) + b"."
        try:
            assert isinstance(read_plain_pickle(bytes(content)), dict)
        except (ValueError, TypeError, pickle.UnpicklingError):
            refusals += 1
    assert refusals > 1000
