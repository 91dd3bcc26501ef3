"""The engine whose clients are virtual nodes of Flower's simulation on Ray, on this machine or a cluster."""

import logging
import socket
import threading
import time
from queue import Empty, Queue
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from fedsol.config.tables import EngineSettings
from fedsol.engines.flower.client import make_simulated_app
from fedsol.engines.flower.grid import GridEngine
from fedsol.engines.flower.reaper import reaped
from fedsol.errors import InputError, RunError
from fedsol.federation.federation import Federation

PAUSE = 0.05
"""Seconds between two polls for replies."""

SECONDS_TO_END = 30.0
"""How long Flower and Ray may take to clean up."""


class SimulationEngine(GridEngine):
    """Start Flower's simulation with the first round, in a thread that lends its grid to this one."""

    def __init__(self, federation: Federation) -> None:
        super().__init__(federation, None, None)
        check_cluster(federation.experiment.engine.address)
        self._over = threading.Event()
        self._thread: threading.Thread | None = None
        self._failure: Exception | None = None

    def connect(self) -> Grid:
        if self._grid is None:
            self._grid = self._start()
        return self._grid

    def wait(self) -> None:
        time.sleep(PAUSE)
        self._raise_if_over()

    def close(self) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join(SECONDS_TO_END)

    def _start(self) -> Grid:
        lent: Queue[Grid] = Queue()
        server = ServerApp()

        @server.main()
        def main(grid: Grid, _: Context) -> None:
            lent.put(grid)
            self._over.wait()

        logging.getLogger("flwr").setLevel(logging.ERROR)
        self._thread = threading.Thread(target=self._simulate, args=(server,), name="flower-simulation", daemon=True)
        self._thread.start()
        while True:
            try:
                return lent.get(timeout=PAUSE)
            except Empty:
                self._raise_if_over()

    def _simulate(self, server: ServerApp) -> None:
        experiment = self._federation.experiment
        try:
            with reaped():
                run_simulation(
                    server,
                    make_simulated_app(),
                    num_supernodes=self._federation.clients,
                    backend_config=backend(experiment.engine),
                )
        except Exception as error:  # it is raised in the thread that waits for it
            self._failure = error

    def _raise_if_over(self) -> None:
        """Raise the error of a simulation that has failed; its replies would never come."""
        if self._thread is not None and not self._thread.is_alive():
            cause = self._failure.__cause__ if self._failure else None
            raise RunError(f"Flower's simulation failed: {cause or self._failure}") from self._failure


def check_cluster(address: str | None) -> None:
    """Raise `InputError` unless a cluster listens there; Ray itself would try for many minutes."""
    host, colon, port = (address or "").rpartition(":")
    if not colon:  # none, or `auto`: Ray searches for a cluster on this machine
        return
    try:
        socket.create_connection((host.removeprefix("ray://"), int(port)), timeout=10).close()
    except (OSError, ValueError) as error:
        raise InputError(f"engine.address: no Ray cluster answers at {address!r} ({error})") from error


def backend(settings: EngineSettings) -> dict[str, Any]:
    """Return Ray's configuration: the simulation's share of this machine, or the cluster that it joins."""
    start: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    # Without an address Ray would join whatever cluster it last saw on this machine, or wait for one that is gone.
    start["address"] = settings.address or "local"
    if settings.address is None and settings.workers is not None:
        start["num_cpus"] = settings.workers
    return {
        "init_args": start,
        "client_resources": {"num_cpus": settings.client_cpus, "num_gpus": settings.client_gpus},
    }
