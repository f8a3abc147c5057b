"""Independent high-precision oracles, written from the formulas; they import nothing of ours."""
