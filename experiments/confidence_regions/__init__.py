"""Where the focal optimum is over- and where it is under-confident."""
