"""How many validation samples does ``auto`` need to beat temperature scaling?"""
