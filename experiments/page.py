"""The page that compares the papers' numbers with those of the published runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

from experiments.catalogue import Experiment
from experiments.claims import CHAROENPHAKDEE, CLAIMS, KOMISARENKO, MUKHOTI, Claim
from experiments.loss_tables.paper import cells
from experiments.tables import markdown

BEGIN = "<!-- made by `python -m experiments page`: do not edit from here -->"
END = "<!-- to here -->"
FEW = 12
MANY = 60
"""More printed values than this are listed only where they differ."""
NOT_TESTED = "not tested"
"""Words in a reason that is a guess."""
OUTCOMES = (
    *("same", "within the range of a further run"),
    *("not the same, with a tested reason", "not the same, reason not tested", "in words"),
)
EXCEPTIONS = ("no exception found", "exceptions found")
"""Outcomes of a search for exceptions to a statement about all cases."""
OF_A_FURTHER_RUN = ("printed cells", "printed cells within the range of a further run")
"""Values of an experiment that compares every cell with what a further run could show."""
TABLES_OF_PAPER_1 = ("authors-networks", "sst-losses", "newsgroups-losses")
"""Experiments on cells of its tables; they have none in common."""
SAME = {True: "yes", False: "**no**", None: ""}


def write_page(path: Path, experiments: dict[str, Experiment]) -> None:
    """Write the published results between the marks of a page."""
    path.write_text(with_results(path.read_text(), experiments))


def with_results(text: str, experiments: dict[str, Experiment]) -> str:
    """A page with new content between its marks."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    published = {name: each for name, each in experiments.items() if each.published() is not None}
    parts = ["## Claims of the papers", *verdicts(published)]
    parts += ["## Numbers of the papers", tally(published), tally_of_tables(published)]
    for paper in (MUKHOTI, KOMISARENKO, CHAROENPHAKDEE, ""):
        members = [each for each in experiments.values() if paper_of(each) == paper]
        parts.append(f"## {paper or 'Own questions'}")
        parts += [section(each) for each in members if each.name in published]
        parts += [waiting(each) for each in members if each.pending]
    return "\n\n".join([f"{before}{BEGIN}", *parts, f"{END}{after}"])


def paper_of(experiment: Experiment) -> str | None:
    """The paper of a result; empty for our own, None for studies."""
    return None if experiment.is_study else str(experiment.config["source"]).partition(", ")[0]


def tally(published: dict[str, Experiment]) -> str:
    """How many of the papers' numbers are reproduced, and how many statements have exceptions."""
    rows = []
    for paper in (MUKHOTI, KOMISARENKO, CHAROENPHAKDEE):
        members = [each for each in published.values() if paper_of(each) == paper]
        rows.append([paper, *map(str, [*counted(members), *searched(members)])])
    return markdown(["", *OUTCOMES, *(f"statements: {each}" for each in EXCEPTIONS)], rows)


def tally_of_tables(published: dict[str, Experiment]) -> str:
    """The same for every cell of paper 1's tables, by the experiment that computes it."""
    printed = sum(bool(cell) for row in cells().values() for cell in row.values())
    names = [name for name in TABLES_OF_PAPER_1 if name in published]
    counts = [counted([published[name]]) for name in names]
    rows = [[f"`{name}`", *map(str, each), ""] for name, each in zip(names, counts, strict=True)]
    together = [sum(each) for each in zip(*counts, strict=True)]
    rows.append(["all", *map(str, together), str(printed - sum(together))])
    head = [f"the {printed} cells of paper 1's Tables 1 to 13, by", *OUTCOMES, "copied only"]
    return markdown(head, rows)


def counted(experiments: Iterable[Experiment]) -> list[int]:
    """How many printed numbers have each outcome; the same words count once."""
    counts: Counter[tuple[bool, bool]] = Counter()
    words, within = set(), 0
    for experiment in experiments:
        values = values_of(experiment)
        if OF_A_FURTHER_RUN[0] in values:
            of_cells, inside = (round(values[name]) for name in OF_A_FURTHER_RUN)
            within += inside
            counts[False, True] += of_cells - inside
        for name, each in experiment.expected().items():
            same = each.same_as_paper(values[name])
            if same is not None and not each.again and not each.is_of_all_cases:
                counts[same, not same and NOT_TESTED in each.why] += 1
            elif same is None and each.paper:
                words.add((experiment.name, each.paper))
    differ = [counts[key] for key in ((False, False), (False, True))]
    return [counts[True, False], within, *differ, len(words)]


def searched(experiments: Iterable[Experiment]) -> list[int]:
    """How many statements about all cases have no exception, and how many have some."""
    without = [
        each.same_as_paper(values_of(experiment)[name])
        for experiment in experiments
        for name, each in experiment.expected().items()
        if each.is_of_all_cases and not each.again
    ]
    return [without.count(True), without.count(False)]


def values_of(experiment: Experiment) -> Mapping[str, float]:
    """The published values."""
    result = experiment.published()
    assert result is not None
    values: Mapping[str, float] = result["values"]
    return values


def waiting(experiment: Experiment) -> str:
    """A result that has not been published."""
    config, name = experiment.config, experiment.name
    return (
        f"### {headed(config['title'])}\n\n{config['source']}. `python -m experiments {name}`. "
        f"Not published: {experiment.pending}."
    )


def verdicts(published: dict[str, Experiment]) -> list[str]:
    """Every empirical claim with the verdict of our runs: a table, then the reasons of each."""
    judged = [(claim, *claim.judged(published)) for claim in CLAIMS]
    counts = Counter(verdict for _, verdict, _ in judged)
    summary = ", ".join(f"{n} {verdict}" for verdict, n in counts.most_common())
    rows = [
        [str(number), *claim.source.split(", ", 1), claim.says, f"**{verdict}**"]
        for number, (claim, verdict, _) in enumerate(judged, 1)
    ]
    rules = dict.fromkeys(claim.shared for claim in CLAIMS if claim.shared)
    return [
        f"{len(judged)} claims: {summary}.",
        markdown(["", "paper", "where", "claim", "verdict"], rows),
        "### Rules that several claims share",
        "\n".join(f"- *{headed(rule.name)}*. {rule.says}" for rule in rules),
        "### Evidence for each verdict",
        *(reasons(number, *each) for number, each in enumerate(judged, 1)),
    ]


def reasons(number: int, claim: Claim, verdict: str, evidence: str) -> str:
    """What was found on a claim, the rule that judged it, and the verdict of an earlier rule."""
    shared = f"*{headed(claim.shared.name)}*. " if claim.shared else ""
    parts = [
        f"**{number}. {headed(claim.says)}**: {verdict}.",
        f"  - Found: {evidence}.",
        f"  - Rule: {shared}{claim.rule}".rstrip(),
    ]
    if claim.changed:
        parts.append(f"  - Before: {claim.changed}.")
    return "\n".join([f"- {parts[0]}", *parts[1:]])


def section(experiment: Experiment) -> str:
    """One result: what it is, the paper's numbers, ours, and why they differ."""
    config, published = experiment.config, experiment.published()
    assert published is not None
    source = f"{config['source']}. " if config["source"] else ""
    head = (
        f"### {headed(config['title'])}\n\n{source}`python -m experiments {experiment.name}`, "
        f"{published['seconds']:.0f} s; made by commit {published['commit']}, config "
        f"{published['config_hash']}."
    )
    expected = experiment.expected()
    printed = {name for name, each in expected.items() if each.paper}
    # Without printed values, show a short list and leave a long one to the file.
    chosen = [name for name in expected if name in printed or len(expected) <= FEW]
    rows = []
    for name in chosen:
        value, each = published["values"][name], expected[name]
        same = each.same_as_paper(value)
        if not same or len(printed) <= MANY:
            rows.append([name, each.paper, shown(value), SAME[same], each.why])
    table = markdown(["", "paper", "here", "same", "why"], rows) if rows else ""
    shows = published["tables"].get(config.get("shows"))
    if shows is not None:
        table += f"\n\n{shows['title']}:\n\n{markdown(shows['head'], shows['rows'])}"
    picture = experiment.picture
    drawn = f"![{config['draws']}](pictures/reproduction/{picture.name})" if picture else ""
    left = len(published["values"]) - len(rows)
    file = f"experiments/{experiment.folder.name}/result.json"
    more = f"The tables, and {left} more values: `{file}`." if left else f"The tables: `{file}`."
    notes = "\n".join(f"- {note}" for note in published["notes"])
    return "\n\n".join(part for part in (head, table, drawn, more, notes) if part)


def shown(value: float) -> str:
    """A number in short form."""
    return f"{value:.0f}" if value == int(value) and abs(value) < 1e6 else f"{value:.4g}"


def headed(title: str) -> str:
    """A title with a capital first letter."""
    return title[:1].upper() + title[1:]
