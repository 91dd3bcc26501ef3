"""A real Flower deployment on this machine's loopback: SuperLink, SuperNodes, TLS, node authentication."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

BIN = Path(sys.executable).parent
QUIET = {
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
}


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def listens(port: int) -> bool:
    """Whether somebody answers at a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Deployment:
    """Everything below one folder; every process it starts ends with it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.home = folder / "flwr-home"
        self.home.mkdir(parents=True)
        self.environment = {**os.environ, **QUIET, "FLWR_HOME": str(self.home), "PATH": f"{BIN}:{os.environ['PATH']}"}
        self.environment["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path[1:]])
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.make_authority("")
        (self.home / "config.toml").write_text(
            f'[superlink.link]\naddress = "127.0.0.1:{self.port}"\nroot-certificates = "{folder / "ca.crt"}"\n'
        )

    def call(self, *command: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs a command to its end."""
        done = subprocess.run(
            [str(part) for part in command], cwd=self.folder, env=self.environment, capture_output=True, text=True
        )
        assert done.returncode == 0 or not check, f"{command}\n{done.stdout}\n{done.stderr}\n{self.logs()}"
        return done

    def make_authority(self, prefix: str) -> None:
        """A certificate authority and a certificate of the server signed by it."""
        curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"]
        ca, server = f"{prefix}ca", f"{prefix}server"
        self.call("openssl", "req", "-x509", *curve, "-keyout", f"{ca}.key", "-out", f"{ca}.crt", "-subj", "/CN=ca")
        self.call("openssl", "req", *curve, "-keyout", f"{server}.key", "-out", f"{server}.csr", "-subj", "/CN=server")
        (self.folder / "names.txt").write_text("subjectAltName=IP:127.0.0.1\n")
        sign = ["-CA", f"{ca}.crt", "-CAkey", f"{ca}.key", "-CAcreateserial", "-extfile", "names.txt"]
        self.call("openssl", "x509", "-req", "-in", f"{server}.csr", "-out", f"{server}.crt", *sign)

    def start(self, name: str, *command: object, **environment: str) -> subprocess.Popen[bytes]:
        """Starts a process that goes on; its output is a log of the same name."""
        with (self.folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=self.folder,
                env={**self.environment, **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.processes[name] = process
        return process

    def start_link(self) -> None:
        """The SuperLink, with TLS and authentication of nodes; back when it listens."""
        certificates = [
            "--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.crt", "--ssl-keyfile", "server.key",
        ]  # fmt: skip
        self.start(
            "link", BIN / "flower-superlink", *certificates, "--enable-supernode-auth", "--host", "127.0.0.1",
            "--port", self.port, "--database", "federation.db",
        )  # fmt: skip
        self.wait_for(lambda: listens(self.port), "the SuperLink to listen")

    def make_key(self, name: str) -> None:
        """A key pair of a node."""
        self.call("ssh-keygen", "-q", "-t", "ecdsa", "-b", "384", "-N", "", "-f", f"{name}.key")

    def register(self, name: str) -> None:
        """Makes a node known to the SuperLink."""
        self.call(BIN / "flwr", "supernode", "register", f"{name}.key.pub", "link")

    def start_node(
        self, name: str, config: str, authority: str = "ca.crt", **environment: str
    ) -> subprocess.Popen[bytes]:
        """A SuperNode with its own key."""
        return self.start(
            name, BIN / "flower-supernode", "--root-certificates", authority, "--superlink", f"127.0.0.1:{self.port}",
            "--auth-supernode-private-key", f"{name}.key", "--port", free_port(), "--node-config", config,
            **environment,
        )  # fmt: skip

    def add_node(self, name: str, config: str, **environment: str) -> None:
        """Key, registration, process."""
        self.make_key(name)
        self.register(name)
        self.start_node(name, config, **environment)

    def write_app(self, name: str, settings: dict[str, object]) -> Path:
        """An app, and the run directory that it will have."""
        changes = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        self.call(BIN / "fedsol", "flower", "app", "-o", name, "--run", self.folder / f"{name}-run", *changes)
        return self.folder / f"{name}-run"

    def run_app(self, name: str, *options: str) -> None:
        """Starts an app and waits for its end."""
        self.call(BIN / "fedsol", "flower", "run", name, "link", *options)

    def restart_node(self, name: str, config: str, **environment: str) -> None:
        """As a service manager does: Flower refuses a key for as long as it takes the killed node for connected."""
        log = self.folder / f"{name}.log"
        before = log.read_text().count("SuperNode ID")
        process = self.start_node(name, config, **environment)

        def connected() -> bool:
            nonlocal process
            if process.poll() is not None:
                time.sleep(3)
                process = self.start_node(name, config, **environment)
            return log.read_text().count("SuperNode ID") > before

        self.wait_for(connected, f"{name} to be let in again")

    def kill(self, name: str) -> None:
        """SIGKILL to a process and all that it started."""
        process = self.processes.pop(name)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def runs(self, name: str) -> bool:
        """Whether a process was started and has not ended."""
        return name in self.processes and self.processes[name].poll() is None

    def repair(self, nodes: Mapping[str, str]) -> None:
        """Starts again what an earlier test left down: the SuperLink, and those of these nodes, name and config."""
        if not self.runs("link"):
            self.start_link()
        for name, config in nodes.items():
            if not self.runs(name):
                self.restart_node(name, config)

    def wait_for(self, condition, what: str, seconds: float = 900) -> None:
        """Waits for something to be true; a deployment that never gets there fails loudly."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"waited in vain for {what}\n{self.logs()}"
            time.sleep(0.2)

    def rows(self, run: Path) -> int:
        """Finished rounds of a run."""
        path = run / "metrics.jsonl"
        return len(path.read_text().splitlines()) if path.exists() else 0

    def logs(self) -> str:
        """The end of every log."""
        texts = [f"--- {path.name}\n{path.read_text()[-3000:]}" for path in sorted(self.folder.glob("*.log"))]
        return "\n".join(texts)

    def close(self) -> None:
        """Ends everything."""
        for name in list(self.processes):
            self.kill(name)

    def __enter__(self) -> "Deployment":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()
