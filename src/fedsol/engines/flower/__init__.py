"""Flower: clients on other machines, simulated on Ray or deployed. The only place where flwr is imported."""

import os

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Turns telemetry off unless the user's own environment turns it on. Flower reads this when it is imported."""

for _name, _value in QUIET.items():
    os.environ.setdefault(_name, _value)
