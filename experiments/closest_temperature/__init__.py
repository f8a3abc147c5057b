"""How close a temperature comes to the focal map (Komisarenko and Kull 2024, Sec. 3)."""
