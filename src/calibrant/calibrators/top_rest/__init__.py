"""Top-rest scaling: the predicted class and the other classes, calibrated apart."""
