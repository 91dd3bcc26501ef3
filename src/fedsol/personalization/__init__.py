"""Personal models: every client adapts the final global model and tests it on data like its own."""
