"""The workload in Flower's simulation: as many clients side by side as there are cores, one core each."""

import os
import sys

import flower_app
from flwr.simulation import run_simulation


def main() -> None:
    """Arguments: the file of the workload, the file to write."""
    os.environ[flower_app.WORKLOAD_VARIABLE], os.environ[flower_app.OUTPUT_VARIABLE] = sys.argv[1:3]
    run_simulation(
        server_app=flower_app.server_app,
        client_app=flower_app.client_app,
        num_supernodes=flower_app.workload().clients,
        backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
    )


if __name__ == "__main__":
    main()
