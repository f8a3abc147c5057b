"""Rows of which only the largest logits are known."""
