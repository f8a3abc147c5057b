"""The page that sets the losses of the demo side by side."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from calibrant.calibrators import MethodComparison
from calibrant.calibrators.comparison import SIGNS, ComparedMethod

SHOWN = ("identity", "temperature", "auto")
METRIC = "ece"
"""The calibration error that the reports speak of."""
HEADS = {"identity": "as trained", "temperature": "temperature", "auto": "auto"}


@dataclass(frozen=True)
class Trained:
    """One network of the demo."""

    title: str
    file: str
    report: str
    """Names of its files, in the folder of the page."""
    mean_confidence: float
    """As trained, on the test part."""
    methods: MethodComparison

    @property
    def accuracy(self) -> float:
        """As trained, on the test part."""
        return self.methods["identity"]["accuracy"].value

    def error(self, method: str) -> float:
        """The calibration error after ``method``, on the test part."""
        return self.methods[method][METRIC].value

    @property
    def floor(self) -> float:
        """The error that a calibrated model, as sure as this one after ``auto``, would show."""
        evaluation = self.methods["auto"].evaluation
        floors = () if evaluation is None else evaluation.noise_floors
        return next(floor.expected for floor in floors if floor.name == METRIC)


def index_page(trained: Sequence[Trained], notes: Iterable[str], next_lines: Iterable[str]) -> str:
    """The whole page; it loads nothing."""
    about = "".join(f"<li>{escape(note)}</li>" for note in notes)
    lines = escape("\n".join(next_lines))
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>calibrant demo</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(_heading(len(trained)))}</h1>\n"
        f'<p class="lead">{_verdict(trained[0])}</p>\n'
        f"{_picture(trained)}\n"
        f"<h2>Side by side</h2>\n{_side_by_side(trained)}\n"
        f"<h2>Every method</h2>\n{_every_method(trained)}\n"
        f"<h2>How this was made</h2>\n<ul>{about}</ul>\n"
        f"<h2>What to write next</h2>\n<pre>{lines}</pre>\n"
        "</main>\n</body>\n</html>\n"
    )


def _heading(n: int) -> str:
    count = {2: "Two", 3: "Three", 4: "Four"}.get(n, str(n))
    return f"{count} losses, before and after calibration"


def _verdict(first: Trained) -> str:
    before, after = (_percent(first.error(name)) for name in ("identity", "auto"))
    return (
        f"Trained with {escape(first.title)}, the network says {_percent(first.mean_confidence)} "
        f"on average and is right {_percent(first.accuracy)} of the time. <code>auto</code> takes "
        f"its calibration error from {before} to <strong>{after}</strong>; with so few samples a "
        f"calibrated model would show {_percent(first.floor)}."
    )


def _side_by_side(trained: Sequence[Trained]) -> str:
    heads = [HEADS[name] for name in SHOWN]
    groups = "".join(
        f'<th colspan="{span}" scope="colgroup">{name}</th>'
        for name, span in (
            ("as trained", 2),
            ("calibration error %, with its 95% interval", 3),
            ("noise", 1),
            ("NLL", 3),
        )
    )
    names = ["says %", "right %", *heads, "floor %", *heads]
    rows = []
    for each in trained:
        cells = [
            f"{100 * each.mean_confidence:.1f}",
            f"{100 * each.accuracy:.1f}",
            *(_with_interval(each.methods[name]) for name in SHOWN),
            f"{100 * each.floor:.1f}",
            *(f"{each.methods[name]['nll'].value:.3f}" for name in SHOWN),
        ]
        link = f'<a href="{escape(each.report)}">{escape(each.title)}</a>'
        rows.append(_row(link, cells))
    return _table(f"<tr><td></td>{groups}</tr>{_heads('loss', names)}", rows)


def _every_method(trained: Sequence[Trained]) -> str:
    names = [row.name for row in trained[0].methods.rows]
    names += [row.name for each in trained for row in each.methods.rows if row.name not in names]
    found = [{row.name: row for row in each.methods.rows} for each in trained]
    rows = [_row(escape(name), [_signed(rows.get(name)) for rows in found]) for name in names]
    reference = trained[0].methods.against
    shown = HEADS.get(reference, reference)
    heads = _heads("method", [each.title for each in trained])
    return (
        "<p>Calibration error in percent (<code>ece</code>, 15 bins) on the test part. + better, "
        f"&minus; worse than {escape(shown)} on the same samples; no sign where they cannot "
        f"tell.</p>{_table(heads, rows)}"
    )


def _picture(trained: Sequence[Trained]) -> str:
    """Calibration errors as dots on a line for each loss, over the noise floor."""
    left, width, step = 150, 760, 44
    errors = [[each.error(name) for name in SHOWN] for each in trained]
    top = 1.1 * max(max(row) for row in errors)
    height = step * len(trained) + 80

    def x(error: float) -> float:
        return left + (width - left - 20) * error / top

    parts = []
    for i, (each, row) in enumerate(zip(trained, errors, strict=True)):
        y = 20 + step * i + step / 2
        parts.append(
            f'<rect class="floor" x="{left}" y="{y - 11:.1f}" height="22" '
            f'width="{x(each.floor) - left:.1f}"/>'
        )
        parts.append(f'<text x="{left - 12}" y="{y + 5:.1f}" class="name">{escape(each.title)}')
        parts.append(f'</text><line x1="{x(0)}" x2="{width - 20}" y1="{y}" y2="{y}"/>')
        for name, error in zip(SHOWN, row, strict=True):
            parts.append(_mark(name, x(error), y, f"{HEADS[name]}: {_percent(error)}"))
    axis = height - 48
    for tick in range(0, int(100 * top) + 1, _tick_step(top)):
        at = x(tick / 100)
        parts.append(f'<text class="tick" x="{at:.1f}" y="{axis}">{tick}%</text>')
    legend, at = height - 14, left
    for name in SHOWN:
        parts.append(_mark(name, at + 6, legend - 5, HEADS[name]))
        parts.append(f'<text x="{at + 20}" y="{legend}">{HEADS[name]}</text>')
        at += 60 + 8 * len(HEADS[name])
    parts.append(f'<rect class="floor" x="{at}" y="{legend - 14}" width="26" height="18"/>')
    parts.append(f'<text x="{at + 34}" y="{legend}">what noise alone shows</text>')
    return (
        f'<figure><svg viewBox="0 0 {width} {height}" role="img" aria-label="Calibration error '
        f'of each loss as trained, after temperature scaling and after auto">{"".join(parts)}</svg>'
        "</figure>"
    )


def _mark(name: str, x: float, y: float, title: str) -> str:
    shape, where = {
        "identity": ("circle", f'cx="{x:.1f}" cy="{y:.1f}" r="7"'),
        "temperature": ("rect", f'x="{x - 6:.1f}" y="{y - 6:.1f}" width="12" height="12"'),
        "auto": ("path", f'd="M{x:.1f} {y - 9:.1f} l9 9 l-9 9 l-9 -9 z"'),
    }[name]
    return f'<{shape} {where} class="{name}"><title>{escape(title)}</title></{shape}>'


def _tick_step(top: float) -> int:
    return next(step for step in (1, 2, 5, 10, 20) if 100 * top / step <= 10)


def _with_interval(row: ComparedMethod) -> str:
    measured = row[METRIC]
    if measured.low is None or measured.high is None:
        return f"{100 * measured.value:.1f}"
    low, high = 100 * measured.low, 100 * measured.high
    return f"{100 * measured.value:.1f} <small>{low:.1f} to {high:.1f}</small>"


def _signed(row: ComparedMethod | None) -> str:
    if row is None or row.evaluation is None:
        return '<span class="none">&ndash;</span>'
    verdict = row.verdict(METRIC)
    sign = SIGNS[verdict].replace("-", "&minus;").strip() if verdict else ""
    return f'{100 * row[METRIC].value:.1f}<span class="sign">{sign}</span>'


def _heads(first: str, names: Iterable[str]) -> str:
    cells = "".join(f'<th scope="col">{escape(name)}</th>' for name in names)
    return f'<tr><th scope="col" class="first">{first}</th>{cells}</tr>'


def _row(first: str, cells: Iterable[str]) -> str:
    return f'<tr><th scope="row">{first}</th>{"".join(f"<td>{cell}</td>" for cell in cells)}</tr>'


def _table(head: str, rows: Iterable[str]) -> str:
    body = "\n".join(rows)
    return (
        f'<div class="wide" tabindex="0"><table>\n<thead>{head}</thead>\n'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _percent(value: Any) -> str:
    return f"{100 * value:.1f}%"


# The colours are those of the report.
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1b2027; --quiet: #59626d; --line: #d8dde3;
  --card: #f4f6f8; --floor: #e3e8ec; --accent: #00629b; --over: #b8470a; --one: #6b7a88; }
@media (prefers-color-scheme: dark) { :root { --paper: #14181d; --ink: #e7eaee; --quiet: #a6b0bb;
  --line: #343d47; --card: #1c2229; --floor: #29323a; --accent: #74bdf2; --over: #ff9d66;
  --one: #a7b1bb; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
main { max-width: 1000px; margin: 0 auto; padding: 2rem 1.25rem 4rem; }
h1 { font-size: 1.7rem; line-height: 1.25; margin: 0 0 .75rem; }
h2 { font-size: 1.15rem; margin: 2.25rem 0 .5rem; }
.lead { font-size: 1.15rem; max-width: 46rem; margin: 0 0 1rem; }
a { color: var(--accent); }
figure { margin: 1.5rem 0 0; overflow-x: auto; }
svg { width: 100%; min-width: 560px; max-width: 820px; height: auto; font-size: 14px;
  fill: var(--ink); }
svg line { stroke: var(--line); }
svg .name { text-anchor: end; font-weight: 600; }
svg .tick { text-anchor: middle; fill: var(--quiet); }
svg .floor { fill: var(--floor); }
svg .identity { fill: var(--over); }
svg .temperature { fill: var(--one); }
svg .auto { fill: var(--accent); }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .4rem .45rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); }
thead th { font-weight: 500; color: var(--quiet); }
thead th[colspan] { text-align: center; }
tbody th, th.first { text-align: left; padding-left: 0; }
small { display: block; color: var(--quiet); font-size: .78rem; }
.sign { display: inline-block; width: 1em; text-align: center; }
.none { color: var(--quiet); }
pre { background: var(--card); padding: .9rem 1rem; overflow-x: auto; border-radius: 6px; }
ul { padding-left: 1.2rem; max-width: 46rem; }
@media print { body { font-size: 12px; } main { max-width: none; padding: 0; } }
"""
