"""Networks trained on data whose true probabilities are known."""
