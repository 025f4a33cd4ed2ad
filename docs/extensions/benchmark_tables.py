"""Figures of the manual, from benchmarks/results.json, which `make bench` writes: none stands in the text itself."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.util.docutils import SphinxDirective

RESULTS = json.loads((Path(__file__).resolve().parents[2] / "benchmarks" / "results.json").read_text(encoding="utf-8"))


def row(section: str, model: str, what: str) -> dict[str, Any]:
    """One measurement."""
    (found,) = [r for r in RESULTS["sections"][section] if (r["model"], r["what"]) == (model, what)]
    return dict(found)


def digits(x: float) -> str:
    """Two digits, without an exponent."""
    return f"{x:.0f}" if x >= 9.95 else f"{x:.1f}"


def seconds(t: float) -> str:
    """A time with a unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if t >= size:
            return f"{digits(t / size)} {unit}"
    return f"{digits(t * 1e9)} ns"


def substitutions() -> dict[str, str]:
    """Figures that pages name in double braces."""
    forward = row("batch", "Talos", "forward dynamics")
    derivatives = row("derivatives", "Talos", "derivatives of forward dynamics, one state")
    gradient = row("simulation", "Talos", "100 steps and gradient of controls : steps")
    machine = RESULTS["machine"]
    return {
        "states_per_second": f"{1e-6 / forward['ours']:.1f} million",
        "batch_ratio": digits(forward["value"]),
        "derivatives_time": seconds(derivatives["ours"]),
        "derivatives_ratio": digits(derivatives["value"]),
        "gradient_ratio": digits(gradient["value"]),
        "machine": f"{machine['cpu']}, {machine['lanes']} lanes, {machine['compiler']}",
        "measured": RESULTS["date"][:10],
        "batch_size": str(RESULTS["plan"]["batch"]),
    }


class Benchmark(SphinxDirective):
    """``.. benchmark:: section``: a table of the measurements of a section that compare two times.

    ``:models:`` names the models to show, ``:ours:`` and ``:other:`` the two columns.
    """

    required_arguments = 1
    option_spec: ClassVar[dict[str, Any]] = {
        "models": directives.unchanged,
        "ours": directives.unchanged,
        "other": directives.unchanged,
        "contains": directives.unchanged,
    }

    def run(self) -> list[nodes.Node]:
        """Called by Sphinx."""
        models = [name.strip() for name in self.options.get("models", "").split(",") if name.strip()]
        heads = ["", "", self.options.get("ours", "torsor"), self.options.get("other", "other"), "ratio"]
        rows = [
            [r["model"], r["what"], seconds(r["ours"]), seconds(r["other"]), digits(r["value"])]
            for r in RESULTS["sections"][self.arguments[0]]
            if r["unit"] == "x"
            and (not models or r["model"] in models)
            and self.options.get("contains", "") in r["what"]
        ]
        if not rows:
            raise self.error(f"no measurement of {self.arguments[0]!r} fits")
        lines = ["| " + " | ".join(cells) + " |" for cells in (heads, ["---"] * 2 + ["--:"] * 3, *rows)]
        return self.parse_text_to_nodes("\n".join(lines))


def setup(app: Any) -> dict[str, bool]:
    """Called by Sphinx."""
    app.add_directive("benchmark", Benchmark)
    return {"parallel_read_safe": True}
