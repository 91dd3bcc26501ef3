"""Values and files: the foundation of every other room."""
