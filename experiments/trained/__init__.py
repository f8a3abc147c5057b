"""Networks trained here on real data, with the losses of Mukhoti et al. (2020)."""
