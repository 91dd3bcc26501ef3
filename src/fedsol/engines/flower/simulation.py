"""The engine whose clients are virtual nodes of Flower's simulation, on Ray: on this machine or on a cluster."""

import logging
import os
import threading
from queue import Queue
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from fedsol.engines.flower.client import make_client_app
from fedsol.engines.flower.grid import GridEngine
from fedsol.errors import RunError
from fedsol.federation import Federation
from fedsol.settings import EngineSettings

QUIET = {
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""Nothing is told to anyone about a simulation, unless the user's own environment says otherwise."""


class SimulationEngine(GridEngine):
    """Starts Flower's simulation when the first round does, in a thread that lends this one its grid."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation, None, None)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def connect(self) -> Grid:
        if self._grid is None:
            self._grid = self._start()
        return self._grid

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()

    def _start(self) -> Grid:
        first: Queue[Grid | BaseException] = Queue()
        server = ServerApp()

        @server.main()
        def main(grid: Grid, _: Context) -> None:
            first.put(grid)
            self._over.wait()

        def simulate() -> None:
            try:
                run_simulation(
                    server,
                    make_client_app(self._federation.experiment),
                    num_supernodes=self._federation.clients,
                    backend_config=backend(self._federation.experiment.engine),
                )
                first.put(RuntimeError("it ended"))
            except BaseException as error:
                first.put(error)

        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        logging.getLogger("flwr").setLevel(logging.ERROR)
        self._thread = threading.Thread(target=simulate, name="flower-simulation", daemon=True)
        self._thread.start()
        grid = first.get()
        if isinstance(grid, BaseException):
            raise RunError(f"Flower's simulation did not start: {grid.__cause__ or grid}") from grid
        return grid


def backend(settings: EngineSettings) -> dict[str, Any]:
    """The simulation's share of this machine, or the cluster that it joins."""
    start: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if settings.address is not None:
        start["address"] = settings.address
    elif settings.workers is not None:
        start["num_cpus"] = settings.workers
    return {
        "init_args": start,
        "client_resources": {"num_cpus": settings.client_cpus, "num_gpus": settings.client_gpus},
    }
