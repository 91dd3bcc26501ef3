"""Guard a run against updates that are too large, warn when training diverges, and stop when the model is lost.

The bound compares every update with the others of its round and with those accepted lately, so it needs no number that
depends on the model. It holds while fewer than half of these are hostile: the median is then between honest ones.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from fedsol.algorithms.base import Algorithm
from fedsol.config.experiment import Experiment
from fedsol.config.tables import PRIVATE
from fedsol.core.messages import ServerState, Update
from fedsol.core.weights import norm, pick, subtract
from fedsol.errors import RunError
from fedsol.runs.rows import Row

MAX_CHANGE = 10.0
"""The bound of a deployment that names none; honest updates of very unequal clients stay near half of it."""

MAX_SHARE = 0.5
"""The limit of a deployment of private data that names none: only its clients know how much they have."""

RECENT_CHANGES = 100
"""How many accepted changes are remembered."""

TIMES_GUESSING = 3.0
"""A training loss this many times as high as that of guessing is no slow start."""

EXPLOSION = 10.0
"""A loss this many times as high as the best so far, and as that of guessing, is no setback."""

PARTS = {"the weights": 1.0, "the running statistics": 1.0, "the server's state": 10.0}
"""What an update changes, and by how much more than `server.max_change` it may.

Control variates are means over a client's steps: those of a client with few steps are honestly ten times as long.
"""

Sizes = tuple[float, ...]
"""How much an update changes each of the parts."""


@dataclass(frozen=True)
class Limits:
    """What one update may do to the model."""

    max_change: float = 0.0
    """In medians of recent changes; 0 for no bound."""
    max_share: float = 1.0
    """Of the average."""


NO_LIMITS = Limits()


def limits_of(experiment: Experiment, deployed: bool) -> Limits:
    """Return the limits that the experiment names; those it does not name are a deployment's or none."""
    change, share = experiment.server.max_change, experiment.server.max_share
    if change is None:
        # With [privacy] on there is no bound: one client's update would decide which others count.
        change = MAX_CHANGE if deployed and not experiment.privacy.covers_clients else 0.0
    if share is None:
        share = MAX_SHARE if deployed and experiment.data.name == PRIVATE else 1.0
    return Limits(change, share)


def sizes_of(update: Update, server: ServerState, algorithm: Algorithm) -> Sizes:
    """Return how much an update changes weights, running statistics and (by its payload) the algorithm's server state.

    The last is the change that the update alone would make: numbers such as SCAFFOLD's factor `1 / (K lr)` are as
    unequal as the clients are, but what follows from them is not.
    """
    found = {name: tensor for name, tensor in server.weights.items() if tensor.is_floating_point()}
    trained = pick(found, server.parameters)
    statistics = pick(found, found.keys() - trained.keys())
    adds = update.payload and server.state
    alone = algorithm.aggregate(server, [replace(update, share=1.0)]).state if adds else {}
    changes = (subtract(trained, update.weights), subtract(statistics, update.weights), subtract(alone, server.state))
    return tuple(float(norm(change)) if change else 0.0 for change in changes)


@dataclass(frozen=True)
class Bound:
    """`server.max_change`: how many times the median of recent changes an update may change something."""

    multiple: float
    """0 for no bound."""
    recent: tuple[Sizes, ...] = ()
    """The changes that were accepted last, oldest first."""

    def reasons(self, found: Sequence[Sizes]) -> list[str | None]:
        """Return for each update of a round why it is rejected, or None.

        The median is the lower one of the round's updates and the recent ones, so a first round has one too. Where it
        is 0, nothing is known about how large a change is.
        """
        medians = [lower_median(column) for column in zip(*self.recent, *found, strict=True)]
        return [self._reason(sizes, medians) for sizes in found]

    def after(self, accepted: Iterable[Sizes]) -> tuple[Sizes, ...]:
        """Return the recent changes after a round."""
        return (*self.recent, *accepted)[-RECENT_CHANGES:]

    def _reason(self, sizes: Sizes, medians: Sequence[float]) -> str | None:
        for (part, slack), size, median in zip(PARTS.items(), sizes, medians, strict=True):
            most = self.multiple * slack
            if median > 0 and not size <= most * median:
                return (
                    f"changes {part} by {size:.3g}, which is more than {most:g} times (server.max_change) the "
                    f"median of recent changes, {median:.3g}"
                )
        return None


def lower_median(values: Sequence[float]) -> float:
    """Return the median; of an even number of values, the lower of the middle two."""
    return sorted(values)[(len(values) - 1) // 2]


def check_rejections(round_number: int, rejected: int, answers: int) -> None:
    """Raise `RunError` if more than half of a round's answers, and more than one, were rejected."""
    if rejected > 1 and 2 * rejected > answers:
        raise RunError(
            f"round {round_number}: {rejected} of {answers} updates were rejected, for the reasons above: either most "
            "of these clients are broken or hostile, or the global model no longer trains. The run stops after round "
            f"{round_number - 1}: exclude the clients and resume, or start a new run with another server.max_change"
        )


def check_abstentions(round_number: int, abstained: int, clients: int) -> None:
    """Raise `RunError` if all clients of a round abstained."""
    if clients and abstained == clients:
        raise RunError(
            f"round {round_number}: all of its clients abstained, for the reasons above: their privacy budgets are too "
            f"small for one more round. The run ends after round {round_number - 1}"
        )


def check_loss(round_number: int, loss: float, earlier: Sequence[float | None], guessing: float | None) -> None:
    """Raise `RunError` if the test loss of the global model exploded, against the best so far and `guessing`.

    `earlier` has None for rounds without a test.
    """
    tested = max((number for number, one in enumerate(earlier, 1) if one is not None), default=0)
    when, doubt = "of this round", ""
    if tested < round_number - 1:
        when = f"of rounds {tested + 1} to {round_number}"
        doubt = ", which was not tested and may be ruined too (server.evaluate_every = 1 tests every round)"
    best = min((one for one in earlier if one is not None), default=None)
    limits = [one for one in (guessing, best) if one is not None]
    if limits and loss > EXPLOSION * max(limits):
        known = f"guessing has {guessing:.3g}" if best is None else f"the best so far was {best:.3g}"
        raise RunError(
            f"round {round_number}: the test loss of the global model is {loss:.3g} ({known}), more than "
            f"{EXPLOSION:g} times as high: an update {when} ruined the model, or training diverges. The run "
            f"stops after round {round_number - 1}{doubt}: exclude the client and resume, or start a "
            "new run with a smaller client.lr or server.max_change"
        )


def find_divergence(row: Row, guessing: float | None, experiment: Experiment) -> str | None:
    """Return a warning if local training made models far worse than guessing, or not finite; else None."""
    loss = row["train_loss"]
    if loss is not None and guessing is not None and loss > TIMES_GUESSING * guessing:
        problem = f"the training loss is {loss:.3g}, and guessing gives {guessing:.3g}"
    elif not row["clients"] and row["rejected"] and not row["corrupted"]:
        problem = "every update is rejected"
    else:
        return None
    return (
        f"round {row['round']}: {problem}: training diverges; set a smaller client.lr (it is {experiment.client.lr:g})"
        ", or client.clip_norm, or scale the inputs"
    )
