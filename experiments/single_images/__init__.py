"""Single test images under each loss, with their confidences (Mukhoti et al. 2020, Fig. 8)."""
