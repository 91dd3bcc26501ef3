"""Ends the processes of Ray when the process that started them is gone.

Ray's agents notice a killed driver only after some twenty seconds. This file is run as a script beside the simulation.
It notes which processes descend from the driver's `raylet`. When its standard input ends, as it does with the driver
however that dies, it kills those that are left. On Linux only; elsewhere Ray's agents take their time.
"""

import contextlib
import os
import select
import signal
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAUSE = 0.5
"""Seconds between two looks at the processes."""


class Process(NamedTuple):
    """A process; its start (in the system's ticks) tells it from a later one with the same id."""

    id: int
    start: int


@contextlib.contextmanager
def reaped() -> Iterator[None]:
    """Kill what is left of Ray at the end, or when this process dies."""
    if sys.platform != "linux":
        yield
        return
    script = [sys.executable, "-I", __file__, str(os.getpid())]
    reaper = subprocess.Popen(script, stdin=subprocess.PIPE, start_new_session=True)
    try:
        yield
    finally:
        reaper.communicate()


def processes_of_ray(driver: int) -> set[Process]:
    """Return the `raylet` processes that the driver started, and all that descend from them."""
    children: dict[int, list[Process]] = defaultdict(list)
    raylets = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError, ValueError):  # it is gone
            name, _, rest = path.read_text(errors="replace").rpartition(")")
            fields = rest.split()
            process, parent = Process(int(path.parent.name), int(fields[19])), int(fields[1])
            children[parent].append(process)
            if parent == driver and name.endswith("(raylet"):
                raylets.append(process)
    found: set[Process] = set()
    while raylets:
        process = raylets.pop()
        found.add(process)
        raylets += children[process.id]
    return found


def main(driver: int) -> None:
    """Note the processes of Ray until the standard input ends; then kill those that are left."""
    known: set[Process] = set()
    while not select.select([sys.stdin], [], [], PAUSE)[0]:
        known |= processes_of_ray(driver)
    for process in known:
        with contextlib.suppress(OSError, ValueError):
            stat = Path(f"/proc/{process.id}/stat").read_text(errors="replace")
            if int(stat.rpartition(")")[2].split()[19]) == process.start:
                os.kill(process.id, signal.SIGKILL)


if __name__ == "__main__":
    main(int(sys.argv[1]))
