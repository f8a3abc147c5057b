"""Tables 1 to 13 of Mukhoti et al. (2020) from the logits of twelve of its networks."""
