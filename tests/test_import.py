"""`import torsor` loads what every program needs and nothing more; all names are there all the same."""

import inspect
import platform
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import torsor as ts

ALWAYS = {
    "torsor",
    "torsor._check",
    "torsor._compile",
    "torsor._core",
    "torsor._cpu",
    "torsor._errors",
    "torsor._lazy",
    "torsor._runtime",
    "torsor.actuators",
    "torsor.collision",
    "torsor.couplings",
    "torsor.derivatives",
    "torsor.derivatives.matrices",
    "torsor.dynamics",
    "torsor.inertia",
    "torsor.joints",
    "torsor.kinematics",
    "torsor.model",
    "torsor.models",
    "torsor.shapes",
    "torsor.spatial",
}


def fresh(code):
    """What a new interpreter prints."""
    script = f"import sys; sys.path[:] = {sys.path!r}\n{code}"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0, run.stderr
    return run.stdout.split()


def test_import_loads_no_more_than_it_must():
    before = set(fresh("import numpy, dataclasses\nprint(*sys.modules)"))
    after = set(fresh("import numpy, dataclasses, torsor\nprint(*sys.modules)"))
    loaded = after - before
    assert {m for m in loaded if m.split(".")[0] == "torsor"} == ALWAYS
    assert len(loaded - ALWAYS) < 10, loaded - ALWAYS  # of the standard library
    assert not loaded & {"scipy", "matplotlib", "xml", "tqdm"}


def test_a_name_brings_its_module():
    printed = fresh(
        "import torsor as ts\nts.BDF1\nprint('torsor.integrators' in sys.modules, 'torsor.forces' in sys.modules)\n"
        "print('BDF1' in vars(ts), callable(ts.adjoint), ts.simulation.__name__, callable(ts.adjoint))"
    )
    assert printed == ["True", "False", "True", "True", "torsor.simulation", "True"]


def test_star_import_and_dir_have_every_public_name():
    code = "from torsor import *\nimport torsor\n"
    printed = fresh(code + "print(set(torsor.__all__) <= set(dir()), set(torsor.__all__) <= set(dir(torsor)))")
    assert printed == ["True", "True"]
    assert len(set(ts.__all__)) == len(ts.__all__)


def test_no_name_is_both_a_module_and_something_else():
    import pkgutil

    modules = {m.name for m in pkgutil.iter_modules(ts.__path__)}
    public = {name for name in ts.__all__ if name in modules}
    assert all(inspect.ismodule(getattr(ts, name)) for name in public)


def test_unknown_name():
    with pytest.raises(AttributeError, match="module 'torsor' has no attribute 'simulat'"):
        ts.simulat  # noqa: B018


def with_levels(levels, has, isa=None):
    """The error of `import torsor` on a CPU that has some instruction sets, or the level that it chooses; and whether
    the core was loaded."""
    return fresh(
        f"""
import os, types
os.environ["TORSOR_ISA"] = {isa!r} or ""
fake = types.ModuleType("torsor._cpu")
fake.levels, fake.supports = {levels!r}, lambda name: name in {has!r}
sys.modules["torsor._cpu"] = fake
try:
    import torsor
    print(torsor._runtime.level, "torsor._core" in sys.modules)
except ImportError as error:
    print(str(error).replace(" ", "_"), "torsor._core" in sys.modules)
"""
    )


LEVELS = {"low": ("sse3",), "middle": ("sse3", "avx2"), "high": ("sse3", "avx2", "avx512f")}


def test_a_cpu_that_lacks_instructions_of_the_core_is_refused_before_the_core_is_loaded():
    # A build for a CPU of the future, on one that has only AVX2.
    message, loaded = with_levels({"native": ("avx2", "avx512f", "avx1024")}, {"avx2"})
    assert message.startswith("this_build_of_torsor_is_for_CPUs_with_avx512f,_avx1024,_which_this_CPU_lacks;_build_it")
    assert "pip_install" in message and "--no-binary_torsor" in message
    assert loaded == "False"


def test_a_cpu_below_the_lowest_level_is_refused():
    message, loaded = with_levels(LEVELS, set())
    assert message.startswith("this_build_of_torsor_is_for_CPUs_with_sse3,_which_this_CPU_lacks")
    assert loaded == "False"


def test_an_unknown_level_is_refused():
    message, loaded = with_levels(LEVELS, {"sse3", "avx2"}, "x86-64-v9")
    assert message.startswith(
        "TORSOR_ISA_is_'x86-64-v9',_but_this_build_of_torsor_has_the_levels_low,_middle,_high;_set_it_to_one_of_these"
    )
    assert "unset_it:_middle_is_chosen" in message
    assert loaded == "False"


def test_a_level_that_the_cpu_cannot_run_is_refused():
    message, loaded = with_levels(LEVELS, {"sse3", "avx2"}, "high")
    assert message.startswith("TORSOR_ISA_is_'high',_which_is_for_CPUs_with_avx512f,_which_this_CPU_lacks;_it_runs_low")
    assert "low,_middle;_set_it_to_one_of_these,_or_unset_it" in message
    assert loaded == "False"


@pytest.mark.parametrize(("isa", "chosen"), [(None, "middle"), ("low", "low"), ("middle", "middle")])
def test_the_highest_level_that_the_cpu_runs_is_chosen_unless_another_is_asked_for(isa, chosen):
    """The core is looked for in the folder of the level, after that of the package."""
    code = f"""
import os, types
os.environ["TORSOR_ISA"] = {isa!r} or ""
fake = types.ModuleType("torsor._cpu")
fake.levels, fake.supports = {LEVELS!r}, lambda name: name in {{"sse3", "avx2"}}
sys.modules["torsor._cpu"] = fake
package = types.ModuleType("torsor")
package.__path__ = {ts.__path__[:1]!r}
sys.modules["torsor"] = package
import torsor._runtime
print(torsor._runtime.level, os.path.relpath(package.__path__[1], package.__path__[0]).replace(os.sep, "/"))
"""
    assert fresh(code) == [chosen, f"_levels/{chosen}"]


def test_the_cpu_is_asked_for_each_instruction_set():
    from torsor import _cpu, _runtime

    assert _runtime.level in _cpu.levels and set(_cpu.flags) == set(_cpu.levels)
    assert all(_cpu.supports(name) for name in _cpu.levels[_runtime.level])  # or these tests would not run
    assert {name for sets in _cpu.levels.values() for name in sets} <= set(_cpu.known)
    with pytest.raises(ValueError, match="no instruction set is called 'avx1024'"):
        _cpu.supports("avx1024")
    with pytest.raises(TypeError):
        _cpu.supports(3)


@pytest.mark.skipif(not Path("/proc/cpuinfo").exists(), reason="the system does not list the features of the CPU")
def test_the_features_of_the_cpu_are_those_that_the_system_lists():
    from torsor import _cpu

    text = Path("/proc/cpuinfo").read_text()
    listed = set(re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE).group(1).split())
    called = {"sse3": "pni", "lzcnt": "abm", "bmi": "bmi1", "lse": "atomics", "rdm": "asimdrdm", "fp16": "asimdhp",
              "rcpc": "lrcpc", "dotprod": "asimddp", "avxvnni": "avx_vnni"}  # fmt: skip
    for name in _cpu.known:
        linux = {called.get(name, name), name.replace(".", "_"), name.replace("avx512", "avx512_")}
        assert _cpu.supports(name) == bool(linux & listed), name


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the baseline is the only instruction set")
def test_what_the_core_uses_is_in_the_record():
    from torsor import _core, _cpu, _runtime

    used = _cpu.levels[_runtime.level]
    assert _core.lanes == (8 if "avx512f" in used else 4 if "avx" in used else 2)
    march = f"-march={_runtime.level}"  # unless it is the default of the compiler
    assert march in _cpu.flags[_runtime.level] or _runtime.level == platform.machine()


def test_show_config(capsys):
    from torsor import _core, _cpu, _runtime

    ts.show_config()
    text = capsys.readouterr().out
    assert text.startswith(f"torsor {ts.__version__}, Python {platform.python_version()}, NumPy {np.__version__}\n")
    assert f"compiler: {_core.compiler}\n" in text and ("GCC" in text or "Clang" in text)
    used = _cpu.levels[_runtime.level]
    assert f"level: {_runtime.level} of {', '.join(_cpu.levels)}\n" in text
    assert f"instruction sets: {' '.join((platform.machine(), *used))}\n" in text
    assert f"flags: {_cpu.flags[_runtime.level]}\n" in text
    features = next(line for line in text.splitlines() if line.startswith("CPU: ")).split()[2:]
    assert set(used) <= set(features) <= set(_cpu.known)
    assert f"scipy {metadata.version('scipy')}" in text.splitlines()[-1]
    assert f"lanes: {_core.lanes} " in text and f"cores: {_core.cores}\n" in text
