"""``calibrant train``: train a network on a data set and calibrate it."""

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
from calibrant.cli.options import INPUT, json_option, parse_setting, plugin_option
from calibrant.cli.progress import progress_bar
from calibrant.errors import CalibrantError, UnknownNameError

if TYPE_CHECKING:
    from calibrant._registry import Registry
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
"""Options that set the field of the recipe of the same name."""
ELSEWHERE = {
    "data": "Pass it as DATASET",
    "model": "Pass --model NAME",
    "loss": "Pass --loss NAME",
    "preset": "Pass --preset NAME",
    "paper": "Pass --paper NAME",
}
"""Fields of the recipe that --set does not set."""
WITH_A_RUN = (
    *("data_folder", "embeddings", "devices", "nodes", "accelerator", "threads", "logger"),
    "plugin",
)
"""Options that may change when a run is resumed."""
WITH_A_GRID = ("grid", "output", "resume", "processes", "as_json")
PARTS = 20
"""Steps of the progress bar in an epoch."""


class Stopped(click.ClickException):
    """Ctrl-C was pressed."""

    exit_code = 130  # as in shells


class NamesCommand(click.Command):
    """A command whose help ends in the names of data sets, networks and losses."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The registered names."""
        if not _inputs.is_found("torch"):
            return
        from calibrant.losses import LOSSES
        from calibrant.training.datasets import DATASETS
        from calibrant.training.models import MODELS

        with formatter.section("Names"):
            named = (
                ("data sets", DATASETS),
                ("networks", MODELS),
                ("losses", LOSSES.with_plugins()),
            )
            formatter.write_dl([(what, ", ".join(names)) for what, names in named])


@click.command(cls=NamesCommand)
@click.argument("data", metavar="[DATASET]", required=False)
@click.option("--model", metavar="NAME", help="Network.  [default: that of the recipe]")
@click.option("--loss", default="ce", show_default=True, metavar="NAME", help="Loss function.")
@click.option(
    "--preset",
    default="paper",
    show_default=True,
    metavar="NAME",
    help="paper: the full recipe; cpu: a short run of a small network on part of the data.",
)
@click.option("--paper", metavar="NAME", help="Paper of the recipe, if several have one.")
@click.option(
    "--data", "data_folder", type=INPUT, metavar="FOLDER", help="Folder with the files of DATASET."
)
@click.option("--embeddings", type=INPUT, metavar="FILE", help="Word vectors for text data.")
@click.option("--epochs", type=int, help="Epochs; the steps of the learning rate scale with them.")
@click.option("--batch-size", type=int, help="Samples in a step, over all devices.")
@click.option("--learning-rate", type=float, help="Learning rate of the first epochs.")
@click.option("--weight-decay", type=float, help="Weight decay.")
@click.option("--clip-norm", type=float, help="Norm to clip gradients to.")
@click.option("--limit", type=int, help="Training samples to use.")
@click.option("--observed", type=int, help="Samples of each part to measure after each epoch.")
@click.option(
    "--seed",
    type=int,
    help="Random seed of split, weights, order and augmentation.  [default: 0]",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set another field of the recipe, such as --set model_options.depth=14. Repeatable.",
)
@click.option("--devices", type=int, default=1, show_default=True, help="Processes per machine.")
@click.option("--nodes", type=int, default=1, show_default=True, help="Number of machines.")
@click.option("--accelerator", default="auto", show_default=True, help="Accelerator: cpu, gpu, ...")
@click.option("--threads", type=int, help="Threads of torch in each process.")
@click.option(
    "--logger",
    default="csv",
    show_default=True,
    metavar="NAME",
    help="Log besides metrics.jsonl: csv, tensorboard or none.",
)
@click.option("-o", "--output", type=INPUT, metavar="FOLDER", help="Folder for a new run.")
@click.option("--resume", type=INPUT, metavar="FOLDER", help="Folder of a run to resume.")
@click.option(
    "--grid", type=INPUT, metavar="FILE", help="Many runs, listed in a .json or .toml file."
)
@click.option("--processes", type=int, help="Parallel runs of a grid.  [default: one per core]")
@json_option
@plugin_option
def train(
    data: str | None,
    output: str | None,
    resume: str | None,
    grid: str | None,
    processes: int | None,
    as_json: bool,
    **options: Any,
) -> None:
    """Train a network on DATASET and calibrate it.

    The recipe is that of the paper that trains this network on DATASET, or the nearest one;
    --preset cpu is a short version that finishes on a laptop. After each epoch the run is measured
    and a checkpoint is written; after an interruption, --resume FOLDER continues to the same
    weights. At the end calibrators are fitted on the validation part and measured on the test part.

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
    folder = _run_folder(output, resume)
    wanted, files = _recipe_and_files(data, folder, resume is not None, options)
    try:
        run = _train_with_bar(
            wanted,
            folder,
            resume=resume is not None,
            **files,
            **{n: options[n] for n in ("devices", "nodes", "accelerator", "threads", "logger")},
        )
    except KeyboardInterrupt:
        _stop(folder, wanted)
    if run is not None:  # only the first of several processes has it
        _print_result(run, as_json)


def _given(*names: str, but: tuple[str, ...] = ()) -> list[str]:
    """Options given on the command line, out of ``names`` or all ``but`` some."""
    context = click.get_current_context()
    return [
        parameter.opts[-1]
        for parameter in context.command.params
        if isinstance(parameter, click.Option)
        and context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
        and (parameter.name in names if names else parameter.name not in but)
    ]


def _stop(folder: Path, wanted: Recipe) -> NoReturn:
    """Say how to resume after Ctrl-C, in the first of several processes."""
    from calibrant.training import checks
    from calibrant.training.folders import RunFolder
    from calibrant.training.run import is_first_process

    if not is_first_process():
        sys.exit(Stopped.exit_code)
    if not RunFolder(folder).config.exists():
        raise Stopped("stopped before the run started; nothing was written")
    done = len(RunFolder(folder).records())
    again = ["calibrant", "train", "--resume", str(folder)]
    if checks.is_own_code(wanted.model):
        again += ["--model", wanted.model]
    raise Stopped(f"stopped after {done} complete epochs. To resume: {shlex.join(again)}")


def _run_folder(output: str | None, resume: str | None) -> Path:
    """The folder of the run."""
    if (output is None) == (resume is None):
        found = "both" if output is not None else "neither"
        raise CalibrantError(
            f"one of -o FOLDER (a new run) and --resume FOLDER is needed; found {found}. "
            "Add for example -o out/run"
        )
    return Path(resume or output or "")


def _recipe_and_files(
    data: str | None, folder: Path, resume: bool, options: dict[str, Any]
) -> tuple[Recipe, dict[str, Any]]:
    """The recipe and the files: those of the options, or those of the run to resume."""
    from calibrant.losses import LOSSES
    from calibrant.training import checks, recipe
    from calibrant.training.datasets import DATASETS
    from calibrant.training.folders import RunFolder
    from calibrant.training.models import MODELS

    files = {"data_folder": options["data_folder"], "embeddings": options["embeddings"]}
    if resume:
        run = RunFolder(folder)
        stored = run.stored()["files"]
        for name, entry in {"data_folder": "data", "embeddings": "embeddings"}.items():
            files[name] = files[name] or stored.get(entry)
        if data is None:
            begun = run.recipe(own_model=options["model"])
            allowed = ("model",) if checks.is_own_code(begun.model) else ()
            others = _given(but=(*WITH_A_RUN, *WITH_A_GRID, *allowed))
            remedy = "A run is resumed with its own recipe: leave it out"
            check_not_with(others, "--resume FOLDER", remedy)
            return begun, files
    if data is None:
        raise CalibrantError(
            "DATASET is needed; found none. Run for example: calibrant train digits -o out/run"
        )
    changes = {name: options[name] for name in CHANGES if options[name] is not None}
    made = recipe(
        _registered(data, DATASETS),
        model=_registered(options["model"], MODELS),
        loss=LOSSES.key(options["loss"], "--loss"),
        preset=options["preset"],
        paper=options["paper"],
        **{**changes, **_settings(options["settings"])},
    )
    return made, files


def _registered(name: Any, registry: Registry[Any]) -> Any:
    """A name as it is registered; others are left to ``recipe``, which knows more of them."""
    try:
        return registry.key(name)
    except UnknownNameError:
        return name


def _settings(settings: tuple[str, ...]) -> dict[str, Any]:
    """Fields of the recipe; ``model_options.depth=14`` is one entry of a field."""
    from calibrant.training import checks

    found: dict[str, Any] = {}
    for setting in settings:
        name, value = parse_setting(setting, "nesterov=true")
        field, dot, entry = name.partition(".")
        checks.field_without_option(f"--set {field}", ELSEWHERE.get(field))
        if dot:
            entries = found.setdefault(field, {})
            checks.plain_options(entries, field)
            entries[entry] = value
        else:
            found[field] = value
    return found


def _train_with_bar(wanted: Recipe, folder: Path, **options: Any) -> Run | None:
    """Train, with a bar over all steps on a terminal."""
    from calibrant.training import train as run_training
    from calibrant.training.run import is_first_process, keep_freed_memory

    keep_freed_memory()
    watched = sys.stderr.isatty() and is_first_process()
    with progress_bar(wanted.name, PARTS * wanted.epochs, hidden=not watched) as bar:

        def step_done(epoch: int, step: int, n_steps: int) -> None:
            reached = PARTS * epoch + PARTS * step // n_steps
            if reached > bar.pos:  # drawing takes time: not at every step
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


def _print_result(run: Run, as_json: bool) -> None:
    """Print what the run found, and what to do with it."""
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
        raise CalibrantError(f"--grid FILE names the data sets; found also {data!r}. Leave it out")
    check_not_with(
        _given("plugin"), "--grid FILE", "Install the plug-in as a package, which every run finds"
    )
    check_not_with(_given(but=WITH_A_GRID), "--grid FILE", "Write it into the file")
    if output is not None and resume is not None:
        raise CalibrantError("a grid has one folder; found -o and --resume. Pass one of them")
    folder = output or resume
    if folder is None:
        raise CalibrantError("a grid needs -o FOLDER; found none. The same folder resumes it")
    try:
        result = run_grid(
            read_grid(grid), folder, processes=processes, say=lambda t: click.echo(t, err=True)
        )
    except KeyboardInterrupt as stop:
        raise Stopped("stopped. The same command resumes with the remaining runs") from stop
    click.echo(json.dumps(result.to_dict(), indent=2) if as_json else f"{result}")
    if result.failures:
        raise click.ClickException(
            f"{len(result.failures)} of {result.n_runs} runs failed: "
            f"{', '.join(result.failures)}. The logs are in {folder}"
        )


def check_not_with(options: Sequence[str], other: str, remedy: str) -> None:
    """Refuse options that ``other`` leaves without effect."""
    if options:
        raise CalibrantError(f"{', '.join(options)} cannot be combined with {other}. {remedy}")
