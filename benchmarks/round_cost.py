"""Question 3: two workers against one; and what in a round is neither forward, backward nor optimizer?"""

import time
from collections.abc import Callable
from typing import Any

import torch
from common import interleaved, save
from federations import paper_experiment

from fedsol.algorithms.fedavg import FedAvg
from fedsol.core.messages import Job
from fedsol.engines import make_engine
from fedsol.federation.federation import Federation, build_federation
from fedsol.federation.optimizer import LocalOptimizer
from fedsol.federation.sampling import sample_clients
from fedsol.federation.tasks import Train
from fedsol.models.split import SplitModel
from fedsol.training.evaluation import evaluate_test
from fedsol.training.loop import train

REPETITIONS = 3


def one_round(federation: Federation, engine: Any) -> None:
    """The clients of a round, and the evaluation."""
    weights = federation.initial_weights()
    clients = sample_clients(federation.experiment, federation.clients, 1)
    for _ in engine.run([Train(Job(client, 1, weights)) for client in clients]):
        pass
    evaluate_test(engine, federation, weights)


class Stopwatch:
    """Seconds spent inside some functions, those that one calls in another counted once."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._is_running = False

    def around(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **options: Any) -> Any:
            if self._is_running:
                return function(*arguments, **options)
            start, self._is_running = time.perf_counter(), True
            try:
                return function(*arguments, **options)
            finally:
                self.seconds += time.perf_counter() - start
                self._is_running = False

        return timed


def share_beside_the_compute() -> float:
    """One whole round of `fedsol.train` in this process: what is left when the compute is taken away."""
    stopwatch = Stopwatch()
    FedAvg.gradient = stopwatch.around(FedAvg.gradient)  # type: ignore[method-assign]
    LocalOptimizer.step = stopwatch.around(LocalOptimizer.step)  # type: ignore[method-assign]
    SplitModel.outputs = stopwatch.around(SplitModel.outputs)  # type: ignore[method-assign]
    run = train(paper_experiment(engine__kind="local"))
    return 1 - stopwatch.seconds / run.rows[0]["seconds"]


def main() -> None:
    torch.set_num_threads(1)
    federation = build_federation(paper_experiment())
    engines = {
        "one worker": make_engine(build_federation(paper_experiment(engine__kind="local"))),
        "two workers": make_engine(build_federation(paper_experiment(engine__workers=2))),
    }
    actions = {name: (lambda engine=engine: one_round(federation, engine)) for name, engine in engines.items()}
    seconds = interleaved(actions, REPETITIONS, warm_up=1)
    for engine in engines.values():
        engine.close()
    save(
        "round_cost",
        {
            "repetitions": REPETITIONS,
            "seconds": seconds,
            "speed_up": seconds["one worker"] / seconds["two workers"],
            "share_beside_compute": share_beside_the_compute(),
        },
    )


if __name__ == "__main__":
    main()
