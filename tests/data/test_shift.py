"""Feature skew: every client sees its images in its own way, and nothing else changes."""

import pytest
import torch

from fedsol.config.experiment import Experiment
from fedsol.data.shift import LOOKS
from fedsol.errors import InputError
from fedsol.federation.federation import build_federation
from tests.support.cases import experiment


@pytest.mark.parametrize("shift", LOOKS)
def test_every_client_sees_its_images_in_its_own_way(shift):
    plain = build_federation(experiment({"name": "fedavg"}, data__partition__clients=5))
    skewed = build_federation(experiment({"name": "fedavg"}, data__partition__clients=5, data__shift=shift))
    assert torch.equal(skewed.dataset.test.inputs, plain.dataset.test.inputs)
    assert torch.equal(skewed.dataset.train.labels, plain.dataset.train.labels)
    same = []
    for client, indices in enumerate(plain.partition):
        assert torch.equal(skewed.partition[client], indices)
        before, after = (one.dataset.train.inputs[indices] for one in (plain, skewed))
        expected = LOOKS[shift][client % len(LOOKS[shift])](before)
        assert torch.equal(after, expected)
        same.append(torch.equal(before, after))
    assert same == [client % len(LOOKS[shift]) == 0 for client in range(5)]


def test_the_looks_by_hand():
    image = torch.tensor([[[[0, 8], [100, 255]]]], dtype=torch.uint8)
    inverted, turned, dimmed = (look(image)[0, 0].tolist() for look in LOOKS["mixed"][1:])
    assert inverted == [[255, 247], [155, 0]]
    assert turned == [[8, 255], [0, 100]]
    assert dimmed == [[0, 2], [25, 63]]


def test_what_has_no_look_is_refused():
    with pytest.raises(InputError, match=r"data\.shift: 'dim' is for images"):
        build_federation(
            experiment(
                {"name": "fedavg"},
                data__shift="dim",
                data__name="tests.support.user_code:uneven_clients",
                data__partition__kind="own",
                data__partition__clients=3,
            )
        )


def test_private_data_cannot_be_shifted():
    with pytest.raises(InputError, match=r"data\.shift: 'invert' is not allowed with private data"):
        Experiment(data={"name": "private", "shift": "invert"})
