"""The default calibrator, which selects a method by cross-validation."""
