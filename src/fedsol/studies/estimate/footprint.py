"""How much memory and disk a federation needs: counted from its tensors."""

import sys
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from fedsol.core.messages import Job
from fedsol.core.randomness import one_torch_thread
from fedsol.core.weights import pick, size_in_bytes
from fedsol.federation.federation import Federation
from fedsol.runs.checkpoints import KEPT
from fedsol.runs.client_states import MEMORY_BUDGET
from fedsol.studies.estimate.plan import Plan
from fedsol.studies.estimate.traffic import ClientBytes, initial_server
from fedsol.training.server_optimizer import apply_server_optimizer


@dataclass(frozen=True)
class Footprint:
    """Bytes. `server` and `worker` are sums of what is named after them."""

    model: int
    """The weights once."""
    server: int
    """Peak of the main process."""
    process: int
    """The interpreter with its libraries, as measured in this process after it has read the data."""
    data: int
    """Both splits; workers share them."""
    updates: int
    """A round's updates, which are held until they are averaged."""
    server_state: int
    """Global weights, the method's and the optimiser's state before and after a round, and the outgoing message."""
    states_in_memory: int
    """Client states that a simulation keeps in memory."""
    states_on_disk: int
    """Client states that a simulation has on disk, all of them by its last checkpoint."""
    checkpoints: int
    """The checkpoints of the server that are kept."""
    worker: int
    """Peak of a worker on top of what it shares with the main process."""
    training: int
    """The largest amount of tensors alive at a time in a client's job (activations, gradients, momentum and so on)."""


def footprint(plan: Plan, bench: Federation, traffic: ClientBytes, process: int) -> Footprint:
    """The footprint of a simulation on this machine; `bench` is a small federation of the plan's model and method."""
    server = initial_server(bench)
    optimizer = apply_server_optimizer(bench.experiment.server, server, server).optimizer
    model = size_in_bytes(server.weights)
    kept = model + size_in_bytes(server.state) + size_in_bytes(optimizer)
    server_state = 2 * kept + traffic.down
    updates = plan.per_round * traffic.up
    touched = distinct_clients(plan.clients, plan.per_round, plan.rounds)
    superseded = min(touched, plan.per_round * plan.experiment.server.checkpoint_every)
    in_memory = min(MEMORY_BUDGET, round(touched * traffic.state))
    training = peak_of_tensors(bench)
    messages = max(2 * traffic.down, 2 * (traffic.up + traffic.state))
    return Footprint(
        model=model,
        server=process + plan.data.bytes + server_state + updates + in_memory,
        process=process,
        data=plan.data.bytes,
        updates=updates,
        server_state=server_state,
        states_in_memory=in_memory,
        states_on_disk=round((touched + superseded) * traffic.state),
        checkpoints=KEPT * kept,
        worker=traffic.down + traffic.state + max(training, messages),
        training=training,
    )


def distinct_clients(clients: int, per_round: int, rounds: int) -> float:
    """How many different clients are expected to have been sampled at least once: `N (1 - (1 - K / N)^R)`."""
    return clients * (1 - (1 - per_round / clients) ** rounds)


def peak_of_tensors(bench: Federation) -> int:
    """Runs one client's job of a few full batches and counts the tensors that were alive at the same time."""
    server = initial_server(bench)
    weights, model = server.weights, bench.model
    state = bench.algorithm.init_client(pick(weights, model.names), pick(weights, model.buffers))
    job = Job(0, 1, weights, bench.algorithm.broadcast(server), state)
    meter = TensorMeter()
    with one_torch_thread(), meter:
        bench.train(job)
    return meter.peak


class TensorMeter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the bytes of all tensors that operations inside the block make, as long as they are alive.

    What an operation uses inside itself (a convolution's scratch memory) is not seen.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak: int = 0
        self._live: dict[int, int] = {}
        self._bytes = 0

    def __torch_dispatch__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        tree_map_only(Tensor, self._count, result)
        return result

    def _count(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self._live:
            self._live[key] = storage.nbytes()
            self._bytes += storage.nbytes()
            self.peak = max(self.peak, self._bytes)
            weakref.finalize(storage, self._free, key)
        return tensor

    def _free(self, key: int) -> None:
        self._bytes -= self._live.pop(key)


def memory_of_this_process() -> int:
    """Bytes that this process has needed at most so far."""
    import resource  # not there on Windows, where fedsol is not tested

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
