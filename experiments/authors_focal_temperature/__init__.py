"""Is T of a focal-trained network that of cross-entropy times the map's (Sec. 4.1)?"""
