"""`import torsor` loads what every program needs and nothing more; all names are there all the same."""

import inspect
import platform
import subprocess
import sys

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


def test_a_cpu_that_lacks_instructions_of_the_core_is_refused_before_the_core_is_loaded():
    # A record of a build for a CPU of the future, on one that has only AVX2.
    printed = fresh(
        """
import types
fake = types.ModuleType("torsor._cpu")
fake.compiled_for, fake.supports = ("avx2", "avx512f", "avx1024"), lambda name: name == "avx2"
sys.modules["torsor._cpu"] = fake
try:
    import torsor
except ImportError as error:
    print(str(error).replace(" ", "_"), "torsor._core" in sys.modules)
"""
    )
    message, loaded = printed
    assert message.startswith("this_build_of_torsor_is_for_CPUs_with_avx512f,_avx1024,_which_this_CPU_lacks;_build_it")
    assert "pip_install" in message and "--no-binary_torsor" in message
    assert loaded == "False"


def test_the_cpu_is_asked_for_each_instruction_set():
    from torsor import _cpu

    assert all(_cpu.supports(name) for name in _cpu.compiled_for)  # or these tests would not run
    with pytest.raises(ValueError, match="no instruction set is called 'avx1024'"):
        _cpu.supports("avx1024")
    with pytest.raises(TypeError):
        _cpu.supports(3)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the baseline is the only instruction set")
def test_what_the_core_uses_is_in_the_record():
    from torsor import _core, _cpu

    lanes = 8 if "avx512f" in _cpu.compiled_for else 4 if "avx" in _cpu.compiled_for else 2
    assert _core.lanes == lanes


def test_show_config(capsys):
    from torsor import _core, _cpu

    ts.show_config()
    text = capsys.readouterr().out
    assert text.startswith(f"torsor {ts.__version__}, Python {platform.python_version()}, NumPy {np.__version__}\n")
    assert f"compiler: {_core.compiler}\n" in text and ("GCC" in text or "Clang" in text)
    assert f"instruction sets: {' '.join((platform.machine(), *_cpu.compiled_for))}\n" in text
    assert f"lanes: {_core.lanes} " in text and f"cores: {_core.cores}\n" in text
