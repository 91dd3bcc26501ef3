"""The workload in pfl-research: its SimulatedBackend and FederatedAveraging with PyTorch.

One such process does all the work; several share it when PFL_WORKER_ADDRESSES and PFL_WORKER_RANK are set.
"""

import functools
import sys

import numpy as np
import torch
import torch.nn.functional as F
from networks import NETWORKS
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByDatapoints
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.callback.central_evaluation import CentralEvaluationCallback
from pfl.data import FederatedDataset
from pfl.data.dataset import Dataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNEvalHyperParams, NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch import Tensor, nn
from workload import Record, Workload


class Classifier(nn.Module):
    """A network with the loss and the metrics that pfl asks for."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network
        self.steps = 0

    def forward(self, inputs: Tensor) -> Tensor:
        return self.network(inputs)

    def loss(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The loss of a training step."""
        self.train()
        self.steps += 1
        return F.cross_entropy(self(inputs), labels)

    @torch.no_grad()
    def metrics(self, inputs: Tensor, labels: Tensor) -> dict[str, Weighted]:
        """Sums over a batch of the test set."""
        self.eval()
        logits = self(inputs)
        loss = float(F.cross_entropy(logits, labels, reduction="sum"))
        correct = int((logits.argmax(dim=1) == labels).sum())
        return {"loss": Weighted(loss, len(labels)), "accuracy": Weighted(correct, len(labels))}


class Clock(TrainingProcessCallback):
    """Notes when rounds end; must come after the evaluation."""

    def __init__(self, classifier: Classifier) -> None:
        self.record = Record()
        self._classifier = classifier

    def on_train_begin(self, *, model: PyTorchModel) -> Metrics:
        self.record.stamp()
        return Metrics()

    def after_central_iteration(
        self,
        aggregate_metrics: Metrics,
        model: PyTorchModel,
        *,
        central_iteration: int,
    ) -> tuple[bool, Metrics]:
        self.record.stamp()
        self.record.steps.append(self._classifier.steps)
        self._classifier.steps = 0
        found = {str(name): value for name, value in aggregate_metrics.to_simple_dict().items()}
        self.record.accuracies.append(float(found["Central val | accuracy"]))
        return False, Metrics()


def datasets(work: Workload) -> tuple[FederatedDataset, Dataset]:
    """The clients' data and the test set, as tensors in memory, which pfl's guide calls the fastest way."""
    arrays = work.arrays()
    inputs, labels = torch.from_numpy(work.normalized(arrays["x_train"])), torch.from_numpy(arrays["y_train"])
    users = {client: (inputs[chosen], labels[chosen]) for client, chosen in enumerate(work.indices())}
    sampler = get_user_sampler("minimize_reuse", list(users))
    test = (torch.from_numpy(work.normalized(arrays["x_test"])), torch.from_numpy(arrays["y_test"]))
    return FederatedDataset.from_slices(users, sampler), Dataset(raw_data=test)


def main() -> None:
    """Arguments: the file of the workload, the file to write (by the first process)."""
    work = Workload.read(sys.argv[1])
    torch.set_num_threads(work.threads)
    # All processes must draw the same clients and start from the same weights.
    np.random.seed(0)
    torch.manual_seed(0)
    clients, test_set = datasets(work)
    classifier = Classifier(NETWORKS[work.network]())
    clock = Clock(classifier)
    model = PyTorchModel(
        model=classifier,
        local_optimizer_create=functools.partial(
            torch.optim.SGD, momentum=work.momentum, weight_decay=work.weight_decay
        ),
        central_optimizer=torch.optim.SGD(classifier.parameters(), lr=1.0),
    )
    evaluation = NNEvalHyperParams(local_batch_size=work.evaluate_batch)
    FederatedAveraging().run(
        backend=SimulatedBackend(training_data=clients, val_data=clients, postprocessors=[WeightByDatapoints()]),
        model=model,
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=work.rounds,
            # Evaluation on clients happens in the first round only, which is not counted.
            evaluation_frequency=work.rounds + 1,
            train_cohort_size=work.sampled,
            val_cohort_size=None,
        ),
        model_train_params=NNTrainHyperParams(
            local_learning_rate=work.lr, local_num_epochs=work.epochs, local_batch_size=work.batch_size
        ),
        model_eval_params=evaluation,
        callbacks=[CentralEvaluationCallback(test_set, model_eval_params=evaluation), clock],
    )
    write(clock.record, sys.argv[2])


def write(record: Record, path: str) -> None:
    """Adds up the steps of all processes; the first one writes."""
    if torch.distributed.is_initialized():
        steps = torch.tensor(record.steps)
        torch.distributed.all_reduce(steps)
        record.steps = steps.tolist()
        if torch.distributed.get_rank() > 0:
            return
    record.write(path, ("pfl", "torch", "numpy"))


if __name__ == "__main__":
    main()
