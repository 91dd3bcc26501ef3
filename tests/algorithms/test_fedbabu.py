"""FedBABU by hand."""

import pytest
import torch

from fedsol import InputError
from fedsol.algorithms import make_algorithm
from fedsol.config.tables import ClientSettings
from fedsol.core.messages import Job
from fedsol.data.types import Dataset, Split
from fedsol.federation.local_training import ClientData, LocalTraining, train_client, untrained_names
from tests.support.toys import OnlyHead, TwoLayers, split


def test_a_step_moves_the_body_and_not_the_head():
    # Body and head are 1 x 1 and 2 x 1. With x = 0 the features are tanh(0) = 0, and both have a gradient of 0.
    # All that moves the body is weight decay: 2 (1 - 0.5 * 0.1); the head is not decayed.
    model = split(TwoLayers(1, 1, 2).double(), (1,))
    weights = {
        "body.weight": torch.tensor([[2.0]], dtype=torch.float64),
        "head.weight": torch.tensor([[1.0], [-1.0]], dtype=torch.float64),
    }
    one = Split(torch.zeros(1, 1, dtype=torch.float64), torch.tensor([0]))
    data = ClientData(Dataset("one", one, one, 2, (), ()), torch.tensor([0]))
    training = LocalTraining(ClientSettings(epochs=1, weight_decay=0.1), 0, 0.5, torch.device("cpu"))
    update = train_client(Job(0, 1, weights), make_algorithm({"name": "fedbabu"}), model, data, training)
    torch.testing.assert_close(update.weights["body.weight"], torch.tensor([[1.9]], dtype=torch.float64))
    assert torch.equal(update.weights["head.weight"], weights["head.weight"])


def test_a_model_without_a_body_is_refused():
    with pytest.raises(InputError, match=r"client\.trains: must be 'all' for a model with no weights besides its"):
        untrained_names(make_algorithm({"name": "fedbabu"}), ClientSettings(), split(OnlyHead(1, 2), (1,)))
