"""How networks become over-confident while they train (Mukhoti et al. 2020, Figs 1 to 4)."""
