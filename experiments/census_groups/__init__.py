"""Which groups and years of a census model are off, and what does grouped calibration gain?"""
