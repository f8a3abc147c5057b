"""Table 1 and Fig. 8 of Komisarenko and Kull (2024) on the networks trained here."""
