"""``calibrant info``: what a calibrator file holds."""

from __future__ import annotations

import hashlib
import inspect
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
import numpy as np

from calibrant._tables import text_table
from calibrant.calibrators import Calibrator, load
from calibrant.cli.options import OUTPUT, json_option, plugin_option

MOST_SHOWN = 10
"""Classes that are named."""


@click.command()
@click.argument("calibrator", type=OUTPUT, metavar="CALIBRATOR")
@json_option
@plugin_option
def info(calibrator: Path, as_json: bool) -> None:
    """Show what a calibrator is, and where it comes from.

    CALIBRATOR is a .json file written by `calibrant fit` or `save`. Prints the method and its
    numbers, the classes, the samples it was fitted on (their number and a fingerprint, the same for
    the same samples), the date, the version, the metadata and the warnings of the fit. The file's
    own SHA-256 is the one that `calibrant apply` stores in what it writes.

    \b
    Examples:
      calibrant info cal.json
      calibrant info cal.json --json
    """
    fitted = load(calibrator)
    digest = hashlib.sha256(calibrator.read_bytes()).hexdigest()
    if as_json:
        click.echo(json.dumps(_plain(fitted, digest), indent=2, allow_nan=False))
        return
    rows = [[name, _printable(text)] for name, text in _rows(fitted, digest)]
    click.echo("\n".join(text_table(rows, "<<")))


def _plain(fitted: Calibrator, digest: str) -> dict[str, Any]:
    """What is shown, for programs."""
    return {
        "sha256": digest,
        "method": fitted.NAME,
        "params": fitted.get_params(),
        "parts": [part.NAME for part in fitted.parts_],
        "n_classes": fitted.n_classes_,
        "classes": fitted.class_names(),
        **asdict(fitted.origin_),
        "report": fitted.report_.to_dict(),
    }


def _rows(fitted: Calibrator, digest: str) -> Iterator[tuple[str, str]]:
    origin, report = fitted.origin_, fitted.report_
    yield "method", f"{fitted.NAME}: {(inspect.getdoc(fitted) or '').partition(chr(10))[0]}"
    params = fitted.get_params().items()
    yield "parameters", ", ".join(f"{name} = {value}" for name, value in params) or "none"
    for part in fitted.parts_ or (fitted,):
        name = f"part {part.NAME}" if fitted.parts_ else "fitted"
        yield name, ", ".join(_number(*each) for each in part.state_.items()) or "nothing"
    yield "classes", _classes(fitted)
    yield "input", origin.input or "unknown"
    if origin.source is not None:
        yield "source", origin.source
    yield "samples", f"{report.n_samples:,}"
    yield "fingerprint", (origin.data and origin.data.sha256) or "unknown"
    yield report.criterion, f"{report.before:.6f} before, {report.after:.6f} after"
    yield "accuracy", f"{report.accuracy_before:.2%} before, {report.accuracy_after:.2%} after"
    yield "created", origin.created or "unknown"
    yield "calibrant", origin.calibrant or "unknown"
    if origin.plugin is not None:
        package = origin.plugin.package or "no package"
        yield "plug-in", f"{package}, module {origin.plugin.module}"
    yield "sha256", digest
    for name, value in origin.metadata.items():
        yield f"metadata {_printable(name)}", value if isinstance(value, str) else json.dumps(value)
    for warning in report.warnings:
        yield "warning", warning


def _number(name: str, value: Any) -> str:
    if np.ndim(value) == 0:
        return f"{name} = {float(value):.6g}"
    return f"{name} ({' x '.join(map(str, np.shape(value)))} numbers)"


def _classes(fitted: Calibrator) -> str:
    names = fitted.class_names()
    if names is None:
        return f"{fitted.n_classes_}, without names"
    more = ", ..." if len(names) > MOST_SHOWN else ""
    return f"{len(names)}: {', '.join(map(str, names[:MOST_SHOWN]))}{more}"


def _printable(text: str) -> str:
    """Text of a file on one line, without characters that could change the terminal."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
