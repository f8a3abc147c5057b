"""How often does a watch over a calibrated model ever raise an alarm, and how soon over others?"""
