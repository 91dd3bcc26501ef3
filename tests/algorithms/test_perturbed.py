"""The grid: named methods are points of it, bit for bit; what makes no sense is refused; the head shares its pass."""

from math import exp

import pytest

import fedsol
from fedsol.algorithms import make_algorithm
from fedsol.algorithms.controls import MOMENTUM
from fedsol.analysis.cost import LocalStep, flops, random_batch
from fedsol.core.weights import prefixed
from fedsol.federation.federation import build_federation
from fedsol.studies.variants import parse_variants
from tests.support.cases import experiment
from tests.support.one_weight_per_logit import close, column, step
from tests.support.runs import assert_same_run, trained
from tests.support.tensors import same_tensors

WHOLE = {"strength": "fixed", "perturb": "all", "rho": 0.1}
POINTS = {
    "fedsol": {},
    "fedsam": {"direction": "local", **WHOLE},
    "fedasam": {"direction": "local-scaled", **WHOLE, "rho": 1.0},
    "fedlesam": {"direction": "last-change", **WHOLE},
    "fedlesam-s": {"direction": "last-change", **WHOLE, "correction": "control"},
    "fedlesam-d": {"direction": "last-change", **WHOLE, "correction": "dynamic"},
    "fedgamma": {"direction": "local", **WHOLE, "correction": "control"},
    "mofedsam": {"direction": "local", **WHOLE, "correction": "momentum"},
    "fedsmoo": {"direction": "control", **WHOLE, "correction": "dynamic"},
}
DIRECTIONS = ["local", "local-scaled", "proximal", "last-change", "momentum", "control"]


def grid(**settings):
    return {"name": "perturbed", **settings}


@pytest.mark.parametrize("name", POINTS)
def test_named_methods_are_points_bit_for_bit(name):
    named = trained(experiment({"name": name}, rounds=3))
    assert_same_run(fedsol.train(experiment(grid(**POINTS[name]), rounds=3)), named)


@pytest.mark.parametrize("correction", ["none", "control", "dynamic", "momentum"])
def test_without_a_perturbation_it_is_the_method_of_its_correction(correction):
    simple = {"none": "fedavg", "control": "scaffold", "dynamic": "feddyn", "momentum": "fedcm"}[correction]
    found = fedsol.train(experiment(grid(rho=0.0, correction=correction)))
    assert_same_run(found, trained(experiment({"name": simple})))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_without_a_perturbation_the_direction_does_not_matter(direction):
    found = fedsol.train(experiment(grid(rho=0.0, direction=direction, strength="fixed")))
    assert same_tensors(found.weights, trained(experiment({"name": "fedavg"})).weights)


def test_a_step_along_the_momentum():
    # D = (-3, 4), of length 5: rho 10/7 makes eps = (-6/7, 8/7), so the logits differ by 2; nothing is mixed in.
    table = grid(direction="momentum", strength="fixed", perturb="all", rho=10 / 7)
    p = 1 / (1 + exp(2))
    state = prefixed(MOMENTUM, column(-3, 4))
    close(step(table, column(-2, 2), column(0, 0), state), column(p - 1, 1 - p))
    close(step({**table, "correction": "momentum", "alpha": 0.5}, column(-2, 2), column(0, 0), state),
          column((p - 1 - 3) / 2, (1 - p + 4) / 2))  # fmt: skip


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_perturbing_the_head_shares_the_pass_through_the_body(direction):
    """One pass of the body, whatever the direction: only the head's own products, and KL's anchor, come on top."""
    federation = build_federation(experiment({"name": "fedavg"}, model__name="small", model__options={}))
    batch = random_batch(federation)

    def count(**table):
        return flops(LocalStep(federation, make_algorithm(table), batch).gradient)

    strength = {} if direction == "proximal" else {"strength": "fixed"}
    plain = count(name="fedavg")
    head = count(**grid(direction=direction, proximal="l2", **strength))
    whole = count(**grid(direction=direction, proximal="l2", perturb="all", **strength))
    assert head < 1.03 * plain
    needs_gradient = direction in ("local", "local-scaled", "control")
    assert whole == pytest.approx((2 if needs_gradient else 1) * plain, rel=0.01)


@pytest.mark.parametrize(
    ("settings", "part"),
    [
        (
            {"direction": "local-scaled"},
            r"algorithm\.strength: 'adaptive-column' .* 'local-scaled': its Lambda is \|w\|",
        ),
        (
            {"direction": "control", "strength": "adaptive"},
            r"algorithm\.strength: .* of one length, rho; allowed: 'fixed'",
        ),
        ({"correction": "momentum", "alpha": 1.5}, r"algorithm\.alpha: must be at most 1 with correction = 'momentum'"),
        ({"direction": "momentun"}, r"algorithm\.direction: .*'momentum'"),
    ],
)
def test_combinations_that_make_no_sense_are_refused_with_the_reason(settings, part):
    with pytest.raises(fedsol.InputError, match=part):
        experiment(grid(**settings))


@pytest.mark.parametrize("direction", ["last-change", "momentum"])
def test_a_frozen_head_has_no_change_to_be_perturbed_along(direction):
    table = grid(direction=direction, strength="fixed")
    with pytest.raises(fedsol.InputError, match=r"client\.trains: .* the classifier never moves, .* 'body' or 'all'$"):
        experiment(table, client__trains="body")
    experiment({**table, "perturb": "body"}, client__trains="body")


def test_only_some_points_need_sgd_or_change_the_server():
    local = {"direction": "local", "strength": "fixed"}
    experiment(grid(**local), client__optimizer="adam", server__aggregation="median")
    experiment(grid(**local, correction="dynamic"), client__optimizer="adam")
    for settings in ({**local, "correction": "control"}, {"direction": "momentum"}):
        with pytest.raises(fedsol.InputError, match=r"client\.optimizer: 'adam' is not allowed with perturbed"):
            experiment(grid(**settings), client__optimizer="adam")
    for settings in ({**local, "correction": "dynamic"}, {"direction": "momentum"}, {**local, "direction": "control"}):
        with pytest.raises(fedsol.InputError, match=r"server\.aggregation: 'median' is not allowed with perturbed"):
            experiment(grid(**settings), server__aggregation="median")


def test_settings_without_effect():
    assert make_algorithm(grid()).settings_without_effect() == {"alpha"}
    assert make_algorithm(grid(direction="last-change", correction="dynamic")).settings_without_effect() == {
        "proximal",
        "tau",
    }
    texts = ["perturbed:direction=local,strength=fixed", "perturbed:direction=last-change"]
    labels = [one.label for one in parse_variants(texts, experiment({"name": "fedavg"}))]
    assert labels == texts
