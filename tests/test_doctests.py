"""Examples in docstrings run as they stand, and give what they say."""

import ast
import doctest
import inspect
from pathlib import Path

import numpy as np
import pytest

import torsor as ts

PACKAGE = Path(__file__).resolve().parents[1] / "src" / "torsor"


def names():
    """What every example may use, as docs/api/index.rst says."""
    model = ts.models.arm7()
    rng = np.random.default_rng(0)
    q = model.random(rng)
    v, a, tau, w = rng.standard_normal((4, model.nv))
    return {"np": np, "ts": ts, "model": model, "rng": rng, "q": q, "v": v, "a": a, "tau": tau, "w": w}


def docstrings(node, name):
    """All docstrings below a node of a syntax tree, with the names of what they describe, and their lines."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            inner = f"{name}.{child.name}"
            if text := ast.get_docstring(child):
                yield inner, text, child.body[0].lineno
            yield from docstrings(child, inner)


def examples():
    """One for each docstring with examples."""
    for path in sorted(PACKAGE.rglob("*.py")):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        for name, text, line in docstrings(ast.parse(path.read_text(encoding="utf-8")), module):
            test = doctest.DocTestParser().get_doctest(text, {}, name, str(path), line)
            if test.examples:
                yield name, test


EXAMPLES = dict(examples())


@pytest.mark.parametrize("name", sorted(EXAMPLES))
def test_examples_of_docstrings_are_true(name, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)  # for files
    test = EXAMPLES[name]
    test.globs = names()
    said: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS, verbose=False)
    with np.printoptions(precision=4, suppress=True):
        runner.run(test, out=said.append)
    assert not said, "".join(said)


@pytest.mark.parametrize("name", [n for n in ts.__all__ if not inspect.isclass(getattr(ts, n))])
def test_every_function_has_an_example(name):
    value = getattr(ts, name)
    assert inspect.ismodule(value) or ">>>" in value.__doc__
