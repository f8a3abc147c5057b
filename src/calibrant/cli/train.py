"""``calibrant train``: from a data set to a trained network and calibrated figures."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from click.core import ParameterSource

from calibrant import _inputs
from calibrant.cli.paths import INPUT
from calibrant.errors import CalibrantError

if TYPE_CHECKING:
    from calibrant.training import Recipe, Run

CHANGES = (
    "epochs",
    "batch_size",
    "learning_rate",
    "weight_decay",
    "clip_norm",
    "limit",
    "observed",
    "seed",
)
"""Options that stand for the field of the recipe of that name."""
ELSEWHERE = {
    "data": "Write it first, as DATASET",
    "model": "Write --model NAME",
    "loss": "Write --loss NAME",
    "preset": "Write --preset NAME",
    "paper": "Write --paper NAME",
}
"""What --set does not set."""
WITH_A_RUN = ("data_folder", "embeddings", "devices", "nodes", "accelerator", "threads", "logger")
"""Options that may differ when a run goes on."""
WITH_A_GRID = ("grid", "output", "resume", "processes", "as_json")
PARTS = 20
"""How often the bar moves in an epoch."""


class Stopped(click.ClickException):
    """Ctrl-C."""

    exit_code = 130  # as shells have it


class NamesCommand(click.Command):
    """A command whose help ends in the names of data sets, networks and losses."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The names, as the registries have them."""
        if not _installed():
            return
        from calibrant.losses import LOSSES
        from calibrant.training.datasets import DATASETS
        from calibrant.training.models import MODELS

        with formatter.section("Names"):
            named = (("data sets", DATASETS), ("networks", MODELS), ("losses", LOSSES))
            formatter.write_dl([(what, ", ".join(names)) for what, names in named])


@click.command(cls=NamesCommand)
@click.argument("data", metavar="[DATASET]", required=False)
@click.option("--model", metavar="NAME", help="Network; by default the recipe's.")
@click.option("--loss", default="ce", show_default=True, metavar="NAME", help="Loss.")
@click.option(
    "--preset",
    default="paper",
    show_default=True,
    metavar="NAME",
    help="paper: the whole recipe; cpu: a short run of a small network on part of the data.",
)
@click.option("--paper", metavar="NAME", help="Whose recipe, where several papers have one.")
@click.option(
    "--data", "data_folder", type=INPUT, metavar="FOLDER", help="Where the files of DATASET are."
)
@click.option("--embeddings", type=INPUT, metavar="FILE", help="Word vectors, for text.")
@click.option("--epochs", type=int, help="The steps of the learning rate move along.")
@click.option("--batch-size", type=int, help="Samples in a step, of all devices together.")
@click.option("--learning-rate", type=float, help="Of the first epochs.")
@click.option("--weight-decay", type=float, help="Pull of the weights towards 0.")
@click.option("--clip-norm", type=float, help="Longest gradient.")
@click.option("--limit", type=int, help="Samples of the training part to use.")
@click.option("--observed", type=int, help="Samples of each part to measure each epoch.")
@click.option("--seed", type=int, help="Of split, weights, order and augmentation.  [default: 0]")
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Anything else of the recipe, as in --set model_options.depth=14; repeatable.",
)
@click.option("--devices", type=int, default=1, show_default=True, help="Processes a machine.")
@click.option("--nodes", type=int, default=1, show_default=True, help="Machines.")
@click.option("--accelerator", default="auto", show_default=True, help="cpu, gpu, ...")
@click.option("--threads", type=int, help="Of torch in each process.")
@click.option(
    "--logger",
    default="csv",
    show_default=True,
    metavar="NAME",
    help="csv, tensorboard or none, beside metrics.jsonl.",
)
@click.option("-o", "--output", type=INPUT, metavar="FOLDER", help="Where a new run writes.")
@click.option("--resume", type=INPUT, metavar="FOLDER", help="Go on with the run there.")
@click.option(
    "--grid", type=INPUT, metavar="FILE", help="Many runs, listed in a .json or .toml file."
)
@click.option("--processes", type=int, help="Runs of a grid at once.  [default: one a core]")
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of a table.")
def train(
    data: str | None,
    output: str | None,
    resume: str | None,
    grid: str | None,
    processes: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a network on DATASET, and calibrate it.

    The recipe is that of the paper that trains this network on DATASET, or the nearest; --preset
    cpu is a short form that finishes on a laptop, and says so. After each epoch the run is measured
    and a checkpoint written; `--resume FOLDER` goes on after a kill to the same weights. At the end
    calibrators are fitted on the validation part and measured on the test part.

    \b
    Examples:
      calibrant train digits --loss fl-3 --preset cpu -o out/digits
      calibrant train cifar10 --model resnet50 --loss flsd-53 --data data/cifar10 -o out/cifar10
      calibrant train --resume out/cifar10
      calibrant train --grid grid.toml -o out/grid
    """
    _inputs.installed("torch", "lightning", extra="lightning", purpose="calibrant train")
    if grid is not None:
        _run_grid(grid, data, output, resume, processes, as_json)
        return
    check_not_with(_given("processes"), "a single run", "Leave it out, or add --grid FILE")
    folder, going_on = _folder(output, resume)
    wanted, where = _wanted(data, folder, going_on, options)
    try:
        run = _watched(
            wanted,
            folder,
            resume=going_on,
            **where,
            **{n: options[n] for n in ("devices", "nodes", "accelerator", "threads", "logger")},
        )
    except KeyboardInterrupt:
        _say_stopped(folder, wanted)
    if run is not None:  # else another process speaks
        _say(run, as_json)


def _given(*names: str, but: tuple[str, ...] = ()) -> list[str]:
    """The options that were written, out of ``names`` or all ``but`` some, as they are written."""
    context = click.get_current_context()
    return [
        parameter.opts[-1]
        for parameter in context.command.params
        if isinstance(parameter, click.Option)
        and context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        and (parameter.name in names if names else parameter.name not in but)
    ]


def _say_stopped(folder: Path, wanted: Recipe) -> NoReturn:
    """How to go on after Ctrl-C; the first of several processes says it."""
    from calibrant.training.folders import RunFolder
    from calibrant.training.run import is_first_process

    if not is_first_process():
        sys.exit(Stopped.exit_code)
    if not RunFolder(folder).config.exists():
        raise Stopped("stopped before the run began; nothing was written")
    done = len(RunFolder(folder).records())
    again = ["calibrant", "train", "--resume", str(folder)]
    if _inputs.is_own_code(wanted.model):
        again += ["--model", wanted.model]
    raise Stopped(f"stopped after {done} whole epochs. To go on: {shlex.join(again)}")


def _folder(output: str | None, resume: str | None) -> tuple[Path, bool]:
    """Where the run is, and whether it has begun already."""
    if (output is None) == (resume is None):
        found = "both" if output is not None else "neither"
        raise CalibrantError(
            f"one of -o FOLDER (a new run) and --resume FOLDER is needed; found {found}. "
            "Add -o out/run, say"
        )
    return Path(resume or output or ""), resume is not None


def _wanted(
    data: str | None, folder: Path, going_on: bool, options: dict[str, Any]
) -> tuple[Recipe, dict[str, Any]]:
    """The recipe and the files: as the options say, or as the run to resume was begun."""
    from calibrant.training import recipe
    from calibrant.training.folders import RunFolder

    where = {"data_folder": options["data_folder"], "embeddings": options["embeddings"]}
    if going_on:
        place = RunFolder(folder)
        stored = place.stored()
        before = {"data_folder": "data", "embeddings": "embeddings"}
        for name, entry in before.items():
            where[name] = where[name] or stored["files"].get(entry)
        if data is None:
            begun = place.recipe(own_model=options["model"])
            allowed = ("model",) if _inputs.is_own_code(begun.model) else ()
            others = _given(but=(*WITH_A_RUN, *WITH_A_GRID, *allowed))
            remedy = "The run goes on as it was begun: leave it out"
            check_not_with(others, "--resume FOLDER", remedy)
            return begun, where
    if data is None:
        raise CalibrantError(
            "DATASET is needed; found none. Write calibrant train digits -o out/run"
        )
    changes = {name: options[name] for name in CHANGES if options[name] is not None}
    made = recipe(
        data,
        **{name: options[name] for name in ("model", "loss", "preset", "paper")},
        **{**changes, **_settings(options["settings"])},
    )
    return made, where


def _settings(settings: tuple[str, ...]) -> dict[str, Any]:
    """Fields of the recipe; ``model_options.depth=14`` is one entry of a field."""
    found: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise CalibrantError(
                f"--set takes NAME=VALUE; found {setting[:60]!r}. Write --set nesterov=true, say"
            )
        try:
            value = json.loads(text)
        except ValueError:
            value = text
        field, dot, entry = name.partition(".")
        _inputs.field_without_option(f"--set {field}", ELSEWHERE.get(field))
        if dot:
            entries = found.setdefault(field, {})
            _inputs.plain_options(entries, field)
            entries[entry] = value
        else:
            found[field] = value
    return found


def _watched(wanted: Recipe, folder: Path, **options: Any) -> Run | None:
    """Train with a bar over all steps where somebody watches."""
    from calibrant.training import train as run_training
    from calibrant.training.run import is_first_process

    watched = sys.stderr.isatty() and is_first_process()
    with click.progressbar(
        length=PARTS * wanted.epochs,
        label=wanted.name,
        item_show_func=lambda text: text or "",
        file=sys.stderr,
        hidden=not watched,
    ) as bar:

        def step_done(epoch: int, step: int, n_steps: int) -> None:
            reached = PARTS * epoch + PARTS * step // n_steps
            if reached > bar.pos:  # to draw it takes time: not in every step
                bar.update(reached - bar.pos)

        def epoch_done(record: dict[str, Any]) -> None:
            text = f"epoch {record['epoch'] + 1}"
            if "val" in record:
                text += ": error {error:.3f} ece {ece:.3f}".format_map(record["val"])
            bar.update(PARTS * (record["epoch"] + 1) - bar.pos, text)

        return run_training(
            wanted,
            folder,
            on_epoch=epoch_done if watched else None,
            on_step=step_done if watched else None,
            **options,
        )


def _say(run: Run, as_json: bool) -> None:
    """What the run has found, and what to do with it."""
    if as_json:
        click.echo((run.folder / "result.json").read_text().rstrip())
        return
    recipe, last = run.recipe, run.records[-1] if run.records else {}
    click.echo(f"{recipe.name}: {recipe.epochs} epochs ({recipe.source})")
    errors = [
        f"{what} error {100 * last[part]['error']:.2f}%"
        for part, what in (("val", "validation"), ("train", "training"))
        if part in last
    ]
    if errors:
        click.echo(f"Measured after the last epoch: {', '.join(errors)}")
    click.echo(f"\n{run.comparison}\n")
    for note in run.notes:
        click.echo(note)
    click.echo(f"Written to {run.folder}")
    files = shlex.quote(f"{run.folder}/predictions.npz::val")
    click.echo(f"To keep one: calibrant fit {files} --method NAME -o cal.json")


def _run_grid(
    grid: str,
    data: str | None,
    output: str | None,
    resume: str | None,
    processes: int | None,
    as_json: bool,
) -> None:
    from calibrant.training.grid import read_grid, run_grid

    if data is not None:
        raise CalibrantError(f"--grid FILE names the data sets; found {data!r} too. Leave it out")
    check_not_with(_given(but=WITH_A_GRID), "--grid FILE", "Write it into the file")
    if output is not None and resume is not None:
        raise CalibrantError("a grid has one folder; found -o and --resume. Either goes on with it")
    folder = output or resume
    if folder is None:
        raise CalibrantError("a grid needs -o FOLDER; found none. The same folder goes on with it")
    try:
        result = run_grid(
            read_grid(grid), folder, processes=processes, say=lambda t: click.echo(t, err=True)
        )
    except KeyboardInterrupt as stop:
        raise Stopped("stopped. The same command goes on with what is left") from stop
    click.echo(json.dumps(result.to_dict(), indent=2) if as_json else f"{result}")
    if result.failures:
        raise click.ClickException(
            f"{len(result.failures)} of {result.n_runs} runs failed: "
            f"{', '.join(result.failures)}. The logs are in {folder}"
        )


def _installed() -> bool:
    import importlib.util

    return importlib.util.find_spec("torch") is not None


def check_not_with(options: Sequence[str], other: str, remedy: str) -> None:
    """No options that another one leaves without effect."""
    if options:
        raise CalibrantError(f"{other} goes without {', '.join(options)}; found it given. {remedy}")
