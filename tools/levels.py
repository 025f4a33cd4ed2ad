"""Compares the levels of the core that an installation has: all functions of tests/functions.py, steps and simulations
with every integrator among them, for batches, on trees of all joints.

    python tools/levels.py [--allow-one]

Levels with fused multiply-adds (x86-64-v3 and higher) must agree to the last bit, however many lanes they have. Those
without round twice where others round once: they must agree to rounding. Levels that this CPU cannot run are named.
"""

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))
BATCH = (9,)  # one more than the widest pack has lanes
# Roundings of sums of some hundred products, magnified by the solution of systems: the condition numbers of the mass
# matrices of these states are up to 1e4, those of steps with stiff forces up to 1e6.
ROUNDING = 1e-9


def trees() -> list[Any]:
    """Two trees that have every built-in joint."""
    import torsor as ts
    from torsor import testing

    return [testing.random_tree(7, [*testing.example_joints()[k::2], ts.Fixed()]) for k in range(2)]


def cases() -> dict[str, Any]:
    """All functions, by name."""
    from functions import VARIANTS

    return dict(VARIANTS)


def draw() -> list[tuple[str, int, list[Any]]]:
    """The arguments of all functions: the same for all levels."""
    models = trees()
    return [(name, k, f.arguments(models[k], BATCH)) for name, f in cases().items() for k in range(len(models))]


def compute(calls: list[tuple[str, int, list[Any]]]) -> dict[str, Any]:
    """The results of all calls; the text of an error where there is one."""
    import numpy as np
    from compare import arrays_of

    import torsor as ts

    models, functions, out = trees(), cases(), {}
    for name, k, arrays in calls:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            try:
                out[f"{name}, tree {k}"] = arrays_of(functions[name](models[k], *arrays))
            except ts.TorsorError as error:
                out[f"{name}, tree {k}"] = f"{type(error).__name__}: {error}"
    return out


def in_level(level: str, calls: Path, results: Path) -> dict[str, Any]:
    """The results of another process, which uses a level."""
    command = [sys.executable, __file__, "--calls", str(calls), "--results", str(results)]
    subprocess.run(command, env={**os.environ, "TORSOR_ISA": level, "OPENBLAS_NUM_THREADS": "1"}, check=True)
    found: dict[str, Any] = pickle.loads(results.read_bytes())
    return found


def distance(x: Any, y: Any) -> float:
    """The largest difference of two results, relative to the largest entry of each array; infinite for errors."""
    import numpy as np

    if isinstance(x, str) or isinstance(y, str) or len(x) != len(y):
        return 0.0 if isinstance(x, str) and isinstance(y, str) else np.inf
    most = 0.0
    for a, b in zip(x, y, strict=True):
        if a.shape != b.shape or not np.array_equal(np.isnan(a), np.isnan(b)):
            return np.inf
        scale = max(1.0, np.nanmax(np.abs(b), initial=0.0))
        most = max(most, float(np.nanmax(np.abs(a - b), initial=0.0) / scale))
    return most


def identical(x: Any, y: Any) -> bool:
    """Whether two results have the same bits, or are the same error."""
    from compare import same_bits

    return bool(x == y) if isinstance(x, str) or isinstance(y, str) else same_bits(x, y)


def compare(results: dict[str, dict[str, Any]], fused: dict[str, bool]) -> list[str]:
    """What differs more than it may, between each level and the highest."""
    *others, best = results
    found = []
    for level in others:
        apart = {name: distance(x, results[best][name]) for name, x in results[level].items()}
        same = [name for name, x in results[level].items() if identical(x, results[best][name])]
        worst = max(apart, key=lambda name: apart[name])
        print(
            f"{level} and {best}: {len(same)} of {len(apart)} results have the same bits; the largest difference is "
            f"{apart[worst]:.1e} ({worst})"
        )
        exact = fused[level] and fused[best]
        wrong = [name for name in apart if (name not in same if exact else apart[name] > ROUNDING)]
        found += [f"{level} and {best} differ by {apart[name]:.1e}: {name}" for name in wrong]
    return found


def main() -> int:
    """Prints what differs; the exit status is 1 if anything does."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--calls", type=Path, help="only compute the calls in this file, at the level that is chosen,")
    parser.add_argument("--results", type=Path, help="and write the results to this file")
    parser.add_argument("--allow-one", action="store_true", help="accept an installation with one level only")
    given = parser.parse_args()
    if given.calls:
        given.results.write_bytes(pickle.dumps(compute(pickle.loads(given.calls.read_bytes()))))
        return 0
    from torsor import _cpu

    levels = [level for level, sets in _cpu.levels.items() if all(map(_cpu.supports, sets))]
    if unused := [level for level in _cpu.levels if level not in levels]:
        print(f"this CPU cannot run {', '.join(unused)}")
    if len(levels) < 2:
        print(f"there is nothing to compare: this installation has {', '.join(_cpu.levels)}")
        return 0 if given.allow_one and len(_cpu.levels) == 1 else 1
    with tempfile.TemporaryDirectory() as name:
        calls = Path(name) / "calls"
        calls.write_bytes(pickle.dumps(draw()))
        results = {}
        for level in levels:
            start = time.monotonic()
            results[level] = in_level(level, calls, Path(name) / level)
            print(f"{level}: {len(results[level])} results in {time.monotonic() - start:.0f} s", flush=True)
    found = compare(results, {level: "fma" in _cpu.levels[level] for level in levels})
    print("\n".join(found), end="\n" if found else "")
    return min(len(found), 1)


if __name__ == "__main__":
    sys.exit(main())
