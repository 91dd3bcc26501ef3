"""Data: datasets by name or of your own, partitions, and the batches made of them."""
