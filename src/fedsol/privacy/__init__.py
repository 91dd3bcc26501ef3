"""Differential privacy: what is released is clipped and noised, and what that spends is accounted for."""
