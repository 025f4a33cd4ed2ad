"""tools/release.py knows the checkout of a release, and what a release must contain."""

import importlib.util
import subprocess
import tarfile
from pathlib import Path

import pytest

TOOLS = Path(__file__).resolve().parents[1] / "tools"


def load(name):
    spec = importlib.util.spec_from_file_location(name, TOOLS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with a version, and the tool that looks at it."""
    tool = load("release")
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    package = tmp_path / "src" / "torsor"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text('__version__ = "1.2.3"\n')
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-q", "-m", "a")
    return tool


def git(folder, *command):
    subprocess.run(["git", *command], cwd=folder, check=True)


def test_a_checkout_is_a_release_at_its_tag_and_without_changes(checkout):
    assert not checkout.is_release()
    git(checkout.ROOT, "tag", "v1.2.4")
    assert not checkout.is_release()
    git(checkout.ROOT, "tag", "v1.2.3")
    assert checkout.is_release()
    (checkout.ROOT / "new.py").write_text("")
    assert not checkout.is_release()


def test_nothing_is_fetched_for_another_checkout(checkout, capsys, tmp_path):
    assert checkout.main(["fetch", str(tmp_path / "wheels")]) == 1
    assert "built from source" in capsys.readouterr().out
    assert not (tmp_path / "wheels").exists()


def test_a_wheel_that_is_there_is_not_fetched_again(checkout, tmp_path_factory):
    git(checkout.ROOT, "tag", "v1.2.3")
    wheels = tmp_path_factory.mktemp("wheels")
    (wheels / "torsor-1.2.3-cp312-cp312-linux_x86_64.whl").touch()
    assert checkout.main(["fetch", str(wheels)]) == 0


def test_a_source_distribution_must_have_the_files_of_the_build(checkout, tmp_path_factory):
    archive = tmp_path_factory.mktemp("dist") / "torsor-1.2.3.tar.gz"
    with tarfile.open(archive, "w:gz"):
        pass
    with pytest.raises(SystemExit, match=r"torsor-1.2.3.tar.gz lacks src/torsor/__init__.py"):
        checkout.check_source(archive)
    with tarfile.open(archive, "w:gz") as tar:
        tar.add(checkout.ROOT / "src", "torsor-1.2.3/src")
    checkout.check_source(archive)
    other = archive.rename(archive.with_name("torsor-1.2.2.tar.gz"))
    with pytest.raises(SystemExit, match=r"torsor-1.2.2.tar.gz is not that of version 1.2.3"):
        checkout.check_source(other)


def test_levels_are_compared_by_bits_or_to_rounding(capsys):
    import numpy as np

    tool = load("levels")
    x, y = [np.array([1.0, 2.0])], [np.array([1.0, np.nextafter(2.0, 3.0)])]
    fused = {"v2": False, "v3": True, "v4": True}
    assert tool.compare({"v2": {"f": y}, "v3": {"f": x}, "v4": {"f": x}}, fused) == []
    assert "v3 and v4: 1 of 1 results have the same bits" in capsys.readouterr().out
    assert tool.compare({"v3": {"f": y}, "v4": {"f": x}}, fused) == ["v3 and v4 differ by 2.2e-16: f"]
    far = [np.array([1.0, 2.001])]
    assert tool.compare({"v2": {"f": far}, "v4": {"f": x}}, fused) == ["v2 and v4 differ by 5.0e-04: f"]
    # An error in one level only, and a number in one that is none in the other.
    assert tool.compare({"v3": {"f": "ModelError"}, "v4": {"f": x}}, fused) == ["v3 and v4 differ by inf: f"]
    assert tool.compare({"v2": {"f": [x[0] * np.nan]}, "v4": {"f": x}}, fused) == ["v2 and v4 differ by inf: f"]


def test_every_source_is_compiled_for_other_systems():
    tool = load("cross")
    core = {f"core/{path.parent.name}/{path.name}" for path in (tool.ROOT / "core").rglob("*.cpp")}
    assert set(tool.sources()) == core - {"core/bind/cpu_target.cpp"}
    assert "-Wno-bitwise-instead-of-logical" in tool.warnings()
