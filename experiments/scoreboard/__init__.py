"""Every calibrator of calibrant, and the best of other packages, on networks and other models."""
