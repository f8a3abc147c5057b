"""Pictures, drawn with matplotlib on the Axes they are given; no global setting is touched."""
