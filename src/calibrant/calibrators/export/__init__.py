"""Fitted calibrators as files that work without calibrant.

| format | ending | needs, where it runs |
|---|---|---|
| ``numpy`` | ``.py`` | NumPy |
| ``onnx`` | ``.onnx`` | an ONNX runtime |
| ``torch`` | ``.pt2`` | torch |
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from calibrant import _inputs
from calibrant._writing import refuse_foreign, refuse_unwritable, write_whole
from calibrant.calibrators.base import Calibrator
from calibrant.errors import CalibrantError

DTYPES = ("float32", "float64")
PRODUCER = b"\x12\x09calibrant"
"""How a model of ours begins, after the version of the format."""


@dataclass(frozen=True)
class Format:
    """One kind of file."""

    ending: str
    content: Callable[[Calibrator, str], bytes]
    """Of the file, from a calibrator and a type of numbers."""
    is_ours: Callable[[Path], bool]
    """Whether a file of this ending was written here."""
    typed: bool = True
    """Whether the file is for logits of one type only."""
    packages: tuple[str, ...] = ()
    """What writing it needs; the extra that brings them has the name of the format."""


def _numpy(calibrator: Calibrator, dtype: str) -> bytes:
    from calibrant.calibrators.export.numpy_source import source

    return source(calibrator).encode()


def _onnx(calibrator: Calibrator, dtype: str) -> bytes:
    from calibrant.calibrators.export.onnx_model import model

    return model(calibrator, dtype)


def _torch(calibrator: Calibrator, dtype: str) -> bytes:
    from calibrant.calibrators.export.torch_program import program_file

    return program_file(calibrator, dtype)


def _is_our_source(path: Path) -> bool:
    from calibrant.calibrators.export.numpy_source import HEADER

    return path.read_bytes().startswith(HEADER.partition("\n")[0].encode())


def _is_our_model(path: Path) -> bool:
    """Field 2 of a model, the second in the file, is the name of its producer."""
    with path.open("rb") as file:
        return PRODUCER in file.read(16)


def _is_our_program(path: Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.endswith("/calibrant.json") for name in archive.namelist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError):
        return False


FORMATS = {
    "numpy": Format(".py", _numpy, _is_our_source, typed=False),
    "onnx": Format(
        ".onnx", _onnx, _is_our_model, packages=("torch", "onnx", "onnxscript", "onnxruntime")
    ),
    "torch": Format(".pt2", _torch, _is_our_program, packages=("torch",)),
}
"""What :func:`export` can write, by name."""


def export(
    calibrator: Calibrator,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002
    dtype: str | None = None,
    force: bool = False,
) -> None:
    """Write a fitted calibrator as a file that works without calibrant.

    All formats take logits and give the probabilities of ``calibrator.predict_proba``, to 1e-6 for
    logits in single precision:

    - ``"numpy"``: a short Python file with ``predict_proba(logits)``, made to be read;
    - ``"onnx"``: a model from ``logits`` to ``probs``, both (batch, classes);
    - ``"torch"``: a program for ``torch.export.load``, also from (batch, classes) to the same.

    The Python file refuses NaN, +inf and a wrong number of classes. The other two have no place
    for such words: NaN goes in, NaN comes out.

    Args:
        calibrator: A fitted calibrator.
        path: The file to write. One that an earlier export wrote is replaced whole.
        format: One of ``FORMATS``; None takes it from the ending of ``path``, which must not be
            that of another format.
        dtype: Type of the logits and of the result, ``"float32"`` (the default) or ``"float64"``.
            The Python file takes any. Whatever the type, it and the methods that need it compute
            in double precision.
        force: Replace a file that no export wrote, too.

    Examples:
        >>> import pathlib, tempfile
        >>> import numpy as np, calibrant
        >>> from calibrant.calibrators.export import export
        >>> rng = np.random.default_rng(0)
        >>> logits, labels = rng.normal(size=(500, 3)), rng.integers(0, 3, size=500)
        >>> logits[np.arange(500), labels] += 2.0
        >>> file = pathlib.Path(tempfile.mkdtemp()) / "calibrated.py"
        >>> export(calibrant.TemperatureScaling().fit(logits, labels), file)
        >>> "import calibrant" in file.read_text()
        False
    """
    calibrator._need_fit()
    target = _inputs.path(path, "the output")
    name = format_of(target, format)
    chosen = FORMATS[name]
    if dtype is not None and not chosen.typed:
        raise CalibrantError(
            f"dtype is for files that take logits of one type; found {dtype!r} for a Python file, "
            "which takes any. Leave it out"
        )
    dtype = "float32" if dtype is None else _inputs.choice(dtype, "dtype", DTYPES)
    _inputs.installed(*chosen.packages, extra=name, purpose=f"the format {name}")
    refuse_unwritable(target)
    if not force:
        refuse_foreign(target, chosen.is_ours, "an export")
    write_whole(target, chosen.content(calibrator, dtype))


def format_of(path: Path, name: str | None) -> str:
    """The format called ``name``, or without a name that of the ending of ``path``."""
    endings = [entry.ending for entry in FORMATS.values()]
    if name is not None:
        chosen = _inputs.choice(name, "format", tuple(FORMATS))
        check_ending_of_format(chosen, FORMATS[chosen].ending, path, endings)
        return chosen
    for known, entry in FORMATS.items():
        if entry.ending == path.suffix.lower():
            return known
    raise CalibrantError(
        f"cannot tell the format of {path}: the name must end in {', '.join(endings)}; found "
        f"{path.suffix or 'no ending'!r}. Pass format="
    )


def check_ending_of_format(name: str, ending: str, path: Path, others: Sequence[str]) -> None:
    """A file whose name does not say that it is of another format."""
    if path.suffix.lower() != ending and path.suffix.lower() in others:
        raise CalibrantError(
            f"the format {name} is written to {ending} files; found {path.name!r}. "
            f"Rename it, or leave the format out, which {path.suffix.lower()} tells"
        )
