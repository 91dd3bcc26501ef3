"""Collecting runs into results/, and the page that is made from them."""

import json
import re
from pathlib import Path
from statistics import fmean, stdev

import numpy as np
import pytest

import fedsol
from fedsol.data.heterogeneity import heterogeneity
from fedsol.data.manifest import Manifest, save_manifest
from fedsol.errors import InputError
from fedsol.paper.registry import find_recipe
from fedsol.paper.settings import METHODS, experiment
from fedsol.paper.settings import fedsol as fedsol_table
from fedsol.paper.store import first_round_at, last_mean, smoothed
from fedsol.runs.run import Run
from tools import collect_results as collect
from tools import family_page as family
from tools import results_page as page
from tools.results import Index, read_results

REPOSITORY = Path(__file__).resolve().parents[2]
COLUMN = "CIFAR-10, alpha = 0.1"


def keep(results, name, algorithm, accuracies, seed=0, **changes):
    """A run of the paper's federation that was never trained: its files as training would have left them."""
    folder = results / name
    folder.mkdir(parents=True)
    run = experiment("cifar10", "alpha = 0.1", algorithm, changes={"rounds": len(accuracies), "seed": seed, **changes})
    (folder / "experiment.toml").write_text(run.to_toml())
    rows = [
        {"round": number, "test_accuracy": accuracy, "seconds": 60.0, "rejected": 0}
        for number, accuracy in enumerate(accuracies, 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "summary.json").write_text(json.dumps({"final_accuracy": accuracies[-1]}))
    environment = {
        "command": f"/somewhere/cli.py run cifar10 --set seed={seed} --set data.root=/mnt/data --out there --resume",
        "python": "3.11.7",
        "cores": 2,
        "packages": {"torch": "2.13.0"},
    }
    (folder / "environment.json").write_text(json.dumps(environment))


@pytest.fixture
def results(tmp_path):
    folder = tmp_path / "results"
    keep(folder, "cifar10-dirichlet-0.1/fedavg", METHODS["FedAvg"], [0.1] * 10 + [0.2] * 10)
    for seed in (0, 1):
        name = f"cifar10-dirichlet-0.1/fedsol/seed-{seed}"
        keep(folder, name, fedsol_table(rho=1.5), [0.1] * 5 + [0.3 + seed / 10] * 15, seed)
    return folder


def test_the_page_of_a_few_runs(results):
    text = page.render(results)
    assert "| CIFAR-10, Dirichlet 0.1 | fedsol | 0, 1 | 20 | float32 |" in text
    assert "| CIFAR-10, Dirichlet 0.1 | fedavg | 0 | 20 | float32 |" in text
    assert "## Tables of the paper" not in text  # no run is complete
    # Means of the last ten: 0.2 and (0.3 + 0.4) / 2; with seed 0, which both have, 0.3. FedSOL's mean of ten is 0.2
    # with 5 of 0.3, or 4 of 0.4, above 0.1.
    assert "| fedsol | 0, 1 | 20 | 35.00 ± 7.07 | +10.00 | 10, 10 | 64.13 ± 0.46 | +8.00 |" in text
    assert "| fedavg | 0 | 20 | 20.00 |  |  | 56.13 ± 0.78 |  |" in text
    assert "![Learning curves: CIFAR-10, Dirichlet 0.1](images/results/cifar10-dirichlet-0.1.png)" in text
    assert "Machine: 2 cores, Python 3.11.7, torch 2.13.0.\n" in text
    assert "; today with `--set algorithm.strength=adaptive` | 0, 1 | not recorded | 0.7 |" in text  # twice 20 minutes


def test_tables_of_the_paper_show_complete_runs(results, complete):
    text = page.render(complete).partition("## Tables of the paper")[2].partition("## Learning curves")[0]
    assert "### main (PARTIAL)\n\nTest accuracy" in text
    assert "| FedAvg | 56.13 ± 0.78 | 50.00 ± 0.00 [a] | -6.13 |" in text
    assert "| FedSOL | 64.13 ± 0.46 | 61.00 ± 1.41 [a] | -3.13 |" in text
    assert "- [a] differs from the paper: 2 of 3 seeds\n" in text
    assert "FedNTD" not in text
    assert "### gradient-projection" not in text  # it has FedAvg and FedProx, as `main`
    keep(complete, "other/moon", METHODS["MOON"], [0.9] * 20)
    assert text in page.render(complete)


def test_only_text_is_wrapped():
    table, picture = "| " + "word " * 30 + "|", f"![{'word ' * 30}](x.png)"
    text = f"{table}\n{picture}\n- {'word ' * 30}\n\n{'word ' * 30}\n"
    lines = page.wrapped(text).splitlines()
    assert lines[:2] == [table, picture]
    assert (lines[3][:6], lines[6][:4]) == ("  word", "word")
    assert max(map(len, lines[2:])) <= 100


def test_lines_of_a_paragraph_or_an_item_are_joined_before_they_are_broken():
    code = "`one command --with options`"
    text = f"# Title\na line\nand another {'word ' * 16}\nlast {code}\n\n- an\n  item\n- a second\none\n| a | b |\nend"
    first = "# Title\na line and another " + "word " * 15 + "word"
    assert page.wrapped(text) == f"{first}\nlast {code}\n\n- an item\n- a second one\n| a | b |\nend"


def test_what_commands_share_is_said_once(results):
    for name in ("fedavg", "fedsol/seed-0", "fedsol/seed-1"):
        file = results / "cifar10-dirichlet-0.1" / name / "environment.json"
        own = f"--set rounds=20 --set seed={name[-1:] if 'seed' in name else 0} --set algorithm.name={name[:6]}"
        environment = {"command": f"fedsol run cifar10 {own}", "commit": "abc"}
        file.write_text(json.dumps({**json.loads(file.read_text()), **environment}))
    lines = page.render(results).splitlines()
    start = lines.index("| all | `fedsol run cifar10 --set rounds=20` `…` | | | |")
    assert lines[start + 1] == "| fedavg | `… --set algorithm.name=fedavg` | 0 | abc | 0.3 |"
    assert lines[start + 2].startswith(
        "| fedsol | `… --set algorithm.name=fedsol`; today with `--set algorithm.strength"
    )
    assert lines[start + 2].endswith(" | 0, 1 | abc | 0.7 |")


def test_a_command_with_a_bar_stays_in_its_cell(results):
    file = results / "cifar10-dirichlet-0.1/fedavg/environment.json"
    command = "fedsol reproduce main --only 'method=fedavg|fedsol'"
    file.write_text(json.dumps({**json.loads(file.read_text()), "command": command}))
    assert "| `fedsol reproduce main --only 'method=fedavg\\|fedsol'` | 0 |" in page.render(results)


def test_runs_are_compared_after_the_rounds_that_all_have(results):
    keep(results, "cifar10-dirichlet-0.1/fedprox", METHODS["FedProx"], [0.1] * 10 + [0.2] * 10 + [0.9] * 10)
    text = page.render(results)
    assert "| fedprox | 0 | 20 | 20.00 | +0.00 | 20 |" in text
    assert "\n\nLonger runs: fedprox (seed 0) after 30 rounds: 90.00, mean of the last 10 90.00.\n" in text


def test_the_command_of_a_run_says_what_it_takes_today(results, tmp_path):
    file = results / "cifar10-dirichlet-0.1" / "fedavg" / "environment.json"
    note = {"from": 10, "to": 20, "command": "fedsol run /mnt/there --set rounds=20", "commit": "abcdef0123456789"}
    went_on = {"after": 5, "command": "fedsol run /mnt/there", "commit": "9876543210fedcba"}
    file.write_text(json.dumps({**json.loads(file.read_text()), "lengthened": [note], "went_on": [went_on]}))
    collect.collect(results, tmp_path / "copied", None, print)
    text = page.render(tmp_path / "copied")
    assert "| `fedsol run cifar10`; then `--set rounds=20` (at abcdef012345); after round 5 at 9876" in text
    assert "| `fedsol run cifar10`; today with `--set algorithm.strength=adaptive` | 0, 1 |" in text
    assert "/mnt" not in (tmp_path / "copied" / "cifar10-dirichlet-0.1" / "fedavg" / "environment.json").read_text()


def test_a_group_shows_runs_of_another_cut_to_its_own_rounds(results):
    keep(results, "perturbed/all", fedsol_table(perturb="all"), [0.1] * 2 + [0.25] * 10)
    group = "cifar10-dirichlet-0.1"
    note = f'about = "what is perturbed"\n[also]\nfedavg = "{group}/fedavg"\nhead = "{group}/fedsol"\n'
    (results / "perturbed" / "group.toml").write_text(note)
    text = page.render(results)
    title = "### CIFAR-10, Dirichlet 0.1: what is perturbed\n\n![Learning curves: "
    shown = text.partition(title)[2].partition("###")[0]
    # Rounds 3 to 12 of FedAvg: eight of 0.1 and two of 0.2. FedSOL is at 25 % from the third on.
    assert "| fedavg | 0 | 12 | 12.00 |  |  | 56.13 ± 0.78 |  |" in shown
    assert "| all | 0 | 12 | 25.00 | +13.00 | 10 | 63.94 | +7.81 |" in shown
    assert "| head | 0, 1 | 12 |" in shown
    assert "Longer runs" not in shown
    assert "| fedavg | `" not in shown  # lent: its command is where it is its own
    assert [path.name for path in page.draw(page.groups_of(results), results.parent)] == [
        "cifar10-dirichlet-0.1.png",
        "perturbed.png",
    ]


def test_means_of_ten_rounds_are_counted_from_the_end(results):
    keep(results, "cifar10-dirichlet-0.1/fedprox", METHODS["FedProx"], [0.2] * 4 + [0.4] * 10 + [0.6] * 4)
    lines = page.render(results).partition("## Learning curves")[2].splitlines()
    start = lines.index("| mean of rounds | 1–8 | 9–18 |")
    # FedSOL's seeds: 5 of 0.1 and 3 of 0.3 or 0.4. FedProx: 4 of 0.2 and 4 of 0.4; 6 of 0.4 and 4 of 0.6.
    assert lines[start + 2 : start + 5] == [
        "| fedprox | 30.00 | 48.00 |",
        "| fedsol | 19.38 | 35.00 |",
        "| fedavg | 10.00 | 18.00 |",
    ]


def test_a_method_is_compared_with_the_fedavg_of_its_own_setting(results):
    longer = {"client.epochs": 10}
    keep(results, "cifar10-dirichlet-0.1/fedavg+epochs=10", METHODS["FedAvg"], [0.25] * 20, **longer)
    keep(results, "cifar10-dirichlet-0.1/fedprox+epochs=10", METHODS["FedProx"], [0.3] * 20, **longer)
    keep(results, "cifar10-dirichlet-0.1/fedprox+lr=1", METHODS["FedProx"], [0.3] * 20, **{"client.lr": 1.0})
    keep(results, "cifar10-dirichlet-0.1/half", METHODS["FedProx"], [0.3] * 20, **{"engine.precision": "bfloat16"})
    text = page.render(results)
    assert "| fedprox+epochs=10 | 0 | 20 | 30.00 | +5.00 | 10 |" in text
    assert "| fedprox+lr=1 | 0 | 20 | 30.00 |  |  |" in text
    assert "| fedsol | 0, 1 | 20 | 35.00 ± 7.07 | +10.00 | 10, 10 |" in text
    assert "| half | 0 | 20 | 30.00 | +10.00 | 10 |" in text  # the precision does not matter


def test_what_is_no_other_seed_is_not_averaged(results):
    group = "cifar10-dirichlet-0.1"
    keep(results, f"{group}/fedsol/seed-0-2", fedsol_table(rho=1.5), [0.1] * 20, **{"client.epochs": 1})
    with pytest.raises(InputError, match=r"seed-0-2: differs in client.epochs from another run of .*/fedsol"):
        page.render(results)
    (results / group / "fedsol" / "seed-0-2" / "experiment.toml").write_text(
        (results / group / "fedsol" / "seed-0" / "experiment.toml").read_text()
    )
    with pytest.raises(InputError, match="has the seed 0 of another run"):
        page.render(results)


def test_long_runs_are_shown_in_few_means(complete):
    assert "| mean of rounds | 41–50 | 91–100 | 141–150 | 191–200 | 241–250 | 291–300 |\n" in page.render(complete)


def test_a_few_rounds_have_no_history(tmp_path):
    keep(tmp_path, "short/fedavg", METHODS["FedAvg"], [0.1] * 10)
    assert "mean of rounds" not in page.render(tmp_path)


def test_the_title_of_a_group_is_that_of_its_own_runs(results):
    keep(results, "part/fedprox", METHODS["FedProx"], [0.1] * 12, **{"data.part": 0.1})
    (results / "part" / "group.toml").write_text('[also]\nfedavg = "cifar10-dirichlet-0.1/fedavg"\n')
    assert "### CIFAR-10, Dirichlet 0.1, 10 % of the data\n" in page.render(results)


@pytest.mark.parametrize(
    ("note", "message"),
    [
        ('abuot = "x"', "unknown key 'abuot'; allowed: about, also, page"),
        ("about = 3", "about: must be a text (got 3)"),
        ('also = "x"', "(got 'x')"),
        ('[also]\nfedsol-rho1.5 = "a/b"', 'must have lines of the form "name" = "group/name"'),
        ('also = {fedsol = "cifar10-dirichlet-0.1/fedavg"}', "also: 'fedsol' is not allowed: the group has a run"),
        ("also = {", "group.toml"),
    ],
)
def test_a_note_that_is_not_understood(results, note, message):
    (results / "cifar10-dirichlet-0.1" / "group.toml").write_text(note)
    with pytest.raises(InputError, match=re.escape(message)):
        page.render(results)


def test_a_run_without_a_tested_round_is_named(results):
    keep(results, "long/fedavg", METHODS["FedAvg"], [None] * 20 + [0.5])
    keep(results, "long/fedprox", METHODS["FedProx"], [0.1] * 15)
    with pytest.raises(InputError, match="long: no round up to 15 was tested in all runs"):
        page.render(results)


def test_a_group_that_names_a_run_which_is_not_there(results, capsys):
    (results / "cifar10-dirichlet-0.1" / "group.toml").write_text('also = {other = "nowhere/fedavg"}\n')
    assert page.main([str(results), str(results / "page.md")]) == 2
    assert "group.toml: also: there is no run 'nowhere/fedavg'" in capsys.readouterr().err
    assert not (results / "page.md").exists()


def test_test_accuracies_are_not_shown_as_those_of_personal_models(results):
    assert any(cell.paper for cell in find_recipe("personalized").cells if Index(read_results(results)).of(cell))
    assert "### personalized" not in page.render(results)


def test_the_page_and_the_pictures_are_the_same_again(results, tmp_path):
    assert page.render(results) == page.render(results)
    (one,) = page.draw(page.groups_of(results), tmp_path / "one")
    (two,) = page.draw(page.groups_of(results), tmp_path / "two")
    assert one.name == "cifar10-dirichlet-0.1.png"
    assert one.read_bytes() == two.read_bytes()


def test_the_committed_page_is_current():
    text = (REPOSITORY / "docs" / "results.md").read_text(encoding="utf-8")
    assert text == page.render(REPOSITORY / "results"), "run `make results`"


def test_the_readme_quotes_the_complete_runs():
    readme = " ".join((REPOSITORY / "README.md").read_text(encoding="utf-8").split())
    group = next(g for g in page.groups_of(REPOSITORY / "results") if g.name == "cifar10-dirichlet-0.1-300")
    named = page.by_name(group.results)
    for title, name in (("FedSOL ends", "fedsol-column"), ("FedNTD", "fedntd"), ("FedAvg", "fedavg")):
        assert len(named[name]) == 3
        values = [100 * last_mean(result.run) for result in named[name]]
        assert f"{title} at {fmean(values):.1f} ± {stdev(values):.1f} %" in readme


def test_every_picture_of_the_committed_page_is_there():
    text = (REPOSITORY / "docs" / "results.md").read_text(encoding="utf-8")
    for part in text.split("](images/")[1:]:
        assert (REPOSITORY / "docs" / "images" / part.partition(")")[0]).is_file()


def test_most_data_and_most_rounds_count(results):
    keep(results, "part/fedavg", METHODS["FedAvg"], [0.5] * 90, **{"data.part": 0.1})
    keep(results, "short/fedavg", METHODS["FedAvg"], [0.6] * 2)
    cells = find_recipe("main").cells
    ours = Index(read_results(results)).ours(cells)
    assert ours["LDA", "FedAvg", COLUMN].mean == 20.0
    assert [run.path.parent.name for run in ours["LDA", "FedAvg", COLUMN].runs] == ["cifar10-dirichlet-0.1"]
    assert set(ours) == {("LDA", "FedAvg", COLUMN), ("LDA", "FedSOL", COLUMN)}


def test_computed_tables_are_shown(results, tmp_path, capsys):
    cells = [
        {"block": "", "row": "FedProx", "column": "mu", "ours": {"mean": 1.0, "std": None}, "runs": [], "differs": []},
        {"block": "", "row": "MOON", "column": "mu", "ours": None, "runs": [], "differs": []},
    ]
    fedavg = json.loads((results / "cifar10-dirichlet-0.1" / "fedavg" / "environment.json").read_text())
    environment = {**fedavg, "command": "/x/fedsol reproduce hyperparameters --out y", "commit": "abcdef0123456789"}
    content = {"recipe": "hyperparameters", "cells": cells}
    assert collect.is_computed(content)
    source = tmp_path / "tables"
    source.mkdir()
    (source / "hyperparameters.json").write_text(json.dumps({**content, "environment": environment}))
    (source / "flops.json").write_text(json.dumps({"recipe": "flops", "cells": cells}))
    collect.collect(source, results, None, print)
    assert "flops.json: does not say by what it was made, left out; make it again" in capsys.readouterr().out
    text = page.render(results)
    made = "Made by `fedsol reproduce hyperparameters` at commit abcdef012345, on 2 cores, Python 3.11.7, torch 2.13.0."
    assert f"\n\n{made}\n" in text.replace("torch\n", "torch ").replace("Python\n", "Python ")
    assert "### hyperparameters (PARTIAL)\n" in text
    assert "| FedProx | 1.0 | 1.0 | +0.0 |" in text


def test_only_small_files_of_finished_runs_are_collected(tiny, tmp_path, capsys):
    source, target = tmp_path / "runs", tmp_path / "results"
    fedsol.train(tiny, out=source / "group" / "whole")
    fedsol.train(tiny, out=source / "group" / "cut")
    rows = source / "group" / "cut" / "metrics.jsonl"
    rows.write_text(rows.read_text().splitlines(keepends=True)[0])
    assert collect.main([str(source), "-o", str(target)]) == 0
    assert "group/whole: a try (2 rounds, 100 % of the data), left out" in capsys.readouterr().out
    assert not target.exists()
    fedsol.train(tiny.override({"algorithm.name": "local-only", "rounds": 1}), out=source / "group" / "alone")
    assert collect.main([str(source), "-o", str(target), "--commit", "abc", "--tries"]) == 0
    said = capsys.readouterr().out
    assert "group/cut: 1 of 2 rounds, left out" in said
    assert "1 runs and tables" in said
    assert "group/alone: has no rounds to show (local-only), left out" in said
    names = sorted(path.relative_to(target).as_posix() for path in target.rglob("*.*"))
    files = ["environment.json", "experiment.toml", "metrics.jsonl", "summary.json"]
    assert names == [*(f"group/whole/{name}" for name in files), "partitions.json"]
    assert Run.load(target / "group" / "whole").rows == Run.load(source / "group" / "whole").rows
    before = (target / "group" / "whole" / "environment.json").read_bytes()
    assert collect.main([str(source), "-o", str(target), "--tries"]) == 0
    assert (target / "group" / "whole" / "metrics.jsonl").is_file()
    assert json.loads(before)["commit"]


def test_part_of_the_data_is_a_try(results, tmp_path, capsys):
    keep(results, "part/fedavg", METHODS["FedAvg"], [0.1] * 20, **{"data.part": 0.5})
    collect.collect(results, tmp_path / "copied", None, print)
    assert "part/fedavg: a try (20 rounds, 50 % of the data), left out" in capsys.readouterr().out
    assert not (tmp_path / "copied" / "part").exists()


def test_a_commit_that_a_run_records_is_kept(results, tmp_path):
    environment = results / "cifar10-dirichlet-0.1" / "fedavg" / "environment.json"
    environment.write_text(json.dumps({**json.loads(environment.read_text()), "commit": "own"}))
    collect.collect(results, tmp_path / "copied", "given", print)
    found = {item.name: item.run.environment["commit"] for item in read_results(tmp_path / "copied")}
    assert found == {"fedavg": "own", "fedsol": "given"}


def test_places_are_left_out_of_commands(results, tmp_path):
    collect.collect(results, tmp_path / "copied", None, print)
    found = read_results(tmp_path / "copied")
    assert found[0].run.environment["command"] == "fedsol run cifar10 --set seed=0"
    assert found[0].experiment.data.root == "data"
    command = collect.plain_command("fedsol reproduce main --only 'method=fedavg|fedsol' --data-root /mnt -o there")
    assert command == "fedsol reproduce main --only 'method=fedavg|fedsol'"


def test_a_source_that_is_not_there(tmp_path, capsys):
    assert collect.main([str(tmp_path / "nothing")]) == 2
    assert "there is no such folder" in capsys.readouterr().err


def test_rounds_without_a_test_are_passed_over():
    rows = [{"round": number, "test_accuracy": None if number % 2 else number / 100} for number in range(1, 41)]
    item = Run(fedsol.Experiment(), rows)
    assert len(smoothed(item)) == 20
    assert last_mean(item) == pytest.approx(sum(range(22, 41, 2)) / 1000)
    assert first_round_at(0.13, item) == 22  # the mean of 4, 6, … 22
    assert first_round_at(0.5, item) is None


def test_the_page_of_the_family_compares_what_all_were_tested_at(results, tmp_path):
    """FedAvg is tested in every round, its gain and forgetting count every second one, as for the other."""
    group = results / "cifar10-dirichlet-0.1"
    (group / "group.toml").write_text('page = "family"\n')
    assert "fedavg" not in page.render(results)
    (results / "family.md").write_text("## What it says\n\nNothing yet.\n")
    for path in group.rglob("metrics.jsonl"):
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        for row in rows:
            tested = "fedavg" in str(path) or row["round"] % 2 == 0
            row["test_accuracy"] = row["test_accuracy"] if tested else None
            row["class_accuracy"] = [row["test_accuracy"], 0.5 if row["round"] == 4 else 0.25] if tested else None
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = family.render(results)
    assert "## What it says\n\nNothing yet.\n" in text
    # The tests are those of rounds 2, 4 … 20: FedAvg has 0.1 in five and 0.2 in five of them, FedSOL 0.1 in two, then
    # 0.3 and 0.4. The second class has lost 0.25 from round 6 on, in eight of ten tests, a mean over classes of 0.1.
    # With seed 0, which both have: 8 of 0.3 and 2 of 0.1 against 0.15.
    assert "| fedavg | 0 | 15.00 |  | 10.00 |  |" in text
    assert "| fedsol | 0, 1 | 30.00 ± 5.66 | +11.00 | 10.00 ± 0.00 | usage perturbed, rho 1.5," in text
    assert "| accuracy, mean of rounds | 2–20 |\n|---|---:|\n| fedsol | 30.00 |\n| fedavg | 15.00 |" in text
    assert family.main([str(results), str(tmp_path / "docs" / "family.md")]) == 0
    assert (tmp_path / "docs" / "family.md").read_text(encoding="utf-8") == text
    (group / "group.toml").write_text('page = "other"\n')
    assert family.main([str(results), str(tmp_path / "none.md")]) == 2


def test_the_committed_page_of_the_family_is_current():
    text = (REPOSITORY / "docs" / "family.md").read_text(encoding="utf-8")
    assert text == family.render(REPOSITORY / "results"), "run `make results`"


def test_how_heterogeneous_partitions_are_is_collected_and_shown(results, tmp_path):
    experiment = Run.load(results / "cifar10-dirichlet-0.1" / "fedavg").experiment
    counts = np.array([[3, 0], [1, 2]])
    parts = [np.arange(3), np.arange(3, 6)]
    manifest = Manifest("cifar10", 6, experiment.data.partition.model_dump(), 0, parts)
    (tmp_path / "made").mkdir()
    save_manifest(tmp_path / "made" / "partition.json", manifest, counts)
    (tmp_path / "made" / "older").mkdir()
    save_manifest(tmp_path / "made" / "older" / "partition.json", manifest)  # without counts
    for _ in range(2):
        collect.collect(tmp_path / "made", results, None, print)
    assert len(json.loads((results / "partitions.json").read_text())) == 1
    found = heterogeneity(counts)
    row = f"| CIFAR-10, Dirichlet 0.1 | 0 | {found.jensen_shannon:.2f} | {found.effective_classes:.2f} | 0.00 |\n"
    assert page.render(results).count(row) == 1


CLAIM = """
[[question]]
title = "Who is ahead?"
[[question.claim]]
claim = "FedSOL"
ours = ["full/fedsol", "full/fedavg"]
paper = [["main", "LDA", "FedSOL", "CIFAR-10, alpha = 0.1"], ["main", "LDA", "FedAvg", "CIFAR-10, alpha = 0.1"]]
says = "Yes."
"""


@pytest.fixture
def complete(tmp_path):
    folder = tmp_path / "results"
    for seed in (0, 1):
        keep(folder, f"full/fedavg/seed-{seed}", METHODS["FedAvg"], [0.1] * 290 + [0.5] * 10, seed)
        fedsol_accuracies = [0.2] * 290 + [0.6 + 0.02 * seed] * 10
        keep(folder, f"full/fedsol/seed-{seed}", fedsol_table(rho=1.5), fedsol_accuracies, seed)
    keep(folder, "full/fedprox", METHODS["FedProx"], [0.1] * 290 + [0.55] * 10)
    return folder


def claim_lines(folder, text):
    (folder / "claims.toml").write_text(text)
    return page.render(folder).partition("### Who is ahead?")[2].partition("##")[0].splitlines()


def test_a_claim_is_held_against_the_paper_over_the_same_seeds(complete):
    # 10 and 12 points; the paper: 64.13 ± 0.46 less 56.13 ± 0.78. (11 - 8) / sqrt(2 + 0.46² + 0.78²) = 1.79.
    line = "| FedSOL | **holds** | 0, 1 | 300 of 300 | +11.0 ± 1.4 | +8.0 ± 0.9 | +1.8 | Yes. |"
    assert line in claim_lines(complete, CLAIM)


def test_a_deviation_stands_in_for_that_of_one_seed(complete):
    one = CLAIM.replace('ours = ["full/fedsol"', 'ours = ["full/fedprox"').replace("FedSOL", "FedProx")
    # (5 - 3.67) / sqrt(2 + 1.12² + 0.78²) = 0.68; without a deviation of ours there is no verdict. One run would have
    # to be 6.31 deviations ahead, if two seeds say what a deviation is.
    line = "| FedProx | **{}** | 0 | 300 of 300 | +5.0 | +3.7 ± 1.4 | {} |"
    assert line.format("not tested", "– | Yes. One seed.") in claim_lines(complete, one)
    like = one.replace("says", 'like = ["full/fedsol", "full/fedavg"]\nsays')
    assert line.format("not tested", "+0.7 * | Yes. Too close to tell.") in claim_lines(complete, like)


@pytest.mark.parametrize(
    ("final", "verdict"),
    [(0.60, "holds"), (0.58, "not tested"), (0.42, "not tested"), (0.40, "does not hold")],
)
def test_a_difference_counts_if_a_t_test_says_so(complete, final, verdict):
    keep(complete, "one/moon", METHODS["MOON"], [0.1] * 290 + [final] * 10)
    # The deviation that stands in is 1.41 points, of two seeds, for which t is 6.31: 8.9 points.
    claim = CLAIM.replace('ours = ["full/fedsol"', 'ours = ["one/moon"')
    claim = claim.replace("says", 'like = ["full/fedsol", "full/fedavg"]\nsays')
    (line,) = (line for line in claim_lines(complete, claim) if line.startswith("| FedSOL"))
    assert f"| **{verdict}** |" in line
    assert ("Too close to tell." in line) == (verdict == "not tested")
    # Where the paper has the second ahead, the same difference says the opposite.
    fedavg = '["main", "LDA", "FedAvg", "CIFAR-10, alpha = 0.1"]'
    fedsol = fedavg.replace("FedAvg", "FedSOL")
    opposite = {"holds": "does not hold", "does not hold": "holds"}.get(verdict, verdict)
    turned = claim.replace(f"[{fedsol}, {fedavg}]", f"[{fedavg}, {fedsol}]")
    assert f"| FedSOL | **{opposite}** |" in "".join(claim_lines(complete, turned))


@pytest.mark.parametrize(("gains", "verdict"), [((0.01, 0.02, 0.03), "holds"), ((0.0, 0.02, 0.04), "not tested")])
def test_the_mean_of_several_seeds_is_surer_than_one(complete, gains, verdict):
    for seed, gain in enumerate(gains):
        keep(complete, f"three/fedavg/seed-{seed}", METHODS["FedAvg"], [0.5] * 300, seed)
        keep(complete, f"three/fedsol/seed-{seed}", fedsol_table(rho=1.5), [0.5 + gain] * 300, seed)
    # 2 ± 1 points: t = 2 / (1 / sqrt(3)) = 3.5, more than 2.92. 2 ± 2 points: 1.7.
    assert f"| FedSOL | **{verdict}** | 0, 1, 2 | 300 of 300 | +2.0 ±" in "".join(
        claim_lines(complete, CLAIM.replace("full/", "three/"))
    )


def test_a_level_holds_within_two_deviations(complete):
    level = CLAIM.replace(', "full/fedavg"]', "]").replace(', ["main", "LDA", "FedAvg", "CIFAR-10, alpha = 0.1"]', "")
    # (61 - 64.13) / sqrt(2 + 0.46²) = -2.1
    assert "| FedSOL | **does not hold** | 0, 1 | 300 of 300 | 61.0 ± 1.4 | 64.1 ± 0.5 | -2.1 | Yes. |" in claim_lines(
        complete, level
    )
    keep(complete, "full/fedsol/seed-2", fedsol_table(rho=1.5), [0.1] * 290 + [0.64] * 10, 2)
    assert "| FedSOL | **holds** | 0, 1, 2 |" in "".join(claim_lines(complete, level))


def test_runs_that_are_not_complete_have_no_verdict(complete):
    some = CLAIM.replace("says", "rounds = [281, 300]\nsays")
    # Ten rounds of 10 points, and ten of 10 or 12.
    assert "281–300 of 300 | +10.5 ± 0.7 |" in "".join(claim_lines(complete, some))
    keep(complete, "full/fedavg/seed-2", METHODS["FedAvg"], [0.5] * 20, 2)
    assert "| **holds** | 0, 1 | 300 of 300 |" in "".join(claim_lines(complete, CLAIM))
    keep(complete, "full/fedsol/seed-2", fedsol_table(rho=1.5), [0.61] * 20, 2)
    line = "| **not tested** | 0, 1, 2 | 20 of 300 | +11.0 ± 1.0 | +8.0 ± 0.9 |  |"
    assert line in "".join(claim_lines(complete, CLAIM))


def test_of_several_groups_the_longest_run_counts(complete):
    for name, table in (("fedsol", fedsol_table(rho=1.5)), ("fedavg", METHODS["FedAvg"])):
        keep(complete, f"short/{name}", table, [0.3] * 20)
    short = CLAIM.replace("full/", "short*/")
    assert "| **not tested** | 0 | 20 of 300 |" in "".join(claim_lines(complete, short))
    (complete / "full").rename(complete / "short-300")
    assert "| **holds** | 0, 1 | 300 of 300 | +11.0 ± 1.4 |" in "".join(claim_lines(complete, short))


def test_a_cost_is_a_ratio_of_a_computed_table(complete):
    ours = {"FedAvg": 2.0, "FedSOL": 3.0}
    cells = [
        {"block": "", "row": "Latency", "column": name, "ours": {"mean": mean, "std": None}, "runs": [], "differs": []}
        for name, mean in ours.items()
    ]
    environment = json.loads((complete / "full" / "fedprox" / "environment.json").read_text())
    (complete / "tables").mkdir()
    content = {"recipe": "latency", "cells": cells, "environment": environment}
    (complete / "tables" / "latency.json").write_text(json.dumps(content))
    cost = """
[[question]]
title = "Who is ahead?"
[[question.claim]]
claim = "Time"
verdict = "holds"
table = [["latency", "", "Latency", "FedSOL"], ["latency", "", "Latency", "FedAvg"]]
"""
    assert "| Time | **holds** |  |  | 1.50 | 1.02 |  |  |" in claim_lines(complete, cost)  # 2.900 / 2.846 in the paper
    with pytest.raises(
        InputError, match=r"claim 'Time': table: there is no number of ours at \['latency', '', 'Latency'"
    ):
        claim_lines(complete, cost.replace("FedSOL", "FedNTD"))


def test_the_swing_of_classes(complete):
    for seed, swings in ((0, (0.1, 0.3)), (1, (0.2, 0.2))):
        for name, factor in (("fedavg", 1), ("fedsol", 0.5)):
            file = complete / f"full/{name}/seed-{seed}/metrics.jsonl"
            rows = [json.loads(line) for line in file.read_text().splitlines()]
            for row, sign in zip(rows[-2:], (-1, 1), strict=True):
                row["class_accuracy"] = [0.5 + sign * factor * swing for swing in swings]
            file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    swing = CLAIM.replace('["full/fedsol", "full/fedavg"]', '["full/fedavg", "full/fedsol"]')
    swing = swing.replace("says", 'rounds = [299, 300]\nmeasure = "swing"\nsays')
    # Of two values that are 2 s apart the deviation is s sqrt(2): 20 and 10 points times sqrt(2), with both seeds.
    assert "| **holds** | 0, 1 | 299–300 of 300 | +14.1 ± 0.0 |" in "".join(claim_lines(complete, swing))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("ours =", 'verdict = "holds"\nours =', "verdict: is not allowed with ours, which decides it"),
        ('ours = ["full/fedsol", "full/fedavg"]', 'verdict = "maybe"', "verdict: must be one of holds, does not hold"),
        ("full/fedsol", "full/other", "there is no run 'full/other'"),
        ("full/fedavg", "other/fedavg", "ours: the runs have no seed in common"),
        ("says", "note", "unknown key 'note'"),
        ("says", 'measure = "loss"\nsays', "measure: must be one of accuracy, swing"),
        ('ours = ["full/fedsol", "full/fedavg"]\npaper', 'ours = ["full/fedsol"]\n#', "paper: is missing"),
    ],
)
def test_a_wrong_claim_is_refused(complete, old, new, message):
    keep(complete, "other/fedavg", METHODS["FedAvg"], [0.5], 7)
    with pytest.raises(InputError, match=re.escape(message)):
        claim_lines(complete, CLAIM.replace(old, new))


def test_of_two_names_that_with_more_seeds_counts(results):
    bfloat16 = {"engine.precision": "bfloat16", "server.evaluate_every": 2}
    for seed in (0, 1):
        keep(results, f"other/fedavg/seed-{seed}", METHODS["FedAvg"], [0.4] * 20, seed, **bfloat16)
    found = Index(read_results(results)).ours(find_recipe("main").cells)["LDA", "FedAvg", COLUMN]
    assert found.mean == 40.0
    assert "engine.precision bfloat16 instead of float32" in found.differs
