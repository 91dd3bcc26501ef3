"""PerFedAvg by hand."""

from math import log

import torch

from fedsol.algorithms import make_algorithm
from fedsol.config.tables import ClientSettings
from fedsol.core.messages import Job
from fedsol.data.batches import Batch, in_groups
from fedsol.data.types import Dataset, Split
from fedsol.federation.local_training import ClientData, LocalTraining, train_client
from tests.support.one_weight_per_logit import BATCH, NAME, close, column, step, task_at

LABEL_ONE = Batch(BATCH.inputs, torch.tensor([1]))


def test_a_step_on_two_batches():
    # w = 0: on the first batch (label 0) g = (-1/2, 1/2). A step of lr = ln 3 leads to (ln 3 / 2, -ln 3 / 2), where the
    # logits differ by ln 3: p = (3/4, 1/4). On the second batch (label 1) the gradient there is (3/4, -3/4).
    algorithm = make_algorithm({"name": "perfedavg"})
    batch = Batch(BATCH.inputs, BATCH.labels, further=(LABEL_ONE,))
    gradient, loss = algorithm.gradient(task_at(column(0, 0), lr=log(3)), column(0, 0), batch, {})
    close(gradient, column(0.75, -0.75))
    close({"loss": loss}, {"loss": torch.tensor(log(2), dtype=torch.float64)})


def test_a_batch_without_another_serves_as_both():
    # As above, but the second gradient is taken for label 0 again: p - (1, 0) = (-1/4, 1/4).
    close(step({"name": "perfedavg"}, column(0, 0), column(0, 0), lr=log(3)), column(-0.25, 0.25))


def test_what_is_applied_has_the_outer_step():
    # One sample with label 0, lr = ln 3, outer_lr = 0.2: w = 0 - 0.2 (-1/4, 1/4).
    split = Split(torch.ones(1, 1, dtype=torch.float64), torch.tensor([0]))
    data = ClientData(Dataset("one", split, split, 2, (), ()), torch.tensor([0]))
    settings = ClientSettings(epochs=1, lr=1.0, momentum=0.0, weight_decay=0.0)
    training = LocalTraining(settings, 0, log(3), torch.device("cpu"))
    algorithm = make_algorithm({"name": "perfedavg", "outer_lr": 0.2})
    update = train_client(Job(0, 1, column(0, 0)), algorithm, task_at(column(0, 0)).model, data, training)
    close({NAME: update.weights[NAME]}, column(0.05, -0.05))
    assert abs(update.metrics["train_loss"] - log(2)) < 1e-6


def test_it_fine_tunes_with_its_own_step():
    algorithm = make_algorithm({"name": "perfedavg", "outer_lr": 0.2})
    assert algorithm.fine_tuning() is algorithm
    assert make_algorithm({"name": "fedsol"}).fine_tuning() == make_algorithm({"name": "fedavg"}).fine_tuning()


def test_batches_in_groups():
    stream = [Batch(torch.full((1, 1), float(number)), torch.tensor([0])) for number in range(5)]
    groups = list(in_groups(iter(stream), 2))
    assert [float(batch.inputs) for batch in groups] == [0, 2, 4]
    assert [[float(other.inputs) for other in batch.further] for batch in groups] == [[1], [3], []]
    assert list(in_groups(iter(stream), 1)) == stream
