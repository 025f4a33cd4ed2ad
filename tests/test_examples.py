"""The scripts in examples/ and the demo run, and print what they promise."""

import ast
import importlib
import runpy
from pathlib import Path

import numpy as np
import pytest
from population import sweep

import torsor.demo
from torsor.testing import complex_step

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
TUTORIALS = sorted((ROOT / "examples" / "tutorials").glob("*.py"))
gallery = runpy.run_path(str(ROOT / "docs" / "extensions" / "gallery.py"))


def test_examples_are_numbered_without_gaps():
    assert [path.name[:2] for path in EXAMPLES] == [f"{i:02}" for i in range(1, len(EXAMPLES) + 1)]
    assert [path.name[:1] for path in TUTORIALS] == [f"{i}" for i in range(1, len(TUTORIALS) + 1)]
    assert EXAMPLES and TUTORIALS


# ---- pages and notebooks, which docs/extensions/gallery.py makes of the scripts


@pytest.mark.parametrize("path", [*EXAMPLES, *TUTORIALS], ids=lambda path: path.stem)
def test_cells_have_all_of_a_script(path):
    """In order, and no cell ends within a statement."""
    script = gallery["read"](path)
    assert script.title and script.lead and len(script.title) < 60
    for cell in script.cells:
        ast.parse(cell.code)
    whole = ast.parse(path.read_text(encoding="utf-8"))
    cells = ast.parse("\n".join(cell.code for cell in script.cells))
    assert ast.dump(ast.Module(whole.body[1:], [])) == ast.dump(ast.Module(cells.body, []))
    comments = [line for line in path.read_text(encoding="utf-8").splitlines() if line.startswith("# ")]
    text = "\n".join(f"{cell.text}\n{cell.code}" for cell in script.cells)
    assert all(line[2:] in text for line in comments)


@pytest.mark.parametrize("path", [*EXAMPLES, *TUTORIALS], ids=lambda path: path.stem)
def test_notebooks_are_valid_and_have_the_code(path):
    nbformat = pytest.importorskip("nbformat")
    script = gallery["read"](path)
    book = nbformat.from_dict(gallery["notebook"](script))
    nbformat.validate(book)
    code = [cell.source for cell in book.cells if cell.cell_type == "code"]
    assert code == [cell.code for cell in script.cells if cell.code]


def test_what_a_script_prints_and_draws_is_below_the_cell_that_did(monkeypatch, tmp_path):
    source = '''"""A title

The lead.
"""

# A text with a * b.
print("first")

# ## Second
x = 2
Path = __import__("pathlib").Path
Path("picture.png").write_bytes(b"")
'''
    path = tmp_path / "script.py"
    path.write_text(source, encoding="utf-8")
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    outputs = gallery["run"](path)
    assert outputs == [("first", []), ("", ["picture.png"])]
    page = gallery["page"](gallery["read"](path), outputs)
    parts = ["# A title", "The lead.", r"a \* b", "print(", "first\n```", "## Second", "x = 2", "(picture.png)"]
    assert sorted(parts, key=page.index) == parts


# ---- they run


@pytest.mark.parametrize("path", TUTORIALS, ids=lambda path: path.stem)
def test_tutorial_runs_and_draws_a_picture(path, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out
    pictures = list(tmp_path.glob("*.png"))
    assert pictures and all(len(picture.read_bytes()) > 10_000 for picture in pictures)


@pytest.mark.parametrize("path", sweep(EXAMPLES, len(EXAMPLES)), ids=lambda path: path.stem)
def test_example_runs(path, capsys, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # for pictures
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_newton_is_quadratic_on_a_trajectory_and_gauss_newton_is_not():
    example = runpy.run_path(str(next(path for path in EXAMPLES if "newton" in path.stem)))
    newton, gauss_newton = (np.array(example[name]) for name in ("newton", "gauss_newton"))
    assert newton[0] == gauss_newton[0]

    # One constant holds over nine decades, however small the error; the last norm is rounding.
    assert newton[-1] < 1e-9
    assert len(newton) - 1 == 5  # steps, as the README says
    constants = newton[1:-1] / newton[:-2] ** 2
    assert newton[-2] < 1e-6
    assert constants.max() < 0.01
    assert constants.max() < 5 * constants.min()

    # Gauss-Newton comes to the same minimum, by the factor that the eigenvalues predict.
    assert gauss_newton[-1] < 1e-9
    assert len(gauss_newton) - 1 > 60
    assert example["rate"] > 0.7
    np.testing.assert_allclose(gauss_newton[-10:] / gauss_newton[-11:-1], example["rate"], atol=0.02)

    # Away from the minimum, where the term that Gauss-Newton leaves out is not small.
    x = 0.3 * np.random.default_rng(0).standard_normal(example["x"].shape)
    step = complex_step(example["gradient"], x)
    np.testing.assert_allclose(example["hessian"](x, exact=True), step, rtol=0, atol=1e-12 * np.abs(step).max())
    assert np.abs(example["hessian"](x, exact=False) - step).max() > 0.1 * np.abs(step).max()


def test_demo_prints_a_tree_and_results(monkeypatch, capsys, tmp_path):
    monkeypatch.setattr(torsor.demo, "BATCH", 16)
    monkeypatch.setattr(torsor.demo, "fastest", lambda call: call() is None or 1e-6)
    torsor.demo.main(tmp_path / "picture.png")
    out = capsys.readouterr().out
    assert "front_left_calf" in out
    assert "forward dynamics" in out


WITHOUT = {
    "pinocchio": "Pinocchio is not installed",
    "scipy.optimize": "SciPy is not installed",
    "matplotlib": "Matplotlib is not installed",
    "tqdm": "bring the tip within",
}


@pytest.mark.parametrize("package", sweep(WITHOUT, len(WITHOUT)))
def test_demo_works_without_optional_packages(monkeypatch, capsys, tmp_path, package):
    def missing(name):
        if name == package:
            raise ImportError(name)
        return importlib.__import__(name, fromlist=["name"])

    monkeypatch.setattr(torsor.demo.importlib, "import_module", missing)
    monkeypatch.setattr(torsor.demo, "fastest", lambda call: call() is None or 1e-6)
    monkeypatch.setattr(torsor.demo, "compare", lambda *arguments: None)
    torsor.demo.main(tmp_path / "picture.png")
    assert WITHOUT[package] in capsys.readouterr().out


def test_demo_finds_the_torques_of_redmax(capsys, tmp_path):
    # scene 100: objectives and gradients that redmax (matlab-diff) computes, its joints last to first
    task = torsor.demo.Reach()
    for p, value, gradient in (
        ([0.0, 0.0], 11041.058146845271, [9545.737599699118, 8438.553659799416]),
        ([0.3, -0.2], 10981.91074386308, [3401.7078442951815, 10513.705611300509]),
        ([-1.0, 0.5], 10601.361485665775, [-155983.33420715854, -5105.2986741194363]),
    ):
        ours, derivative = task.objective(np.array(p[::-1]))
        assert ours == pytest.approx(value, rel=1e-9)
        np.testing.assert_allclose(derivative[::-1], gradient, rtol=1e-8)
    torsor.demo.reach(tmp_path / "picture.png")
    out = capsys.readouterr().out
    assert "Torques of -48085 and -78303" in out
    assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
