"""Numerical primitives: log space, precision, and compiled kernels."""
