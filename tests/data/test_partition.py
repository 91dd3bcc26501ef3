"""Partitions: every sample once, the sizes and skews they promise, reproducible, and always an end."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsol.config.experiment import Experiment
from fedsol.config.tables import PartitionSettings
from fedsol.data import partition as partitions
from fedsol.data.heterogeneity import heterogeneity
from fedsol.data.manifest import Manifest, from_file, label_counts, partition_hash, save_manifest
from fedsol.data.partition import Dirichlet, Quantity
from fedsol.data.summary import partition_summary
from fedsol.errors import InputError

seeds = st.integers(0, 2**32 - 1)
label_lists = st.lists(st.integers(0, 6), min_size=1, max_size=150)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def balanced(classes: int = 10, each: int = 100) -> np.ndarray:
    """Balanced labels in a fixed random order, as in a file."""
    return rng(99).permutation(np.repeat(np.arange(classes), each))


def sizes_of(partition: partitions.Partition) -> np.ndarray:
    return np.array([len(indices) for indices in partition])


def assert_every_sample_once(partition: partitions.Partition, total: int, clients: int) -> None:
    assert len(partition) == clients
    assert all(indices.dtype == np.int64 and (np.diff(indices) > 0).all() for indices in partition)
    assert np.array_equal(np.sort(np.concatenate(partition)), np.arange(total))


@st.composite
def labels_and_clients(draw: st.DrawFn) -> tuple[np.ndarray, int]:
    labels = np.array(draw(label_lists))
    return labels, draw(st.integers(1, len(labels)))


@given(labels_and_clients(), seeds)
def test_iid_uses_every_sample_once_in_equal_shares(case: tuple[np.ndarray, int], seed: int) -> None:
    labels, clients = case
    partition = partitions.iid(labels, clients, rng(seed))
    assert_every_sample_once(partition, len(labels), clients)
    assert np.ptp(sizes_of(partition)) <= 1


@given(labels_and_clients(), seeds, st.data())
def test_shards_of_equal_size_give_clients_of_equal_size(
    case: tuple[np.ndarray, int], seed: int, data: st.DataObject
) -> None:
    labels, clients = case
    shards = data.draw(st.integers(1, len(labels) // clients))
    partition = partitions.sharding(labels, clients, rng(seed), shards)
    assert_every_sample_once(partition, len(labels), clients)
    assert np.ptp(sizes_of(partition)) <= 1


@given(
    st.integers(1, 6),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(1, 3),
    seeds,
    st.sampled_from(["size", "class"]),
)
def test_clients_hold_at_most_as_many_classes_as_shards(
    classes: int, clients_per_class: int, shards: int, size: int, seed: int, balance: str
) -> None:
    """Where every class is a whole number of shards, a shard holds one and a client at most `shards`."""
    labels, clients = balanced(classes, clients_per_class * shards * size), clients_per_class * classes
    partition = partitions.sharding(labels, clients, rng(seed), shards, balance)
    assert_every_sample_once(partition, len(labels), clients)
    assert set(sizes_of(partition)) == {shards * size}
    for indices in partition:
        counts = np.bincount(labels[indices], minlength=classes)
        assert (counts % size == 0).all()
        assert (counts > 0).sum() <= shards


@pytest.mark.parametrize("balance", ["size", "class"])
def test_two_shards_mean_at_most_two_classes(balance: str) -> None:
    labels = balanced()
    partition = partitions.sharding(labels, 50, rng(), 2, balance)
    held = [len(np.unique(labels[indices])) for indices in partition]
    assert set(held) == {1, 2}
    assert set(sizes_of(partition)) == {20}


def test_shards_by_class_follow_unbalanced_classes() -> None:
    labels = np.repeat([0, 1], [300, 100])
    partition = partitions.sharding(labels, 4, rng(1), 1, "class")
    assert_every_sample_once(partition, 400, 4)
    assert sorted(sizes_of(partition)) == [50, 50, 150, 150]
    assert all(len(np.unique(labels[indices])) == 1 for indices in partition)
    by_size = partitions.sharding(labels, 4, rng(1), 1, "size")
    assert set(sizes_of(by_size)) == {100}


def test_largest_classes_get_the_shards_left_over() -> None:
    labels = np.repeat([0, 1, 2], [60, 200, 70])
    partition = partitions.sharding(labels, 4, rng(), 1, "class")
    assert sorted(sizes_of(partition)) == [60, 70, 100, 100]


def test_of_classes_of_one_size_the_first_get_the_shards_left_over() -> None:
    sizes, _ = partitions._class_shards(np.repeat(np.arange(40), 10), 50, 1, rng())
    assert sizes.tolist() == [5] * 20 + [10] * 30


def test_shards_do_not_follow_the_order_of_the_file() -> None:
    labels = np.zeros(100, dtype=np.int64)
    partition = partitions.sharding(labels, 2, rng(), 1)
    assert not np.array_equal(partition[0], np.arange(50))
    assert not np.array_equal(partition[0], np.arange(50, 100))


alphas = st.sampled_from([5e-324, 1e-300, 1e-5, 0.01, 0.1, 1.0, 10.0, 1e12, 1.7e308])


@settings(deadline=None)
@given(labels_and_clients(), seeds, alphas, st.booleans(), st.data())
def test_dirichlet_uses_every_sample_once_and_respects_the_smallest_size(
    case: tuple[np.ndarray, int], seed: int, alpha: float, cap: bool, data: st.DataObject
) -> None:
    labels, clients = case
    smallest = data.draw(st.integers(0, len(labels) // clients))
    partition = partitions.dirichlet(labels, clients, rng(seed), Dirichlet(alpha, cap, smallest, max_draws=3))
    assert_every_sample_once(partition, len(labels), clients)
    assert sizes_of(partition).min() >= max(smallest, 1)


@settings(deadline=None)
@given(labels_and_clients(), seeds, alphas, st.data())
def test_a_client_with_its_average_share_gets_no_further_class(
    case: tuple[np.ndarray, int], seed: int, alpha: float, data: st.DataObject
) -> None:
    """In the order of classes: a client with N/clients samples of lower classes has none of this one.

    It holds after a repair, too: that only takes from clients, or fills them up to at most N/clients samples.
    """
    labels, clients = case
    smallest = data.draw(st.integers(0, len(labels) // clients))
    partition = partitions.dirichlet(labels, clients, rng(seed), Dirichlet(alpha, True, smallest, max_draws=2))
    counts = np.array([np.bincount(labels[indices], minlength=7) for indices in partition])
    held_before = np.cumsum(counts, axis=1) - counts
    assert (counts[held_before >= len(labels) / clients] == 0).all()


def test_without_the_cap_large_clients_may_get_more() -> None:
    labels = balanced(10, 20)
    largest = {
        cap: max(
            sizes_of(partitions.dirichlet(labels, 10, rng(seed), Dirichlet(0.05, cap, 0))).max() for seed in range(10)
        )
        for cap in (True, False)
    }
    assert largest[False] > largest[True]
    assert largest[True] <= 20 + 20


@pytest.mark.parametrize("cap", [True, False])
def test_a_thousand_clients_at_a_tiny_alpha_come_to_an_end(cap: bool) -> None:
    labels = balanced(10, 6000)
    partition = partitions.dirichlet(labels, 1000, rng(), Dirichlet(0.01, cap))
    assert_every_sample_once(partition, 60_000, 1000)
    assert sizes_of(partition).min() == 10
    held = [len(np.unique(labels[indices])) for indices in partition]
    assert np.median(held) == 1, "repaired clients must stay as skewed as the others"


def test_repair_gives_exactly_the_smallest_size_to_all_when_there_is_no_slack() -> None:
    partition = partitions.dirichlet(balanced(2, 50), 10, rng(), Dirichlet(1e-9, True, 10, max_draws=1))
    assert_every_sample_once(partition, 100, 10)
    assert set(sizes_of(partition)) == {10}


def test_repair_takes_from_the_largest_clients() -> None:
    owners = np.repeat([0, 1, 2, 3], [12, 9, 4, 0])
    partitions._fill_small_clients(owners, np.zeros(25, dtype=np.int64), 4, 4, rng())
    assert sorted(np.bincount(owners)) == [4, 4, 8, 9]


def test_repair_hands_over_runs_of_one_class() -> None:
    """A giver of two classes fills ten clients: at most one of them gets both."""
    labels = np.arange(200) % 2
    owners = np.zeros(200, dtype=np.int64)
    partitions._fill_small_clients(owners, labels, 11, 5, rng())
    held = [len(np.unique(labels[owners == client])) for client in range(1, 11)]
    assert np.bincount(owners).tolist() == [150, *[5] * 10]
    assert sum(held) <= 11


def test_rounding_favors_no_client() -> None:
    """Equal proportions of 6 samples for 10 clients: each gets 0.6 on average, the first as well as the last."""
    generator = rng(3)
    draws = [partitions._dirichlet_counts(np.array([6] * 50), 10, generator, Dirichlet(1e12, False)) for _ in range(40)]
    assert np.mean(draws, axis=(0, 2)) == pytest.approx(np.full(10, 0.6), abs=0.05)


@pytest.mark.parametrize("alpha", [0.05, 0.5, 3.0])
def test_weights_have_the_mean_and_variance_of_a_dirichlet(alpha: float) -> None:
    generator = rng(5)
    draws = np.array([partitions._dirichlet_weights(np.ones(5, dtype=bool), alpha, generator) for _ in range(8000)])
    shares = draws / draws.sum(axis=1, keepdims=True)
    assert shares.mean(axis=0) == pytest.approx(np.full(5, 0.2), abs=0.02)
    assert shares.var(axis=0) == pytest.approx(np.full(5, 0.16 / (5 * alpha + 1)), rel=0.1)


def test_weights_are_never_zero_for_all_open_clients() -> None:
    is_open = np.zeros(100, dtype=bool)
    is_open[[3, 70]] = True
    for seed in range(50):
        weights = partitions._dirichlet_weights(is_open, 1e-8, rng(seed))
        assert weights[is_open].max() == 1
        assert (weights[~is_open] == 0).all()


def test_heterogeneity_grows_as_alpha_shrinks() -> None:
    labels = balanced(10, 500)
    held = [
        np.mean(
            [len(np.unique(labels[indices])) for indices in partitions.dirichlet(labels, 20, rng(), Dirichlet(alpha))]
        )
        for alpha in (0.02, 0.2, 2.0, 200.0)
    ]
    assert held == sorted(held)
    assert held[0] < 4
    assert held[-1] == 10


@settings(deadline=None)
@given(labels_and_clients(), seeds, alphas)
def test_clients_with_proportions_of_their_own_use_every_sample_once_in_equal_shares(
    case: tuple[np.ndarray, int], seed: int, alpha: float
) -> None:
    labels, clients = case
    partition = partitions.dirichlet_client(labels, clients, rng(seed), alpha)
    assert_every_sample_once(partition, len(labels), clients)
    assert np.ptp(sizes_of(partition)) <= 1


@pytest.mark.parametrize("alpha", [0.5, 3.0])
def test_a_clients_own_proportions_have_the_mean_and_variance_of_a_dirichlet(alpha: float) -> None:
    """Of many clients, all classes are asked for about as often as they exist, so hardly a sample is drawn again."""
    labels = balanced(5, 60_000)
    shares = label_counts(labels, partitions.dirichlet_client(labels, 1000, rng(3), alpha), 5) / 300
    assert shares.mean(axis=0) == pytest.approx(np.full(5, 0.2))
    of_samples = 0.16 / 300 * 5 * alpha / (5 * alpha + 1)
    assert shares.var(axis=0).mean() == pytest.approx(0.16 / (5 * alpha + 1) + of_samples, rel=0.06)


def test_a_used_up_class_is_replaced_by_those_that_are_left() -> None:
    """Class 0 has 3 samples, and 10 clients of one class each can be given no more of it than these."""
    labels = np.repeat([0, 1], [3, 97])
    counts = label_counts(labels, partitions.dirichlet_client(labels, 10, rng(1), 5e-324), 2)
    assert counts.sum(axis=0).tolist() == [3, 97]
    assert (counts.sum(axis=1) == 10).all()


def test_a_scarce_class_is_spread_over_all_who_ask_for_it() -> None:
    """All clients ask for about 5 samples of either class; of class 1 there are 30 for the 100 that are asked for."""
    labels = np.repeat([0, 1], [170, 30])
    counts = label_counts(labels, partitions.dirichlet_client(labels, 20, rng(), 1e6), 2)
    assert (counts[:, 1] > 0).sum() >= 14  # 16.8 are expected


def test_proportions_of_clients_even_out_as_alpha_grows() -> None:
    labels = balanced(10, 500)
    found = [
        heterogeneity(label_counts(labels, partitions.dirichlet_client(labels, 20, rng(), alpha), 10))
        for alpha in (1e-300, 0.1, 0.6, 100.0)
    ]
    distances = [one.jensen_shannon for one in found]
    assert distances == sorted(distances, reverse=True)
    assert found[0].effective_classes < 2 < 9 < found[-1].effective_classes


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 12), seeds, st.data())
def test_every_client_has_exactly_so_many_classes(classes: int, clients: int, seed: int, data: st.DataObject) -> None:
    each = data.draw(st.integers(-(-classes // clients), classes))
    sizes = data.draw(st.lists(st.integers(clients * each, 100), min_size=classes, max_size=classes))
    labels = rng(seed).permutation(np.repeat(np.arange(classes), sizes))
    partition = partitions.classes_each(labels, clients, rng(seed), each)
    assert_every_sample_once(partition, len(labels), clients)
    counts = label_counts(labels, partition, classes)
    assert set((counts > 0).sum(axis=1)) == {each}
    assert np.ptp((counts > 0).sum(axis=0)) <= 1, "classes have equally many clients"
    for column in counts.T:
        assert np.ptp(column[column > 0]) <= 1, "which share their samples equally"


def test_pairs_of_classes_are_mixed() -> None:
    labels = balanced(10, 100)
    counts = label_counts(labels, partitions.classes_each(labels, 100, rng(), 2), 10)
    assert len({tuple(np.flatnonzero(row)) for row in counts}) > 25  # of 45


laws = st.sampled_from(["log-normal", "power-law"])


@settings(deadline=None)
@given(labels_and_clients(), seeds, laws, st.sampled_from([0.0, 1e-9, 0.3, 1.0, 5.0, 1000.0]), st.data())
def test_clients_of_different_size_use_every_sample_once_and_respect_the_smallest_size(
    case: tuple[np.ndarray, int], seed: int, law: str, skew: float, data: st.DataObject
) -> None:
    labels, clients = case
    smallest = data.draw(st.integers(0, len(labels) // clients))
    partition = partitions.quantity(labels, clients, rng(seed), Quantity(law, skew, smallest))
    assert_every_sample_once(partition, len(labels), clients)
    assert sizes_of(partition).min() >= max(smallest, 1)
    if skew == 0:
        assert np.ptp(sizes_of(partition)) <= 1


def test_sizes_by_a_power_law_by_hand() -> None:
    """1 + 1/2 + 1/3 = 11/6: of 1100 samples 600, 300, 200. With 250 as the least, 850 are shared 2 to 1."""
    labels = balanced(11, 100)
    assert sorted(sizes_of(partitions.quantity(labels, 3, rng(), Quantity("power-law", 1.0, 1)))) == [200, 300, 600]
    assert sorted(sizes_of(partitions.quantity(labels, 3, rng(), Quantity("power-law", 1.0, 250)))) == [250, 283, 567]
    # 13 samples: 7.09, 3.55, 2.36. The one that rounding down leaves over goes to the largest remainder.
    assert sorted(sizes_of(partitions.quantity(labels[:13], 3, rng(), Quantity("power-law", 1.0, 0)))) == [2, 4, 7]
    largest = {
        int(sizes_of(partitions.quantity(labels, 3, rng(n), Quantity("power-law", 1.0))).argmax()) for n in range(9)
    }
    assert largest == {0, 1, 2}


def test_logarithms_of_log_normal_sizes_have_the_skew_as_their_deviation() -> None:
    labels = np.zeros(1_000_000, dtype=np.int64)
    sizes = sizes_of(partitions.quantity(labels, 1000, rng(), Quantity("log-normal", 0.7, 1)))
    assert np.log(sizes).std() == pytest.approx(0.7, rel=0.06)
    # As far from each other as 0.21, if a power law had given that deviation.
    assert np.log(sizes).mean() == pytest.approx(np.median(np.log(sizes)), abs=0.07)


@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), seeds, st.data())
def test_groups_are_of_whole_clients_and_equally_many(owners: list[int], seed: int, data: st.DataObject) -> None:
    ids = np.array(owners)
    clients = data.draw(st.integers(1, len(set(owners))))
    partition = partitions.grouped_owners(ids, clients, rng(seed))
    assert_every_sample_once(partition, len(ids), clients)
    members = [set(ids[indices]) for indices in partition]
    assert sum(map(len, members)) == len(set(owners))
    assert np.ptp([len(group) for group in members]) <= 1


def drawn(seed: int) -> list[partitions.Partition]:
    labels = balanced()
    return [
        partitions.iid(labels, 7, rng(seed)),
        partitions.sharding(labels, 7, rng(seed), 3),
        partitions.sharding(labels, 7, rng(seed), 3, "class"),
        partitions.dirichlet(labels, 7, rng(seed), Dirichlet(0.1)),
        partitions.dirichlet(labels, 50, rng(seed), Dirichlet(0.01)),
        partitions.dirichlet_client(labels, 7, rng(seed), 0.1),
        partitions.classes_each(labels, 7, rng(seed), 3),
        partitions.quantity(labels, 7, rng(seed), Quantity("log-normal", 1.0)),
        partitions.quantity(labels, 7, rng(seed), Quantity("power-law", 1.0)),
        partitions.grouped_owners(np.arange(1000) % 30, 7, rng(seed)),
    ]


def test_the_generator_decides_everything() -> None:
    first, again, other = ([partition_hash(partition) for partition in drawn(seed)] for seed in (1, 1, 2))
    assert first == again
    assert not set(first) & set(other)


def test_every_sort_is_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others order equal values differently on another processor, and with them the partition."""
    original, kinds = np.argsort, []

    def recorded(values: np.ndarray, kind: str | None = None) -> np.ndarray:
        kinds.append(kind)
        return original(values, kind=kind)

    monkeypatch.setattr(np, "argsort", recorded)
    drawn(1)
    assert set(kinds) == {"stable"}


@pytest.mark.parametrize(
    ("lacking", "draws"), [([0], 1), ([1, 0], 2), ([3, 2, 0], 3), ([3, 2, 1, 2, 1], 5), ([1, 1, 1, 1, 1], 5)]
)
def test_a_partition_is_drawn_until_it_fits_at_most_as_often_as_allowed(
    lacking: list[int], draws: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two clients share 20 samples of one class, and each should have 5: draws in which the first lacks so many."""
    script = iter([*lacking, 0])
    made = []

    def scripted(*_: object) -> np.ndarray:
        few = 5 - next(script)
        made.append(few)
        return np.array([[few], [20 - few]])

    monkeypatch.setattr(partitions, "_dirichlet_counts", scripted)
    partition = partitions.dirichlet(np.zeros(20, dtype=np.int64), 2, rng(), Dirichlet(0.1, True, 5, max_draws=5))
    assert len(made) == draws
    assert sizes_of(partition).tolist() == [5, 15]


def test_owners_become_clients_in_the_order_of_their_ids() -> None:
    partition = partitions.by_owner(np.array([7, 2, 7, 5, 2]))
    assert [indices.tolist() for indices in partition] == [[1, 4], [3], [0, 2]]
    assert [indices.tolist() for indices in partitions.by_owner(["b", "a", "b"])] == [[1], [0, 2]]
    with pytest.raises(InputError, match="must be one id per sample, at least one"):
        partitions.by_owner([])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda y: partitions.iid(y, 0, rng()), r"data\.partition\.clients: must be 1 to 100, .*\(got 0\)"),
        (lambda y: partitions.iid(y, 101, rng()), r"data\.partition\.clients: must be 1 to 100, .*\(got 101\)"),
        (lambda y: partitions.sharding([], 1, rng(), 1), r"labels: must be one integer per sample \(got float64"),
        (lambda y: partitions.sharding(y[:, None], 1, rng(), 1), r"\(got int64 of shape \(100, 1\)\)"),
        (lambda y: partitions.sharding(y, 10, rng(), 11), r"data\.partition\.shards: must be 1 to 10, .*\(got 11\)"),
        (lambda y: partitions.sharding(y, 10, rng(), 0), r"data\.partition\.shards: must be 1 to 10, .*\(got 0\)"),
        (
            lambda y: partitions.sharding(y, 3, rng(), 2, "class"),
            r"data\.partition\.shards: must be at least 4 for 3 clients and 10 classes \(got 2\)",
        ),
        (
            lambda y: partitions.dirichlet(y, 11, rng(), Dirichlet(1.0)),
            r"data\.partition\.min_size: must be 1 to 9, .*\(got 10\)",
        ),
        (
            lambda y: partitions.dirichlet(y, 10, rng(), Dirichlet(1.0, True, -1)),
            r"data\.partition\.min_size: must be 1 to 10, .*\(got -1\)",
        ),
        (
            lambda y: partitions.classes_each(y, 3, rng(), 3),
            r"data\.partition\.classes: must be 4 to 10 for 3 clients and 10 classes \(got 3\)",
        ),
        (
            lambda y: partitions.classes_each(y, 3, rng(), 11),
            r"data\.partition\.classes: must be 4 to 10 for 3 clients and 10 classes \(got 11\)",
        ),
        (
            lambda y: partitions.classes_each(y[5:], 100 - 5, rng(), 2),
            r"data\.partition\.classes: must be small enough .* 19 clients would share the . samples .* \(got 2\)$",
        ),
        (
            lambda y: partitions.quantity(y, 11, rng(), Quantity("power-law", 1.0)),
            r"data\.partition\.min_size: must be 1 to 9, .*\(got 10\)",
        ),
        (
            lambda y: partitions.grouped_owners(y, 11, rng()),
            r"data\.partition\.clients: must be 1 to 10, the number of the data's own clients \(got 11\)",
        ),
    ],
)
def test_bad_values_are_named(call: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        call(balanced(10, 10))  # type: ignore[operator]


def test_a_class_too_small_for_its_shards_is_named() -> None:
    labels = np.repeat([0, 8], [100, 3])
    with pytest.raises(
        InputError, match=r"data\.partition\.shards: must be .* class 8 has 3 samples for 10 shards \(got 2\)$"
    ):
        partitions.sharding(labels, 10, rng(), 2, "class")


def chosen(kind: str, **settings: Any) -> PartitionSettings:
    return PartitionSettings(**{"kind": kind, "clients": 5, "alpha": 0.5, **settings})


def test_settings_choose_the_partition(tmp_path: Path) -> None:
    labels, owners = balanced(), np.arange(1000) % 3
    path = tmp_path / "mine.json"
    path.write_text("[[2, 1], [0]]")
    cases = [
        (chosen("iid"), partitions.iid(labels, 5, rng(3))),
        (chosen("sharding"), partitions.sharding(labels, 5, rng(3), 2)),
        (chosen("sharding", balance="class"), partitions.sharding(labels, 5, rng(3), 2, "class")),
        (chosen("dirichlet"), partitions.dirichlet(labels, 5, rng(3), Dirichlet(0.5, True))),
        (chosen("dirichlet", min_size=150), partitions.dirichlet(labels, 5, rng(3), Dirichlet(0.5, True, 150))),
        (chosen("dirichlet", cap=False), partitions.dirichlet(labels, 5, rng(3), Dirichlet(0.5, False))),
        (chosen("dirichlet-client"), partitions.dirichlet_client(labels, 5, rng(3), 0.5)),
        (chosen("classes", classes=4), partitions.classes_each(labels, 5, rng(3), 4)),
        (chosen("quantity"), partitions.quantity(labels, 5, rng(3), Quantity("log-normal", 1.0))),
        (
            chosen("quantity", sizes="power-law", skew=1.0, min_size=150),
            partitions.quantity(labels, 5, rng(3), Quantity("power-law", 1.0, 150)),
        ),
        (chosen("own-grouped", clients=2), partitions.grouped_owners(owners, 2, rng(3))),
        (chosen("own", clients=None), partitions.by_owner(owners)),
        (chosen("own", clients=3), partitions.by_owner(owners)),
        (chosen("file", clients=None, file=str(path)), [np.array([1, 2]), np.array([0])]),
    ]
    for case, expected in cases:
        made = partitions.make_partition(case, labels, owners, rng(3))
        assert partition_hash(made) == partition_hash(expected), case


@pytest.mark.parametrize(
    ("settings", "owners", "message"),
    [
        (chosen("iid", clients=None), None, r"data\.partition\.clients: is missing"),
        (chosen("file"), None, r"data\.partition\.file: is missing; the partition 'file' is read from it"),
        (
            chosen("own"),
            None,
            r"data\.partition\.kind: 'own' is for data with client ids, and this dataset has none",
        ),
        (
            chosen("own-grouped"),
            None,
            r"data\.partition\.kind: 'own-grouped' is for data with client ids, and this dataset has none",
        ),
        (chosen("own"), np.zeros(999), r"client ids: must be one per sample \(got 999 for 1000 samples\)"),
        (
            chosen("own"),
            np.zeros(1000),
            r"data\.partition\.clients: must be 1, as in the dataset, or left out \(got 5\)",
        ),
    ],
)
def test_settings_that_do_not_fit_are_named(
    settings: PartitionSettings, owners: np.ndarray | None, message: str
) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        partitions.make_partition(settings, balanced(), owners, rng())


def test_a_file_with_another_number_of_clients_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "two.json"
    path.write_text("[[0], [1]]")
    settings = chosen("file", file=str(path))
    with pytest.raises(InputError, match=r"data\.partition\.clients: must be 2, as in .*two\.json, .*\(got 5\)"):
        partitions.make_partition(settings, balanced(), None, rng())
    assert len(partitions.make_partition(chosen("file", file=str(path), clients=2), balanced(), None, rng())) == 2


@pytest.mark.parametrize(
    "content",
    [
        [[4, 0], [1, 3]],
        {"clients": [[4, 0], [1, 3]]},
        {"clients": {"anna": [4, 0], "ben": [1, 3]}, "note": "by hand"},
    ],
)
def test_plain_files_of_indices(tmp_path: Path, content: object) -> None:
    path = tmp_path / "indices.json"
    path.write_text(json.dumps(content))
    assert [indices.tolist() for indices in from_file(path, 5)] == [[0, 4], [1, 3]]


def test_a_saved_partition_is_a_file_of_indices(tmp_path: Path) -> None:
    partition = partitions.dirichlet(balanced(), 10, rng(), Dirichlet(0.1))
    save_manifest(tmp_path / "p.json", Manifest("digits", 1000, {}, 0, partition))
    assert partition_hash(from_file(tmp_path / "p.json", 1000)) == partition_hash(partition)
    with pytest.raises(InputError, match=r"p\.json: samples must be 999, .*got 1000"):
        from_file(tmp_path / "p.json", 999)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[[0, 1", "is not valid JSON"),
        ("\udcff", "is not valid JSON"),
        ("[" * 100_000, "nested too deeply"),
        ('{"clients": {"a": [0], "a": [1]}}', "the key 'a' occurs twice"),
        ("5", "clients must be lists of indices, one per client .*got 5"),
        ("[]", r"clients must be .*got \[\]"),
        ('{"people": [[0]]}', "clients must be .*got None"),
        ("[[0], []]", r"client 1 must be a list of at least one index \(got \[\]\)"),
        ("[[0], 7]", "client 1 must be .*got 7"),
        ("[[0], [5]]", "client 1: indices must be integers from 0 to 4 .*got 5"),
        ("[[-1]]", "client 0: indices .*got -1"),
        ("[[0], [1.0]]", r"client 1: indices .*got 1\.0"),
        ("[[true]]", "client 0: indices .*got True"),
        ("[[NaN]]", "client 0: indices .*got nan"),
        ("[[10000000000000000000000000]]", "client 0: indices .*got 1000"),
        ("[[2, 2]]", "index 2 must occur once .*at client 0 and at client 0"),
        (
            '{"clients": {"a": [3, 1], "b": [1]}}',
            "index 1 must occur once .*at client 'a' and at client 'b'",
        ),
        (
            '{"format": "fedsol-partition/9", "clients": [[0]]}',
            "format must be 'fedsol-partition/1' .*got 'fedsol-partition/9'",
        ),
    ],
)
def test_bad_files_are_named(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InputError, match=message) as caught:
        from_file(path, 5)
    assert str(path) in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"none\.json: cannot be read: No such file"):
        from_file(tmp_path / "none.json", 5)
    with pytest.raises(InputError, match="cannot be read"):
        from_file(tmp_path, 5)


def test_summary_by_hand() -> None:
    labels = np.array([0, 0, 0, 1, 1, 1])
    summary = partition_summary(labels, [np.array([0, 1]), np.array([2, 3, 4, 5])], classes=2)
    assert (summary.clients, summary.samples) == (2, 6)
    assert (summary.smallest, summary.median_size, summary.largest) == (2, 3.0, 4)
    assert (summary.fewest_classes, summary.median_classes, summary.most_classes) == (1, 1.5, 2)
    quarter = -(0.25 * math.log2(0.25) + 0.75 * math.log2(0.75))
    assert summary.mean_entropy == pytest.approx((0 + quarter) / 2)
    assert summary.mean_distance == pytest.approx((0.5 + 0.25) / 2)


def test_extremes_of_the_summary() -> None:
    labels = np.repeat(np.arange(10), 100)
    one_class = partitions.sharding(labels, 10, rng(), 1)
    summary = partition_summary(labels, one_class, 10)
    assert summary.mean_entropy == 0
    assert summary.mean_distance == pytest.approx(0.9)
    same_mixture = [np.arange(start, 1000, 10) for start in range(10)]
    summary = partition_summary(labels, same_mixture, 10)
    assert summary.mean_entropy == pytest.approx(math.log2(10))
    assert summary.mean_distance == pytest.approx(0, abs=1e-12)


def test_classes_that_no_sample_has_count_for_nothing() -> None:
    labels, partition = [0, 0, 2, 2], [np.array([0, 1]), np.array([2, 3])]
    three, five = (partition_summary(labels, partition, classes) for classes in (3, 5))
    assert three == five
    assert (three.mean_entropy, three.mean_distance, three.most_classes) == (0, 0.5, 1)


@pytest.mark.parametrize("partition", [[], [np.array([0]), np.array([], dtype=np.int64)]])
def test_a_summary_is_of_clients_with_samples(partition: partitions.Partition) -> None:
    with pytest.raises(InputError, match=r"^partition: must have clients, each with at least one sample$"):
        partition_summary([0, 1], partition, 2)


def test_iid_needs_no_classes():
    parts = partitions.iid(np.zeros((10, 3), dtype=np.float32), 3, np.random.default_rng(0))
    assert sorted(map(len, parts)) == [3, 3, 4]


def test_samples_without_one_class_each_are_counted_as_one():
    labels = np.zeros((4, 2), dtype=np.float32)
    parts = [np.array([0, 1, 2]), np.array([3])]
    assert label_counts(labels, parts, 2).tolist() == [[3], [1]]
    summary = partition_summary(labels, parts, 2)
    assert (summary.smallest, summary.largest, summary.most_classes, summary.mean_distance) == (1, 3, 1, 0.0)


@pytest.mark.parametrize(("kind", "noun"), [("regression", "regression"), ("multilabel", "task with several labels")])
def test_partitions_by_class_are_refused_without_classes(kind, noun):
    for partition in ("dirichlet", "sharding", "dirichlet-client", "classes"):
        message = f"^data.partition.kind: '{partition}' splits by the class of a sample, and a {noun} has none; al"
        with pytest.raises(InputError, match=message):
            Experiment(task={"kind": kind}, data={"partition": {"kind": partition}})
    assert Experiment(task={"kind": kind}, data={"client": "hospital"}).data.partition.kind == "own"
