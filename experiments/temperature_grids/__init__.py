"""How the line through 1/T against gamma moves with the grids it is fitted on."""
