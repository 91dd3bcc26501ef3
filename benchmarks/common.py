"""What the benchmarks share: interleaved timing, and results with the machine beside them."""

import json
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def interleaved(actions: Mapping[str, Callable[[], object]], repetitions: int, warm_up: int = 2) -> dict[str, float]:
    """Median seconds of each action; they take turns, so that a busy moment of the machine hits all alike."""
    for _ in range(warm_up):
        for action in actions.values():
            action()
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(repetitions):
        for name, action in actions.items():
            start = time.perf_counter()
            action()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


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
