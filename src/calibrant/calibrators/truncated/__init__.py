"""Truncated rows: only the largest logits of each row are known."""
