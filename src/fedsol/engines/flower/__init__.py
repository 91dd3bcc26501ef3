"""Flower: clients on other machines, simulated on Ray or deployed. The only place where flwr is imported."""
