"""Calibrators of each class against the rest."""
