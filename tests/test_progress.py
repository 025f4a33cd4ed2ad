"""tools/progress.py shows how far a build is, and fails as the build does."""

import subprocess
import sys
from pathlib import Path

TOOL = Path(__file__).resolve().parents[1] / "tools" / "progress.py"
BUILD = """
print("Using pip 25.0")
print("  Installing build dependencies: started")
print("  Installing build dependencies: finished with status 'done'")
print("  *** Configuring CMake...")
print("  -- The CXX compiler identification is GNU 12.2.0")
print("  [1/3] Building CXX object CMakeFiles/_core.dir/core/bind/dynamics.cpp.o")
print("  [2/3] Building CXX object CMakeFiles/_core.dir/core/bind/jvp.cpp.o", flush=True)
"""
SHOWN = ["Installing build dependencies", "Configuring CMake", "[1/3] dynamics.cpp", "[2/3] jvp.cpp"]


def run(script):
    return subprocess.run([sys.executable, TOOL, sys.executable, "-c", script], capture_output=True, text=True)


def test_a_build_shows_its_progress_and_nothing_else():
    done = run(BUILD + 'print("  [3/3] Linking CXX shared module _core.cpython-311-x86_64-linux-gnu.so")')
    lines = done.stdout.splitlines()
    assert done.returncode == 0
    assert lines[:-1] == [*SHOWN, "[3/3] _core.cpython-311-x86_64-linux-gnu.so"]
    assert lines[-1].startswith("built in ")


def test_a_build_that_fails_shows_all_and_fails():
    done = run(BUILD + 'import sys; print("jvp.cpp:3: error: expected ;", file=sys.stderr); sys.exit(3)')
    assert done.returncode == 3
    assert done.stdout.splitlines()[: len(SHOWN)] == SHOWN
    for line in ("Using pip 25.0", "jvp.cpp:3: error: expected ;", "GNU 12.2.0", "failed with status 3"):
        assert line in done.stdout
