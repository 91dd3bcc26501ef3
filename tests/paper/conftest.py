"""What the tests of `fedsol reproduce` share."""

import pytest

from fedsol.paper import store
from fedsol.paper.numbers import Heading
from fedsol.paper.recipe import TrainedTable
from tests.support.small_recipe import know, small, small_cells


@pytest.fixture
def small_recipe(tmp_path, monkeypatch):
    """Add the recipe `small`, in an empty directory."""
    monkeypatch.chdir(tmp_path)
    know(monkeypatch, TrainedTable(Heading("small", "A small table", "tab:small"), small_cells()))
    monkeypatch.setattr(store, "paper_setting", lambda run: small(run.algorithm["name"]))
