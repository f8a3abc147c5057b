"""Benchmarks: what a user would otherwise use, side by side in one run, as ratios."""
