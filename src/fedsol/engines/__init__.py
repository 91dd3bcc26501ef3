"""Where clients are trained. An engine runs tasks; results do not depend on the engine."""

import os
from importlib.util import find_spec

from fedsol.config.tables import IN_MEMORY, PRIVATE
from fedsol.engines.base import Engine, LocalEngine
from fedsol.errors import InputError
from fedsol.federation.federation import Federation
from fedsol.federation.sampling import sample_size


def make_engine(federation: Federation, jobs: int | None = None) -> Engine:
    """Make the engine that the experiment names, for `jobs` jobs at once (default: those of a round)."""
    settings = federation.experiment.engine
    if federation.experiment.data.name == PRIVATE:
        raise InputError(
            f"data.name: {PRIVATE!r} is allowed only in a deployment, whose nodes have data (see: fedsol flower app)"
        )
    if settings.kind == "flower":
        if federation.experiment.data.name == IN_MEMORY:
            raise InputError(
                "engine.kind: 'flower' reads the data by its name, and this data is in memory; save it as a file, or "
                "choose 'local' or 'workers'"
            )
        require_flower()
        from fedsol.engines.flower.simulation import SimulationEngine

        return SimulationEngine(federation)
    jobs = sample_size(federation.experiment, federation.clients) if jobs is None else jobs
    count = min(settings.workers or available_cores(), jobs)
    if settings.kind == "local" or count == 1:  # a single worker would only add overhead
        return LocalEngine(federation)
    from fedsol.engines.workers import WorkersEngine

    return WorkersEngine(federation, count)


def require_flower() -> None:
    """Raise `InputError` if Flower, an optional dependency, is not installed."""
    if find_spec("flwr") is None or find_spec("ray") is None:
        raise InputError(
            "engine.kind: 'flower' requires Flower, which is not installed; run: pip install 'fedsol[flower]'"
        )


def available_cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
