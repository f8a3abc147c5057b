"""The focal map and the closest temperature over the simplex of three classes."""
