"""The distance of temperature scaling from the focal map (Komisarenko and Kull 2024, Sec. 3)."""
