"""Pictures: the only home of matplotlib."""
