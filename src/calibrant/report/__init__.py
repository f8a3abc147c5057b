"""One page that says whether a model can be trusted, what to do, and what is gained.

``summarise`` computes plain data, ``render`` turns them into HTML, and ``page`` writes the file.
The page needs no network and no server, and most of it no JavaScript.
"""

from calibrant.report.page import write_report
from calibrant.report.summary import Summary

__all__ = ["Summary", "write_report"]
