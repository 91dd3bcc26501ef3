"""The round loop and its parts."""
