"""Runs, in memory and on disk."""
