"""The focal loss of two classes as a map and a proper loss."""
