"""How many validation samples does ``auto`` need to be worth more than one temperature?"""
