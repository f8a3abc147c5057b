"""Calibrators that fit each class against the rest."""
