"""Make src/fedsol/config/listing.json: the names that fedsol shows without importing the code behind them."""

import json
from pathlib import Path

from fedsol.algorithms import find_algorithm
from fedsol.config.catalog import GROUPS, Rows
from fedsol.config.fields import settings_of
from fedsol.data.catalog import SPECS
from fedsol.models import MODELS
from fedsol.paper.recipe import Figure, table_of
from fedsol.paper.registry import RECIPES, find_recipe

PLACE = Path(__file__).resolve().parents[1] / "src" / "fedsol" / "config" / "listing.json"


def render() -> str:
    """Return the whole file."""
    lists = {"algorithms": algorithms(), "datasets": datasets(), "models": models(), "recipes": recipes()}
    return json.dumps(lists, indent=1) + "\n"


def algorithms() -> Rows:
    """Return every algorithm with its settings, group by group."""
    rows = []
    for group, years in GROUPS.items():
        for name, year in years.items():
            cls = find_algorithm(name)
            description = (cls.__doc__ or "").strip().partition("\n")[0]
            found = {"group": group, "year": year, "settings": settings_of(cls)}
            rows.append({"name": name, "description": description, **found})
    return rows


def datasets() -> Rows:
    """Return every dataset with its sizes and the paper's federation."""
    return [
        {
            "name": spec.name,
            "description": spec.title,
            "train": spec.train_size,
            "test": spec.test_size,
            "classes": spec.classes,
            "clients": spec.clients,
            "fraction": spec.fraction,
            "rounds": spec.rounds,
        }
        for spec in SPECS.values()
    ]


def models() -> Rows:
    """Return every model with its options."""
    return [
        {
            "name": spec.name,
            "description": spec.description,
            "options": {name: option.description for name, option in spec.options.items()},
        }
        for spec in MODELS.values()
    ]


def recipes() -> Rows:
    """Return every recipe of the paper: its name, kind, title, number of cells and data."""
    rows = []
    for name in RECIPES:
        recipe = find_recipe(name)
        table = table_of(recipe)
        cells = [cell for cell in table.cells if not cell.extra]
        data = dict.fromkeys(cell.dataset for cell in cells if cell.dataset)
        kind = "figure" if isinstance(recipe, Figure) else "table"
        found = {"kind": kind, "what": table.heading.title, "cells": str(len(cells)), "data": ", ".join(data) or "none"}
        rows.append({"name": name, **found})
    return rows
