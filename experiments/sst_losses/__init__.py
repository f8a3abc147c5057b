"""The losses on SST at the paper's length, over seeds."""
