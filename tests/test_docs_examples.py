"""Code in README.md and in docs/ runs as it stands, block after block, as a reader would paste it."""

import re
from pathlib import Path
from types import ModuleType

import pytest

import torsor as ts

ROOT = Path(__file__).parents[1]
MADE = {"_build", "gallery", "tutorials"}  # by docs/extensions/gallery.py; test_examples.py runs the scripts
PAGES = [ROOT / "README.md", *sorted(p for p in (ROOT / "docs").rglob("*.md") if not MADE & {*p.parts})]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
WITH_CODE = [page for page in PAGES if BLOCK.search(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_code_blocks_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("webbrowser.open", lambda url: True)
    text = page.read_text(encoding="utf-8")
    namespace: dict[str, object] = {}
    for match in BLOCK.finditer(text):
        # Blank lines put the block where it stands in the page, so that a traceback points there.
        line = text.count("\n", 0, match.start(1))
        exec(compile("\n" * line + match.group(1), str(page), "exec"), namespace)


def test_readme_has_code():
    assert ROOT / "README.md" in WITH_CODE


def test_the_table_of_joints_names_every_joint():
    text = (ROOT / "docs" / "joints.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)\(.*?\)` \|", text, re.MULTILINE)
    joints = {name for name in ts.__all__ if is_joint(getattr(ts, name))}
    assert set(rows) == joints


def is_joint(value):
    return isinstance(value, type) and issubclass(value, ts.Joint) and value not in (ts.Joint, ts.CustomJoint)


def test_the_table_of_forces_names_every_force():
    text = (ROOT / "docs" / "forces.md").read_text(encoding="utf-8")
    forces = {name for name in ts.__all__ if is_force(getattr(ts, name))}
    assert set(re.findall(r"^\| `(\w+)\(.*?\)` \|", text, re.MULTILINE)) == forces


def is_force(value):
    return isinstance(value, type) and issubclass(value, ts.Force) and value not in (ts.Force, ts.CustomForce)


def test_the_table_of_constraints_names_every_constraint():
    text = (ROOT / "docs" / "constraints.md").read_text(encoding="utf-8")
    constraints = {name for name in ts.__all__ if is_constraint(getattr(ts, name))}
    assert set(re.findall(r"^\| `(\w+)\(.*?\)` \|", text, re.MULTILINE)) == constraints


def is_constraint(value):
    bases = (ts.Constraint, ts.CustomConstraint)
    return isinstance(value, type) and issubclass(value, ts.Constraint) and value not in bases


def test_api_reference_lists_every_public_name():
    text = "\n".join(page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs" / "api").glob("*.rst")))
    listed = set(re.findall(r"^(?:   |\.\. automodule:: |\.\. members:: )torsor\.([\w.]+)", text, re.MULTILINE))
    names = {name for name in ts.__all__ if not isinstance(getattr(ts, name), ModuleType)}
    for module in (
        ts.constraints,
        ts.costs,
        ts.derivatives,
        ts.forces,
        ts.integrators,
        ts.simulation,
        ts.variational,
        ts.models,
    ):
        names |= {f"{module.__name__.partition('.')[2]}.{name}" for name in module.__all__ if name not in names}
    assert listed >= names | {"interop", "spatial", "testing"}


def test_the_table_of_errors_names_every_class():
    text = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)`.*? \| (.*?) \| (.*?) \|$", text, re.MULTILINE)
    classes = {name for name in ts.__all__ if is_exception(getattr(ts, name))}
    assert {name for name, _, _ in rows} >= classes - {"TorsorError"}
    assert all(raised and remedy for _, raised, remedy in rows)


def is_exception(value):
    return isinstance(value, type) and issubclass(value, BaseException)


def rows_of(page, heading):
    """The two cells of each row of the table under a heading."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    return re.findall(r"^\| (.*?) \| (.*?) \|$", text, re.MULTILINE)[1:]


def calls_in(cell):
    """What is called in a cell, or named as a whole: `f(x)`, `f`, `x.f`; not words in quotation marks."""
    return re.findall(r"`((?:\w+\.)*\w+)(?:\([^`]*\))?`", cell)


@pytest.mark.parametrize("library", ["Pinocchio", "MuJoCo", "Drake"])
def test_calls_for_those_who_come_from_another_library_exist(library):
    rows = rows_of(f"coming_from_{library.lower()}.md", "Calls")
    assert len(rows) > 15
    for _, ours in rows:
        for name in calls_in(ours):
            thing = ts.Model if name.lower().startswith("model.") else ts
            thing = ts.ModelBuilder if name.startswith("ModelBuilder.") else thing
            options = {"threads", "order", "f_ext", "f_ext_frame", "forces", "MjModel", "root", "about"}
            options |= {"q_slice", "v_slice"}  # of ModelJoint
            assert hasattr(thing, name.split(".")[-1]) or name in options, name


def test_calls_of_pinocchio_exist():
    pin = pytest.importorskip("pinocchio")
    places = (pin, pin.Model, pin.Data)
    in_cpp = {"ComputeRNEASecondOrderDerivatives"}
    for theirs, _ in rows_of("coming_from_pinocchio.md", "Calls"):
        for name in calls_in(theirs):
            assert any(hasattr(place, name.split(".")[-1]) for place in places) or name in in_cpp, name


def test_calls_of_mujoco_exist():
    mujoco = pytest.importorskip("mujoco")
    pytest.importorskip("mujoco.rollout")
    places = (mujoco, mujoco.MjModel, mujoco.MjData, mujoco.rollout)
    for theirs, _ in rows_of("coming_from_mujoco.md", "Calls"):
        for name in calls_in(theirs):
            assert any(hasattr(place, name.split(".")[-1]) for place in places), name
