"""The functions of exported Python files, one module for each family of methods.

Constants in capital letters are placeholders for those of a fitted calibrator.
"""
