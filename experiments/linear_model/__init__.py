"""Cross-entropy and focal loss on a linear model of two parameters."""
