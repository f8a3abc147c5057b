"""Top-rest scaling: the predicted class and the other classes are calibrated separately."""
