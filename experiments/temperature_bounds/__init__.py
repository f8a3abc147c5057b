"""The temperatures between which the focal map of two classes lies."""
