"""Focal temperature scaling against temperature scaling (Komisarenko and Kull 2024, Table 1)."""
