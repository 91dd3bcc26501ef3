"""Personal models: what every client makes of the final global model, tested on data like its own."""
