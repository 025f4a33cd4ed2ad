"""The picture of the benchmark, time per state of torsor and Pinocchio. Run it to redraw results.json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.ticker import NullLocator

OURS, THEIRS, INK, FAINT = "#c8374b", "#aab4bf", "#222222", "#e3e6ea"
ROBOTS = {"panda": "panda\n7 dof", "HyQ": "HyQ\n18 dof", "Talos": "Talos\n38 dof"}
LABELS = {"inverse dynamics": "inverse", "forward dynamics": "forward", "mass matrix": "mass\nmatrix"}
STYLE = {"font.size": 10, "text.color": INK, "axes.labelcolor": INK, "xtick.color": INK, "ytick.color": INK}


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw single calls and batches side by side, on one scale, and write a PNG."""
    sections, versions, machine = report["sections"], report["versions"], report["machine"]
    with mpl.rc_context(STYLE):
        layout = ConstrainedLayoutEngine(w_pad=0.1, h_pad=0.1, wspace=0.03)
        figure = Figure(figsize=(10, 4.8), dpi=160, layout=layout)
        one, batch = figure.subplots(1, 2, sharey=True, width_ratios=(10.5, 7.5))
        panel(one, "One state, called from Python", sections["state"])
        panel(batch, f"Batch of {report['plan']['batch']}, one thread", sections["batch"])
        times = [bar.get_height() for axes in (one, batch) for bar in axes.patches]
        one.set_ylim(0.5 * min(times), 2.5 * max(times))
        one.set_ylabel("microseconds per state")
        one.legend(loc="upper left", frameon=False)
        figure.supxlabel(
            "Inverse dynamics, forward dynamics and mass matrix, and how many times as fast torsor is. "
            f"torsor {versions['torsor']}, Pinocchio {versions['Pinocchio']}, "
            f"{machine['cpu']} with {machine['lanes']} lanes",
            fontsize=8,
            color="#666666",
        )
        figure.savefig(path)


def panel(axes: Axes, title: str, lines: Sequence[Mapping[str, Any]]) -> None:
    """Draw a pair of bars for each robot and function, with the speed-up above them."""
    width, position = 0.4, 0.0
    ticks: list[float] = []
    labels: list[str] = []
    for robot, name in ROBOTS.items():
        start = position
        for line in (line for line in lines if line["model"] == robot):
            ours, theirs = 1e6 * line["ours"], 1e6 * line["other"]
            first = not ticks
            axes.bar(position - width / 2, ours, width, color=OURS, label="torsor" if first else None)
            axes.bar(position + width / 2, theirs, width, color=THEIRS, label="Pinocchio" if first else None)
            digits = 1 if line["value"] < 9.95 else 0
            speedup = f"{line['value']:.{digits}f}\N{MULTIPLICATION SIGN}"
            axes.text(position, 1.08 * max(ours, theirs), speedup, ha="center", va="bottom", weight="bold")
            ticks.append(position)
            labels.append(LABELS[line["what"]])
            position += 1
        below = axes.get_xaxis_transform()
        axes.text((start + position - 1) / 2, -0.125, name, transform=below, ha="center", va="top")
        position += 0.5
    axes.set_title(title, loc="left", weight="bold")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_locator(NullLocator())
    axes.set_xticks(ticks, labels, fontsize=9)
    axes.tick_params(length=0)
    axes.grid(axis="y", color=FAINT)
    axes.set_axisbelow(True)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.margins(x=0.02)


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    draw(json.loads((here / "results.json").read_text()), here.parent / "docs/images/benchmark.png")
