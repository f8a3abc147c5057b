"""Fig. 8 of Mukhoti et al. (2020) from the logits of two of its networks."""
