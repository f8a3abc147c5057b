"""calibrant makes a classifier's probabilities mean what they say."""

from calibrant import focal
from calibrant._version import __version__

__all__ = ["__version__", "focal"]
