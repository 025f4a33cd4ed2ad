"""The scripts in examples/ and the demo run, and print what they promise."""

import runpy
from pathlib import Path

import pytest

import torsor.demo

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def test_examples_are_numbered_without_gaps():
    assert [path.name[:2] for path in EXAMPLES] == [f"{i:02}" for i in range(1, len(EXAMPLES) + 1)]
    assert EXAMPLES


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_runs(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_demo_prints_a_tree_and_results(monkeypatch, capsys):
    monkeypatch.setattr(torsor.demo, "BATCH", 16)
    monkeypatch.setattr(torsor.demo, "fastest", lambda call: call() is None or 1e-6)
    torsor.demo.main()
    out = capsys.readouterr().out
    assert "front_left_calf" in out
    assert "forward dynamics" in out


def test_demo_works_without_pinocchio(monkeypatch, capsys):
    def missing(name):
        raise ImportError(name)

    monkeypatch.setattr(torsor.demo.importlib, "import_module", missing)
    monkeypatch.setattr(torsor.demo, "fastest", lambda call: call() is None or 1e-6)
    torsor.demo.main()
    assert "not installed" in capsys.readouterr().out
