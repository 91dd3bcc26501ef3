"""How heterogeneous a partition is: by hand, at the extremes, and what must not change it."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedsol.data.heterogeneity import heterogeneity
from fedsol.data.manifest import Manifest, load_manifest, save_manifest

tables = st.integers(1, 5).flatmap(
    lambda classes: st.lists(
        st.lists(st.integers(0, 20), min_size=classes, max_size=classes).filter(any), min_size=1, max_size=8
    )
)


def entropy(*shares: float) -> float:
    return -sum(share * math.log2(share) for share in shares)


def test_by_hand() -> None:
    """One client has 2 of the first class, the other one of the first and 3 of the second: halves of all samples."""
    found = heterogeneity([[2, 0], [1, 3]])
    # Jensen-Shannon: the entropy of the middle minus the mean entropy.
    first = entropy(0.75, 0.25) - (0 + 1) / 2
    second = entropy(0.375, 0.625) - (entropy(0.25, 0.75) + 1) / 2
    assert found.jensen_shannon == pytest.approx((math.sqrt(first) + math.sqrt(second)) / 2)
    assert found.effective_classes == pytest.approx((1 + 2 ** entropy(0.25, 0.75)) / 2)
    assert found.gini == pytest.approx(1 / 6)  # sizes 2 and 4: their difference, over 4 times the mean


def test_extremes() -> None:
    same = heterogeneity(np.full((7, 4), 5))
    assert (same.jensen_shannon, same.effective_classes, same.gini) == (pytest.approx(0), pytest.approx(4), 0)
    one_each = heterogeneity(np.eye(4) * 3)
    assert one_each.jensen_shannon == pytest.approx(math.sqrt(entropy(0.625, *[0.125] * 3) - entropy(*[0.25] * 4) / 2))
    assert (one_each.effective_classes, one_each.gini) == (1, 0)
    assert heterogeneity([[1]] * 99 + [[10**9]]).gini == pytest.approx(0.99, abs=1e-4)


def test_clients_without_samples_count_for_nothing() -> None:
    assert heterogeneity([[2, 0], [0, 0], [1, 3]]) == heterogeneity([[2, 0], [1, 3]])


@settings(max_examples=40)
@given(tables, st.integers(2, 9), st.randoms())
def test_bounds_and_what_changes_nothing(table: list[list[int]], factor: int, random) -> None:
    counts = np.array(table)
    found = heterogeneity(counts)
    assert 0 <= found.jensen_shannon < 1
    assert 1 - 1e-9 <= found.effective_classes <= counts.shape[1] + 1e-9
    assert -1e-12 <= found.gini < 1
    order = random.sample(range(len(counts)), len(counts))
    columns = random.sample(range(counts.shape[1]), counts.shape[1])
    for other in (factor * counts, counts[order][:, columns], np.repeat(counts, factor, axis=0)):
        changed = heterogeneity(other)
        assert changed.jensen_shannon == pytest.approx(found.jensen_shannon, abs=1e-6)
        assert changed.effective_classes == pytest.approx(found.effective_classes)
        assert changed.gini == pytest.approx(found.gini, abs=1e-12)


def test_a_manifest_has_the_numbers_beside_the_counts(tmp_path) -> None:
    counts = np.array([[2, 0], [1, 3]])
    manifest = Manifest("digits", 6, {}, 0, [np.array([0, 1]), np.array([2, 3, 4, 5])])
    save_manifest(tmp_path / "with.json", manifest, counts)
    save_manifest(tmp_path / "without.json", manifest)
    content = json.loads((tmp_path / "with.json").read_text())
    assert content["heterogeneity"] == vars(heterogeneity(counts))
    assert "heterogeneity" not in json.loads((tmp_path / "without.json").read_text())
    assert load_manifest(tmp_path / "with.json").sha256 == load_manifest(tmp_path / "without.json").sha256
