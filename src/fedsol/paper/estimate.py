"""How long a recipe's runs take on this machine: `studies.estimate`, with one trial per kind of run."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict

from fedsol.config.experiment import Experiment
from fedsol.paper.store import own_settings
from fedsol.studies.estimate import Speed, make_trial, seconds_here, show_seconds, time_trial
from fedsol.studies.plan import Plan, make_plans
from fedsol.studies.variants import Variant


def estimate(experiments: Sequence[Experiment], say: Callable[[str], None] = lambda _: None) -> list[float]:
    """Return the seconds that each experiment will take, on its own data where that exists."""
    speeds: dict[str, Speed] = {}
    seconds = []
    plans = make_plans([Variant(run.algorithm["name"], run) for run in experiments])
    say(f"Trials of {len({kind_of(plan) for plan in plans})} kinds of runs ...")
    for plan in plans:
        run, kind = plan.experiment, kind_of(plan)
        if kind not in speeds:
            speeds[kind] = time_trial(make_trial(plan))
            step = show_seconds(min(run.client.batch_size, int(plan.sizes.max())) * speeds[kind].sample)
            method = " ".join([plan.label, *own_settings(run)])
            say(f"{run.model.name} on {run.data.name}, {method}: {step} for a local step")
        seconds.append(seconds_here(plan, speeds[kind])["total"])
    return seconds


def kind_of(plan: Plan) -> str:
    """Return the same text for plans of equal speed: for a method's numbers, it only matters whether they are 0."""
    run, dataset = plan.experiment, plan.dataset
    method = {key: value != 0 if isinstance(value, float) else value for key, value in run.algorithm.items()}
    shown = [dataset.input_shape, dataset.classes, asdict(dataset.augmentation)]
    batch = min(run.client.batch_size, round(plan.sizes.mean()))
    return json.dumps([shown, run.model.model_dump(), method, batch, plan.workers])
