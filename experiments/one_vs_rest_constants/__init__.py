"""How the constants of the one-vs-rest calibrators were chosen, on validation sets only."""
