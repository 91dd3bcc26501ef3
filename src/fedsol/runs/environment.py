"""The environment of a run: versions, machine, command, and the commit of the source."""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any


def environment() -> dict[str, Any]:
    """Return what is needed to reproduce a run: versions, machine and command."""
    packages = ("fedsol", "torch", "numpy", "safetensors", "scikit-learn")
    return {
        "command": shlex.join(sys.argv),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": {name: metadata.version(name) for name in packages},
        **source_commit(),
    }


def software(surroundings: Mapping[str, Any]) -> dict[str, str]:
    """Return the part of an environment that may change results: versions, and the commit of a checkout."""
    versions = {"python": surroundings.get("python", ""), **surroundings.get("packages", {})}
    if "commit" in surroundings:
        versions["commit"] = surroundings["commit"] + (" with changes" if surroundings.get("commit_modified") else "")
    return versions


@cache
def source_commit() -> dict[str, Any]:
    """Return the git commit of fedsol if it runs from a checkout, and whether its source was changed since.

    It is asked once: a process keeps the source it started with.
    """
    root = Path(__file__).resolve().parents[3]
    if not (root / ".git").exists():
        return {}
    git = ["git", "--no-optional-locks", "-C", str(root)]
    try:
        commit, changes = (
            subprocess.run([*git, *question], capture_output=True, text=True, timeout=10, check=True).stdout.strip()
            for question in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no", "--", "src"])
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return {"commit": commit, "commit_modified": bool(changes)}
