"""data.part: a share of every client's samples and of the test set."""

import pytest
import torch

import fedsol
from fedsol.errors import InputError
from fedsol.federation.federation import build_federation


def test_every_client_keeps_its_share_of_its_own_samples(tiny):
    whole = build_federation(tiny)
    part = build_federation(tiny.override({"data.part": 0.25}))
    for all_of_it, some in zip(whole.partition, part.partition, strict=True):
        assert len(some) == max(1, round(0.25 * len(all_of_it)))
        assert set(some.tolist()) <= set(all_of_it.tolist())
        assert torch.equal(some, some.sort().values)
    assert len(part.dataset.test) == 90
    assert len(part.dataset.train) == len(whole.dataset.train)


def test_the_test_samples_are_evenly_spread(tiny):
    whole, part = (build_federation(tiny.override({"data.part": value})).dataset.test for value in (1.0, 0.01))
    assert len(part) == 4
    chosen = [0, 119, 239, 359]  # 359 / 3 = 119.67
    assert torch.equal(part.labels, whole.labels[chosen])
    assert torch.equal(part.inputs, whole.inputs[chosen])


def test_the_smallest_share_is_one_sample(tiny):
    federation = build_federation(tiny.override({"data.part": 1e-6}))
    assert [len(indices) for indices in federation.partition] == 8 * [1]
    assert len(federation.dataset.test) == 1


def test_another_share_is_another_run(tiny, tmp_path):
    run = fedsol.train(tiny.override({"data.part": 0.5}), out=tmp_path / "run")
    assert run.rows[0]["examples"] == sum(
        len(build_federation(run.experiment).partition[client]) for client in run.rows[0]["client_ids"]
    )
    with pytest.raises(InputError, match=r"different values of data\.part"):
        fedsol.train(tiny, out=tmp_path / "run", resume=True)
