"""The focal map on networks of three sizes, trained on more and on fewer images."""
