"""How it is measured: the least time of many repeats, with all that is compared taking turns."""

from __future__ import annotations

import gc
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
import timeit
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from calls import Call

import torsor as ts
from torsor import _core


@dataclass(frozen=True)
class Effort:
    """How long to measure."""

    turn: float = 2e-3  # seconds of calls that make a turn, or one call if it takes longer
    repeats: int = 30  # turns of each call, at the least
    seconds: float = 0.3  # turns go on for so long for each call
    limit: float = 20.0  # but stop when all calls together took so long,
    fewest: int = 10  # unless there were fewer than this


QUICK = Effort(repeats=5, seconds=0.0, limit=0.5, fewest=2)


def measure(calls: Mapping[str, Call], effort: Effort, states: int = 1, *, threads: bool = False) -> dict[str, float]:
    """The least seconds of each call, per state. Calls take turns, so that noise hits all alike.

    The clock is that of this thread's time on the processor: where other programs run, wall-clock time would
    count their share, and count it most in the calls that take longest. Calls that use several threads need
    the wall clock.
    """
    clock = time.perf_counter if threads else time.thread_time
    timers = {name: timeit.Timer(call.statement, "", clock, dict(call.names)) for name, call in calls.items()}
    best = dict.fromkeys(calls, float("inf"))
    with no_garbage_collection():
        counts = {name: calibrate(timer.timeit, effort.turn) for name, timer in timers.items()}
        order, turns, spent = list(calls), 0, 0.0
        start = time.perf_counter()
        while turns < effort.fewest or (
            spent < effort.limit and (turns < effort.repeats or spent < effort.seconds * len(calls))
        ):
            for name in order:
                best[name] = min(best[name], timers[name].timeit(counts[name]) / counts[name])
            order.reverse()
            turns += 1
            spent = time.perf_counter() - start
    return {name: seconds / states for name, seconds in best.items()}


def calibrate(timed: Callable[[int], float], least: float) -> int:
    """How many calls take `least` seconds, after one that may load modules and fill caches."""
    timed(1)
    count = 1
    while (spent := timed(count)) < least:
        count = int(1 + 1.2 * count * min(10.0, least / max(spent, 1e-9)))
    return count


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Within this, nothing is collected."""
    enabled = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def import_times(repeats: int) -> tuple[float, float]:
    """The least seconds that `import numpy` takes in new processes, and then `import torsor`.

    Files and bytecode are cached, the latter in a directory of this measurement's own.
    """
    script = (
        f"import sys; sys.path[:] = {sys.path!r}; "
        "from time import thread_time as now; start = now(); import numpy; middle = now(); import torsor; "
        "end = now(); print(middle - start, end - middle, torsor.__file__)"
    )
    environment = {name: x for name, x in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    times = []
    with tempfile.TemporaryDirectory() as directory:
        environment["PYTHONPYCACHEPREFIX"] = directory
        for _ in range(repeats + 1):
            command = [sys.executable, "-c", script]
            run = subprocess.run(command, env=environment, cwd=directory, check=True, capture_output=True, text=True)
            numpy, torsor, file = run.stdout.strip().split(" ", 2)
            if Path(file).resolve() != Path(ts.__file__).resolve():
                raise RuntimeError(f"a new process imports torsor from {file}, this one from {ts.__file__}")
            times.append((float(numpy), float(torsor)))
    warm = times[1:]  # the first one wrote the caches
    return min(t[0] for t in warm), min(t[1] for t in warm)


def machine() -> dict[str, Any]:
    """The machine, and what was compiled for it."""
    return {
        "cpu": _cpu(),
        "cores": cores(),
        "lanes": _core.lanes,
        "system": f"{platform.system()} {platform.machine()}",
        "compiler": _compiler(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    }


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def available_memory() -> float:
    """Bytes of memory that nothing uses; infinity where that is not known."""
    found = _proc("meminfo", r"^MemAvailable:\s*(\d+) kB")
    return 1024.0 * int(found) if found else float("inf")


def _cpu() -> str:
    return _proc("cpuinfo", r"^model name\s*:\s*(.+)$") or platform.processor() or platform.machine()


def _proc(file: str, pattern: str) -> str | None:
    path = Path("/proc") / file
    found = re.search(pattern, path.read_text(), re.MULTILINE) if path.exists() else None
    return found[1].strip() if found else None


def _compiler() -> str | None:
    """The compiler of the core, as compilers sign what they make."""
    names = re.findall(rb"GCC: \([^)\0]*\) ([\d.]+)|(clang version [\d.]+)", Path(_core.__file__).read_bytes())
    return ", ".join(sorted({f"GCC {gcc.decode()}" if gcc else clang.decode() for gcc, clang in names})) or None
