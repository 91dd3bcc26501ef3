"""One federation and one client's work, as pure functions."""
