"""The scripts in examples/ and the demo run, and print what they promise."""

import importlib
import runpy
from pathlib import Path

import numpy as np
import pytest
from population import sweep

import torsor.demo
from torsor.testing import complex_step

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


def test_examples_are_numbered_without_gaps():
    assert [path.name[:2] for path in EXAMPLES] == [f"{i:02}" for i in range(1, len(EXAMPLES) + 1)]
    assert EXAMPLES


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
