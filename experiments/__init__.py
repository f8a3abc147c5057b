"""The papers' tables and figures, compared with our results: ``python -m experiments --list``."""
