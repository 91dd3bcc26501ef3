"""Who holds which training samples: pure functions of labels, a number of clients and a generator.

Every partition is a list of ascending int64 index arrays, one per client. Those drawn here give every sample
to exactly one client and leave no client empty.
"""

import bisect
import math
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsol.data.manifest import Indices as Indices
from fedsol.data.manifest import Partition as Partition
from fedsol.data.manifest import from_file as from_file
from fedsol.errors import InputError

KINDS = ("iid", "sharding", "dirichlet", "file", "own")
BALANCES = ("size", "class")

T = TypeVar("T")


class PartitionSettings(Protocol):
    """What `make_partition` reads: the table `[data.partition]` of an experiment, or anything shaped like it.

    `clients` may be None for the kinds `file` and `own`, which bring their own number of clients.
    """

    @property
    def kind(self) -> str: ...
    @property
    def clients(self) -> int | None: ...
    @property
    def alpha(self) -> float | None: ...
    @property
    def shards(self) -> int | None: ...
    @property
    def balance(self) -> str: ...
    @property
    def cap(self) -> bool: ...
    @property
    def min_size(self) -> int: ...
    @property
    def file(self) -> str | Path | None: ...


def make_partition(
    settings: PartitionSettings, labels: NDArray[Any], owners: NDArray[Any] | None, rng: np.random.Generator
) -> Partition:
    """The partition that the settings describe; `owners` is whose each sample is, where the data says so."""
    kind = settings.kind
    if kind not in KINDS:
        raise _refused("kind", kind, ", ".join(KINDS))
    if kind in ("file", "own"):
        return _given_partition(settings, len(labels), owners)
    clients = _required(settings.clients, "clients", kind)
    if kind == "iid":
        return iid(labels, clients, rng)
    if kind == "sharding":
        return sharding(labels, clients, rng, _required(settings.shards, "shards", kind), settings.balance)
    alpha = _required(settings.alpha, "alpha", kind)
    return dirichlet(labels, clients, rng, alpha, settings.cap, settings.min_size)


def iid(labels: ArrayLike, clients: int, rng: np.random.Generator) -> Partition:
    """Samples at random; client sizes differ by at most one."""
    total = len(_checked_labels(labels, clients))
    return _by_client(rng.permutation(total) % clients, clients)


def sharding(
    labels: ArrayLike, clients: int, rng: np.random.Generator, shards: int, balance: str = "size"
) -> Partition:
    """Samples sorted by label and cut into shards, of which every client receives `shards` at random.

    `balance="size"` (the paper: all clients have the same size) cuts the sorted samples into equal shards, so
    a shard may span classes; samples that do not divide are spread so that neither shards nor clients differ
    by more than one. `balance="class"` cuts every class by itself into the same number of shards, so a shard
    holds one class and, where classes differ in size, so do clients; if that is no integer, the largest
    classes are cut into one shard more. Within a class samples are shuffled first, so that shards do not
    follow the order of the files. A client may receive several shards of one class.
    """
    array = _checked_labels(labels, clients)
    if balance not in BALANCES:
        raise _refused("balance", balance, ", ".join(BALANCES))
    most = len(array) // clients
    if not 1 <= shards <= most:
        raise _refused("shards", shards, f"1 to {most}, as {clients} clients share {len(array)} samples")
    deal = _deal_equal_shards if balance == "size" else _deal_class_shards
    sizes, shard_owners = deal(array, clients, shards, rng)
    owners = np.empty(len(array), dtype=np.int64)
    owners[_shuffled_by_label(array, rng)] = np.repeat(shard_owners, sizes)
    return _by_client(owners, clients)


def dirichlet(
    labels: ArrayLike,
    clients: int,
    rng: np.random.Generator,
    alpha: float,
    cap: bool = True,
    min_size: int = 10,
    max_draws: int = 200,
) -> Partition:
    """Every class is dealt in proportions drawn from a symmetric Dirichlet(alpha) over the clients (LDA).

    `cap`: a client that already holds its average share of all samples receives no further class; classes are
    dealt in ascending order. `min_size`: the whole partition is drawn again until every client holds so many
    samples (0 counts as 1: no client is empty). That may never happen (1,000 clients at alpha 0.01), so after
    `max_draws` draws the one that lacks the fewest samples is repaired: random samples move from the
    largest clients to those below `min_size`, in runs of one giver and one class, so that the receivers stay
    about as skewed as their givers.
    """
    array = _checked_labels(labels, clients)
    most = len(array) // clients
    if not (math.isfinite(alpha) and alpha > 0):
        raise _refused("alpha", alpha, "a finite number above 0")
    if not 0 <= min_size <= most:
        raise _refused("min_size", min_size, f"1 to {most}, as {clients} clients share {len(array)} samples")
    if max_draws < 1:
        raise InputError(f"max_draws is {max_draws}; allowed: 1 or more")
    smallest = max(min_size, 1)
    class_sizes = np.unique(array, return_counts=True)[1]

    def lack(counts: Indices) -> int:
        return int(np.maximum(smallest - counts.sum(axis=1), 0).sum())

    counts = _dirichlet_counts(class_sizes, clients, rng, alpha, cap)
    for _ in range(max_draws - 1):
        if lack(counts) == 0:
            break
        counts = min(counts, _dirichlet_counts(class_sizes, clients, rng, alpha, cap), key=lack)
    owners = np.empty(len(array), dtype=np.int64)
    every_client = np.tile(np.arange(clients), len(class_sizes))
    owners[_shuffled_by_label(array, rng)] = np.repeat(every_client, counts.T.ravel())
    if lack(counts) > 0:
        _fill_small_clients(owners, array, clients, smallest, rng)
    return _by_client(owners, clients)


def by_owner(owner_ids: ArrayLike) -> Partition:
    """One client for every distinct id in the data, in ascending order of ids."""
    ids = np.asarray(owner_ids)
    if ids.ndim != 1 or len(ids) == 0:
        raise InputError(f"client ids have shape {ids.shape}; allowed: one id for each of one or more samples")
    distinct, owners = np.unique(ids, return_inverse=True)
    return _by_client(owners, len(distinct))


def _given_partition(settings: PartitionSettings, total: int, owners: NDArray[Any] | None) -> Partition:
    """The kinds that draw nothing: a file of indices, and the data's own clients."""
    if settings.kind == "file":
        source = str(_required(settings.file or None, "file", settings.kind))
        partition = from_file(source, total)
    elif owners is None:
        raise _refused("kind", settings.kind, "another, as this dataset does not say whose a sample is")
    elif len(owners) != total:
        raise InputError(f"the data has {len(owners)} client ids for {total} samples; allowed: one per sample")
    else:
        source, partition = "the dataset", by_owner(owners)
    if settings.clients not in (None, len(partition)):
        allowed = f"{len(partition)}, the number of clients in {source}, or leave it out"
        raise _refused("clients", settings.clients, allowed)
    return partition


def _refused(field: str, value: object, allowed: str) -> InputError:
    return InputError(f"data.partition.{field} is {value!r}; allowed: {allowed}")


def _required(value: T | None, field: str, kind: str) -> T:
    if value is None:
        raise InputError(f"data.partition.{field} is missing; the partition {kind!r} needs it")
    return value


def _checked_labels(labels: ArrayLike, clients: int) -> NDArray[Any]:
    array = np.asarray(labels)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"labels are {array.dtype} of shape {array.shape}; allowed: one integer per sample")
    if not 1 <= clients <= len(array):
        raise _refused("clients", clients, f"1 to {len(array)}, the number of samples: no client may be empty")
    return array


def _by_client(owners: NDArray[Any], clients: int) -> Partition:
    """Index arrays of the clients from the owner of every sample; a stable sort keeps them ascending."""
    sizes = np.bincount(owners, minlength=clients)
    order = np.argsort(owners, kind="stable").astype(np.int64, copy=False)
    return np.split(order, np.cumsum(sizes)[:-1])


def _shuffled_by_label(labels: NDArray[Any], rng: np.random.Generator) -> Indices:
    """Indices sorted by label, in random order within a label."""
    shuffled = rng.permutation(len(labels))
    return shuffled[np.argsort(labels[shuffled], kind="stable")].astype(np.int64, copy=False)


def _deal_equal_shards(
    labels: NDArray[Any], clients: int, shards: int, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Sizes and owners of shards that differ by at most one sample, as do the clients that receive them."""
    size, longer = divmod(len(labels), clients * shards)
    is_longer = rng.permutation(clients * shards) < longer
    # Dealt at random, many longer shards could meet in one client: each client gets its even share of them.
    longer_per_client = longer // clients + (rng.permutation(clients) < longer % clients)
    owners = np.empty(clients * shards, dtype=np.int64)
    for chosen, per_client in ((is_longer, longer_per_client), (~is_longer, shards - longer_per_client)):
        owners[chosen] = rng.permutation(np.repeat(np.arange(clients), per_client))
    return size + is_longer.astype(np.int64), owners


def _deal_class_shards(
    labels: NDArray[Any], clients: int, shards: int, rng: np.random.Generator
) -> tuple[Indices, Indices]:
    """Sizes and owners of shards of one class each, the same number of shards (up to one) for every class."""
    classes, class_sizes = np.unique(labels, return_counts=True)
    per_class, left = divmod(clients * shards, len(classes))
    cuts = np.full(len(classes), per_class)
    cuts[np.argsort(-class_sizes, kind="stable")[:left]] += 1
    if per_class == 0:
        allowed = f"enough for {clients} clients to hold one of each of {len(classes)} classes (balance 'class')"
        raise _refused("shards", shards, allowed)
    if (cuts > class_sizes).any():
        scarce = int(np.argmax(cuts - class_sizes))
        has = f"class {classes[scarce]} has {class_sizes[scarce]} samples for {cuts[scarce]} shards"
        raise _refused("shards", shards, f"at most one shard per sample of a class (balance 'class'), but {has}")
    sizes = [size // cut + (np.arange(cut) < size % cut) for size, cut in zip(class_sizes, cuts, strict=True)]
    return np.concatenate(sizes), rng.permutation(np.repeat(np.arange(clients), shards))


def _dirichlet_counts(class_sizes: Indices, clients: int, rng: np.random.Generator, alpha: float, cap: bool) -> Indices:
    """How many samples of every class each client receives, shape (clients, classes), in one draw."""
    counts = np.zeros((clients, len(class_sizes)), dtype=np.int64)
    held = np.zeros(clients, dtype=np.int64)
    average = class_sizes.sum() / clients
    for index, size in enumerate(class_sizes):
        # Some client is always below the average, as not every sample has been dealt yet.
        is_open = held < average if cap else np.ones(clients, dtype=bool)
        cumulative = np.cumsum(_dirichlet_weights(is_open, alpha, rng))
        # Divided by itself the last sum is exactly 1, so rounding gives nothing to closed clients at the end.
        # The random offset makes the expected counts exactly the drawn proportions of the class.
        cuts = np.floor(cumulative / cumulative[-1] * size + rng.random()).astype(np.int64)
        counts[:, index] = np.diff(np.minimum(cuts, size), prepend=0)
        held += counts[:, index]
    return counts


def _dirichlet_weights(is_open: NDArray[Any], alpha: float, rng: np.random.Generator) -> NDArray[Any]:
    """Proportions up to a factor: Dirichlet(alpha) restricted to the open clients, for any positive alpha.

    A Gamma(alpha) variable is Gamma(alpha + 1) * U^(1/alpha). Its logarithm times min(alpha, 1) stays finite
    where the variable itself underflows to 0; relative to the largest open client it tends to one-hot.
    """
    scale = min(alpha, 1.0)
    gamma = np.maximum(rng.standard_gamma(alpha + 1.0, len(is_open)), np.finfo(np.float64).tiny)
    scaled_log = scale * np.log(gamma) - (scale / alpha) * rng.standard_exponential(len(is_open))
    with np.errstate(over="ignore"):
        log_ratio = (scaled_log - scaled_log[is_open].max()) / scale
    return np.where(is_open, np.exp(np.minimum(log_ratio, 0.0)), 0.0)


def _fill_small_clients(
    owners: Indices, labels: NDArray[Any], clients: int, smallest: int, rng: np.random.Generator
) -> None:
    """Hands samples of the largest clients to those that hold fewer than `smallest`; changes `owners`.

    Givers end within one sample of a common level, never below `smallest`, exactly as if one sample after the
    other had been taken from the client that is the largest at that moment.
    """
    sizes = np.bincount(owners, minlength=clients)
    missing = np.maximum(smallest - sizes, 0)
    levels = range(smallest, int(sizes.max()) + 1)
    # The highest level above which the clients hold at least what is missing.
    found = bisect.bisect_right(levels, -missing.sum(), key=lambda level: -np.maximum(sizes - level, 0).sum())
    given = np.maximum(sizes - levels[found - 1], 0)
    given[rng.permutation(np.flatnonzero(given))[: given.sum() - missing.sum()]] -= 1

    shuffled = rng.permutation(len(owners))
    by_giver = np.split(shuffled[np.argsort(owners[shuffled], kind="stable")], np.cumsum(sizes)[:-1])
    moved = [by_giver[giver][: given[giver]] for giver in rng.permutation(np.flatnonzero(given))]
    runs = np.concatenate([part[np.argsort(labels[part], kind="stable")] for part in moved])
    receivers = rng.permutation(np.flatnonzero(missing))
    owners[runs] = np.repeat(receivers, missing[receivers])
