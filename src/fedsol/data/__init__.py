"""Data: named datasets or your own, partitions, and batches."""
