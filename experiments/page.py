"""The page that sets the papers' numbers beside those of the published runs."""

from __future__ import annotations

from pathlib import Path

from experiments.catalogue import Experiment
from experiments.tables import markdown

BEGIN = "<!-- made by `python -m experiments page`: do not edit from here -->"
END = "<!-- to here -->"
SAME = {True: "yes", False: "**no**", None: ""}


def write_page(path: Path, experiments: dict[str, Experiment]) -> None:
    """Put the published results between the marks of a page."""
    text = path.read_text()
    path.write_text(with_results(text, experiments))


def with_results(text: str, experiments: dict[str, Experiment]) -> str:
    """A page with everything between its marks made anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    parts = [section(each) for each in experiments.values() if each.published() is not None]
    return "\n\n".join([f"{before}{BEGIN}", *parts, f"{END}{after}"])


def section(experiment: Experiment) -> str:
    """One result: what it is, the paper's numbers, ours, and why they differ."""
    config, published = experiment.config, experiment.published()
    assert published is not None
    source = f"{config['source']}. " if config["source"] else ""
    head = (
        f"### {config['title']}\n\n{source}`python -m experiments {experiment.name}`, "
        f"{published['seconds']:.0f} s; made by commit {published['commit']}, config "
        f"{published['config_hash']}."
    )
    rows = []
    for name, expected in experiment.expected().items():
        value = published["values"][name]
        rows.append(
            [name, expected.paper, shown(value), SAME[expected.same_as_paper(value)], expected.why]
        )
    table = markdown(["", "paper", "here", "same", "why"], rows)
    notes = "\n".join(f"- {note}" for note in published["notes"])
    return "\n\n".join(part for part in (head, table if rows else "", notes) if part)


def shown(value: float) -> str:
    """A number as short as it can be read."""
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e6 else f"{value:.4g}"
