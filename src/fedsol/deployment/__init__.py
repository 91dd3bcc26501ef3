"""Flower deployments: the app that is written, and its server."""
