"""Numerics: log space, precision, the triangle of three classes, and compiled kernels."""
