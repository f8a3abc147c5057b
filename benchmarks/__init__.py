"""Benchmarks against the alternatives, measured alternately in one run, as ratios."""
