"""Where clients are trained. An engine runs jobs; it decides nothing that a result depends on."""

from fedsol.engines.base import Engine
from fedsol.engines.local import LocalEngine
from fedsol.federation import Federation


def make_engine(federation: Federation) -> Engine:
    """The engine that the experiment names."""
    return LocalEngine(federation)
