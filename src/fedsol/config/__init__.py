"""The experiment file: tables, their checks, and names."""
