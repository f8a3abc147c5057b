"""What a focal-trained model should use at prediction time: a small run on digits."""
