"""Another share of each class than the model was trained for: label shift."""
