"""What the benchmarks share: interleaved timing (the library's own), and results with the machine beside them."""

import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from fedsol.analysis.cost import interleaved

__all__ = ["interleaved", "machine", "save"]

RESULTS = Path(__file__).parent / "results"


def save(name: str, result: Mapping[str, Any]) -> None:
    """Writes results/NAME.json and prints it."""
    RESULTS.mkdir(exist_ok=True)
    content = {"benchmark": name, "machine": machine(), **result}
    (RESULTS / f"{name}.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(content, indent=2))


def machine() -> dict[str, Any]:
    """Where and with what the numbers were made."""
    model = "unknown"
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), model)
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "processor": model,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "torch": metadata.version("torch"),
        "fedsol": metadata.version("fedsol"),
    }
