"""How long a recipe's runs take on this machine: `studies.estimate`, with every kind of run measured once."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from fedsol.config.experiment import Experiment
from fedsol.paper.store import own_settings
from fedsol.studies.estimate.calibration import Calibration, Effort, batch_sizes, calibrate
from fedsol.studies.estimate.plan import Plan, Request, make_plans
from fedsol.studies.estimate.prediction import seconds_here
from fedsol.studies.estimate.units import show_seconds
from fedsol.studies.variants import Variant

EFFORT = Effort(seconds=0.5, fewest=2, most=5, enough=5.0)
"""Small, as a table has dozens of kinds of runs, and a step of a large model takes seconds."""


def estimate(experiments: Sequence[Experiment], say: Callable[[str], None] = lambda _: None) -> list[float]:
    """Seconds that each experiment will take, on its own data where that is there."""
    calibrations: dict[str, Calibration] = {}
    seconds = []
    plans = make_plans([Variant(run.algorithm["name"], run) for run in experiments], Request())
    kinds = len({kind_of(plan) for plan in plans})
    say(f"{kinds} kinds of local steps are measured ...")
    for plan in plans:
        kind = kind_of(plan)
        if kind not in calibrations:
            (calibrations[kind],) = calibrate([plan], EFFORT)
            say(f"{_label(plan)}: {show_seconds(_full_step(plan, calibrations[kind]))} for a local step")
        seconds.append(seconds_here(plan, calibrations[kind]).total)
    return seconds


def kind_of(plan: Plan) -> str:
    """The same for plans whose steps take equally long: of the method's numbers, only whether they are 0 counts."""
    run, dataset = plan.experiment, plan.data.dataset
    method = {key: value != 0 if isinstance(value, float) else value for key, value in run.algorithm.items()}
    shown = [dataset.input_shape, dataset.classes, asdict(dataset.augmentation)]
    return json.dumps([shown, run.model.model_dump(), method, batch_sizes(plan), plan.workers])


def _full_step(plan: Plan, calibration: Calibration) -> float:
    return calibration.costs.step + batch_sizes(plan)[0] * calibration.costs.example


def _label(plan: Plan) -> str:
    method = " ".join([plan.label, *own_settings(plan.experiment)])
    return f"{plan.experiment.model.name} on {plan.experiment.data.name}, {method}"
