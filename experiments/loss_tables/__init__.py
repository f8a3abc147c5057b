"""The loss tables of Mukhoti et al. (2020), Tables 1 to 13, beside the runs made here."""
