"""What minimises the expected focal loss: right decisions, wrong probabilities, one way back."""
