"""How Sphinx builds the pages."""

from calibrant import __version__

project = "calibrant"
copyright = "the calibrant authors"
release = __version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.napoleon",
]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "none"
autosummary_generate = True
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "calibrant"
