"""Runs are found by experiment, and their folders have readable names."""

import pytest

from fedsol.paper import registry, store
from fedsol.paper.recipe import table_of
from fedsol.paper.settings import METHODS, experiment
from fedsol.paper.store import Store, fingerprint, folder_name, paper_setting
from tests.support.small_recipe import small

pytestmark = pytest.mark.usefixtures("small_recipe")


def test_the_folder_of_a_cell_is_readable():
    paper = small("fedsol").override({"algorithm.rho": 1.5, "seed": 2})
    assert folder_name(paper).as_posix() == "digits-dirichlet-0.1-small/fedsol-rho=1.5/seed-2"
    auxiliary = small("fedprox").override({"algorithm.strength": "fixed", "algorithm.mu": 0.5})
    assert folder_name(auxiliary).parts[1] == "fedprox-mu=0.5"


def test_every_cell_of_the_paper_has_a_folder_of_its_own(monkeypatch):
    monkeypatch.setattr(store, "paper_setting", paper_setting)
    runs = {
        fingerprint(cell.experiment): cell.experiment
        for make in registry.RECIPES.values()
        for cell in table_of(make()).cells
        if cell.experiment is not None and cell.experiment.data.name != "digits"  # the small ones of this file
    }
    names = {folder_name(run) for run in runs.values()}
    assert len(names) == len(runs)
    plain = experiment("cifar10", "alpha = 0.1", METHODS["FedAvg"])
    assert folder_name(plain).as_posix() == "cifar10-dirichlet-0.1/fedavg/seed-0"
    factor = plain.override({"client.epochs": 3, "rounds": 7, "data.part": 0.1})
    assert folder_name(plain.override({"data.partition.kind": "iid"})).parts[0] == "cifar10-iid"
    assert folder_name(factor).as_posix() == "cifar10-dirichlet-0.1-part-0.1/fedavg+epochs=3+rounds=7/seed-0"


def test_two_experiments_never_share_a_folder(tmp_path):
    paper = small("fedavg")
    runs = Store(tmp_path / "runs")
    place = runs.place_for(paper)
    place.mkdir(parents=True)
    other = paper.override({"server.lr_decay": 0.5})
    (place / "metrics.jsonl").touch()
    (place / "experiment.toml").write_text(other.to_toml())
    runs = Store(tmp_path / "runs")
    assert runs.place_for(other) == place
    assert runs.place_for(paper) == place.with_name("seed-0-2")
    assert fingerprint(paper) != fingerprint(other)
    assert fingerprint(paper) == fingerprint(paper.override({"data.root": "elsewhere", "engine.kind": "workers"}))
