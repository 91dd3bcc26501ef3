"""The round loop and what it is made of."""
