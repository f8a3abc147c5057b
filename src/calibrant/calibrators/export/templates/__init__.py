"""What an exported Python file holds: one module for each family of methods.

The capital letters are placeholders: the file has the constants of a calibrator in their place.
"""
