"""One temperature, the focal map, and both: the searches for gamma and T."""
