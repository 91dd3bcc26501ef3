"""A client's training against a plain torch loop: `backward()` and an optimizer that is not fused."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedsol.algorithms import make_algorithm
from fedsol.algorithms.controls import momentum_steps
from fedsol.algorithms.perfedavg import PerFedAvg
from fedsol.config.tables import ClientSettings
from fedsol.core.messages import Job
from fedsol.core.randomness import generator_for
from fedsol.core.weights import clone
from fedsol.data.batches import batches
from fedsol.data.types import Dataset, Split
from fedsol.errors import InputError
from fedsol.federation.federation import build_federation
from fedsol.federation.local_training import ClientData, LocalTraining, epochs_of, steps_of, train_client
from fedsol.federation.optimizer import laid_out_like
from fedsol.models import MODELS, ModelShape
from fedsol.models.build import build_model
from tests.support.toys import split

SEED, ROUND, CLIENT, LR = 3, 1, 0, 0.02


class ChannelsLast(nn.Module):
    """A user's model whose weights themselves lie with channels last."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Conv2d(5, 4, 3), nn.AdaptiveAvgPool2d(2), nn.Flatten()
        )
        self.head = nn.Linear(16, 10)
        self.to(memory_format=torch.channels_last)

    def forward(self, inputs):
        return self.head(self.body(inputs.contiguous(memory_format=torch.channels_last)))


class Transposed(nn.Module):
    """A user's model whose gradient is the transpose of a product."""

    def __init__(self):
        super().__init__()
        self.body = nn.Flatten()
        self.weight = nn.Parameter(torch.randn(3 * 32 * 32, 6) / 50)
        self.head = nn.Linear(6, 10)

    def forward(self, inputs):
        return self.head(torch.einsum("bi,io->bo", self.body(inputs), self.weight))


IMAGES = ModelShape((3, 32, 32), 10)
OF_IMAGES = [name for name, spec in MODELS.items() if spec.fits(IMAGES)]


def model_of(name):
    torch.manual_seed(0)
    users = {"channels-last": ChannelsLast, "transposed": Transposed}
    return users[name]() if name in users else build_model(name, {}, IMAGES, 0)


def client_data(count=12):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(count, 3, 32, 32, generator=generator, dtype=torch.float64)
    part = Split(inputs, torch.randint(10, (count,), generator=generator))
    return ClientData(Dataset("random", part, part, 10, (), ()), torch.arange(count))


def plain_torch(model, data, settings):
    """The same batches, the same steps, written as anybody would."""
    model = copy.deepcopy(model).train()
    options = {"momentum": settings.momentum} if settings.optimizer == "sgd" else {}
    kind = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[settings.optimizer]
    optimizer = kind(
        model.parameters(), lr=LR, weight_decay=settings.weight_decay, fused=False, foreach=False, **options
    )
    generator = generator_for(SEED, "client", ROUND, CLIENT)
    for _ in range(settings.epochs):
        for batch in batches(data.dataset, data.indices, settings.batch_size, 1, generator):
            optimizer.zero_grad()
            F.cross_entropy(model(batch.inputs), batch.labels).backward()
            optimizer.step()
    return model.state_dict()


def models_and_optimizers():
    """Every pair; what is large, or like another one, is for `make test-all`."""
    for name in [*OF_IMAGES, "channels-last", "transposed"]:
        for optimizer in ("sgd", "adam", "adamw"):
            large = name.startswith(("resnet", "vgg", "slvit")) and optimizer != "sgd"
            twin = name == "resnet18-batchstats"
            yield pytest.param(name, optimizer, marks=[pytest.mark.full] if large or twin else [])


@pytest.mark.parametrize(("name", "optimizer"), list(models_and_optimizers()))
def test_local_training_is_what_a_plain_torch_loop_does(name, optimizer):
    """In double precision, so that nothing but rounding is left."""
    model, data = model_of(name).double(), client_data(6)
    settings = ClientSettings(epochs=2, batch_size=3, weight_decay=1e-3, optimizer=optimizer)
    expected = plain_torch(model, data, settings)
    functional = split(model, (3, 32, 32))
    training = LocalTraining(settings, SEED, LR, torch.device("cpu"))
    job = Job(CLIENT, ROUND, functional.initial_weights())
    found = train_client(job, make_algorithm({"name": "fedavg"}), functional, data, training).weights
    assert found.keys() == expected.keys()
    for key, tensor in expected.items():
        torch.testing.assert_close(found[key], tensor, rtol=1e-7, atol=1e-7)


@pytest.mark.parametrize(
    ("steps", "examples", "epochs_ended"), [(1, 12, [1]), (5, 12, [1, 2, 3]), (6, 12, [1, 2, 3]), (3, 3, [1, 2, 3])]
)
def test_a_number_of_steps_replaces_epochs(steps, examples, epochs_ended):
    """In batches of 6 (or all 3 examples): the first steps of as many epochs as it takes, and no more."""
    model, data = split(model_of("mlp").double(), (3, 32, 32)), client_data(examples)
    job = Job(CLIENT, ROUND, model.initial_weights())
    seen = {}

    def trained(settings, after_epoch=lambda *_: None):
        training = LocalTraining(settings, SEED, LR, torch.device("cpu"))
        return train_client(job, make_algorithm({"name": "fednova"}), model, data, training, after_epoch)

    settings = ClientSettings(epochs=1, steps=steps, batch_size=6)
    update = trained(settings, lambda epoch, weights: seen.update({epoch: clone(weights)}))
    assert update.steps == steps
    assert float(update.payload["effective-steps"]) == momentum_steps(steps, settings.momentum)
    assert list(seen) == epochs_ended
    by_epochs = ClientSettings(epochs=len(epochs_ended), batch_size=6)
    share = steps / trained(by_epochs).steps
    part = train_client(
        Job(CLIENT, ROUND, job.weights, work=share),
        make_algorithm({"name": "fednova"}),
        model,
        data,
        LocalTraining(by_epochs, SEED, LR, torch.device("cpu")),
    )
    assert all(torch.equal(update.weights[name], part.weights[name]) for name in update.weights)


def test_steps_are_counted_for_stragglers_and_groups_of_batches():
    settings, fedavg, paired = ClientSettings(steps=7), make_algorithm({"name": "fedavg"}), PerFedAvg()
    assert [steps_of(examples, 1.0, settings, fedavg) for examples in (1, 50, 10_000)] == [7, 7, 7]
    assert steps_of(10_000, 0.5, settings, fedavg) == 4  # 3.5, rounded to even
    assert steps_of(10_000, 0.01, settings, paired) == 1
    assert epochs_of(350, settings, fedavg) == 1
    assert epochs_of(350, settings, paired) == 7 / 4
    assert epochs_of(350, ClientSettings(), paired) == 5


def test_gradients_are_laid_out_as_their_weights():
    weight = torch.zeros(4, 3, 5, 5)
    gradient = torch.randn(4, 3, 5, 5).to(memory_format=torch.channels_last)
    found = laid_out_like(weight, gradient, "w")
    assert found.stride() == weight.stride() != gradient.stride()
    assert torch.equal(found, gradient)


@pytest.mark.parametrize("gradient", [torch.ones(3), torch.ones(4, 3, dtype=torch.float64)])
def test_a_gradient_of_another_size_or_type_is_refused(gradient):
    with pytest.raises(InputError, match=r"algorithm.name: the gradient of 'w' must have its size and type, \(4, 3\)"):
        laid_out_like(torch.zeros(4, 3), gradient, "w")


def test_without_a_gpu_the_device_is_the_processor(monkeypatch, tiny):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert build_federation(tiny.override({"engine.device": "auto"})).device == torch.device("cpu")
