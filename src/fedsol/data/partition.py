"""Which client has which training samples: pure functions of labels and a generator.

Every partition is a list of ascending int64 index arrays, one per client. Those drawn here give every sample to
exactly one client and leave no client empty.
"""

import bisect
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedsol.config.tables import PartitionSettings
from fedsol.data.manifest import Indices, Partition, from_file
from fedsol.errors import InputError


@dataclass(frozen=True)
class Dirichlet:
    """How samples are drawn by class: the concentration `alpha`, and limits on the clients' sizes (see `dirichlet`)."""

    alpha: float
    cap: bool = True
    min_size: int = 10
    max_draws: int = 200


def make_partition(
    settings: PartitionSettings, labels: NDArray[Any], owners: NDArray[Any] | None, rng: np.random.Generator
) -> Partition:
    """Return the partition that `[data.partition]` describes; `owners` is each sample's client, if the data has it."""
    if settings.kind in ("file", "own"):
        return _given_partition(settings, len(labels), owners)
    if settings.clients is None:
        raise InputError("data.partition.clients: is missing")
    clients = settings.clients
    match settings.kind:
        case "iid":
            return iid(labels, clients, rng)
        case "sharding":
            return sharding(labels, clients, rng, settings.shards, settings.balance)
        case "dirichlet-client":
            return dirichlet_client(labels, clients, rng, settings.alpha)
        case "classes":
            return classes_each(labels, clients, rng, settings.classes)
        case "quantity":
            return quantity(labels, clients, rng, Quantity(settings.sizes, settings.skew, settings.min_size))
        case "own-grouped":
            return grouped_owners(_checked_owners(settings.kind, len(labels), owners), clients, rng)
        case _:
            return dirichlet(labels, clients, rng, Dirichlet(settings.alpha, settings.cap, settings.min_size))


def iid(labels: ArrayLike, clients: int, rng: np.random.Generator) -> Partition:
    """Split samples at random; client sizes differ by at most one."""
    total = _checked_count(len(np.asarray(labels)), clients)
    return _by_client(rng.permutation(total) % clients, clients)


def sharding(
    labels: ArrayLike,
    clients: int,
    rng: np.random.Generator,
    shards: int,
    balance: Literal["size", "class"] = "size",
) -> Partition:
    """Sort samples by label, cut them into shards, and give every client `shards` of them at random.

    `balance="size"` (as in the paper) cuts equal shards, so a shard may span classes; neither shards nor clients differ
    in size by more than one. `balance="class"` cuts every class into the same number of shards, so a shard has one
    class and clients differ in size if classes do; if that number is not an integer, the largest classes get one more
    shard. Samples are shuffled within a class first, so shards do not depend on the order of the files. A client may
    get several shards of one class.
    """
    array = _checked_labels(labels, clients)
    most = len(array) // clients
    if not 1 <= shards <= most:
        raise _invalid("shards", f"1 to {most}, as {clients} clients share {len(array)} samples", shards)
    split = _equal_shards if balance == "size" else _class_shards
    sizes, shard_owners = split(array, clients, shards, rng)
    owners = np.empty(len(array), dtype=np.int64)
    owners[_shuffled_by_label(array, rng)] = np.repeat(shard_owners, sizes)
    return _by_client(owners, clients)


def dirichlet(labels: ArrayLike, clients: int, rng: np.random.Generator, settings: Dirichlet) -> Partition:
    """Split every class in proportions drawn from a symmetric Dirichlet(alpha) over the clients (LDA).

    `cap`: a client with its average share of all samples gets no further class; classes are split in ascending order.
    `min_size`: the whole partition is drawn again until every client has that many samples (0 counts as 1). That may
    never happen (1,000 clients at alpha 0.01), so after `max_draws` draws the one that lacks the fewest samples is
    repaired: random samples move from the largest clients to those below `min_size`, in runs of one giver and one
    class, so that the receivers are about as skewed as their givers.
    """
    array = _checked_labels(labels, clients)
    min_size, most = settings.min_size, len(array) // clients
    if not 0 <= min_size <= most:
        raise _invalid("min_size", f"1 to {most}, as {clients} clients share {len(array)} samples", min_size)
    smallest = max(min_size, 1)
    class_sizes = np.unique(array, return_counts=True)[1]

    def lack(counts: Indices) -> int:
        return int(np.maximum(smallest - counts.sum(axis=1), 0).sum())

    counts = _dirichlet_counts(class_sizes, clients, rng, settings)
    for _ in range(settings.max_draws - 1):
        if lack(counts) == 0:
            break
        counts = min(counts, _dirichlet_counts(class_sizes, clients, rng, settings), key=lack)
    owners = _owners_of(array, counts, rng)
    if lack(counts) > 0:
        _fill_small_clients(owners, array, clients, smallest, rng)
    return _by_client(owners, clients)


def dirichlet_client(labels: ArrayLike, clients: int, rng: np.random.Generator, alpha: float) -> Partition:
    """Give clients of equal size (within one) samples by class proportions of their own, each a Dirichlet(alpha).

    Every client draws the classes of all its samples. Where more samples of a class are asked for than there are, its
    samples go to as many of these draws, chosen at random, and the others are drawn again among the classes that are
    left. Each repetition uses up a class, so there are no more of them than classes, whatever the alpha.
    """
    array = _checked_labels(labels, clients)
    left = np.unique(array, return_counts=True)[1]
    wanted = len(array) // clients + (rng.permutation(clients) < len(array) % clients).astype(np.int64)
    logs, scale = _scaled_logs((clients, len(left)), alpha, rng)
    counts = np.zeros_like(logs, dtype=np.int64)
    while wanted.any():
        drawn, available = np.zeros_like(counts), np.flatnonzero(left)
        for client in np.flatnonzero(wanted):
            shares = _relative_weights(logs[client, available], scale)
            drawn[client, available] = rng.multinomial(wanted[client], shares / shares.sum())
        for index in np.flatnonzero(drawn.sum(axis=0) > left):
            drawn[:, index] = rng.multivariate_hypergeometric(drawn[:, index], left[index])
        counts, left, wanted = counts + drawn, left - drawn.sum(axis=0), wanted - drawn.sum(axis=1)
    return _by_counts(array, counts, rng)


def classes_each(labels: ArrayLike, clients: int, rng: np.random.Generator, classes: int) -> Partition:
    """Give every client samples of exactly `classes` classes.

    Classes have equally many clients (within one: the largest get those left over), which share their samples equally.
    One client after another takes the classes that lack most clients, at random among equals: so many classes always
    suffice for the clients that are left.
    """
    array = _checked_labels(labels, clients)
    class_sizes = np.unique(array, return_counts=True)[1]
    least, most = -(-len(class_sizes) // clients), len(class_sizes)
    if not least <= classes <= most:
        raise _invalid("classes", f"{least} to {most} for {clients} clients and {most} classes", classes)
    lacking = _cuts(class_sizes, clients * classes)
    if (lacking > class_sizes).any():
        scarce = int(np.argmax(lacking - class_sizes))
        has = f"{lacking[scarce]} clients would share the {class_sizes[scarce]} samples of a class"
        raise _invalid("classes", f"small enough for the smallest class, but {has}", classes)
    takes = np.zeros((clients, most), dtype=np.bool_)
    for client in range(clients):
        chosen = np.lexsort((rng.random(most), -lacking))[:classes]
        takes[client, chosen] = True
        lacking[chosen] -= 1
    counts = np.zeros((clients, most), dtype=np.int64)
    for index, size in enumerate(class_sizes):
        holders = rng.permutation(np.flatnonzero(takes[:, index]))
        counts[holders, index] = size // len(holders) + (np.arange(len(holders)) < size % len(holders))
    return _by_counts(array, counts, rng)


@dataclass(frozen=True)
class Quantity:
    """How clients differ in size (see `quantity`); `skew` is 0 for equal sizes."""

    sizes: Literal["log-normal", "power-law"]
    skew: float
    min_size: int = 10


def quantity(labels: ArrayLike, clients: int, rng: np.random.Generator, settings: Quantity) -> Partition:
    """Split samples at random into clients of different size; none has fewer than `min_size` samples.

    `log-normal`: the logarithms of the sizes have a standard deviation of `skew`. `power-law`: the k-th largest size is
    proportional to `k^-skew` (Zipf's law), and which client has it is random.
    """
    total = _checked_count(len(np.asarray(labels)), clients)
    most = total // clients
    if not 0 <= settings.min_size <= most:
        raise _invalid("min_size", f"1 to {most}, as {clients} clients share {total} samples", settings.min_size)
    logs = rng.standard_normal(clients) if settings.sizes == "log-normal" else -np.log(rng.permutation(clients) + 1.0)
    scaled = settings.skew * logs
    sizes = _sizes_like(np.exp(scaled - scaled.max()), total, max(settings.min_size, 1))
    return _by_client(rng.permutation(np.repeat(np.arange(clients), sizes)), clients)


def grouped_owners(owner_ids: ArrayLike, clients: int, rng: np.random.Generator) -> Partition:
    """Form `clients` clients at random from the data's own, each of equally many of them (within one)."""
    owners, count = _numbered(owner_ids)
    if not 1 <= clients <= count:
        raise _invalid("clients", f"1 to {count}, the number of the data's own clients", clients)
    return _by_client((rng.permutation(count) % clients)[owners], clients)


def by_owner(owner_ids: ArrayLike) -> Partition:
    """Return one client for every distinct id in the data, in ascending order of ids."""
    return _by_client(*_numbered(owner_ids))


def _given_partition(settings: PartitionSettings, total: int, owners: NDArray[Any] | None) -> Partition:
    """Return the partition of a file of indices, or of the data's own clients."""
    if settings.kind == "file":
        if not settings.file:
            raise InputError("data.partition.file: is missing; the partition 'file' is read from it")
        source, partition = settings.file, from_file(settings.file, total)
    else:
        source, partition = "the dataset", by_owner(_checked_owners(settings.kind, total, owners))
    if settings.clients not in (None, len(partition)):
        raise _invalid("clients", f"{len(partition)}, as in {source}, or left out", settings.clients)
    return partition


def _numbered(owner_ids: ArrayLike) -> tuple[Indices, int]:
    """Return every sample's client as a number in ascending order of ids, and how many there are."""
    ids = np.asarray(owner_ids)
    if ids.ndim != 1 or len(ids) == 0:
        raise InputError(f"client ids: must be one id per sample, at least one (got shape {ids.shape})")
    distinct, owners = np.unique(ids, return_inverse=True)
    return owners, len(distinct)


def _checked_owners(kind: str, total: int, owners: NDArray[Any] | None) -> NDArray[Any]:
    """Return the client of every sample, if the data has it."""
    if owners is None:
        raise InputError(f"data.partition.kind: {kind!r} is for data with client ids, and this dataset has none")
    if len(owners) != total:
        raise InputError(f"client ids: must be one per sample (got {len(owners)} for {total} samples)")
    return owners


def _invalid(field: str, allowed: str, value: object) -> InputError:
    return InputError(f"data.partition.{field}: must be {allowed} (got {value!r})")


def _checked_labels(labels: ArrayLike, clients: int) -> NDArray[Any]:
    array = np.asarray(labels)
    if array.ndim != 1 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(f"labels: must be one integer per sample (got {array.dtype} of shape {array.shape})")
    _checked_count(len(array), clients)
    return array


def _checked_count(samples: int, clients: int) -> int:
    if not 1 <= clients <= samples:
        raise _invalid("clients", f"1 to {samples}, the number of samples", clients)
    return samples


def _by_client(owners: NDArray[Any], clients: int) -> Partition:
    """Return the clients' indices from the owner of every sample; a stable sort leaves them ascending."""
    sizes = np.bincount(owners, minlength=clients)
    order = np.argsort(owners, kind="stable").astype(np.int64, copy=False)
    return np.split(order, np.cumsum(sizes)[:-1])


def _by_counts(labels: NDArray[Any], counts: Indices, rng: np.random.Generator) -> Partition:
    """Return the clients' indices from how many samples of every class each has, shape (clients, classes)."""
    return _by_client(_owners_of(labels, counts, rng), len(counts))


def _owners_of(labels: NDArray[Any], counts: Indices, rng: np.random.Generator) -> Indices:
    """Return the owner of every sample; which samples of a class a client gets is random."""
    owners = np.empty(len(labels), dtype=np.int64)
    every_client = np.tile(np.arange(len(counts)), counts.shape[1])
    owners[_shuffled_by_label(labels, rng)] = np.repeat(every_client, counts.T.ravel())
    return owners


def _shuffled_by_label(labels: NDArray[Any], rng: np.random.Generator) -> Indices:
    """Return indices sorted by label, in random order within a label."""
    shuffled = rng.permutation(len(labels))
    return shuffled[np.argsort(labels[shuffled], kind="stable")].astype(np.int64, copy=False)


def _equal_shards(labels: NDArray[Any], clients: int, shards: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Return sizes and owners of shards; neither shards nor clients differ in size by more than one."""
    size, longer = divmod(len(labels), clients * shards)
    is_longer = rng.permutation(clients * shards) < longer
    # At random, one client could get many of the longer shards: each client gets its even share of them.
    longer_per_client = longer // clients + (rng.permutation(clients) < longer % clients)
    owners = np.empty(clients * shards, dtype=np.int64)
    for chosen, per_client in ((is_longer, longer_per_client), (~is_longer, shards - longer_per_client)):
        owners[chosen] = rng.permutation(np.repeat(np.arange(clients), per_client))
    return size + is_longer.astype(np.int64), owners


def _class_shards(labels: NDArray[Any], clients: int, shards: int, rng: np.random.Generator) -> tuple[Indices, Indices]:
    """Return sizes and owners of shards of one class each, equally many (within one) for every class."""
    classes, class_sizes = np.unique(labels, return_counts=True)
    cuts = _cuts(class_sizes, clients * shards)
    if cuts.min() == 0:
        least = -(-len(classes) // clients)
        raise _invalid("shards", f"at least {least} for {clients} clients and {len(classes)} classes", shards)
    if (cuts > class_sizes).any():
        scarce = int(np.argmax(cuts - class_sizes))
        has = f"class {classes[scarce]} has {class_sizes[scarce]} samples for {cuts[scarce]} shards"
        raise _invalid("shards", f"small enough for the smallest class, but {has}", shards)
    sizes = [size // cut + (np.arange(cut) < size % cut) for size, cut in zip(class_sizes, cuts, strict=True)]
    return np.concatenate(sizes), rng.permutation(np.repeat(np.arange(clients), shards))


def _cuts(class_sizes: Indices, parts: int) -> Indices:
    """Return into how many parts every class is cut: equally many, and one more for the largest if some are left."""
    per_class, left = divmod(parts, len(class_sizes))
    cuts = np.full(len(class_sizes), per_class)
    cuts[np.argsort(-class_sizes, kind="stable")[:left]] += 1
    return cuts


def _sizes_like(weights: NDArray[Any], total: int, smallest: int) -> Indices:
    """Return whole sizes in proportion to the weights, none below `smallest`: those too small get that instead.

    The largest weight is 1, and all can have the smallest size: so there is one who gets at least that.
    """
    ascending = np.sort(weights)
    # What the others share, by the number of clients that are raised to the smallest size; enough are raised.
    shared = total - smallest * np.arange(len(weights))
    levels = shared / np.cumsum(ascending[::-1])[::-1]
    raised = int(np.argmax(levels * ascending >= smallest))
    beyond = np.maximum(levels[raised] * weights - smallest, 0.0)
    sizes: Indices = smallest + np.floor(beyond).astype(np.int64)
    missing = total - int(sizes.sum())
    sizes[np.argsort(-(beyond % 1.0), kind="stable")[:missing]] += 1
    return sizes


def _dirichlet_counts(class_sizes: Indices, clients: int, rng: np.random.Generator, settings: Dirichlet) -> Indices:
    """Draw how many samples of every class each client gets, shape (clients, classes)."""
    counts = np.zeros((clients, len(class_sizes)), dtype=np.int64)
    held = np.zeros(clients, dtype=np.int64)
    average = class_sizes.sum() / clients
    for index, size in enumerate(class_sizes):
        # Some client is always below the average, as not every sample is assigned yet.
        is_open = held < average if settings.cap else np.ones(clients, dtype=bool)
        cumulative = np.cumsum(_dirichlet_weights(is_open, settings.alpha, rng))
        # Divided by itself the last sum is exactly 1, so rounding gives nothing to full clients at the end.
        # The random offset makes the expected counts exactly the drawn proportions of the class.
        cuts = np.floor(cumulative / cumulative[-1] * size + rng.random()).astype(np.int64)
        counts[:, index] = np.diff(np.minimum(cuts, size), prepend=0)
        held += counts[:, index]
    return counts


def _dirichlet_weights(is_open: NDArray[Any], alpha: float, rng: np.random.Generator) -> NDArray[Any]:
    """Draw proportions up to a factor: Dirichlet(alpha) restricted to the open clients, for any positive alpha.

    Relative to the largest open client they tend to one-hot.
    """
    scaled_log, scale = _scaled_logs((len(is_open),), alpha, rng)
    return _relative_weights(np.where(is_open, scaled_log, -np.inf), scale)


def _scaled_logs(shape: tuple[int, ...], alpha: float, rng: np.random.Generator) -> tuple[NDArray[np.float64], float]:
    """Draw logarithms of Gamma(alpha) variables times a scale, which is returned, too.

    A Gamma(alpha) variable is Gamma(alpha + 1) * U^(1/alpha). Its logarithm times min(alpha, 1) is finite even where
    the variable itself underflows to 0.
    """
    scale = min(alpha, 1.0)
    gamma = np.maximum(rng.standard_gamma(alpha + 1.0, shape), np.finfo(np.float64).tiny)
    return scale * np.log(gamma) - (scale / alpha) * rng.standard_exponential(shape), scale


def _relative_weights(scaled_logs: NDArray[Any], scale: float) -> NDArray[Any]:
    """Return variables relative to the largest of them, from their logarithms times a scale."""
    with np.errstate(over="ignore"):
        log_ratio = (scaled_logs - scaled_logs.max()) / scale
    weights: NDArray[Any] = np.exp(np.minimum(log_ratio, 0.0))
    return weights


def _fill_small_clients(
    owners: Indices, labels: NDArray[Any], clients: int, smallest: int, rng: np.random.Generator
) -> None:
    """Move samples from the largest clients to those with fewer than `smallest`; changes `owners`.

    Givers end within one sample of a common level, never below `smallest`, as if each sample had been taken from the
    client that is the largest at that moment.
    """
    sizes = np.bincount(owners, minlength=clients)
    missing = np.maximum(smallest - sizes, 0)
    levels = range(smallest, int(sizes.max()) + 1)
    # The highest level above which the clients have at least as many samples as are missing.
    found = bisect.bisect_right(levels, -missing.sum(), key=lambda level: -np.maximum(sizes - level, 0).sum())
    given = np.maximum(sizes - levels[found - 1], 0)
    given[rng.permutation(np.flatnonzero(given))[: given.sum() - missing.sum()]] -= 1

    shuffled = rng.permutation(len(owners))
    by_giver = np.split(shuffled[np.argsort(owners[shuffled], kind="stable")], np.cumsum(sizes)[:-1])
    moved = [by_giver[giver][: given[giver]] for giver in rng.permutation(np.flatnonzero(given))]
    runs = np.concatenate([part[np.argsort(labels[part], kind="stable")] for part in moved])
    receivers = rng.permutation(np.flatnonzero(missing))
    owners[runs] = np.repeat(receivers, missing[receivers])
