"""``calibrant export``: write a calibrator as a file that works without calibrant."""

from __future__ import annotations

from pathlib import Path

import click

from calibrant.calibrators import load
from calibrant.calibrators.export import DTYPES, FORMATS, export as write, format_of
from calibrant.cli.options import OUTPUT, Name, force_option, plugin_option

USES = {
    "numpy": "from {stem} import predict_proba",
    "onnx": 'onnxruntime.InferenceSession("{name}").run(["probs"], {{"logits": logits}})',
    "torch": 'torch.export.load("{name}").module()(logits)',
}
"""How to use each kind of file, in one line."""
ANY_NAME = 'runpy.run_path("{name}")["predict_proba"](logits)'
"""How to use a Python file whose name is not an identifier."""


@click.command()
@click.argument("calibrator", type=OUTPUT, metavar="CALIBRATOR")
@click.option(
    "--format",
    "kind",
    type=Name(FORMATS),
    help="Format of the file.  [default: inferred from OUT's extension]",
)
@click.option(
    "-o",
    "--out",
    type=OUTPUT,
    metavar="OUT",
    help="File to write. An earlier export is overwritten.  [default: CALIBRATOR with the "
    "extension of the format]",
)
@click.option(
    "--dtype",
    type=Name(DTYPES),
    help="Data type of the logits of an .onnx or .pt2 file.  [default: float32]",
)
@force_option
@plugin_option
def export(
    calibrator: Path, kind: str | None, out: Path | None, dtype: str | None, force: bool
) -> None:
    """Write a fitted calibrator as a file that works without calibrant.

    CALIBRATOR is a .json file written by `calibrant fit` or `save`. All formats turn logits into
    the same probabilities as `calibrant apply`:

    \b
      numpy  .py    a short Python file to read and to copy; needs NumPy
      onnx   .onnx  a model from logits to probs; needs an ONNX runtime
      torch  .pt2   a program for torch.export.load; needs torch

    \b
    Examples:
      calibrant export cal.json --format numpy
      calibrant export cal.json --format onnx --dtype float64
      calibrant export cal.json -o serving/calibrated.pt2
    """
    if kind is None and out is None:
        raise click.UsageError(
            f"a format is needed: add --format {', '.join(FORMATS)}, or -o with its extension"
        )
    fitted = load(calibrator)
    if out is None:
        out = calibrator.with_suffix(FORMATS[str(kind)].extension)
    if out.exists() and out.samefile(calibrator):
        raise click.UsageError(f"{out} is the calibrator itself. Choose another name with -o")
    write(fitted, out, format=kind, dtype=dtype, force=force)
    chosen = format_of(out, kind)
    importable = chosen != "numpy" or out.stem.isidentifier()
    use = (USES[chosen] if importable else ANY_NAME).format(stem=out.stem, name=out.name)
    click.echo(f"{out}: {fitted.NAME} for {fitted.n_classes_} classes. Use it with\n  {use}")
