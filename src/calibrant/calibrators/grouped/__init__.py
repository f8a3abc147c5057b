"""Groups of samples: one calibrator for all, and a few numbers for each group."""
