"""Processes of Ray do not outlive the simulation that started them, however it ended."""

import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("flwr", reason="Flower is an optional dependency: pip install 'fedsol[flower]'")

from fedsol.engines.flower.reaper import processes_of_ray
from tests.support.cases import experiment

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

DRIVER = """
import os, subprocess, sys, time
from fedsol.engines.flower import reaper
with reaper.reaped():
    other = subprocess.Popen(["sleep", "1000"])
    subprocess.Popen([sys.argv[1], "-c", "sleep 1000 & wait"])
    while len(reaper.processes_of_ray(os.getpid())) < 2:
        time.sleep(0.05)
    time.sleep(3 * reaper.PAUSE)
    print(other.pid, *[process.id for process in reaper.processes_of_ray(os.getpid())], flush=True)
    if sys.argv[2] == "ends":
        sys.exit()
    time.sleep(1000)
"""


def until_they_are_gone(processes):
    """Ends only if the reaper does its work: nobody else would end these processes."""
    while any(is_alive(process) for process in processes):
        time.sleep(0.05)


def is_alive(process):
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def name_of(process):
    """The command of a process; nothing if it has ended."""
    try:
        return Path(f"/proc/{process}/cmdline").read_text()
    except OSError:
        return ""


@pytest.mark.parametrize("end", ["ends", "is killed"])
def test_what_ray_leaves_is_killed_and_nothing_else(end, tmp_path):
    shell = tmp_path / "raylet"
    shell.symlink_to("/bin/sh")
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, shell, end], stdout=subprocess.PIPE, text=True)
    other, *processes = map(int, driver.stdout.readline().split())
    assert len(processes) == 2
    if end == "is killed":
        driver.kill()
    driver.wait()
    driver.stdout.close()
    until_they_are_gone(processes)
    assert is_alive(other)
    subprocess.run(["kill", "-9", str(other)], check=True)


@pytest.mark.full
@pytest.mark.skipif(find_spec("ray") is None, reason="Flower's simulation runs on Ray")
def test_the_agents_of_a_simulation_are_found_and_end_with_it(tmp_path):
    settings = experiment({"name": "fedavg"}, rounds=100_000, engine__kind="flower")
    (tmp_path / "experiment.toml").write_text(settings.to_toml())
    command = [sys.executable, "-m", "fedsol", "run", "experiment.toml", "--out", "run"]
    driver = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    found, names = [], ""
    try:
        metrics = tmp_path / "run" / "metrics.jsonl"
        while not (metrics.is_file() and metrics.stat().st_size):
            assert driver.poll() is None, "the simulation ended early"
            time.sleep(0.1)
        while not ("ray::DashboardAgent" in names and "ray::RuntimeEnvAgent" in names):
            assert driver.poll() is None, f"the simulation ended early; its processes: {names}"
            found = [process.id for process in processes_of_ray(driver.pid)]
            names = " ".join(map(name_of, found))
            time.sleep(0.1)
    finally:
        driver.kill()
        driver.wait()
    until_they_are_gone(found)
