"""Multi-label models: each label is a probability of its own, calibrated with the others' help."""
