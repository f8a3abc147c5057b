"""Do the 95% intervals of calibration errors cover the truth in 95% of samples?"""
