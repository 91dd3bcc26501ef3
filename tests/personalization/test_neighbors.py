"""kNN-Per against a brute-force search, and by hand."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedsol.federation.neighbors import Answers, Memory, choose_mixing


def brute_force(features, query, k):
    """The k nearest as (distance, position), by a loop over everything; of equals the first."""
    distances = [
        (math.sqrt(sum((x - y) ** 2 for x, y in zip(query, stored, strict=True))), position)
        for position, stored in enumerate(features)
    ]
    return sorted(distances)[:k]


def brute_force_probabilities(features, labels, query, k, scale, classes):
    nearest = brute_force(features, query, k)
    votes = [math.exp(-(distance**2) / (len(query) * scale)) for distance, _ in nearest]
    return [
        sum(vote for vote, (_, position) in zip(votes, nearest, strict=True) if labels[position] == label) / sum(votes)
        for label in range(classes)
    ]


points = st.lists(st.lists(st.integers(-3, 3), min_size=2, max_size=2), min_size=1, max_size=12)


@given(points, points, st.integers(1, 6))
def test_the_neighbors_are_those_of_a_brute_force_search_exactly(stored, queries, k):
    """On a small grid, so that there are many ties."""
    memory = Memory(torch.tensor(stored).float(), torch.zeros(len(stored), dtype=torch.int64), 1)
    squares, positions = memory.nearest(torch.tensor(queries).float(), k)
    for row, query in enumerate(queries):
        expected = brute_force(stored, query, k)
        assert positions[row].tolist() == [position for _, position in expected]
        assert squares[row].tolist() == [distance**2 for distance, _ in expected]


@pytest.mark.parametrize("scale", [0.3, 1.0, 5.0])
def test_answers_are_those_of_a_brute_force_search(scale):
    generator = torch.Generator().manual_seed(0)
    features, queries = torch.randn(200, 16, generator=generator), torch.randn(60, 16, generator=generator)
    labels = torch.randint(4, (200,), generator=generator)
    logits = torch.randn(60, 4, generator=generator)
    found = Memory(features, labels, 4).probabilities(queries, 5, scale)
    stored, asked = features.double().tolist(), queries.double().tolist()
    expected = [brute_force_probabilities(stored, labels.tolist(), query, 5, scale, 4) for query in asked]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=1e-12)
    truth = torch.randint(4, (60,), generator=generator)
    for mixing in (0.0, 0.3, 0.5, 1.0):
        right = 0
        for row in range(60):
            model = [math.exp(value) for value in logits[row].double().tolist()]
            mixed = [mixing * e + (1 - mixing) * m / sum(model) for e, m in zip(expected[row], model, strict=True)]
            right += mixed.index(max(mixed)) == int(truth[row])
        assert Answers.of(logits, found).correct(truth, mixing) == right


def test_votes_by_hand():
    # One feature, scale 1. The query 0 has neighbors at distance 0 (label 0), 1 (label 1) and 1 (label 1), then 5.
    # Votes 1, 1/e, 1/e: the label 1 has 2 / (e + 2) of them.
    memory = Memory(torch.tensor([[5.0], [1.0], [-1.0], [0.0]]), torch.tensor([0, 1, 1, 0]), 2)
    share = 2 / (math.e + 2)
    expected = torch.tensor([[1 - share, share]], dtype=torch.float64)
    torch.testing.assert_close(memory.probabilities(torch.zeros(1, 1), 3, 1.0), expected)


def test_neighbors_far_away_still_vote():
    """exp(-d^2) of each is 0 in floating point; relative to each other they are not."""
    memory = Memory(torch.tensor([[1000.0], [1001.0]]), torch.tensor([1, 0]), 2)
    answer = memory.probabilities(torch.zeros(1, 1), 5, 1.0)
    torch.testing.assert_close(answer, torch.tensor([[0.0, 1.0]], dtype=torch.float64))


def test_the_mixing_weight_is_the_one_that_answers_best():
    sure, unsure = [0.9, 0.1], [0.45, 0.55]
    model = torch.tensor([sure, sure], dtype=torch.float64)
    neighbors = torch.tensor([unsure, [0.0, 1.0]], dtype=torch.float64)
    answers = Answers(model, neighbors)
    # The first is right (label 0) unless the neighbors have more than 8/9; the second (label 1) if they have over 4/9.
    assert [answers.correct(torch.tensor([0, 1]), mixing) for mixing in (0.4, 0.5, 0.8, 0.9)] == [1, 2, 2, 1]
    assert choose_mixing(answers, torch.tensor([0, 1])) == 0.5
    assert choose_mixing(answers, torch.tensor([0, 0])) == 0.4
    assert choose_mixing(answers, torch.tensor([1, 1])) == 0.9
    assert choose_mixing(Answers(model[:0], neighbors[:0]), torch.tensor([], dtype=torch.int64)) == 0.5
