"""Calibrators that are linear in the logits or in the log-probabilities."""
