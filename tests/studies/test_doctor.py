"""`fedsol doctor`: it describes the machine, survives what its trials do not, and says which precision pays."""

import json
import signal
import subprocess
import sys
from types import SimpleNamespace

import pytest

from fedsol.studies import doctor
from fedsol.studies.doctor import METHODS, Diagnosis, Trial, describe_machine, diagnose, try_out
from tests.support.cli import fedsol as command


def answers(monkeypatch, answer):
    """Let a trial's child be what `answer` makes of its precision and environment."""

    def run(arguments, env, **_options):
        code, said, error = answer(arguments[-2], env)
        return subprocess.CompletedProcess(arguments, code, said, error)

    monkeypatch.setattr(doctor, "subprocess", SimpleNamespace(run=run))  # alone: platform starts processes too
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA", raising=False)


def took(milliseconds):
    return 0, json.dumps({"milliseconds": dict.fromkeys(METHODS, milliseconds), "is_deterministic": True}), ""


def test_a_real_trial_times_both_methods(monkeypatch):
    monkeypatch.setattr(doctor, "REPETITIONS", 1)
    trial = try_out("cpu", "float32")
    assert not trial.failure
    assert trial.is_deterministic
    assert trial.milliseconds["fedsol"] > trial.milliseconds["fedavg"] > 0


def test_instructions_that_are_missing_kill_the_child_and_not_the_doctor(monkeypatch):
    def answer(precision, environment):
        if precision == "bfloat16" and "ONEDNN_MAX_CPU_ISA" not in environment:
            return -signal.SIGILL, "", ""
        return took(10.0 if precision == "float32" else 5.0)

    answers(monkeypatch, answer)
    found = diagnose()
    full, reduced = (trial for trial in found.trials if trial.device == "cpu")
    assert not full.failure
    assert not reduced.failure
    assert reduced.environment == {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    assert found.advice[0] == (
        "cpu: engine.precision = 'bfloat16' is faster (fedavg 2.0 x, fedsol 2.0 x), with "
        "ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16 in the environment; results are others"
    )


def test_a_precision_that_never_works_is_named_with_its_signal(monkeypatch):
    answers(monkeypatch, lambda precision, _: took(1.0) if precision == "float32" else (-signal.SIGILL, "", ""))
    (trial,) = (trial for trial in diagnose().trials if trial.failure)
    assert trial.failure == "killed by SIGILL: the processor lacks instructions that it announces"


@pytest.mark.parametrize(("reduced", "pays"), [(9.5, False), (8.0, True), (20.0, False)])
def test_a_precision_pays_if_it_is_faster_beyond_noise(reduced, pays):
    trials = [
        Trial("cpu", "float32", dict.fromkeys(METHODS, 10.0)),
        Trial("cpu", "bfloat16", {"fedavg": reduced, "fedsol": 8.0}),
    ]
    (said,) = Diagnosis({}, tuple(trials)).advice
    assert ("'bfloat16' is faster" in said) == pays
    assert ("stay with engine.precision = 'float32'" in said) != pays


def test_a_device_that_does_not_work_is_said_to_be_so(monkeypatch):
    answers(monkeypatch, lambda *_: (1, "", "Traceback\nRuntimeError: no kernel image"))
    assert diagnose().advice[0] == "cpu: does not work (RuntimeError: no kernel image)"


def test_the_command_says_it_all_and_json_is_for_machines(monkeypatch):
    answers(monkeypatch, lambda precision, _: took(10.0))
    shown = command("doctor")
    assert shown.exit_code == 0, shown.output
    for word in (describe_machine()["torch"], "bfloat16", "stay with engine.precision = 'float32'"):
        assert word in shown.output
    found = json.loads(command("doctor", "--json").output)
    assert found["python"] == sys.version.split()[0]
    assert found["cores"] >= 1
    assert "cpu" in found["devices"]
    assert [trial["precision"] for trial in found["trials"]][:2] == ["float32", "bfloat16"]
