"""Formulas as MathML in the pages themselves: nothing to load, at build time or in the browser."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.writers.html5 import HTML5Translator

SPELLED_OTHERWISE = (
    (re.compile(r"\\(big|Big|bigg|Bigg)(?![a-zA-Z])"), r"\\\1l"),
    (re.compile(r"\\([dt]?frac)(\d)(\d)"), r"\\\1{\2}{\3}"),  # 12 is not one number there
    (re.compile(r"\\(log|arg)\s*(?=[a-zA-Z\d\\])"), r"\\\1\\,"),
    (re.compile(r"\\dots(?![a-zA-Z])"), r"\\ldots"),
    (re.compile(r"\\mathop\{\\mathrm\{(\w+)\}\}"), r"\\operatorname{\1}"),
    (re.compile(r"\\(?:begin|end)\{(?:split|aligned|align\*?)\}"), ""),
)
"""LaTeX that docutils does not know, or sets badly, and the same as it should be written for it."""


def mathml(latex: str, *, block: bool) -> str:
    """A formula as MathML; the source goes along for those who copy it or cannot see it."""
    source = " ".join(latex.split())
    spelled = source
    for pattern, known in SPELLED_OTHERWISE:
        spelled = pattern.sub(known, spelled)
    try:
        found = tex2mathml(spelled, as_block=block)
    except (MathError, SyntaxError, AttributeError) as unknown:
        raise ValueError(f"no MathML for the formula {source!r}: {unknown}") from unknown
    return found.replace("<math ", f'<math alttext="{html.escape(source)}" ', 1)


def visit_inline(writer: HTML5Translator, node: nodes.math) -> None:
    """A formula in a line of text."""
    writer.body.append(mathml(node.astext(), block=False))
    raise nodes.SkipNode


def visit_block(writer: HTML5Translator, node: nodes.math_block) -> None:
    """A formula on lines of its own."""
    writer.body.append(f'<div class="math">{mathml(node.astext(), block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """What Sphinx calls."""
    app.add_html_math_renderer("mathml", (visit_inline, None), (visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
