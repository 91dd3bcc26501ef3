"""Flower deployments: the app folder and its server."""
