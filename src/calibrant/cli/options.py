"""Types of arguments, and options that several commands have."""

from __future__ import annotations

import functools
import inspect
import json
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from typing import Any

import click

from calibrant import _inputs
from calibrant._registry import Registry
from calibrant.calibrators import CALIBRATORS, Calibrator
from calibrant.calibrators.registry import make_calibrators, required_params
from calibrant.errors import CalibrantError
from calibrant.metrics.registry import METRICS

SEEDS = range(2**63)


class PathType(click.Path):
    """The name of a file or folder. An empty name is refused."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name as given, as a ``str`` or a ``Path``."""
        _inputs.path(value, param.get_error_hint(ctx) if param else "a path")
        return self.coerce_path_result(value)


class Name(click.Choice[str]):
    """One of some names. Hyphens and underscores are the same; a typo is answered in one line."""

    def __init__(self, names: Iterable[str]) -> None:
        super().__init__(list(names))
        self.known = names if isinstance(names, Registry) else Registry("", dict.fromkeys(names))

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The name as it is registered."""
        return self.known.key(value, param.opts[0] if param else None)


class Names(Name):
    """Some of the names, separated by commas."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The names as they are registered."""
        given = value.split(",") if isinstance(value, str) else value
        return [super(Names, self).convert(name.strip(), param, ctx) for name in given]


INPUT = PathType(path_type=str)
"""A file or folder to read, as text: ``FILE::part`` is a name too."""
OUTPUT = PathType(path_type=Path)
"""A file or folder to write."""

force_option = click.option(
    "--force", is_flag=True, help="Overwrite an existing file that calibrant did not write."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")
bins_option = click.option(
    "--bins",
    "n_bins",
    type=int,
    default=15,
    show_default=True,
    help="Number of bins of the calibration errors.",
)
level_option = click.option(
    "--level",
    type=float,
    default=0.95,
    show_default=True,
    help="Confidence level of the intervals.",
)
seed_option = click.option(
    "--seed",
    type=int,
    default=0,
    show_default=True,
    callback=lambda _ctx, _param, seed: _inputs.whole_number(seed, "--seed", allowed=SEEDS),
    help="Random seed for resampling.",
)


methods_option = click.option(
    "--method",
    "--methods",
    "names",
    type=Names(CALIBRATORS),
    multiple=True,
    metavar="NAME,...",
    help="Methods to compare. Repeatable.  [default: all that need no parameter and are fitted in "
    "seconds]",
)


gamma_option = click.option(
    "--gamma",
    type=float,
    help="Gamma that the model was trained with. Adds the methods that need it (focal).",
)
further_metrics_option = click.option(
    "--metric",
    "metrics",
    type=Name(METRICS),
    multiple=True,
    metavar="NAME",
    help="Further metric to measure, as in `calibrant evaluate`. Repeatable.",
)


def _separated(text: str | None) -> list[str] | None:
    return None if text is None else [name.strip() for name in text.split(",")]


def _column_names(_ctx: click.Context, _param: click.Parameter, text: str | None) -> list[str]:
    return list(dict.fromkeys(_separated(text) or ()))


def by_option(explained: str) -> Callable[..., Any]:
    """The option ``--by``, which names columns of groups."""
    return click.option(
        "--by",
        metavar="COLUMN,...",
        callback=_column_names,
        help=f"{explained} A missing value is a group of its own.",
    )


slices_option = click.option(
    "--slices",
    metavar="COLUMN,...",
    callback=_column_names,
    help="Search the values of one or two of these columns for which the probabilities are most "
    "off. The p-value accounts for the search.",
)


def _import_plugins(ctx: click.Context, _param: click.Parameter, modules: tuple[str, ...]) -> None:
    for module in modules:
        if not _inputs.is_found(module):
            raise CalibrantError(
                f"--plugin takes the name of a module; found none called {module!r}. Install its "
                "package, or set PYTHONPATH to its folder"
            )
        with _inputs.refusing(f"the plug-in {module} cannot be imported", "Repair it"):
            import_module(module)


plugin_option = click.option(
    "--plugin",
    multiple=True,
    metavar="MODULE",
    is_eager=True,  # the names of methods and metrics are looked up afterwards
    expose_value=False,
    callback=_import_plugins,
    help="Python module that registers methods, metrics or losses. Repeatable. Plug-ins that are "
    "installed as packages are found without it.",
)


def column_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add options that name columns; the command gets ``columns`` for ``read_predictions``."""

    @click.option(
        "--label",
        metavar="NAME",
        help="Column of the labels, if not label or y_true; in a log a field such as meta.key.",
    )
    @click.option(
        "--score",
        metavar="NAME,...",
        help="Column of the scores of the positive class, or the columns of all classes.",
    )
    @click.option("--positive", metavar="LABEL", help="Label of the positive class.")
    @click.option(
        "--options",
        metavar="A,B,...",
        help="Possible answers in the log of a language model (.jsonl): the classes.",
    )
    @click.option("--source", metavar="NAME", help="Lines of a log to read, by their field source.")
    @functools.wraps(command)
    def with_columns(
        *args: Any,
        label: str | None,
        score: str | None,
        positive: str | None,
        options: str | None,
        source: str | None,
        **others: Any,
    ) -> Any:
        columns = {
            "label": label,
            "score": _separated(score),
            "positive": positive,
            "options": _separated(options),
            "source": source,
        }
        return command(*args, columns=columns, **others)

    return with_columns


def where_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that name columns, and ``--where`` beside them in ``columns``."""

    @click.option(
        "--where",
        metavar="CONDITION",
        help='Read only rows of Parquet files that meet a condition on columns, such as "month == '
        "'2026-10' and age >= 18\". Comparisons are ==, !=, <, <=, >, >= and in (...), joined by "
        "and.",
    )
    @column_options
    @functools.wraps(command)
    def with_where(*args: Any, where: str | None, columns: dict[str, Any], **others: Any) -> Any:
        return command(*args, columns={**columns, "where": where}, **others)

    return with_where


class MethodsCommand(click.Command):
    """A command whose help ends in the list of methods."""

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The methods, with a description and parameters of each."""
        with formatter.section("Methods"):
            methods = CALIBRATORS.with_plugins()
            formatter.write_dl([(name, _described(cls)) for name, cls in methods.items()])


def chosen_methods(
    lists: Iterable[Iterable[str]], gamma: float | None, *, against: str | None = None
) -> dict[str, Calibrator]:
    """Unfitted calibrators by name, with ``against`` among them; no names give all methods."""
    chosen = make_calibrators([name for names in lists for name in names] or None, gamma=gamma)
    if against is not None and against not in chosen:
        chosen |= make_calibrators([against], gamma=gamma)
    if gamma is not None and not any("gamma" in required_params(type(c)) for c in chosen.values()):
        raise CalibrantError(
            f"--gamma is for methods that need it (focal); found only {', '.join(chosen)}. "
            "Leave it out"
        )
    return chosen


def parse_setting(setting: str, example: str, option: str = "--set") -> tuple[str, Any]:
    """Name and value of ``--set NAME=VALUE``. The value is JSON; any other text is a string."""
    name, equals, text = setting.partition("=")
    if not equals:
        raise CalibrantError(
            f"{option} takes NAME=VALUE; found {setting[:60]!r}. "
            f"Write for example {option} {example}"
        )
    try:
        return name, json.loads(text)
    except (ValueError, RecursionError):
        return name, text


def _described(cls: type[Calibrator]) -> str:
    summary = (inspect.getdoc(cls) or "").partition("\n")[0]
    needed, params = required_params(cls), inspect.signature(cls).parameters.values()
    shown = [p.name if p.name in needed else f"{p.name}={p.default}" for p in params]
    return f"{summary} Parameters: {', '.join(shown)}." if shown else summary
