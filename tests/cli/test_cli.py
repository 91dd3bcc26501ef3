"""The command line: what it does, what it says to bad input, and its exit codes."""

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

from fedsol.config.catalog import ALGORITHMS
from tests.support.cli import TINY, fedsol


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


HEAVY = {"torch", "pandas", "sklearn", "matplotlib", "scipy", "sympy"}


def imported_by(*arguments):
    """What a command imports, of what is slow to import, and what it says."""
    code = (
        f"import sys; sys.argv = {['fedsol', *arguments]!r}\n"
        "from fedsol.__main__ import main\n"
        "try:\n    main()\nexcept SystemExit as stop:\n    assert not stop.code\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.split()), done.stdout


def test_help_needs_no_torch():
    modules, said = imported_by("--help")
    assert not modules & {*HEAVY, "numpy", "pydantic"}
    for command in ("run", "compare", "list", "partition", "personalize", "report", "data"):
        assert command in said


def test_a_round_waits_for_torch_and_nothing_else():
    """Neither for torch's compiler, which its optimizers import, nor for what draws the curves at the end."""
    code = (
        "import sys, fedsol\n"
        "from fedsol.cli.run import run\n"
        "class Stop(fedsol.Callback):\n"
        "    def round_finished(self, result):\n"
        "        print(*sys.modules); sys.stdout.flush(); sys.exit()\n"
        "import fedsol.training.progress as progress\n"
        "progress.progress = lambda console, label: Stop()\n"
        "run(changes=['engine.kind=local', 'client.epochs=1'])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    modules = set(done.stdout.split())
    assert "torch" in modules
    assert not modules & {*HEAVY - {"torch"}, "torch._dynamo"}


@pytest.mark.parametrize(
    "arguments", [("list", "algorithms"), ("list", "datasets"), ("list", "models"), ("reproduce", "list")]
)
def test_names_are_listed_without_torch(arguments):
    modules, said = imported_by(*arguments)
    assert not modules & {*HEAVY, "numpy"}
    assert "cifar10" in said or "fedavg" in said or "resnet18" in said


def test_the_version():
    done = fedsol("--version")
    assert (done.exit_code, done.output) == (0, f"fedsol {metadata.version('fedsol')}\n")


def test_rejected_updates_are_counted_at_the_end():
    done = fedsol("run", *TINY, "--set", "faults.corrupted=0.5", "--out", "out")
    assert done.exit_code == 0
    rejected = sum(json.loads(line)["rejected"] for line in Path("out/metrics.jsonl").read_text().splitlines())
    assert rejected > 0
    assert f"{rejected} updates were rejected: see metrics.jsonl" in done.output


def test_run_with_nothing_is_the_quick_start():
    done = fedsol("run", *TINY)
    assert done.exit_code == 0, done.output
    (directory,) = Path("runs").iterdir()
    assert (directory / "curve.png").stat().st_size > 1000
    assert len((directory / "metrics.jsonl").read_text().splitlines()) == 2
    assert "round 2/2" in done.output
    assert "final accuracy" in done.output


def test_run_a_file_then_its_directory_goes_on():
    Path("mine.toml").write_text('rounds = 1\n[algorithm]\nname = "fedavg"\n[data.partition]\nclients = 5\n')
    assert fedsol("run", "mine.toml", "--out", "here").exit_code == 0
    again = fedsol("run", "mine.toml", "--out", "here")
    assert again.exit_code == 2
    assert "already has a run" in again.output
    assert fedsol("run", "here").exit_code == 0
    elsewhere = fedsol("run", "here", "--out", "there")
    assert elsewhere.exit_code == 2
    assert "--out: is not allowed: the run is resumed in here (got there)" in elsewhere.output
    assert fedsol("run", "mine.toml", "--out", "here", "--resume").exit_code == 0
    different = fedsol("run", "mine.toml", "--out", "here", "--resume", "--set", "seed=9")
    assert different.exit_code == 2
    assert "seed" in different.output


BAD = {
    "unknown key": (["--set", "algoritm.rho=1"], ["algoritm", "algorithm"]),
    "unknown setting": (["--set", "algorithm.rhoo=1"], ["algorithm.rhoo", "'rho'"]),
    "wrong type": (["--set", "rounds=many"], ["rounds: must be a valid integer (got 'many')"]),
    "alpha is zero": (["--set", "data.partition.alpha=0"], ["data.partition.alpha: must be greater than 0 (got 0)"]),
    "more shards than samples": (
        ["--set", "data.partition.kind=sharding", "--set", "data.partition.shards=1000"],
        ["data.partition.shards", "1000"],
    ),
    "more clients than samples": (["--set", "data.partition.clients=5000"], ["data.partition"]),
    "missing own data": (["--set", "data.name=nowhere.npz"], ["nowhere.npz"]),
    "missing folder": (["--set", "data.name=no/such/folder"], ["no/such/folder"]),
    "missing partition": (["--set", "data.partition.kind=file", "--set", "data.partition.file=p.json"], ["p.json"]),
    "unknown algorithm": (["--set", "algorithm.name=fedsool"], ["algorithm.name: unknown value 'fedsool'", "'fedsol'"]),
    "unknown model": (["--set", "model.name=resnet19"], ["model.name: unknown value 'resnet19'", "'resnet18'"]),
    "unknown model option": (["--set", "model.options={wdith=3}"], ["model.options.wdith", "'width'"]),
    "unknown device": (["--set", "engine.device=cuda"], ["engine.device: must be", "(got 'cuda')"]),
    "broken override": (["--set", "seed"], ["--set 'seed'", "key=value"]),
    "no such module": (["--set", "algorithm.name=nomodule:Thing"], ["algorithm.name", "nomodule"]),
    "not an algorithm": (["--set", "algorithm.name=json:JSONDecoder"], ["json:JSONDecoder", "fedsol.Algorithm"]),
    "resume without directory": (["--resume"], ["--resume: needs --out"]),
    "an algorithm that is no table": (
        ["--set", "algorithm=3"],
        ["algorithm: must be a table with a name (got 3)"],
    ),
    "a pad too wide": (
        ["--set", "data.augmentation.pad=20", "--set", "data.augmentation.pad_mode=reflect"],
        ["data.augmentation.pad: must be less than 14", "(got 20)"],
    ),
    "a test share of a named dataset": (["--set", "data.test_fraction=0.5"], ["data.test_fraction", "'fashion-small'"]),
    "too few channels": (["--set", "data.name=own.npz"], ["own.npz"]),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_clear_message(case):
    arguments, parts = BAD[case]
    done = (
        fedsol("run", "--out", "out", *arguments) if case != "resume without directory" else fedsol("run", "--resume")
    )
    assert done.exit_code == 2, done.output
    assert len(done.output.strip().splitlines()) == 1, done.output
    for part in parts:
        assert part in done.output
    assert not any(Path.cwd().iterdir()), "something was left behind"


def test_a_folder_does_not_hide_an_experiment():
    Path("quickstart").mkdir()
    assert fedsol("run", *TINY, "quickstart", "--out", "o").exit_code == 0


def test_an_output_that_is_a_file_is_bad_input():
    Path("file").write_text("mine")
    for command in (("run", *TINY, "--out", "file/run"), ("partition", "--out", "file/partition")):
        done = fedsol(*command)
        assert done.exit_code == 2, done.output
        assert "file" in done.output
        assert len(done.output.strip().splitlines()) == 1 or "Traceback" not in done.output


def test_a_file_where_runs_belong_is_bad_input():
    Path("runs").touch()
    done = fedsol("run", *TINY)
    assert done.exit_code == 2
    assert "cannot be used as a directory: Not a directory" in done.output


def test_a_partition_does_not_overwrite_that_of_a_run():
    assert fedsol("run", *TINY, "--out", "o").exit_code == 0
    before = Path("o/partition.json").read_bytes()
    done = fedsol("partition", "--out", "o", "--set", "seed=5")
    assert done.exit_code == 2
    assert Path("o/partition.json").read_bytes() == before


def test_a_missing_experiment():
    done = fedsol("run", "quikstart")
    assert done.exit_code == 2
    assert "'quickstart'" in done.output
    assert "no such experiment file" in fedsol("run", "absent.toml").output


def test_a_dataset_that_is_not_there_says_which_file_goes_where():
    done = fedsol("run", "mnist", "--set", "data.download=false", "--out", "out")
    assert done.exit_code == 2
    assert "train-images-idx3-ubyte.gz" in done.output
    assert str(Path("data") / "mnist") in done.output
    assert not Path("out").exists()


def test_a_corrupt_file_is_refused():
    folder = Path("data/mnist")
    folder.mkdir(parents=True)
    for name in ("train-images-idx3", "train-labels-idx1", "t10k-images-idx3", "t10k-labels-idx1"):
        (folder / f"{name}-ubyte.gz").write_bytes(b"not what the publisher has")
    done = fedsol("run", "mnist", "--out", "out")
    assert done.exit_code == 2
    assert "train-images-idx3-ubyte.gz" in done.output
    assert not Path("out").exists()
    verified = fedsol("data", "verify", "mnist")
    assert verified.exit_code == 2
    assert "wrong" in verified.output


def test_compare_makes_a_table_and_a_picture():
    done = fedsol(
        "compare", "-a", "fedavg", "-a", "fedsol:rho=0.5,perturb=all", "--seeds", "0,1", *TINY, "--out", "cmp"
    )
    assert done.exit_code == 0, done.output
    assert "±" in done.output
    rows = json.loads(Path("cmp/comparison.json").read_text())
    assert [row["label"] for row in rows] == ["fedavg", "fedsol:rho=0.5,perturb=all"]
    assert rows[1]["algorithm"]["perturb"] == "all"
    assert rows[0]["seeds"] == [0, 1]
    assert Path("cmp/curves.png").stat().st_size > 1000
    again = fedsol("compare", "-a", "fedavg", "--seeds", "0,1", *TINY, "--out", "cmp")
    assert again.exit_code == 2
    resumed = fedsol("compare", "-a", "fedavg", "--seeds", "0,1", *TINY, "--out", "cmp", "--resume")
    assert resumed.exit_code == 0
    assert json.loads(Path("cmp/comparison.json").read_text())[0] == rows[0]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--seeds", "0,zero"], "--seeds: must be whole numbers such as 0,1,2 (got '0,zero')"),
        (["--seeds", "1,1"], "--seeds: must be different whole numbers such as 0,1,2 (got '1,1')"),
        (["-a", "fedavg,fedavg"], "fedavg and fedavg are the same"),
        (["-a", "fedsol:rho=1,fedsol:rho=1.0"], "are the same"),
        (["-a", "fedsol:rho"], "must be NAME or NAME:key=value"),
        (["-a", "fedavg,scaffold", "--set", "client.optimizer=adam"], "is not allowed with scaffold"),
        (["-a", "fedavg,nosuch"], "algorithm.name: unknown value 'nosuch'"),
        (["-a", "fedsol:rho=big"], "algorithm.rho: must be a valid number (got 'big')"),
        (["-a", ","], "--algorithm: must name at least one"),
        (["-a", "rho=1"], "must be NAME or NAME:key=value"),
    ],
)
def test_compare_refuses_bad_input(arguments, part):
    done = fedsol("compare", *arguments, *TINY, "--out", "cmp")
    assert done.exit_code == 2, done.output
    assert part in done.output
    assert not Path("cmp").exists()


def test_variants_start_from_the_experiments_own_settings():
    from fedsol import Experiment
    from fedsol.studies.variants import parse_variants

    base = Experiment(algorithm={"name": "fedsol", "perturb": "all"})
    texts = [
        "fedavg,fedsol:rho=1.5,strength=fixed,fedprox",
        "fedsol",
        "tests.support.user_code:Nameless",
        "fedadam:server.trim=0.2",
    ]
    variants = parse_variants(texts, base)
    assert [variant.label for variant in variants] == [
        "fedavg", "fedsol:rho=1.5,strength=fixed", "fedprox", "fedsol", "tests.support.user_code:Nameless",
        "fedadam:server.trim=0.2",
    ]  # fmt: skip
    tables = [variant.experiment.algorithm for variant in variants]
    assert [table.get("perturb") for table in tables] == [None, "all", "all", "all", None, None]
    assert (tables[1]["rho"], tables[1]["strength"]) == (1.5, "fixed")
    server = variants[-1].experiment.server
    assert (tables[-1]["name"], server.optimizer, server.trim) == ("fedavg", "adam", 0.2)


def test_a_variant_that_fails_does_not_keep_the_others_from_being_made():
    done = fedsol("compare", "-a", "tests.support.user_code:Exploding,fedavg", *TINY, "--seeds", "0", "--out", "cmp")
    assert done.exit_code == 1
    assert "failed" in done.output
    assert "not finite" in done.output
    rows = json.loads(Path("cmp/comparison.json").read_text())
    assert rows[0]["final_accuracy"] is None
    assert rows[1]["final_accuracy"]["mean"] > 0


@pytest.mark.parametrize("what", ["algorithms", "datasets", "models", "partitions", "experiments"])
def test_lists(what):
    rows = json.loads(fedsol("list", what, "--json").output)
    shown = fedsol("list", what)
    assert shown.exit_code == 0
    assert len(rows) > 1
    assert all(row["name"] and row["description"] for row in rows)
    assert rows[0]["name"] in shown.output


def test_algorithms_are_listed_by_group_with_their_year():
    rows = json.loads(fedsol("list", "algorithms", "--json").output)
    assert {row["name"] for row in rows} == set(ALGORITHMS)
    assert len(rows) == len(ALGORITHMS)
    assert {row["name"]: (row["group"], row["year"]) for row in rows}["fedlesam"] == ("sharpness", 2024)
    shown = fedsol("list", "algorithms").output
    groups = ["Proximal", "Control variates", "Sharpness", "Momentum", "Server", "Calibration", "Personal"]
    places = [shown.index(f"\n{group}\n") for group in groups]
    assert places == sorted(places)
    assert "\nfedlesam  2024  Local gradient at weights" in shown[places[2] : places[3]]


def test_list_of_something_else():
    done = fedsol("list", "algorithm")
    assert done.exit_code == 2
    assert "'algorithms'" in done.output


@pytest.mark.parametrize("name", [row["name"] for row in json.loads(fedsol("list", "experiments", "--json").output)])
def test_every_experiment_that_comes_along_is_valid(name):
    from fedsol.cli.options import read_experiment

    assert read_experiment(name, []).algorithm["name"] == "fedsol"


def test_partition_shows_saves_and_is_read_back():
    done = fedsol("partition", "digits", "--out", "p", "--set", "data.partition.clients=10")
    assert done.exit_code == 0, done.output
    saved = json.loads(Path("p/partition.json").read_text())
    assert saved["sha256"] in done.output
    assert f"{saved['heterogeneity']['effective_classes']:.2f} effective classes per client" in done.output
    assert Path("p/partition.png").stat().st_size > 1000
    run = fedsol("run", *TINY[:6], "--set", "data.partition.kind=file", "--set", "data.partition.clients=10",
                 "--set", "data.partition.file=p/partition.json", "--out", "r")  # fmt: skip
    assert run.exit_code == 0, run.output
    assert json.loads(Path("r/partition.json").read_text())["sha256"] == saved["sha256"]


def test_own_data_own_model_and_own_algorithm_without_touching_fedsol():
    rng = np.random.default_rng(0)
    arrays = {"x_train": rng.normal(size=(60, 4)).astype("float32"), "y_train": rng.integers(0, 3, 60),
              "x_test": rng.normal(size=(30, 4)).astype("float32"), "y_test": np.arange(30) % 3,
              "clients_train": np.repeat(["anna", "ben", "cleo"], 20)}  # fmt: skip
    np.savez("mine.npz", **arrays)
    Path("my_model.py").write_text(
        "from torch import nn\n"
        "def normed(classes):\n"
        "    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, classes))\n"
    )
    Path("my_algorithm.py").write_text(
        "from dataclasses import dataclass\n"
        "import fedsol\nfrom fedsol import gradients\nfrom fedsol.config.fields import Positive, setting\n"
        "from fedsol.core.weights import scale\n"
        "@dataclass(frozen=True)\n"
        "class Slow(fedsol.Algorithm):\n"
        '    """FedAvg with shorter steps."""\n'
        '    factor: Positive = setting(0.5, "length of a step")\n'
        "    def gradient(self, task, weights, batch, state):\n"
        "        found, loss = gradients.plain(task, weights, batch)\n"
        "        return scale(found, self.factor), loss\n"
    )
    done = fedsol("run", "--set", "rounds=2", "--set", "data.name=mine.npz", "--set", "data.partition.kind=own",
                  "--set", "model.name=my_model:normed", "--set", "algorithm.name=my_algorithm:Slow",
                  "--set", "algorithm.factor=0.25", "--set", "server.fraction=1.0", "--out", "o")  # fmt: skip
    assert done.exit_code == 0, done.output
    assert "factor = 0.25" in Path("o/experiment.toml").read_text()
    assert fedsol("run", "o").exit_code == 0


def test_a_method_written_by_following_contributing_runs_by_module_and_class():
    """The example of CONTRIBUTING.md, outside of the package: at most 30 lines, and not FedAvg."""
    text = (Path(__file__).resolve().parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = textwrap.dedent(text.split("```python\n")[1].split("```")[0]).splitlines()
    assert len(lines) <= 30
    Path("my_file.py").write_text("\n".join(lines))
    for name in ("my_file:Pulled", "fedavg"):
        done = fedsol("run", *TINY, "--set", f"algorithm.name={name}", "--out", name.partition(":")[0])
        assert done.exit_code == 0, done.output
    losses = [Path(out, "metrics.jsonl").read_text().splitlines()[-1] for out in ("my_file", "fedavg")]
    assert json.loads(losses[0])["train_loss"] != json.loads(losses[1])["train_loss"]
    wrong = fedsol("run", *TINY, "--set", "algorithm.name=my_file:Pulled", "--set", "algorithm.pull=-1", "--out", "x")
    assert wrong.exit_code == 2
    assert "algorithm.pull: must be greater than or equal to 0 (got -1)" in wrong.output


def test_data_commands_on_embedded_data():
    assert fedsol("data", "fetch", "digits").exit_code == 0
    assert "needs no files" in fedsol("data", "verify", "digits").output
    unknown = fedsol("data", "fetch", "minst")
    assert unknown.exit_code == 2
    assert "'mnist'" in unknown.output


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_saves_and_says_how_to_go_on(tmp_path, number):
    """A real process, a real signal, after the first round is on disk."""
    command = [sys.executable, "-m", "fedsol", "run", "--set", "rounds=100000", "--out", "long"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ})
    metrics = Path("long/metrics.jsonl")
    deadline = time.monotonic() + 120
    while not (metrics.exists() and metrics.read_bytes()):
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert "fedsol run long" in output
    rounds = len(metrics.read_text().splitlines())
    assert json.loads(Path("long/summary.json").read_text())["rounds"] == rounds
    assert (Path("long/checkpoints") / f"round-{rounds:06d}").is_dir()


def test_an_interrupt_that_a_library_turns_into_its_own_error_is_still_one():
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # in the background a shell ignores it
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch':\n"
        "            try:\n"
        "                os.kill(os.getpid(), signal.SIGINT)\n"
        "            except KeyboardInterrupt:\n"
        "                raise ImportError('cannot load module more than once per process') from None\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from fedsol.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "run"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


def test_an_interrupt_before_any_command_begins_is_one_word():
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # in the background a shell ignores it
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'typer':\n"
        "            os.kill(os.getpid(), signal.SIGINT)\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "from fedsol.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code, "list"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


def test_an_interrupt_that_python_ignores_still_ends_the_run():
    """Exceptions in a destructor are ignored, and so would be a Ctrl-C that happens to arrive there."""
    Path("lost.py").write_text(
        "import os, signal\n"
        "from fedsol.config.tables import DataSettings\n"
        "from fedsol.data.catalog import load_dataset\n"
        "class Gone:\n"
        "    def __del__(self):\n"
        "        os.kill(os.getpid(), signal.SIGINT)\n"
        "        for _ in range(1000): pass\n"
        "def data():\n"
        "    Gone()\n"
        "    return load_dataset(DataSettings())\n"
    )
    command = [sys.executable, "-m", "fedsol", "run", *TINY, "--set", "data.name=lost:data", "--out", "lost"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 130, done.stderr
    assert json.loads(Path("lost/summary.json").read_text())["rounds"] == 0


def test_runs_started_in_the_same_second_have_their_own_directories(monkeypatch):
    from fedsol.cli import options
    from fedsol.runs import find

    class Noon(find.datetime):
        @classmethod
        def now(cls):
            return cls(2026, 1, 1, 12)

    monkeypatch.setattr(find, "datetime", Noon)
    first, second = options.new_directory("x"), options.new_directory("x")
    assert (first.name, second.name) == ("20260101-120000-x", "20260101-120000-x-2")
    (second / "file").touch()
    options._remove_unused_directories()
    assert [path.name for path in Path("runs").iterdir()] == [second.name]


def test_bad_input_leaves_no_directory():
    assert fedsol("run", *TINY, "--set", "model.options.hidden=-1").exit_code == 2
    assert not Path("runs").exists()


OWN_CODE = """
from dataclasses import dataclass
from pathlib import Path
import fedsol
with Path("imported").open("a") as file:
    file.write("x")

@dataclass(frozen=True)
class Mine(fedsol.Algorithm):
    factor: float = 2.0
"""


def test_code_that_a_file_names_is_announced_and_a_run_directory_imports_none_to_be_read(monkeypatch):
    Path("own_code.py").write_text(OWN_CODE)
    Path("mine.toml").write_text('rounds = 1\n[algorithm]\nname = "own_code:Mine"\n[data.partition]\nclients = 5\n')
    done = fedsol("run", "mine.toml", *TINY[:4], "--out", "here")
    assert done.exit_code == 0, done.output
    said = "runs code that is not part of fedsol: algorithm.name = 'own_code:Mine'"
    assert done.stderr.count(said) == 1
    assert "factor = 2.0" in Path("here/experiment.toml").read_text()
    monkeypatch.delitem(sys.modules, "own_code")  # as in a new process
    Path("imported").unlink()
    done = fedsol("report", "here")
    assert done.exit_code == 0, done.output
    assert not Path("imported").exists()
    done = fedsol("run", "here", "--set", "rounds=2")
    assert done.exit_code == 0, done.output
    assert f"here: {said}" in done.stderr
    assert Path("imported").exists()


@pytest.mark.parametrize("by", ["client", "central"])
def test_a_partition_says_what_is_set_aside_and_is_the_same_with_it(by):
    iid = ["--set", "data.partition.kind=iid", "--set", "data.partition.clients=1"]
    plain = fedsol("partition", "digits", *iid, "--out", "plain")
    assert "to train on" not in plain.output
    aside = [
        "--set",
        "data.validation=0.1",
        "--set",
        f"data.validation_by={by}",
        "--set",
        "data.partition.held_out=0.2",
    ]
    done = fedsol("partition", "digits", *iid, *aside, "--out", "aside")
    assert done.exit_code == 0, done.output
    server = " by the server" if by == "central" else ""
    expected = f"of these, 1035 are to train on, 115 for validation{server}, 287 in hold-out sets"  # of 1437
    assert expected in " ".join(done.output.split())
    hashes = [json.loads(Path(out, "partition.json").read_text())["sha256"] for out in ("plain", "aside")]
    assert hashes[0] == hashes[1]


def test_a_run_says_how_its_best_round_was_chosen():
    done = fedsol("run", *TINY, "--out", "plain")
    assert "(of any round, chosen on the test set)" in done.output
    done = fedsol("run", *TINY, "--set", "data.validation=0.2", "--set", "server.stop_at=0.01", "--out", "out")
    assert done.exit_code == 0, done.output
    assert "stopped after round 1: validation accuracy " in done.output
    assert "(of round 1, chosen by validation)" in done.output
    assert "saved in checkpoints/best." in done.output
    assert Path("out/checkpoints/best/round-000001/server.safetensors").is_file()
    again = fedsol("run", "out")
    assert again.exit_code == 0, again.output
    assert "1 round: final accuracy" in again.output


def test_methods_without_a_global_model_are_shown_by_what_clients_hold_out():
    tiny = [*TINY, "--set", "data.partition.held_out=0.3", "--set", "algorithm.name=fedper"]
    assert ": final held-out accuracy " in fedsol("run", *tiny, "--out", "run").output
    done = fedsol("compare", *tiny, "-a", "fedper", "-a", "fedavg", "--seeds", "0", "--out", "compared")
    assert done.exit_code == 0, done.output
    results = json.loads(Path("compared/comparison.json").read_text())
    assert [bool(row["final_accuracy"]) for row in results] == [False, True]
    assert all(f"{100 * row['held_out_accuracy']['mean']:.2f} %" in done.output for row in results)
    assert "fedper: accuracy" in done.output
    grid = ["--grid", "client.lr=log:0.01..1", "--search", "2", "--seeds", "0"]
    done = fedsol("sweep", *tiny, *grid, "--out", "searched")
    assert done.exit_code == 0, done.output
    rows = json.loads(Path("searched/sweep.json").read_text())
    best = max(rows, key=lambda row: row["held_out_accuracy"]["mean"])
    assert f"Best by the final result on hold-out sets: {best['label']}" in done.output
    assert "held_out_mean" in Path("searched/sweep.csv").read_text()


def test_rounds_of_many_runs_are_an_option():
    done = fedsol("compare", "-a", "fedavg", "--seeds", "1", "--rounds", "1", *TINY[:-2], "--out", "compared")
    assert "1 round, seed 1: test accuracy" in done.output
    done = fedsol("sweep", "--grid", "client.lr=0.1", "--seeds", "0", "--rounds", "1", *TINY[:-2], "--out", "swept")
    assert "1 round, seed 0: test accuracy" in done.output


def test_compared_runs_may_have_different_lengths():
    algorithms = ["-a", "fedavg:server.stop_at=0.01", "-a", "fedavg"]
    changes = ["--set", "data.validation=0.2", "--set", "rounds=3"]
    done = fedsol("compare", *TINY, *changes, *algorithms, "--seeds", "0,1", "--out", "out")
    assert done.exit_code == 0, done.output
    rows = json.loads(Path("out/comparison.json").read_text())
    assert [row["rounds"] for row in rows] == [[1, 1], [3, 3]]
    assert rows[0]["best_validation"]["mean"] <= rows[1]["best_validation"]["mean"]
    assert "up to 3 rounds, seeds 0,1: test accuracy, mean ± std over seeds; best: of the round chosen" in done.output
    heading = next(line for line in done.output.splitlines() if "seconds" in line and "final" in line)
    columns = ["final", "best", "validation", "rounds", "seconds"]
    assert [name for name in heading.split() if name.isalpha()][-5:] == columns
    assert fedsol("report", "out", "-o", "report.html").exit_code == 0
