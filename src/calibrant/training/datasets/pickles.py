"""A reader for CIFAR's pickles that executes nothing.

A pickle is a program: it may name any function of any module and call it. Python's own reader
executes all of it, and a file can make that reader crash (a deeply nested tuple as a dictionary
key), hang (a key that takes very long to hash) or exhaust the memory (a huge number in the memo).
This reader knows the few instructions that lists, dictionaries and byte arrays are written with.
The names that arrays need are mapped to plain holders whose content is checked afterwards.
Everything else is refused, and nothing is imported or called.
"""

from __future__ import annotations

from collections.abc import Callable
from pickle import UnpicklingError
from pickletools import genops
from typing import Any

import numpy as np
from numpy.typing import NDArray

from calibrant.errors import CalibrantError

MOST_INSTRUCTIONS = 2_000_000
"""Limit for one file; the largest published one, CIFAR-100's training set, has about 300,000."""


class StoredArray:
    """An array as a pickle describes it; its state is not checked yet."""

    def __init__(self, *_: Any) -> None:
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def bytes_of(self, shape: tuple[int, ...]) -> NDArray[np.uint8]:
        """The array, if it holds bytes and has this shape (-1: any length)."""
        _, found, dtype, fortran, raw = self.state
        if not (isinstance(dtype, StoredType) and dtype.code in ("u1", "|u1")):
            raise CalibrantError("an array does not hold bytes (uint8)")
        if not all(type(size) is int for size in found):
            raise CalibrantError("the shape of an array does not consist of integers")
        known = [f if wanted == -1 else wanted for f, wanted in zip(found, shape, strict=False)]
        if len(found) != len(shape) or list(found) != known:
            raise CalibrantError(f"an array has the shape {found}, not {shape}")
        if isinstance(raw, str):
            raw = raw.encode("latin-1")
        array = np.frombuffer(raw, dtype=np.uint8)
        return array.reshape(found, order="F" if fortran else "C")


class StoredType:
    """An array's type as a pickle describes it."""

    def __init__(self, code: Any = None, *_: Any) -> None:
        self.code = code.decode("latin-1") if isinstance(code, bytes) else code

    def __setstate__(self, state: Any) -> None:
        """Byte order and alignment, which bytes do not have."""


_KNOWN: dict[str, Callable[..., Any]] = {
    "numpy.core.multiarray _reconstruct": StoredArray,
    "numpy._core.multiarray _reconstruct": StoredArray,
    "numpy ndarray": StoredArray,
    "numpy dtype": StoredType,
    "_codecs encode": lambda text, _: text,  # how Python 3 writes bytes for Python 2
}
"""Names that a pickle may use, and their replacements here."""


def read_plain_pickle(content: bytes) -> dict[str, Any]:
    """Read the dictionary in a pickle of plain values and byte arrays; nothing is executed.

    Strings of Python 2 are decoded as Latin-1. Keys must be text.

    Examples:
        >>> import pickle
        >>> read_plain_pickle(pickle.dumps({"labels": [3, 1]}))
        {'labels': [3, 1]}
        >>> read_plain_pickle(pickle.dumps({"labels": print}))
        Traceback (most recent call last):
        _pickle.UnpicklingError: it asks for builtins.print, which a file of images does not need
    """
    reader = _Reader()
    try:
        for count, (opcode, argument, _) in enumerate(genops(content)):
            if count == MOST_INSTRUCTIONS:
                raise UnpicklingError(f"it has more than {MOST_INSTRUCTIONS} instructions")
            reader.follow(opcode.name, argument)
        found = reader.stack.pop()
    except LookupError as error:
        raise UnpicklingError("an instruction lacks the values it needs") from error
    if not isinstance(found, dict):
        raise CalibrantError(f"it holds a {type(found).__name__}, not a dictionary")
    return found


class _Reader:
    """The stack and memo of a pickle, and the effect of its instructions on them."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def follow(self, instruction: str, argument: Any) -> None:
        """Execute one instruction."""
        stack = self.stack
        match instruction:
            case "PROTO" | "FRAME" | "STOP":
                pass
            case "NONE" | "NEWTRUE" | "NEWFALSE":
                stack.append({"NONE": None, "NEWTRUE": True, "NEWFALSE": False}[instruction])
            case _ if instruction in _VALUES:
                stack.append(argument)
            case "PUT" | "BINPUT" | "LONG_BINPUT":
                self.memo[argument] = stack[-1]
            case "MEMOIZE":
                self.memo[len(self.memo)] = stack[-1]
            case "GET" | "BINGET" | "LONG_BINGET":
                stack.append(self.memo[argument])
            case "MARK":
                self.marks.append(len(stack))
            case "EMPTY_LIST" | "EMPTY_DICT" | "EMPTY_TUPLE":
                stack.append({"EMPTY_LIST": [], "EMPTY_DICT": {}, "EMPTY_TUPLE": ()}[instruction])
            case "TUPLE" | "LIST":
                stack.append((tuple if instruction == "TUPLE" else list)(self._since_mark()))
            case "TUPLE1" | "TUPLE2" | "TUPLE3":
                stack.append(tuple(self._last(int(instruction[-1]))))
            case "APPEND" | "APPENDS":
                values = self._last(1) if instruction == "APPEND" else self._since_mark()
                self._top(list).extend(values)
            case "DICT":
                stack.append(_entries(self._since_mark()))
            case "SETITEM" | "SETITEMS":
                pairs = self._last(2) if instruction == "SETITEM" else self._since_mark()
                self._top(dict).update(_entries(pairs))
            case "GLOBAL":
                stack.append(_named(argument))
            case "STACK_GLOBAL":
                stack.append(_named(" ".join(self._last(2))))
            case "REDUCE":
                function, arguments = self._last(2)
                if function not in _KNOWN.values() or not isinstance(arguments, tuple):
                    raise UnpicklingError("it calls something that is not a function")
                stack.append(function(*arguments))
            case "BUILD":
                (state,) = self._last(1)
                self._top(StoredArray, StoredType).__setstate__(state)
            case _:
                raise UnpicklingError(
                    f"it has the instruction {instruction}, which a file of images does not need"
                )

    def _last(self, count: int) -> list[Any]:
        """Pop ``count`` values from the stack."""
        return self._taken(len(self.stack) - count)

    def _since_mark(self) -> list[Any]:
        """Pop the values pushed since the last mark."""
        return self._taken(self.marks.pop())

    def _taken(self, start: int) -> list[Any]:
        if not 0 <= start <= len(self.stack):
            raise IndexError(start)
        taken = self.stack[start:]
        del self.stack[start:]
        return taken

    def _top(self, *kinds: type) -> Any:
        """The object on top of the stack, which must be one of ``kinds``."""
        if not isinstance(self.stack[-1], kinds):
            raise UnpicklingError(f"it modifies a {type(self.stack[-1]).__name__}")
        return self.stack[-1]


_VALUES = frozenset(
    {
        *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
        *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
        *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
    }
)
"""Instructions that push their argument."""


def _named(name: str) -> Callable[..., Any]:
    if name not in _KNOWN:
        raise UnpicklingError(
            f"it asks for {name.replace(' ', '.')}, which a file of images does not need"
        )
    return _KNOWN[name]


def _entries(pairs: list[Any]) -> dict[str, Any]:
    """A dictionary of alternating keys and values."""
    return dict(zip(map(_key, pairs[::2]), pairs[1::2], strict=True))


def _key(key: Any) -> str:
    """A dictionary key, which must be text: a deeply nested tuple cannot be hashed."""
    if isinstance(key, bytes):
        return key.decode("latin-1")
    if not isinstance(key, str):
        raise UnpicklingError(f"a dictionary has a {type(key).__name__} as a key, not text")
    return key
