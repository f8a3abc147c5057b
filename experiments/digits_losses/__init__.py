"""Every loss of Mukhoti et al. (2020) on handwritten digits, five seeds each."""
