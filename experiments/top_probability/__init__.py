"""Whether the focal map can lower the top probability."""
