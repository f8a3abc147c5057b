"""Fitted calibrators as files that work without calibrant.

| format | extension | needs at run time |
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
"""The producer field at the start of our models, after the version of the format."""


@dataclass(frozen=True)
class Format:
    """One kind of file."""

    extension: str
    content: Callable[[Calibrator, str], bytes]
    """Makes the content of the file from a calibrator and a dtype."""
    is_ours: Callable[[Path], bool]
    """Whether a file with this extension was written by :func:`export`."""
    typed: bool = True
    """Whether the file takes logits of one dtype only."""
    packages: tuple[str, ...] = ()
    """Packages that writing needs; the extra that installs them is named like the format."""


def _numpy(calibrator: Calibrator, dtype: str) -> bytes:
    from calibrant.calibrators.export.numpy_source import source

    return source(calibrator).encode()


def _onnx(calibrator: Calibrator, dtype: str) -> bytes:
    # From version 1.31 on, onnxruntime sends usage data unless this is set before its import.
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    from calibrant.calibrators.export.onnx_model import model

    return model(calibrator, dtype)


def _torch(calibrator: Calibrator, dtype: str) -> bytes:
    from calibrant.calibrators.export.torch_program import program_file

    return program_file(calibrator, dtype)


def _is_our_source(path: Path) -> bool:
    from calibrant.calibrators.export.numpy_source import HEADER

    return path.read_bytes().startswith(HEADER.partition("\n")[0].encode())


def _is_our_model(path: Path) -> bool:
    """The second field in the file is the name of the producer."""
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
"""The formats of :func:`export`, by name."""


def export(
    calibrator: Calibrator,
    path: str | os.PathLike[str],
    *,
    format: str | None = None,  # noqa: A002
    dtype: str | None = None,
    force: bool = False,
) -> None:
    """Write a fitted calibrator as a file that works without calibrant.

    All formats take logits and return the probabilities of ``calibrator.predict_proba``, to 1e-6
    for single-precision logits:

    - ``"numpy"``: a short, readable Python file with ``predict_proba(logits)``;
    - ``"onnx"``: a model from ``logits`` to ``probs``, both (batch, classes);
    - ``"torch"``: a program for ``torch.export.load``, also from (batch, classes) to the same.

    The Python file refuses NaN, +inf and a wrong number of classes. The other two cannot raise
    errors: NaN gives NaN.

    Args:
        calibrator: A fitted calibrator.
        path: The file to write. An earlier export is overwritten.
        format: One of ``FORMATS``; None infers it from the extension of ``path``, which must not be
            that of another format.
        dtype: Dtype of the logits and the result, ``"float32"`` (the default) or ``"float64"``.
            The Python file takes any. It and the methods that need it compute in double precision
            whatever the dtype.
        force: Also overwrite a file that is not an export.

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
            f"dtype cannot be combined with a Python file, which takes logits of any dtype; found "
            f"{dtype!r}. Leave it out"
        )
    dtype = "float32" if dtype is None else _inputs.choice(dtype, "dtype", DTYPES)
    _inputs.installed(*chosen.packages, extra=name, purpose=f"the format {name}")
    refuse_unwritable(target)
    if not force:
        refuse_foreign(target, chosen.is_ours, "an export")
    write_whole(target, chosen.content(calibrator, dtype))


def format_of(path: Path, name: str | None) -> str:
    """The format called ``name``, or if that is None, inferred from the extension of ``path``."""
    extensions = [entry.extension for entry in FORMATS.values()]
    if name is not None:
        chosen = _inputs.choice(name, "format", tuple(FORMATS))
        check_extension(chosen, FORMATS[chosen].extension, path, extensions)
        return chosen
    for known, entry in FORMATS.items():
        if entry.extension == path.suffix.lower():
            return known
    raise CalibrantError(
        f"cannot infer the format of {path}: expected the extension {', '.join(extensions)}; found "
        f"{path.suffix or 'none'!r}. Pass format="
    )


def check_extension(name: str, extension: str, path: Path, others: Sequence[str]) -> None:
    """Refuse a path with the extension of another format."""
    if path.suffix.lower() != extension and path.suffix.lower() in others:
        raise CalibrantError(
            f"the format {name} is written to {extension} files; found {path.name!r}. "
            "Rename the file, or leave out the format, which is inferred from the extension"
        )
