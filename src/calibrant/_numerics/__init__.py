"""Numerics: log space, precision, Newton's method, threads of BLAS, and compiled kernels."""
