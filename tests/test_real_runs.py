"""Short runs on the genuine CIFAR-10 and MNIST, with the paper's partitions and models."""

import pytest

import fedsol
from fedsol.cli.options import read_experiment


@pytest.mark.parametrize(("name", "classes"), [("cifar10", 10), ("mnist", 10)])
def test_one_client_of_the_papers_federation(real_data, tmp_path, name, classes):
    experiment = read_experiment(
        name,
        [f"data.root={real_data}", "data.download=false", "rounds=1", "server.fraction=0.01", "client.epochs=1"],
    )
    run = fedsol.train(experiment, out=tmp_path / "run")
    (row,) = run.rows
    assert run.experiment.data.partition.clients == 100
    assert (row["clients"], row["rejected"], len(row["class_accuracy"])) == (1, 0, classes)
    assert 0.05 < row["test_accuracy"] < 0.6
    # The CNN of the paper for three channels: 32 x 32 and 28 x 28 images.
    flat = {"cifar10": 64 * 8 * 8, "mnist": 64 * 7 * 7}[name]
    parameters = (75 * 32 + 32) + (25 * 32 * 64 + 64) + (flat * 512 + 512) + (512 * 10 + 10)
    assert row["bytes_down"] == 4 * parameters
