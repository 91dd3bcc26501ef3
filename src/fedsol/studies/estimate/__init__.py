"""What a federation will cost in time, memory and bytes, before it is run."""
