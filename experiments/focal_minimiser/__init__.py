"""The minimiser of the expected focal loss: correct decisions, wrong probabilities."""
