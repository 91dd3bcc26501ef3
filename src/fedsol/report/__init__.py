"""Figures and pages that show partitions and runs."""
