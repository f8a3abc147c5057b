"""The ``calibrant`` command: one module for each subcommand."""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from typing import Any

import click

from calibrant import __version__
from calibrant._numerics.first_use import IN_A_COMMAND, Announcement, few_up_to
from calibrant.cli.apply import apply
from calibrant.cli.compare import compare
from calibrant.cli.demo import demo
from calibrant.cli.evaluate import evaluate
from calibrant.cli.export import export
from calibrant.cli.fit import fit
from calibrant.cli.info import info
from calibrant.cli.report import report
from calibrant.cli.theory import theory
from calibrant.cli.train import train
from calibrant.cli.watch import watch
from calibrant.errors import CalibrantError

BUG = (
    f"\nThis is a bug in calibrant {__version__}, not in your input. Please report it in the issue "
    "tracker of calibrant, with the lines above and the command that you ran."
)


class Refusal(click.ClickException):
    """Input that cannot be used, reported in one line."""

    exit_code = 2


@contextlib.contextmanager
def plain_warnings() -> Iterator[None]:
    """Print warnings of calibrant as one line each, without the line of code."""
    with warnings.catch_warnings():
        show = warnings.showwarning

        def show_plainly(message: Any, category: type[Warning], *place: Any, **more: Any) -> None:
            if category.__module__.partition(".")[0] == "calibrant":
                click.echo(f"Warning: {message}", err=True)
            else:
                show(message, category, *place, **more)

        warnings.showwarning = show_plainly
        yield


class Commands(click.Group):
    """Bad input gives one line and exit status 2, a bug a traceback and exit status 1."""

    def invoke(self, ctx: click.Context) -> object:
        """Run the subcommand."""
        if sys.stderr.isatty():
            Announcement.say = _announce_compilation
        try:
            with _orderly_end(), plain_warnings(), few_up_to(IN_A_COMMAND):
                return super().invoke(ctx)
        except BrokenPipeError:  # the reader of the output has closed it
            raise
        except (CalibrantError, OSError) as refusal:
            raise Refusal(" ".join(str(refusal).split())) from refusal
        except MemoryError as error:
            found = " ".join(str(error).split()).rstrip(".") or "an allocation failed"
            raise Refusal(
                f"the data must fit into memory; found too little ({found}). Check the shapes in "
                "the files, use fewer rows, or a machine with more memory"
            ) from error
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except Exception:
            traceback.print_exc()
            click.echo(BUG, err=True)
            ctx.exit(1)


def _announce_compilation() -> None:
    click.echo("Compiling, which takes some seconds the first time ...", err=True)


@contextlib.contextmanager
def _orderly_end() -> Iterator[None]:
    """SIGTERM and SIGHUP end the command like an error, so that no partial files are left.

    The exit status is the one that shells report for the signal. A second signal ends the command
    at once. Signals that are ignored, or that the calling program handles, are left alone.
    """
    names = ("SIGTERM", "SIGHUP") if threading.current_thread() is threading.main_thread() else ()
    numbers = [getattr(signal, name) for name in names if hasattr(signal, name)]
    handled = [number for number in numbers if signal.getsignal(number) is signal.SIG_DFL]

    def leave_alone() -> None:
        for number in handled:
            signal.signal(number, signal.SIG_DFL)

    def end(number: int, _: object) -> None:
        leave_alone()
        sys.exit(128 + number)

    for number in handled:
        signal.signal(number, end)
    try:
        yield
    finally:
        leave_alone()


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="calibrant")
def main() -> None:
    """Make a classifier's probabilities mean what they say.

    \b
    Measure the calibration of the probabilities in a file:
      calibrant evaluate predictions.npz
    Compare all calibration methods:
      calibrant compare network.npz::val network.npz::test
    Write the comparison as an HTML page:
      calibrant report network.npz::val network.npz::test -o report.html
    Fit a calibrator on held-out samples, look at it, apply it to others, export it:
      calibrant fit network.npz::val --method temperature -o cal.json
      calibrant info cal.json
      calibrant apply cal.json network.npz::test -o calibrated.npz
      calibrant export cal.json --format onnx
    Watch a model in use, and be told when it is no longer calibrated:
      calibrant watch logs/ --time day --state watch.json
    Train a network with a paper's recipe, and calibrate it:
      calibrant train digits --loss fl-3 --preset cpu -o out/digits
    Try calibrant without any data:
      calibrant demo
      calibrant theory --gamma 3 --classes 10
    """


for command in (evaluate, compare, report, fit, info, apply, export, watch, theory, demo, train):
    main.add_command(command)
