"""Plots of motions over time with Matplotlib, in panels by groups of joints."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor._check import listed
from torsor._core import JointKind
from torsor.dynamics import inverse_dynamics
from torsor.model import WORLD, Model

if TYPE_CHECKING:
    from torsor._typing import FloatArray
    from torsor.simulation.trajectory import Trajectory

QUANTITIES = ("q", "v", "a", "tau", "controls", "energies")
_MOST = 8  # lines in a panel
_LONGEST = 20  # letters of its title
_FONT = 7.5  # points
_COLORS = ("#3578b5", "#c8374b", "#2a9d5c", "#e0a030", "#7a1f3d", "#1b8a9c", "#d0568a", "#6b7680")
_INK, _GRID = "#30363c", "#e8ebee"
_TITLES = {"q": "coordinates", "v": "velocities", "a": "accelerations", "tau": "forces", "controls": "controls"}
_UNITS = {  # by what a coordinate is: of q, v, a and tau
    "angle": ("rad", "rad/s", "rad/s²", "N m"),
    "quaternion": ("quaternion", "rad/s", "rad/s²", "N m"),
    "length": ("m", "m/s", "m/s²", "N"),
    "parameter": ("1", "1/s", "1/s²", "J"),
    "coordinate": ("", "", "", ""),
}


@dataclass
class _Line:
    """A name, and where its numbers are in q and in v, of the model or of its tree."""

    label: str
    q: int | None
    v: int | None
    follows: bool = False


@dataclass
class _Panel:
    """Lines of one unit."""

    title: str
    unit: str
    lines: list[_Line] = field(default_factory=list)


def plot(
    trajectory: Trajectory, joints: Sequence[str] | None, tracks: list[int], quantities: str | Sequence[str]
) -> Any:
    """`Trajectory.plot`."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ImportError("plot needs Matplotlib: pip install 'torsor[view]'") from None
    wanted = _require_quantities(trajectory, quantities)
    across = [name for name in wanted if name in ("q", "v", "a", "tau")]
    panels = _panels(trajectory.model, joints) if across else []
    below = [name for name in wanted if name in ("controls", "energies")]
    stacked = len(panels) <= 1
    rows = len(panels) * len(across) if stacked else len(panels)
    columns = 1 if stacked else len(across)
    names = [line.label for panel in panels for line in panel.lines] + ["potential"]
    names += _control_names(trajectory) if "controls" in below else []
    figure, grid = _layout(Figure, rows + len(below), columns, max(names, key=len))
    data = {name: _values(trajectory, name, tracks) for name in across}
    first: Any = None
    for r, panel in enumerate(panels):
        handles: list[Any] = []
        beside: Any = None
        for c, name in enumerate(across):
            place = grid[r * len(across) + c, 0] if stacked else grid[r, c]
            ax = figure.add_subplot(place, sharex=first)
            first = first or ax
            _fill(ax, trajectory, panel, name, data[name], titled=not stacked)
            if not stacked and r == 0:
                ax.set_title(_TITLES[name], fontsize=9, color=_INK, loc="left", weight="bold")
            handles = max(handles, ax.get_legend_handles_labels()[0], key=len)
            beside = ax if beside is None or not stacked else beside
        _legend(beside, handles)
    for k, name in enumerate(below):
        ax = figure.add_subplot(grid[rows + k, :], sharex=first)
        first = first or ax
        (_fill_controls if name == "controls" else _fill_energies)(ax, trajectory, tracks)
        _legend(ax, ax.get_legend_handles_labels()[0])
    _finish(figure, {rows + len(below), rows} if columns > 1 else {rows + len(below)})
    return figure


def _layout(make: Any, rows: int, columns: int, longest: str) -> tuple[Any, Any]:
    """A figure and its grid, with room for names beside the panels: in inches, because text is."""
    from matplotlib.textpath import TextPath

    across, between, high, apart = (5.6, 0.0, 1.9, 0.16) if columns == 1 else (3.3, 0.8, 1.5, 0.3)
    left, top, bottom = 0.95, 0.3, 0.5
    right = 0.5 + TextPath((0, 0), longest, size=_FONT).get_extents().width / 72
    width = left + columns * across + (columns - 1) * between + right
    height = top + rows * high + max(rows - 1, 0) * apart + bottom
    figure = make(figsize=(width, height))
    grid = figure.add_gridspec(
        max(rows, 1), columns, left=left / width, right=1 - right / width, top=1 - top / height, bottom=bottom / height,
        wspace=between / across, hspace=apart / high,
    )  # fmt: skip
    return figure, grid


def _require_quantities(trajectory: Trajectory, quantities: str | Sequence[str]) -> list[str]:
    wanted = [quantities] if isinstance(quantities, str) else list(quantities)
    for name in wanted:
        if name not in QUANTITIES:
            raise ValueError(f"no quantity {name!r}; quantities are {listed(QUANTITIES, name)}")
    if "controls" in wanted and trajectory.controls is None:
        raise ValueError("the trajectory has no controls to plot; simulate(..., controls=) gives them")
    return wanted


def _values(trajectory: Trajectory, name: str, tracks: list[int]) -> tuple[list[FloatArray], list[FloatArray]]:
    """Rows (rows, n) of a quantity for each of the tracks: in the model's coordinates and in those of its tree."""
    model, n, rows = trajectory.model, int(np.prod(trajectory.batch_shape)), len(trajectory.t)
    q, v, a = (x.reshape(n, rows, x.shape[-1]) for x in (trajectory.q, trajectory.v, trajectory.a))
    own, tree = [], []
    for k in tracks:
        if name == "tau":
            tau = np.full((rows, model.nv), np.nan)
            for track, first, last, now in trajectory.segments():
                if track == k:
                    at = slice(first, last + 1)
                    tau[at] = inverse_dynamics(now, q[k, at], v[k, at], a[k, at])
            own.append(tau)
            tree.append(tau)
            continue
        own.append({"q": q, "v": v, "a": a}[name][k])
        if not model.couplings:
            tree.append(own[-1])
        elif name == "q":
            tree.append(model.expand(q[k]))
        elif name == "v":
            tree.append(model.expand_velocity(q[k], v[k]))
        else:
            tree.append(model.expand_acceleration(q[k], v[k], a[k]))
    return own, tree


# ---- panels


def _panels(model: Model, joints: Sequence[str] | None) -> list[_Panel]:
    """The joints in groups, and each group in panels by unit, of a few lines each."""
    coordinates = () if model._map is None else model._map.new
    if joints is None:
        chosen, named = [i for i, j in enumerate(model.joints) if j.nv], list(coordinates)
    else:
        names = [joints] if isinstance(joints, str) else joints
        named = [name for name in names if name in coordinates]
        chosen = [model._find(name, "joint") for name in names if name not in coordinates]
    groups = _groups(model, chosen) if len(chosen) > _MOST else [chosen] if chosen else []
    titles = [_title([model.joints[i].name for i in group]) for group in groups]
    out: list[_Panel] = []
    for group, title in zip(groups, titles, strict=True):
        by_unit: dict[str, _Panel] = {}
        title = title if titles.count(title) == 1 else ""
        for i in group:
            for unit, lines in _lines(model, i):
                by_unit.setdefault(unit, _Panel(title, unit)).lines += lines
        for panel in by_unit.values():
            parts = -(-len(panel.lines) // _MOST) or 1
            size = -(-len(panel.lines) // parts)
            out += [_Panel(panel.title, panel.unit, panel.lines[k * size : (k + 1) * size]) for k in range(parts)]
    if model._map is not None:
        columns = [model._map.columns[name] for name in named]
        new = [_Line(name, model._map.position[at], at) for name, at in zip(named, columns, strict=True)]
        out += [_Panel("new coordinates", "coordinate", new[k : k + _MOST]) for k in range(0, len(new), _MOST)]
    return [panel for panel in out if panel.lines]


def _groups(model: Model, chosen: list[int]) -> list[list[int]]:
    """Chains of the tree: a joint goes with its parent's unless that one carries several; short ones go together."""
    parent = [-1 if b.parent == WORLD else model.body_index(b.parent) for b in model.bodies]
    moving = [bool(j.nv or j.follows) for j in model.joints]
    for i in range(len(parent)):  # fixed ones do not count as branches
        while parent[i] >= 0 and not moving[parent[i]]:
            parent[i] = parent[parent[i]]
    children = [sum(p == i and moving[k] for k, p in enumerate(parent)) for i in range(len(parent))]
    chain = [*range(len(parent))]
    for i, p in enumerate(parent):
        if (
            p >= 0
            and children[p] == 1
            and len(model.joints[p].joint._factors[0]) == 1
            and model.joints[p].joint.nv == 1
        ):
            chain[i] = chain[p]
    found: dict[int, list[int]] = {}
    for i in chosen:
        found.setdefault(chain[i], []).append(i)
    out: list[list[int]] = []
    for group in found.values():
        alone = len(group) == 1 and model.joints[group[0]].joint.nv == 1
        if (
            out
            and alone
            and len(out[-1]) < _MOST
            and all(model.joints[i].joint.nv == 1 for i in out[-1])
            and _short(out[-1])
        ):
            out[-1].extend(group)
        else:
            out.append(list(group))
    return out


def _short(group: list[int]) -> bool:
    return len(group) < 3


def _title(names: list[str]) -> str:
    """What the names of joints have in common, if it fits beside a panel."""
    if len(names) == 1:
        return names[0] if len(names[0]) <= _LONGEST else ""
    first, last = min(names), max(names)
    same = next((k for k, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    cut = max(first[:same].rfind(mark) for mark in "_/-. :")
    return first[:cut] if 1 < cut <= _LONGEST else ""


def _lines(model: Model, i: int) -> list[tuple[str, list[_Line]]]:
    """The coordinates of a joint by unit; a joint that follows others is looked up in the tree."""
    joint, tree = model.joints[i], model.tree.joints[i]
    follows = bool(joint.follows) and joint.nv == 0 and tree.nv > 0
    at = tree if follows else joint
    q, v = at.q_slice.start, at.v_slice.start
    out: list[tuple[str, list[_Line]]] = []
    factors = tree.joint._factors[0]
    single = len(factors) == 1 and factors[0].nv == 1
    k = 0

    def line(name: str, at_q: int | None, at_v: int | None) -> _Line:
        return _Line(name, at_q, at_v, follows)

    for factor in factors if at.nv else ():
        if factor.kind == JointKind.free:
            place = [line(f"{joint.name} {x}", q + n, v + 3 + n) for n, x in enumerate("xyz")]
            turn = [line(f"{joint.name} {x}", q + 3 + n, v + n if n < 3 else None) for n, x in enumerate("xyzw")]
            out += [("length", place), ("quaternion", turn)]
        elif factor.kind == JointKind.spherical:
            turn = [line(f"{joint.name} {x}", q + n, v + n if n < 3 else None) for n, x in enumerate("xyzw")]
            out.append(("quaternion", turn))
        else:
            unit = _UNIT_OF.get(factor.kind, "coordinate")
            labels = [joint.name if single else f"{joint.name}[{k + n}]" for n in range(factor.nv)]
            out.append((unit, [line(label, q + n, v + n) for n, label in enumerate(labels)]))
        q, v, k = q + factor.nq, v + factor.nv, k + factor.nv
    return out


_UNIT_OF: dict[int, str] = {
    JointKind.revolute: "angle", JointKind.screw: "angle", JointKind.exponential: "angle",
    JointKind.prismatic: "length", JointKind.spline_curve: "parameter", JointKind.spline_surface: "parameter",
}  # fmt: skip


# ---- axes


def _fill(
    ax: Any,
    trajectory: Trajectory,
    panel: _Panel,
    name: str,
    data: tuple[list[FloatArray], list[FloatArray]],
    titled: bool,
) -> None:
    own, tree = data
    for track in range(len(own)):
        for k, line in enumerate(panel.lines):
            column = line.q if name == "q" else line.v
            if column is None or (line.follows and name == "tau"):
                continue
            style: dict[str, Any] = {"ls": "--"} if line.follows else {}
            values = (tree if line.follows else own)[track][:, column]
            _line(ax, trajectory.t, values, line.label if track == 0 else None, k, track, len(own), **style)
    unit = _UNITS[panel.unit][("q", "v", "a", "tau").index(name)]
    text = f"{name} [{unit}]" if unit else name
    ax.set_ylabel(f"{panel.title}\n{text}" if titled and panel.title and name == "q" else text)


def _line(
    ax: Any, t: FloatArray, values: FloatArray, label: str | None, k: int, track: int, tracks: int, **style: Any
) -> None:
    alpha = 1.0 if tracks == 1 else max(0.25, 1.0 - 0.75 * track / (tracks - 1))
    ax.plot(t, values, color=_COLORS[k % len(_COLORS)], lw=1.4, alpha=alpha, label=label, **style)


def _fill_controls(ax: Any, trajectory: Trajectory, tracks: list[int]) -> None:
    """Controls of each step, held over it: of the last stage where there are several."""
    given = trajectory.controls
    assert given is not None
    steps = given[..., -1, :] if given.ndim - len(trajectory.batch_shape) == 3 else given
    n = int(np.prod(trajectory.batch_shape))
    u = np.broadcast_to(steps, (*trajectory.batch_shape, *steps.shape[-2:])).reshape(n, *steps.shape[-2:])
    t = trajectory.t[0] + np.arange(u.shape[1] + 1) * _step_length(trajectory)
    labels = _control_names(trajectory)
    for track, index in enumerate(tracks):
        for k, label in enumerate(labels):
            held = np.append(u[index, :, k], u[index, -1:, k])
            shown = label if track == 0 and k < _MOST else None
            _line(ax, t, held, shown, k, track, len(tracks), drawstyle="steps-post")
    if len(labels) > _MOST:
        ax.plot([], [], color="none", label=f"... {len(labels)} in all")
    ax.set_ylabel("controls")


def _step_length(trajectory: Trajectory) -> float:
    steps = trajectory.steps
    return float(trajectory.t[-1] - trajectory.t[0]) / steps if steps else 0.0


def _control_names(trajectory: Trajectory) -> list[str]:
    """Names of the joints on which controls act alone, u[k] for others."""
    model = trajectory.model
    names = [""] * model.nv
    for joint in model.joints:
        for n, at in enumerate(range(joint.v_slice.start, joint.v_slice.stop)):
            names[at] = joint.name if joint.nv == 1 else f"{joint.name}[{n}]"
    matrix = np.eye(model.nv) if trajectory.actuation is None else np.asarray(trajectory.actuation)
    out = []
    for k in range(matrix.shape[1]):
        rows = np.flatnonzero(matrix[:, k])
        out.append(names[int(rows[0])] if len(rows) == 1 and names[int(rows[0])] else f"u[{k}]")
    return out


def _fill_energies(ax: Any, trajectory: Trajectory, tracks: list[int]) -> None:
    n, rows = int(np.prod(trajectory.batch_shape)), len(trajectory.t)
    for track, index in enumerate(tracks):
        for k, (name, energy) in enumerate(trajectory.energies._asdict().items()):
            if name == "forces" and not trajectory.forces:
                continue
            values = energy.reshape(n, rows, -1)[index].sum(axis=-1)
            _line(ax, trajectory.t, values, name if track == 0 else None, k, track, len(tracks))
    ax.set_ylabel("energy [J]")


def _legend(ax: Any, handles: list[Any]) -> None:
    if handles:
        ax.legend(
            handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.02), borderaxespad=0, frameon=False,
            fontsize=_FONT, labelcolor=_INK, handlelength=1.4,
        )  # fmt: skip


def _finish(figure: Any, ends: set[int]) -> None:
    """The look of all axes; times stand below the last rows of columns alone."""
    for ax in figure.axes:
        place = ax.get_subplotspec()
        wide = ax.get_position().width * figure.get_figwidth()
        ax.yaxis.set_label_coords(-0.52 / wide, 0.5)
        ax.ticklabel_format(axis="y", scilimits=(-3, 5))
        ax.yaxis.offsetText.set(fontsize=_FONT, color=_INK)
        last = place.rowspan.stop in ends
        ax.grid(color=_GRID, lw=0.8)
        ax.set_axisbelow(True)
        ax.spines[:].set_visible(False)
        ax.tick_params(length=0, labelsize=_FONT, colors=_INK, labelbottom=last)
        ax.yaxis.label.set(fontsize=8, color=_INK)
        ax.margins(x=0)
        if last:
            ax.set_xlabel("t [s]", fontsize=8, color=_INK)
