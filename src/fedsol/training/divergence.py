"""A learning rate that makes training diverge, recognized by the rows of metrics.jsonl."""

import math

from fedsol.config.experiment import Experiment
from fedsol.runs.rows import Row

TIMES_GUESSING = 3.0


def find_divergence(row: Row, classes: int, experiment: Experiment) -> str | None:
    """Return a warning if local training made models far worse than guessing, or not finite; else None."""
    loss, guessing = row["train_loss"], math.log(max(classes, 2))
    if loss is not None and loss > TIMES_GUESSING * guessing:
        problem = f"the training loss is {loss:.3g}, and guessing gives {guessing:.3g}"
    elif loss is None and row["rejected"] and not row["corrupted"]:
        problem = "every update is rejected"
    else:
        return None
    return (
        f"round {row['round']}: {problem}: training diverges; set a smaller client.lr (it is {experiment.client.lr:g})"
        ", or client.clip_norm, or scale the inputs"
    )
