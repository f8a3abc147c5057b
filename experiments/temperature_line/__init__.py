"""The best temperature for each gamma of the focal map (Komisarenko and Kull 2024, Fig. 8)."""
