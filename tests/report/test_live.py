"""The live view: this machine alone, two addresses, nothing else; it ends with the run and never stops it."""

import http.client
import json
import logging
import socket
from pathlib import Path

import pytest
from typer.testing import CliRunner

import fedsol
from fedsol.cli.app import app
from fedsol.reports.live import FolderView, LiveView
from tests.support.made_runs import make_run


def ask(live: LiveView, path: str, method: str = "GET", host: str | None = None) -> tuple[int, bytes]:
    port = int(live.address.rstrip("/").rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(method, path, headers={"Host": host} if host else {})
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, content


class Look(fedsol.Callback):
    """Does something after each round."""

    def __init__(self, action) -> None:
        self.action = action

    def round_finished(self, result) -> None:
        self.action(result)


def test_page_and_data_are_served_and_brought_up_to_date(tiny, tmp_path):
    versions = []

    def look(result):
        status, content = ask(live, f"/data.json?after={versions[-1] if versions else 0}")
        data = json.loads(content)
        assert (status, data["done"]) == (200, False)
        assert data["runs"][0]["metrics"]["x"] == list(range(1, result.round + 1))
        versions.append(data["version"])
        assert b"fedsol report" in ask(live, "/")[1]

    with LiveView(tmp_path / "run") as live:
        fedsol.train(tiny, [live, Look(look)], tmp_path / "run")
    assert len(versions) == 2
    assert versions[0] < versions[1]
    with pytest.raises(ConnectionRefusedError):
        ask(live, "/")


def test_nothing_else_is_served(tiny, tmp_path):
    seen = {}

    def look(_):
        for path in ("/metrics.jsonl", "/../environment.json", "/data.json/", "//etc/passwd", "/run.lock"):
            seen[path] = ask(live, path)[0]
        for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS"):
            seen[method] = ask(live, "/", method)[0]
        seen["rebound"] = ask(live, "/data.json", host="evil.example")[0]
        seen["localhost"] = ask(live, "/data.json", host=live.address.split("//")[1].rstrip("/"))[0]

    with LiveView(tmp_path / "run") as live:
        fedsol.train(tiny.override({"rounds": 1}), [live, Look(look)], tmp_path / "run")
    assert seen.pop("localhost") == 200
    assert seen.pop("rebound") == 403
    assert {seen.pop(method) for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS")} == {501}
    assert set(seen.values()) == {404}


def test_it_listens_on_the_loopback_interface_only(tmp_path):
    with LiveView(tmp_path) as live:
        assert live.address.startswith("http://127.0.0.1:")
        assert live._server.socket.getsockname()[0] == "127.0.0.1"


def test_trouble_with_the_view_does_not_stop_the_run(tiny, tmp_path, caplog):
    out = tmp_path / "run"

    def spoil(_):
        (out / "analysis").mkdir(exist_ok=True)
        (out / "analysis" / "bad.jsonl").write_text("{\n")

    with caplog.at_level(logging.WARNING), LiveView(out) as live:
        run = fedsol.train(tiny, [Look(spoil), live], out)
    assert len(run.rows) == 2
    assert "bad.jsonl: line 1: must be JSON" in caplog.text


def test_the_command_tells_the_address_and_ends(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = ["--set", "rounds=1", "--set", "client.epochs=1", "--set", "data.partition.clients=5"]
    done = CliRunner().invoke(app, ["run", "--live", "--out", "here", *small])
    assert done.exit_code == 0, done.output
    assert "Live report, until the run ends: http://127.0.0.1:" in done.output


@pytest.mark.parametrize("port", ["busy", "70000", "-5"])
def test_a_port_that_cannot_be_had_is_one_message_and_nothing_is_begun(tmp_path, monkeypatch, port):
    monkeypatch.chdir(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        number = str(taken.getsockname()[1]) if port == "busy" else port
        done = CliRunner().invoke(app, ["run", "--live", "--port", number, "--out", "here"])
    assert done.exit_code == 2
    assert len(done.output.strip().splitlines()) == 1
    assert f"--port: {number} cannot be used" in done.output
    assert not Path("here").exists()


def test_a_port_needs_the_live_view():
    done = CliRunner().invoke(app, ["run", "--port", "8000"])
    assert done.exit_code == 2
    assert "--port: needs --live" in done.output


def test_a_folder_of_runs_is_served_and_kept_up_to_date(tmp_path):
    make_run(tmp_path / "one", rounds=3)
    with FolderView([tmp_path]) as view:
        while not (data := json.loads(ask(view, "/data.json")[1]))["runs"]:
            pass
        assert [run["name"] for run in data["runs"]] == ["one"]
        make_run(tmp_path / "two", {"seed": 1}, rounds=3)
        while len(data["runs"]) < 2:
            data = json.loads(ask(view, f"/data.json?after={data['version']}")[1])
        assert (len(data["groups"]), data["done"]) == (1, False)
    with pytest.raises(ConnectionRefusedError):
        ask(view, "/")


def test_serving_writes_nothing_and_a_port_needs_it(tmp_path):
    for arguments, message in (
        (["--serve", "-o", "page.html"], "--out: is not allowed with --serve"),
        (["--port", "8000"], "--port: needs --serve (got 8000)"),
        (["--serve"], "no such directory"),
    ):
        done = CliRunner().invoke(app, ["report", str(tmp_path / "nothing"), *arguments])
        assert (done.exit_code, message in done.output) == (2, True), done.output
