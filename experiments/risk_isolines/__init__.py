"""The conditional risk of proper losses over the simplex of three classes."""
