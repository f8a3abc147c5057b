"""Focal loss, its map and temperature scaling over many tables (Charoenphakdee et al. 2021)."""
