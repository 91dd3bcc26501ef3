"""The report's data and page: which runs are found, how they are grouped and named, and that nothing gets out."""

import json
import re

import numpy as np
import pytest
from typer.testing import CliRunner

from fedsol.cli.app import app
from fedsol.data.heterogeneity import heterogeneity
from fedsol.data.manifest import Manifest, save_manifest
from fedsol.errors import InputError
from fedsol.reports.collect import analyses_of, clients_of, figures_of, partition_of, short_names
from fedsol.reports.columns import number, to_columns
from fedsol.reports.headline import headline
from fedsol.reports.page import embedded_json, render, report_data, write_report
from fedsol.runs.find import find_runs
from fedsol.runs.groups import differences, group_runs
from fedsol.runs.run import Run
from tests.support.made_runs import add_personal, make_run

HOSTILE = "<script>alert(1)</script>"


def data_of(page: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def test_numbers_become_series_lists_become_spreads_and_classes_a_heat_map():
    rows = [
        {"round": 1, "a": 0.5, "all": [1, 2, 6], "class_accuracy": [0.25, None], "layer": {"x": 3}, "word": "no"},
        {"round": 3, "a": None, "all": [None, 4], "class_accuracy": [1.0, 0.5004], "layer": {"x": 4.0}},
    ]
    columns = to_columns(rows)
    assert columns["x"] == [1, 3]
    assert columns["series"] == {"a": [0.5, None], "layer.x": [3, 4]}
    assert columns["spreads"] == {"all": [[1, 3, 6], [4, 4, 4]]}
    assert columns["heat"] == {"class_accuracy": {"rows": [0, 1], "width": 2, "values": [250, -1, 1000, 500]}}


def test_several_rows_of_one_round_are_a_spread_and_rows_without_a_round_are_counted():
    columns = to_columns([{"round": 1, "v": 1}, {"round": 1, "v": 3}, {"round": 2, "v": 5}])
    assert (columns["x"], columns["spreads"]) == ([1, 2], {"v": [[1, 2, 3], [5, 5, 5]]})
    assert to_columns([{"v": 1}, {"v": 2}])["x"] == [1, 2]
    assert to_columns([{"round": 1, "class_accuracy": []}])["heat"] == {}
    assert to_columns([]) == {"x": [], "series": {}, "spreads": {}, "heat": {}}


def test_a_long_heat_map_is_thinned_out_and_keeps_its_last_round():
    rows = [{"round": n + 1, "class_accuracy": [n / 2000] * 100} for n in range(2000)]
    heat = to_columns(rows)["heat"]["class_accuracy"]
    assert len(heat["values"]) <= 60_000
    assert heat["rows"][-1] == 1999
    assert len(heat["values"]) == 100 * len(heat["rows"])


def test_numbers_are_short_and_finite():
    assert number(1 / 3) == 0.333333
    assert number(123456789) == 123456789
    assert repr(number(2.0)) == "2"
    assert number(float("nan")) is number(float("inf")) is None


def test_runs_are_found_below_in_order_and_once(tmp_path):
    for name in ("b/seed-10", "b/seed-2", "a"):
        make_run(tmp_path / name, rounds=1)
    make_run(tmp_path / "a" / "inside", rounds=1)
    (tmp_path / "experiment.toml").write_text("seed = 0\n")
    found = find_runs([tmp_path, tmp_path / "a"])
    assert [str(run.path.relative_to(tmp_path)) for run in found] == ["a", "b/seed-2", "b/seed-10"]
    assert short_names(found) == ["a", "b/seed-2", "b/seed-10"]
    assert short_names(found[:1]) == ["a"]


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda run: (run / "partition.json").write_text("[]"), r"partition\.json: must be a JSON object"),
        (lambda run: (run / "partition.json").write_text("{}"), r"partition\.json: not a partition manifest"),
        (lambda run: (run / "environment.json").write_text("{"), r"environment\.json: cannot be read"),
        (lambda run: (run / "metrics.jsonl").write_text("{}\n"), r"metrics\.jsonl: line 1"),
        (lambda run: (run / "experiment.toml").write_text("seed ="), r"experiment\.toml: cannot be read as TOML"),
        (lambda run: (run / "analysis/divergence.jsonl").write_text("{\n"), r"divergence\.jsonl: line 1: must be JSON"),
        (lambda run: (run / "analysis/divergence.jsonl").write_text("3\n"), r"line 1: must be a JSON object"),
    ],
)
def test_a_damaged_run_is_named_and_nothing_is_written(tmp_path, spoil, message):
    spoil(make_run(tmp_path / "run", rounds=1, analyses=True))
    with pytest.raises(InputError, match=message):
        write_report([tmp_path], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_class_counts_that_do_not_fit_the_clients_are_refused(tmp_path):
    run = make_run(tmp_path / "run", rounds=1)
    content = json.loads((run / "partition.json").read_text())
    for wrong in ([[1] * 10] * 20, "many", [["a"]] * 20):
        (run / "partition.json").write_text(json.dumps({**content, "class_counts": wrong}))
        with pytest.raises(InputError, match=r"partition\.json: not a partition manifest"):
            partition_of(Run.load(run))


def test_how_heterogeneous_a_partition_is_follows_from_its_counts(tmp_path):
    """Whether the manifest says it or not, as older ones do not."""
    run = make_run(tmp_path / "run", rounds=1)
    content = json.loads((run / "partition.json").read_text())
    found = partition_of(Run.load(run))["heterogeneity"]
    assert found == vars(heterogeneity(content["class_counts"]))
    content.pop("heterogeneity", None)
    (run / "partition.json").write_text(json.dumps(content))
    assert partition_of(Run.load(run))["heterogeneity"] == found
    content.pop("class_counts")
    (run / "partition.json").write_text(json.dumps(content))
    assert "heterogeneity" not in partition_of(Run.load(run))
    ragged = [[len(content["clients"][0]), 0], *([len(indices)] for indices in content["clients"][1:])]
    (run / "partition.json").write_text(json.dumps({**content, "class_counts": ragged}))
    with pytest.raises(InputError, match=r"partition\.json: not a partition manifest"):
        partition_of(Run.load(run))


def test_what_is_being_written_does_not_disturb(tmp_path):
    run = make_run(tmp_path / "run", rounds=3, analyses=True)
    for name in ("metrics.jsonl", "analysis/divergence.jsonl"):
        text = (run / name).read_text()
        (run / name).write_text(text + '{"round": 4, "test_acc')
    found = Run.load(run)
    assert len(found.rows) == 3
    assert analyses_of(found)["divergence"]["x"] == [1, 2, 3]
    parts = {f"layers_{kind}.{layer}" for kind in ("to_global", "between") for layer in ("conv", "head")}
    assert set(analyses_of(found)["divergence"]["series"]) == parts
    assert len(analyses_of(found)["preservation"]["spreads"]["after"]) == 3


def test_runs_that_differ_by_the_seed_alone_are_one_method(tmp_path):
    for name, changes in {
        "a0": {"seed": 0, "algorithm.name": "fedavg"},
        "a1": {"seed": 1, "algorithm.name": "fedavg", "engine.kind": "local", "data.root": "elsewhere"},
        "s0": {"seed": 0, "algorithm.name": "fedsol", "algorithm.rho": 1.0},
        "s1": {"seed": 0, "algorithm.name": "fedsol", "algorithm.rho": 0.5},
        "t": {"seed": 0, "algorithm.name": "fedavg", "client.clip_norm": 3.0},
        "u": {"seed": 0, "algorithm.name": "fedavg"},
    }.items():
        make_run(tmp_path / name, changes, rounds=1)
    groups = group_runs(find_runs([tmp_path]))
    assert [group.runs for group in groups] == [[0, 1], [2], [3], [4], [5]]
    labels = ["fedavg", "fedsol rho=1.0", "fedsol rho=0.5", "fedavg client.clip_norm=3.0", "fedavg (2)"]
    assert [group.label for group in groups] == labels
    different = differences([group.configuration for group in groups])
    assert different["client.clip_norm"] == [None, None, None, 3.0, None]
    assert "seed" not in different
    assert "engine.kind" not in different


def test_other_data_of_the_same_name_is_not_averaged(tmp_path):
    for seed in range(2):
        run = make_run(tmp_path / str(seed), {"seed": seed}, rounds=1)
        environment = json.loads((run / "environment.json").read_text())
        (run / "environment.json").write_text(json.dumps({**environment, "data_sha256": str(seed)}))
    assert len(group_runs(find_runs([tmp_path]))) == 2


def test_client_accuracies_of_local_and_personal_models(tmp_path):
    folder = make_run(tmp_path / "run", rounds=3, analyses=True)
    add_personal(folder, "finetune")
    add_personal(folder, "knn-per")
    add_personal(folder, "local-only", "held-out")
    clients = clients_of(Run.load(folder))
    assert [(one.models, one.tested_on) for one in clients] == [
        ("local models of the last round", "global test set"),
        ("global model", "own matched test set"),
        ("finetune, 1 epoch", "own matched test set"),
        ("finetune, 5 epochs", "own matched test set"),
        ("knn-per, 1 epoch", "own matched test set"),
        ("knn-per, 5 epochs", "own matched test set"),
        ("initial model", "own held-out test set"),
        ("local-only, 1 epoch", "own held-out test set"),
        ("local-only, 5 epochs", "own held-out test set"),
    ]
    assert clients[3].values == [0.5, 0.6, 0.7, 0.8, None]
    (folder / "personal" / "finetune" / "personal.json").write_text("{}")
    with pytest.raises(InputError, match=r"finetune/personal\.json: must be the description of a personalization"):
        clients_of(Run.load(folder))


def test_who_was_measured_is_no_measurement(tmp_path):
    columns = analyses_of(Run.load(make_run(tmp_path / "run", rounds=3, analyses=True)))["divergence"]
    assert list(columns["spreads"]) == ["to_global", "between"]
    assert not {"client", "clients"} & {*columns["series"], *columns["spreads"]}


def test_a_server_that_knows_no_sizes_has_no_partition_to_show(tmp_path):
    folder = make_run(tmp_path / "run", rounds=2)
    empty = [np.zeros(0, dtype=np.int64)] * 3
    save_manifest(folder / "partition.json", Manifest("private", 0, {}, 0, empty))
    assert partition_of(Run.load(folder)) is None


def test_a_method_of_the_users_own_needs_no_import(tmp_path):
    run = make_run(tmp_path / "run", rounds=1)
    text = (run / "experiment.toml").read_text().replace('name = "fedsol"', 'name = "no_such_module:Mine"')
    (run / "experiment.toml").write_text(text)
    assert report_data([Run.load(run)])["groups"][0]["label"] == "no_such_module:Mine"


def test_embedded_json_cannot_end_its_element():
    text = embedded_json({"</script>": "<!--<script>&amp;\u2028"})
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"</script>": "<!--<script>&amp;\u2028"}


def test_hostile_names_are_text(tmp_path):
    make_run(tmp_path / f"x{HOSTILE.replace('/', '_')}", {"data.name": HOSTILE + ".npz"}, rounds=1)
    page = render(report_data(find_runs([tmp_path])))
    assert "alert(1)" in page
    assert HOSTILE not in page
    assert page.count("<script") == page.count("</script>") == 2
    assert data_of(page)["runs"][0]["dataset"] == HOSTILE + ".npz"


def test_data_cannot_name_a_part_of_the_page(tmp_path):
    make_run(tmp_path / "{{script}}", {"data.name": "{{style}}.npz"}, rounds=1)
    page = render(report_data(find_runs([tmp_path])))
    assert page.count('"use strict"') == 1
    assert "{{style}}.npz" in data_of(page)["runs"][0]["toml"]


def test_the_page_asks_for_nothing_from_elsewhere(tmp_path):
    page = render(report_data([Run.load(make_run(tmp_path / "run", rounds=2))]))
    addresses = set(re.findall(r"https?://[^\"' )]+", page))
    assert addresses == {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert "default-src 'none'" in page.replace("&#x27;", "'")


def test_the_same_runs_give_the_same_page(tmp_path):
    make_run(tmp_path / "run", rounds=2, analyses=True)
    for name in ("a.html", "b.html"):
        write_report([tmp_path / "run"], tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_an_interrupted_run_and_one_without_rounds(tmp_path):
    make_run(tmp_path / "a", rounds=8, finished=3)
    (make_run(tmp_path / "b", {"seed": 1}, rounds=8) / "metrics.jsonl").write_text("")
    data = report_data(find_runs([tmp_path]))
    assert [(len(run["metrics"]["x"]), run["planned"]) for run in data["runs"]] == [(3, 8), (0, 8)]


def test_twenty_runs_of_three_hundred_rounds_and_a_hundred_classes_fit_in_8_mb(tmp_path):
    for index in range(20):
        make_run(tmp_path / str(index), {"seed": index}, rounds=300, classes=100, analyses=True)
    write_report([tmp_path], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size <= 8_000_000


def command(*arguments):
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


def test_the_command(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_run(tmp_path / "runs" / "one", rounds=2)
    done = command("runs")
    assert done.exit_code == 0, done.output
    assert "1 run: report.html" in done.output
    assert data_of((tmp_path / "report.html").read_text())["runs"][0]["command"].startswith("fedsol run runs/one/exp")
    assert command("runs", "runs/one", "-o", "new/folder/page.html").exit_code == 0
    assert (tmp_path / "new/folder/page.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere"], "nowhere: no such directory"),
        (["empty"], "empty: no run here"),
        (["runs", "-o", "empty"], "empty: must be a file"),
        (["runs", "-o", "file/page.html"], "file/page.html: cannot be written"),
    ],
)
def test_bad_input_is_one_message(tmp_path, monkeypatch, arguments, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("")
    make_run(tmp_path / "runs" / "one", rounds=1)
    done = command(*arguments)
    assert done.exit_code == 2
    assert message in done.output
    assert len(done.output.strip().splitlines()) == 1


def with_accuracies(run, accuracies):
    """Give a run these accuracies by round and class."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    changed = [
        {**row, "test_accuracy": float(np.mean(values)), "class_accuracy": values}
        for row, values in zip(rows, accuracies, strict=True)
    ]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in changed))


def test_the_headline_says_setting_verdict_and_forgetting(tmp_path):
    for seed in range(2):
        for name, final in (("fedavg", 0.5), ("fedsol", 0.7)):
            run = make_run(tmp_path / name / f"seed-{seed}", {"seed": seed, "algorithm.name": name}, rounds=2)
            with_accuracies(run, [[0.8, 0.4], [final + 0.02 * seed, final]])
    runs = find_runs([tmp_path])
    setting, *verdict = headline(runs, group_runs(runs))
    assert setting == "digits, 20 clients, dirichlet partition (alpha 0.1), 2 rounds, 2 seeds."
    (sentence,) = verdict
    assert sentence.startswith("fedsol ends 20.0 points ahead of fedavg (± 0.0 points over 2 seeds")
    assert sentence.endswith("and forgets 10.0 points less.")
    alone = headline(runs[:1], group_runs(runs[:1]))
    assert alone[1].startswith("fedavg: accuracy 50.00 % after the last round")
    assert len(alone) == 2
    assert headline([], []) == []


def test_figures_of_analyses_are_inside(tmp_path):
    run = make_run(tmp_path / "run", rounds=2)
    (run / "analysis").mkdir()
    for name in ("analysis/landscape.png", "analysis/landscape.json", "analysis/stray.png", "cost.png", "cost.json"):
        (run / name).write_bytes(b"picture")
    assert [figure.name for figure in figures_of([run, run])] == ["cost, run", "landscape, run"]
    page = render(report_data([Run.load(run)]))
    assert data_of(page)["figures"][0]["image"] == "data:image/png;base64,cGljdHVyZQ=="
