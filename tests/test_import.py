"""`import torsor` loads what every program needs and nothing more; all names are there all the same."""

import inspect
import subprocess
import sys

import pytest

import torsor as ts

ALWAYS = {
    "torsor",
    "torsor._check",
    "torsor._compile",
    "torsor._core",
    "torsor._errors",
    "torsor._lazy",
    "torsor.derivatives",
    "torsor.derivatives.matrices",
    "torsor.dynamics",
    "torsor.inertia",
    "torsor.joints",
    "torsor.kinematics",
    "torsor.model",
    "torsor.models",
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
