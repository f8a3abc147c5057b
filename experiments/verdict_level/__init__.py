"""How often is a calibrated model called something else, and do the intervals of slopes cover?"""
