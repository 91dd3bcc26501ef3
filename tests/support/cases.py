"""Every setting under test, and the small experiment that shows its promises."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from fedsol import Experiment
from fedsol.config.catalog import ALGORITHMS


@dataclass(frozen=True)
class Case:
    """A method under test."""

    name: str
    settings: dict[str, Any] = field(default_factory=dict)
    degenerate: dict[str, Any] | None = None
    """Settings with which it is `becomes`, bit for bit; None if it has none."""
    becomes: str = "fedavg"
    fedavg_at_first: bool = False
    """Whether its first round is FedAvg's, bit for bit."""

    @property
    def id(self) -> str:
        return "-".join([self.name, *(str(value) for value in self.settings.values())])

    @property
    def table(self) -> dict[str, Any]:
        return {"name": self.name, **self.settings}


PERTURBED = {"usage": "perturbed"}
CASES = [
    Case("fedavg", degenerate={}),
    Case("fedprox", degenerate={"mu": 0.0}),
    Case("fedprox", {"usage": "projected"}),
    Case("fedprox", PERTURBED, degenerate={"rho": 0.0}),
    Case("fednova"),
    Case("fednova", {"control": True}),
    Case("fednova", {"control": True, "usage": "projected"}),
    Case("fednova", {"control": True, **PERTURBED}),
    Case("scaffold", fedavg_at_first=True),
    Case("scaffold", {"steps": "plain"}, fedavg_at_first=True),
    Case("scaffold", {"usage": "projected"}, fedavg_at_first=True),
    Case("scaffold", PERTURBED, degenerate={"rho": 0.0}),
    Case("scaffold", {**PERTURBED, "perturb": "head"}, degenerate={"rho": 0.0}),
    Case("fedntd", degenerate={"beta": 0.0}),
    Case("fedntd", {"usage": "projected"}),
    Case("fedntd", PERTURBED, degenerate={"rho": 0.0}),
    Case("fedntd", {**PERTURBED, "perturb": "head"}, degenerate={"rho": 0.0}),
    Case("fedsam", degenerate={"rho": 0.0}),
    Case("fedasam", degenerate={"rho": 0.0}),
    Case("feddyn"),
    Case("feddyn", {"usage": "projected"}),
    Case("feddyn", PERTURBED),
    Case("moon", degenerate={"mu": 0.0}),
    Case("moon", {"usage": "projected"}),
    Case("moon", PERTURBED, degenerate={"rho": 0.0}),
    Case("moon", {**PERTURBED, "perturb": "body"}, degenerate={"rho": 0.0}),
    *(
        Case("fedsol", {"perturb": where, "strength": strength, "proximal": loss}, degenerate={"rho": 0.0})
        for where in ("all", "body", "head")
        for strength in ("fixed", "adaptive", "adaptive-column")
        for loss in ("kl", "l2")
    ),
    Case("fedsol", {"usage": "auxiliary"}, degenerate={"beta": 0.0}),
    Case("fedsol", {"usage": "auxiliary", "proximal": "l2"}, degenerate={"beta": 0.0}),
    Case("fedsol", {"usage": "projected"}),
    Case("fedsol", {"usage": "projected", "proximal": "l2"}),
    Case("fedsol", {"proximal": "not-true-kl"}, degenerate={"rho": 0.0}),
    Case("fedsol-ablation", {"strategy": "A0"}, degenerate={}),
    Case("fedsol-ablation", {"strategy": "A1"}, degenerate={"rho": 0.0}),
    Case("fedsol-ablation", {"strategy": "A2"}, degenerate={"beta": 0.0}),
    *(Case("fedsol-ablation", {"strategy": name}, degenerate={"beta": 0.0, "rho": 0.0}) for name in ("A3", "A4", "A6")),
    Case("fedsol-ablation", {"strategy": "A5"}),
    *(Case("fedsol-ablation", {"strategy": f"A{number}", "perturb": "all"}) for number in (2, 3, 4, 6)),
    Case("fedcm", degenerate={"alpha": 1.0}),
    Case("mofedsam", degenerate={"rho": 0.0}, becomes="fedcm"),
    Case("fedgamma", degenerate={"rho": 0.0}, becomes="scaffold"),
    Case("fedsmoo", degenerate={"rho": 0.0}, becomes="feddyn"),
    Case("fedlesam", degenerate={"rho": 0.0}, fedavg_at_first=True),
    Case("fedlesam-s", degenerate={"rho": 0.0}, becomes="scaffold", fedavg_at_first=True),
    Case("fedlesam-d", degenerate={"rho": 0.0}, becomes="feddyn"),
    Case("perturbed", degenerate={"rho": 0.0}),
    Case("perturbed", {"direction": "momentum", "perturb": "all"}, degenerate={"rho": 0.0}),
    Case("fedspeed"),
    Case("fedacg", degenerate={"lam": 0.0, "beta": 0.0}),
    Case("fedinit", degenerate={"beta": 0.0}),
    Case("fedexp"),
    Case("fedlc", degenerate={"tau": 0.0}),
    Case("fedrs", degenerate={"alpha": 1.0}),
    Case("feddecorr", degenerate={"beta": 0.0}),
    Case("perfedavg"),
    Case("fedbabu"),
    Case("fedper", degenerate={"exchange": "all"}),
    Case("fedrep"),
    Case("fedbn", degenerate={"exchange": "all"}),
    Case("lg-fedavg", degenerate={"exchange": "all"}),
    Case("ditto", degenerate={}),
    Case("knn-per", degenerate={}),
    Case("local-only"),
]


LOOP = frozenset(
    {
        "fedavg",
        "fedprox",
        "fednova",
        "fednova-True-perturbed",
        "scaffold",
        "scaffold-perturbed-head",
        "fedntd-projected",
        "fedsam",
        "fedasam",
        "feddyn",
        "feddyn-perturbed",
        "moon",
        "moon-perturbed-body",
        "fedsol-head-adaptive-column-kl",
        "fedsol-all-fixed-l2",
        "fedsol-body-adaptive-kl",
        "fedsol-auxiliary",
        "fedsol-ablation-A3",
        "fedsmoo",
        "fedlesam-s",
        "fedspeed",
        "fedacg",
        "fedinit",
        "perfedavg",
        "fedbabu",
        "fedper",
        "fedrep",
        "fedbn",
        "lg-fedavg",
        "ditto",
        "knn-per",
        "local-only",
    }
)
"""The settings that differ in what the loop sees: class of method, state and payload, usage, perturbed part.

What the loop promises is tested for these by `make test`, and for every setting by `make test-all`.
"""


ALIKE = {
    "fedcm": "fednova",
    "mofedsam": "fedsmoo",
    "fedgamma": "scaffold",
    "fedlesam": "fedlesam-s",
    "fedlesam-d": "fedlesam-s",
    "perturbed": "fedsol",
    "fedexp": "fedavg",
    "fedlc": "fedavg",
    "fedrs": "fedavg",
    "feddecorr": "moon",
}
"""Methods without a setting in `LOOP`, and one that has: to the loop, the two are alike."""


def _marked(cases: list[Case]) -> list[Any]:
    return [pytest.param(case, id=case.id, marks=() if case.id in LOOP else pytest.mark.full) for case in cases]


FEDERATED = [case for case in CASES if case.name != "local-only"]


def _names(names: Iterable[str]) -> pytest.MarkDecorator:
    marked = [pytest.param(name, marks=pytest.mark.full if name in ALIKE else ()) for name in sorted(names)]
    return pytest.mark.parametrize("name", marked)


every_name = _names(ALGORITHMS)
every_federated_name = _names(ALGORITHMS.keys() - {"local-only"})

every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
loop_cases = pytest.mark.parametrize("case", _marked(CASES))
federated_loop_cases = pytest.mark.parametrize("case", _marked(FEDERATED))


WITH_BATCH_NORM = {"model__name": "tests.support.user_code:with_batch_norm", "model__options": {}}
"""Changes of the experiment for a model that keeps running statistics."""


def experiment(table: dict[str, Any], **changes: Any) -> Experiment:
    """Two quick rounds in which some client is sampled twice."""
    base = Experiment(
        rounds=2,
        data={"partition": {"clients": 4, "alpha": 0.5}},
        model={"name": "mlp", "options": {"hidden": 16}},
        server={"fraction": 0.75},
        client={"epochs": 1, "lr": 0.05},
        algorithm=table,
        engine={"kind": "local"},
    )
    return base.override({key.replace("__", "."): value for key, value in changes.items()})
