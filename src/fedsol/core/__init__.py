"""Values and files: what every other room stands on."""
