"""Reproduce one result of the papers, or all quick ones.

TARGET is one of those below; `quick` runs all under ten minutes and checks them against their
expected values; `page` writes the published results into docs/reproduction.md; `keep FOLDER...`
packs finished runs into the checkout, and `unpack GRID... -o FOLDER` takes those of grids out of
it, so that `calibrant train --grid` does not train them again.
"""

from __future__ import annotations

import argparse
import sys
from difflib import get_close_matches
from pathlib import Path

from experiments.catalogue import Experiment, NothingToReadError, catalogue

PAGE = Path("docs/reproduction.md")


def main(argv: list[str] | None = None) -> None:
    """Run the target named on the command line, or list all of them."""
    experiments = catalogue()
    parser = argparse.ArgumentParser(
        prog="python -m experiments",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=listed(experiments),
    )
    names = [*experiments, "quick", "page", "keep", "unpack"]
    parser.add_argument("target", nargs="?", metavar="TARGET")
    parser.add_argument("--list", action="store_true", help="list all targets")
    parser.add_argument(
        "options", nargs=argparse.REMAINDER, help="options of the target; see TARGET --help"
    )
    arguments = parser.parse_args(argv)
    if arguments.target not in (None, *names):
        close = ", ".join(get_close_matches(arguments.target, names)) or "see --list"
        parser.error(
            f"TARGET must be one of the {len(names)} that --list shows; found "
            f"{arguments.target!r}. Nearest: {close}"
        )
    if arguments.list or arguments.target is None:
        print(listed(experiments))
    elif arguments.target == "quick":
        sys.exit(run_all_quick(experiments, arguments.options))
    elif arguments.target == "page":
        from experiments.page import write_page

        write_page(PAGE, experiments)
    elif arguments.target == "keep":
        keep_folders(arguments.options)
    elif arguments.target == "unpack":
        unpack_grids(arguments.options)
    elif experiments[arguments.target].is_study:
        experiments[arguments.target].module.main(arguments.options)
    else:
        sys.exit(run_one(experiments[arguments.target], arguments.options))


def keep_folders(options: list[str]) -> None:
    """Pack finished runs into the checkout."""
    from experiments.kept import keep

    parser = argparse.ArgumentParser(prog="python -m experiments keep")
    parser.add_argument("folders", nargs="+", metavar="FOLDER", help="folder of finished runs")
    parser.add_argument(
        "--no-epochs",
        action="store_true",
        help="only the epoch whose predictions are kept",
    )
    arguments = parser.parse_args(options)
    for folder in arguments.folders:
        print(f"{folder}: {keep(Path(folder), epochs=not arguments.no_epochs)} runs kept")


def unpack_grids(options: list[str]) -> None:
    """Put the kept runs of grids into the folder in which their others are to be trained."""
    from calibrant.training.grid import jobs_of, read_grid
    from experiments.kept import finished, unpack

    parser = argparse.ArgumentParser(prog="python -m experiments unpack")
    parser.add_argument("grids", nargs="+", metavar="GRID", help="file of a grid")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder of its runs")
    arguments = parser.parse_args(options)
    for grid in arguments.grids:
        jobs = jobs_of(read_grid(grid))
        unpack(jobs, arguments.out)
        print(f"{grid}: {finished(jobs, arguments.out)} of {len(jobs)} runs are in {arguments.out}")


def run_one(experiment: Experiment, options: list[str]) -> int:
    """Run, write and compare one experiment; return 0 if all values are as expected."""
    from experiments.results import reproduce

    parser = argparse.ArgumentParser(
        prog=f"python -m experiments {experiment.name}", description=experiment.config["title"]
    )
    parser.add_argument(
        "--out", type=Path, default=Path("out") / experiment.name, help="output folder"
    )
    parser.add_argument(
        "--publish", action="store_true", help="store the result beside its config, for the page"
    )
    arguments = parser.parse_args(options)
    refuse_without_files(experiment)
    try:
        wrong = reproduce(experiment, arguments.out, publish=arguments.publish)
    except NothingToReadError as absent:
        sys.exit(f"{experiment.name} needs finished runs: {absent}")
    print("\n".join(wrong) or "As expected.")
    return 1 if wrong else 0


def run_all_quick(experiments: dict[str, Experiment], options: list[str]) -> int:
    """Run all experiments under ten minutes, one on each core; return 0 if all are as expected."""
    from experiments.processes import single_threads
    from experiments.quick import run_quick

    parser = argparse.ArgumentParser(prog="python -m experiments quick")
    parser.add_argument(
        "--out", type=Path, default=Path("out"), help="folder of the output folders"
    )
    parser.add_argument("--publish", action="store_true", help="store the results for the page")
    arguments = parser.parse_args(options)
    with single_threads() as pool:
        return run_quick(
            experiments.values(), arguments.out, publish=arguments.publish, apply=pool.map
        )


def refuse_without_files(experiment: Experiment) -> None:
    """Exit if a file that the experiment needs is missing."""
    if experiment.missing:
        sys.exit(f"{experiment.name} needs {experiment.missing}, which is missing; see its README")


def listed(experiments: dict[str, Experiment]) -> str:
    """All targets with title, required files and duration."""
    lines = []
    for name, experiment in experiments.items():
        config = experiment.config
        source = f"{config['source']}: " if config["source"] else ""
        needs = f"; needs {', '.join(config['needs'])}" if config.get("needs") else ""
        lines.append(f"{name:<28}{source}{config['title']}; {_time(config['minutes'])}{needs}")
    return "\n".join(lines)


def _time(minutes: float) -> str:
    if minutes < 1:
        return f"{60 * minutes:.0f} s"
    return f"{minutes:.0f} min" if minutes < 90 else f"{minutes / 60:.1f} h"


if __name__ == "__main__":
    main()
