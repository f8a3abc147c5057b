"""Every calibrator of calibrant, and the best of other packages, on real networks."""
