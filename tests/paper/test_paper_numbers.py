"""The stored numbers are the paper's, cell by cell."""

import re
import tomllib
from importlib import resources
from types import SimpleNamespace

import pytest

from fedsol.paper.numbers import Number, parse_number, read_table
from tests.support.tex import paper_source, tabular


@pytest.fixture(scope="module")
def source():
    return paper_source()


FILES = resources.files("fedsol.paper").joinpath("numbers")
TABLES = sorted(file.name.removesuffix(".toml") for file in FILES.iterdir())


def numbers_of(cells):
    return [parse_number(cell) if cell else None for cell in cells]


def stored_blocks(name):
    """The blocks of a data file as they are written, with what is read of each cell."""
    blocks = tomllib.loads(FILES.joinpath(f"{name}.toml").read_text(encoding="utf-8"))["block"]
    numbers = read_table(name).numbers
    return [
        SimpleNamespace(
            name=block["name"],
            columns=block["columns"],
            rows={
                row: [numbers.get((block["name"], row, column)) for column in block["columns"]] for row in block["rows"]
            },
        )
        for block in blocks
    ]


def stored(name, block=0):
    return stored_blocks(name)[block]


@pytest.mark.parametrize(("block", "start", "levels"), [(0, 0, "s"), (1, 11, "\\alpha")])
def test_main(source, block, start, levels):
    rows = tabular(source, "tab:main_std")[start : start + 11]
    assert rows[0] == [f"Non-IID Partition Strategy : {['Sharding', 'LDA'][block]}"]
    assert rows[1] == ["Method", "MNIST", "CIFAR-10", "SVHN", "CINIC-10", "PathMNIST", "TissueMNIST"]
    table = stored("main", block)
    printed = [level.replace("\\", "") for level in rows[2] if level]
    assert [column.partition(", ")[2] for column in table.columns[1:5]] == printed
    assert all(column.startswith("CIFAR-10") for column in table.columns[1:5])
    others = [column.partition(", ")[0] for column in table.columns if not column.startswith("CIFAR-10")]
    assert others == ["MNIST", "SVHN", "CINIC-10", "PathMNIST", "TissueMNIST"]
    assert list(table.rows) == [row[0].removesuffix(" (Ours)") for row in rows[3:]]
    assert list(table.rows.values()) == [numbers_of(row[1:]) for row in rows[3:]]
    assert sum(len(row) for row in table.rows.values()) == 72


def test_gradient_projection(source):
    rows = tabular(source, "tab:grad_proj")
    table = stored("gradient-projection")
    assert rows[1] == ["", "Base", "Projection"]
    assert rows[2][0] == "None (FedAvg)"
    assert table.rows["None (FedAvg)"] == 2 * numbers_of(rows[2][1:])
    for row in rows[3:5]:
        assert table.rows[row[0]] == numbers_of(row[1:])
    assert len(table.rows) == 3


def test_architectures(source):
    rows = tabular(source, "tab:ablation_architecture")
    assert rows[0] == ["Model", "Method", "CIFAR-10", "SVNH", "PathMNIST"]  # the paper's spelling
    for number, block in enumerate(stored_blocks("architectures")):
        part = rows[1 + 4 * number : 5 + 4 * number]
        assert block.name == part[0][0]
        assert block.columns == ["CIFAR-10", "SVHN", "PathMNIST"]
        assert block.rows == {row[1]: numbers_of(row[2:]) for row in part}


def test_combinations(source):
    rows = tabular(source, "tab:sol_effect")
    table = stored("combinations")
    assert rows[0][1:] == ["CIFAR-10", "SVHN", "CINIC-10"]
    assert table.columns == [f"{name}, {usage.lower()}" for name in rows[0][1:] for usage in ("Base", "Combined")]
    assert rows[1][1:] == 3 * ["Base", "Combined"]
    assert table.rows == {row[0]: numbers_of(row[1:]) for row in rows[2:-1]}


def test_partial_and_flops(source):
    rows = tabular(source, "tab:partial_perturb")
    table = stored("partial")
    assert table.columns == [f"rho = {value}" for value in rows[1][1:6]]
    shared = rows[2][1]
    for row in rows[2:5]:
        name = row[0].split()[0]
        assert table.rows[name] == numbers_of([row[1] or shared, *row[2:6]])
        assert stored("flops").rows[name] == numbers_of([row[6].removesuffix(" \\times +\\delta")])
    assert list(table.rows) == list(stored("flops").rows) == ["All", "Body", "Head"]


def test_personalized(source):
    rows = tabular(source, "tab:pFL")
    table = stored("personalized")
    assert rows[0][2:] == table.columns
    method, found = "", {}
    spelled = {"FedBabu": "FedBABU", "FedSoL -FT (Ours)": "FedSOL-FT"}
    for row in rows[1:-1]:
        method = row[0] or method
        name = spelled.get(method, method)
        found[name if row[1] == "-" else f"{name}, e = {row[1]}"] = numbers_of(row[2:])
    assert table.rows == found
    assert len(found) == 11


def test_larger_datasets(source):
    rows = tabular(source, "tab:cifar100_imagenet100")
    table = stored("larger-datasets")
    names = 3 * ["CIFAR-100"] + ["ImageNet-100"]
    levels = [level.replace("\\", "") for level in rows[1][1:]]
    assert table.columns == [f"{name}, {level}" for name, level in zip(names, levels, strict=True)]
    assert table.rows == {row[0]: numbers_of(row[1:]) for row in rows[2:-1]}


def test_larger_models(source):
    rows = tabular(source, "tab:partial_perturbation")
    table = stored("larger-models")
    assert [re.sub(r"\( (\w+) \)", r"(\1)", column) for column in rows[0][1:]] == table.columns
    assert table.rows == {row[0]: numbers_of(row[1:]) for row in rows[1:-1]}


def test_objectives(source):
    rows = tabular(source, "tab:ablation_objectives")
    assert stored("objectives").rows == {row[0].replace("_", ""): numbers_of(row[2:]) for row in rows[1:-1]}


def test_latency(source):
    rows = tabular(source, "tab:gpu_usage")
    table = stored("latency")
    assert rows[0][1:] == table.columns
    assert table.rows["Latency"] == numbers_of([cell.removesuffix(" s") for cell in rows[1][1:]])


def test_scenarios(source):
    rows = tabular(source, "tab:datasets")
    assert rows[0] == ["Datasets", "Clients", "Comm. Rounds", "Sampling Ratio"]
    assert stored("scenarios").rows == {row[0]: numbers_of(row[1:]) for row in rows[1:-1]}


def test_hyperparameters(source):
    table = read_table("hyperparameters")
    rows = tabular(source, "tab:hyperparameters")[1:-1]
    block = stored("hyperparameters")
    assert list(block.rows) == [row[0].replace("FedSoL", "FedSOL") for row in rows]
    for (method, numbers), row in zip(block.rows.items(), rows, strict=True):
        selected = dict(re.findall(r"\\(\w+)\s*=([\d.]+)", row[1]))
        assert numbers == numbers_of(selected.get(column, "") for column in block.columns)
        searched = {
            name: [float(value) for value in values.split(",")]
            for name, values in re.findall(r"\\(\w+) \\in \\ ([\d., ]+[\d])", row[2])
        }
        assert table.candidates.get(method, {}) == searched
        assert selected.keys() == searched.keys()


def test_every_stored_table_has_a_label_of_the_paper(source):
    for name in TABLES:
        assert f"\\label{{{read_table(name).heading.label}}}" in source
    assert len(TABLES) == 13


def test_a_number_as_it_is_printed():
    assert parse_number("59.80 ± 1.12") == Number(59.8, 1.12)
    assert parse_number("10.00 ± failed") == Number(10.0, failed=True)
    assert str(Number(59.8, 1.12)) == "59.80 ± 1.12"
    assert str(Number(10.0, failed=True)) == "10.00 (failed)"
    assert Number(2.846).shown(3) == "2.846"
    with pytest.raises(ValueError, match="is not a number of the paper"):
        parse_number("59,80")
