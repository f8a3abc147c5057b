"""The papers' tables and figures, beside what they print: ``python -m experiments --list``."""
