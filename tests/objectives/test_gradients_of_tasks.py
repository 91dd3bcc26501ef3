"""FedSOL's gradient of every task and of the models for it: what two whole passes and plain loops over answers give."""

import pytest
import torch
from torch.func import functional_call

from fedsol.algorithms.gradients import Perturbation, perturbation, perturbed
from fedsol.algorithms.proximal import KL
from fedsol.config.task import DEFAULT_METRICS, LOSSES, MEASURES
from fedsol.core.weights import norm, pick
from fedsol.data.batches import Batch
from fedsol.models import ModelShape
from fedsol.models.build import build_model
from fedsol.models.split import SplitModel
from fedsol.objectives import OBJECTIVES
from fedsol.objectives.base import IGNORED
from tests.support.toys import moved_from, task_for

TAU = 3.0
GENERATOR = torch.Generator().manual_seed(0)
IDS = torch.randint(7, (4, 5), generator=GENERATOR)
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 0, 0, 0, 0]])
TOKENS = {"input_ids": IDS, "attention_mask": MASK}
NUMBERS = torch.randn(4, 6, generator=GENERATOR, dtype=torch.float64)
TABLE = {"numbers": NUMBERS, "categories": torch.randint(3, (4, 2), generator=GENERATOR)}
IMAGES = torch.randn(4, 1, 8, 9, generator=GENERATOR, dtype=torch.float64)
NEXT = torch.where(MASK == 1, IDS.roll(-1, dims=1), IGNORED)
MAPS = torch.randint(3, (4, 8, 9), generator=GENERATOR).masked_fill(IMAGES[:, 0] > 1, IGNORED)
YES_NO = torch.tensor([[1.0, 0.0], [0.0, 0.0], [1.0, 1.0], [0.0, 1.0]], dtype=torch.float64)
CASES = {
    "classification of a table": ("classification", "tabular", TABLE, torch.tensor([0, 1, 1, 0]), 2),
    "classification of tokens": ("classification", "text", TOKENS, torch.tensor([0, 1, 2, 0]), 3),
    "multilabel": ("multilabel", "tabular", TABLE, YES_NO, 2),
    "regression": ("regression", "mlp", NUMBERS, YES_NO - 0.3, 2),
    "segmentation": ("segmentation", "unet", IMAGES, MAPS, 3),
    "next-token": ("next-token", "text", TOKENS, NEXT, 7),
}


def answers(kind, outputs, targets):
    """One row of outputs and one target at a time."""
    if kind == "segmentation":
        places = [(n, i, j) for n, i, j in torch.cartesian_prod(*map(torch.arange, targets.shape)).tolist()]
        found = [(outputs[n, :, i, j], targets[n, i, j]) for n, i, j in places]
    elif kind == "next-token":
        found = [(outputs[n, t], targets[n, t]) for n in range(len(targets)) for t in range(targets.shape[1])]
    else:
        return list(zip(outputs, targets, strict=True))
    return [(row, target) for row, target in found if target != IGNORED]


def naive_loss(kind, outputs, targets):
    losses = []
    for row, target in answers(kind, outputs, targets):
        if kind == "regression":
            losses.append(((row - target) ** 2).mean())
        elif kind == "multilabel":
            p = 1 / (1 + torch.exp(-row))
            losses.append(-(target * p.log() + (1 - target) * (1 - p).log()).mean())
        else:
            losses.append(row.exp().sum().log() - row[target])
    return sum(losses) / len(losses)


def naive_divergence(kind, anchor, outputs, targets):
    gaps = []
    pairs = zip(answers(kind, anchor, targets), answers(kind, outputs, targets), strict=True)
    for (teacher, _), (student, _) in pairs:
        if kind == "regression":
            gaps.append(((teacher - student) ** 2).sum() / (2 * TAU**2))
        elif kind == "multilabel":
            p, q = 1 / (1 + torch.exp(-teacher / TAU)), 1 / (1 + torch.exp(-student / TAU))
            gaps.append((p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()).sum())
        else:
            p, q = torch.softmax(teacher / TAU, 0), torch.softmax(student / TAU, 0)
            gaps.append((p * (p / q).log()).sum())
    return sum(gaps) / len(gaps)


@pytest.mark.parametrize("where", ["head", "all"])
@pytest.mark.parametrize("case", CASES)
def test_fedsol_is_the_two_pass_form(case, where):
    kind, name, inputs, targets, classes = CASES[case]
    measures = tuple(MEASURES[one] for one in DEFAULT_METRICS[kind])
    objective = OBJECTIVES[kind](classes, measures, LOSSES[kind][0])
    is_real = name in ("mlp", "unet")
    single = next(iter(inputs.values())) if isinstance(inputs, dict) else inputs
    shape = ModelShape(
        tuple(inputs.shape[1:]) if is_real else (),
        classes,
        categories=(3, 3) if name == "tabular" else (),
        vocabulary=7 if name == "text" else None,
        output_shape=objective.output_shape(tuple(single.shape[1:])),
        examples=None if is_real else inputs,
    )
    module = build_model(name, {}, shape, 0).double()
    model = SplitModel(build_model(name, {}, shape, 0).double(), "head", inputs)
    anchor = model.initial_weights()
    weights = moved_from(anchor, size=0.05)
    how = Perturbation(2.0, "adaptive-column", where)
    task = task_for(model, anchor, objective=objective)
    found, loss = perturbed(task, weights, Batch(inputs, targets), KL(TAU), how)

    def outputs(values):
        named = isinstance(inputs, dict)
        return functional_call(module, values, () if named else (inputs,), inputs if named else {})

    leaves = {name: tensor.clone().requires_grad_() for name, tensor in weights.items()}
    gap = naive_divergence(kind, outputs(anchor), outputs(leaves), targets)
    direction = dict(zip(leaves, torch.autograd.grad(gap, [*leaves.values()]), strict=True))
    names = model.head_names if where == "head" else model.names
    step = perturbation(pick(direction, names), weights, anchor, 2.0, "adaptive-column")
    moved = {name: (tensor + step.get(name, 0)).requires_grad_() for name, tensor in weights.items()}
    expected_loss = naive_loss(kind, outputs(moved), targets)
    expected = dict(zip(moved, torch.autograd.grad(expected_loss, [*moved.values()]), strict=True))
    assert float(loss) == pytest.approx(float(expected_loss.detach()))
    assert norm(step) > 0
    for parameter, gradient in expected.items():
        torch.testing.assert_close(found[parameter], gradient, rtol=1e-6, atol=1e-9, msg=parameter)
