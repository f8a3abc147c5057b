"""Sphinx configuration."""

import sys
from pathlib import Path

from calibrant import __version__

sys.path.insert(0, str(Path(__file__).parent))  # for mathml

project = "calibrant"
copyright = "the calibrant authors"
release = __version__
extensions = [
    "mathml",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autosummary_generate = True
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "calibrant"
html_math_renderer = "mathml"
html_static_path = ["static"]
html_css_files = ["calibrant.css"]
html_show_sourcelink = False


def keep_colons(app, what, name, thing, options, lines):
    """Undo napoleon's reading of text before a colon in an attribute's docstring as a type."""
    for i, line in enumerate(lines):
        if line.startswith(":type: "):
            lines[0] = f"{lines.pop(i).removeprefix(':type: ')}: {lines[0]}"
            return


def setup(app):
    app.connect("autodoc-process-docstring", keep_colons, priority=600)  # after napoleon
