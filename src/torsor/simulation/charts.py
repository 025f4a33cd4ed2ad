"""Changes of the coordinates of joints during a simulation, and their derivatives.

`SphericalEuler` switches to another chart when |det S| falls below 1/2, `SphericalExp` to the equivalent vector shorter
than pi when it is longer. Sueda 2021, 2.5.5 and 2.5.8; docs/derivations/implicit_steps.md, section 4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from math import hypot
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from torsor._core import ChartLimit
from torsor.joints import Composite, Free, Joint, Spherical, SphericalEuler, SphericalExp
from torsor.model import Model
from torsor.spatial import quaternion_to_matrix

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torsor._typing import EulerChart, FloatArray


def _euler(chart: str) -> SphericalEuler:
    return SphericalEuler(cast("EulerChart", chart))


@dataclass(frozen=True)
class ChartPart:
    """A joint, or part of a composite one, whose coordinates may be changed."""

    name: str  # of the joint; of a part of a composite with its index
    body: int
    path: tuple[int, ...]  # within composites
    iq: int
    iv: int
    chart: str  # "exp" for exponential coordinates

    def limit(self, chart: str) -> int:
        """The kind of limit at which it is changed."""
        if chart == "exp":
            return ChartLimit.exponential
        return ChartLimit.euler_sine if chart[0] == chart[2] else ChartLimit.euler_cosine


@dataclass(frozen=True)
class ChartSwitch:
    """A change of coordinates at a row of a trajectory.

    `track` is the trajectory (flat index in the batch). `q`, `v` and `a` are the row's in the old coordinates; the row
    before it, which integrators of two steps need too, is `previous_q` and `previous_v` in the new ones. `old` and
    `charts` are the charts before and after, for every joint that may change them.
    """

    track: int
    row: int
    old: tuple[str, ...]
    charts: tuple[str, ...]
    q: FloatArray
    v: FloatArray
    a: FloatArray
    previous_q: FloatArray
    previous_v: FloatArray


def _parts_of(joint: Joint, name: str, body: int, path: tuple[int, ...], iq: int, iv: int) -> list[ChartPart]:
    if isinstance(joint, SphericalEuler):
        return [ChartPart(name, body, path, iq, iv, joint.chart)]
    if isinstance(joint, SphericalExp):
        return [ChartPart(name, body, path, iq, iv, "exp")]
    parts = []
    if isinstance(joint, Composite):
        for k, part in enumerate(joint.joints):
            parts += _parts_of(part, f"{name}[{k}]", body, (*path, k), iq, iv)
            iq, iv = iq + part.nq, iv + part.nv
    return parts


def chart_parts(model: Model) -> Sequence[ChartPart]:
    """All joints of the model whose coordinates may be changed."""
    if "chart_parts" not in model._cache:
        parts = []
        for i, j in enumerate(model.joints):
            parts += _parts_of(j.joint, j.name, i, (), j.q_slice.start, j.v_slice.start)
        model._cache["chart_parts"] = tuple(parts)
    found: Sequence[ChartPart] = model._cache["chart_parts"]
    return found


def _replaced(joint: Joint, path: tuple[int, ...], chart: str) -> Joint:
    if not path:
        return joint if chart == "exp" else _euler(chart)
    assert isinstance(joint, Composite)
    joints = list(joint.joints)
    joints[path[0]] = _replaced(joints[path[0]], path[1:], chart)
    return Composite(*joints)


def with_charts(model: Model, parts: Sequence[ChartPart], charts: Sequence[str]) -> Model:
    """The model with other charts."""
    bodies = list(model.bodies)
    for part, chart in zip(parts, charts, strict=True):
        body = bodies[part.body]
        bodies[part.body] = replace(body, joint=_replaced(body.joint, part.path, chart))
    return replace(model, bodies=tuple(bodies))


def _joint(chart: str) -> Joint:
    return SphericalExp() if chart == "exp" else _euler(chart)


def _best_chart(old: str, q: FloatArray) -> str:
    """The chart with the largest |det S| at this rotation; among equals the first by name."""
    R = _euler(old).T(q)[:3, :3]
    charts = [SphericalEuler(c) for c in SphericalEuler.CHARTS]
    return max(charts, key=lambda c: round(float(abs(c.det_S(c.from_rotation(R)))), 6)).chart


def _near(q: FloatArray, to: FloatArray) -> FloatArray:
    """Angles q with whole turns added so that they are nearest to those of another row."""
    return np.asarray(q - 2 * np.pi * np.round((q - to) / (2 * np.pi)))


def _carry(old: str, new: str, q: FloatArray, near: FloatArray | None) -> FloatArray:
    """The coordinates in the new chart; `near` are those of a neighbouring row."""
    if new != "exp":
        assert old != "exp"
        (moved,) = _euler(old).switch(_euler(new), q)
        return moved if near is None else _near(moved, near)
    length = hypot(*q)
    if length == 0.0:  # without a direction along which to remove turns
        return q
    turns = round(length / (2 * np.pi)) if near is None else 1
    scaled = q * (1 - 2 * np.pi * turns / length)
    if near is not None and np.abs(scaled - near).max() > np.abs(q - near).max():
        return q
    return np.asarray(scaled)


def _maps(old: str, new: str, q: FloatArray, q_new: FloatArray, v: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Phi = dq'/dq and L = d(Phi(q) v)/dq of a change of coordinates at q."""
    a, b = _joint(old), _joint(new)
    Ea, Eb = a.S(q)[:3], b.S(q_new)[:3]
    Phi = np.asarray(np.linalg.solve(Eb, Ea), dtype=np.float64)
    along_a = np.einsum("ijl,j->il", a.dS(q)[:3], v)
    along_b = np.einsum("ijl,j->il", b.dS(q_new)[:3], Phi @ v)
    return Phi, np.asarray(np.linalg.solve(Eb, along_a - along_b @ Phi), dtype=np.float64)


@np.errstate(over="ignore", invalid="ignore")  # of a motion that diverges, which the next step detects
def switch_charts(
    track: int,
    row: int,
    parts: Sequence[ChartPart],
    old: tuple[str, ...],
    q: FloatArray,
    v: FloatArray,
    a: FloatArray,
) -> ChartSwitch:
    """Changes the coordinates of a row, in place, for all joints that need it; q, v, a: rows of one trajectory."""
    charts = list(old)
    before_q, before_v, before_a = q[row].copy(), v[row].copy(), a[row].copy()
    previous_q, previous_v = q[row - 1].copy(), v[row - 1].copy()
    for k, part in enumerate(parts):
        iq, iv = slice(part.iq, part.iq + 3), slice(part.iv, part.iv + 3)
        x = before_q[iq]
        if old[k] == "exp":
            due = hypot(*x) > np.pi
        else:
            due = abs(float(_euler(old[k]).det_S(x))) < 0.5
            charts[k] = _best_chart(old[k], x) if due else old[k]
        if not due:
            continue
        moved = _carry(old[k], charts[k], x, None)
        Phi, L = _maps(old[k], charts[k], x, moved, before_v[iv])
        a[row, iv] = Phi @ a[row, iv] + L @ before_v[iv]
        q[row, iq], v[row, iv] = moved, Phi @ before_v[iv]
        x = q[row - 1, iq]
        previous_q[iq] = _carry(old[k], charts[k], x, moved)
        previous_v[iv] = _maps(old[k], charts[k], x, previous_q[iq], previous_v[iv])[0] @ v[row - 1, iv]
    return ChartSwitch(track, row, old, tuple(charts), before_q, before_v, before_a, previous_q, previous_v)


def pull_back(
    parts: Sequence[ChartPart],
    switch: ChartSwitch,
    q: FloatArray,
    v: FloatArray,
    q_new: FloatArray,
    gq: FloatArray,
    gv: FloatArray,
) -> None:
    """Transforms gradients at a node from the new coordinates to the old ones, in place; q, v: the node in the old
    coordinates, q_new: in the new ones."""
    for part, old, new in zip(parts, switch.old, switch.charts, strict=True):
        iq, iv = slice(part.iq, part.iq + 3), slice(part.iv, part.iv + 3)
        if old == new and np.array_equal(q[iq], q_new[iq]):
            continue
        Phi, L = _maps(old, new, q[iq], q_new[iq], v[iv])
        gq[iv], gv[iv] = Phi.T @ gq[iv] + L.T @ gv[iv], Phi.T @ gv[iv]


def segments(
    start: Sequence[tuple[str, ...]], switches: Sequence[ChartSwitch], rows: int
) -> list[tuple[int, int, int, tuple[str, ...]]]:
    """Parts in one set of charts, (trajectory, first row, row after the last, charts), given the charts at the start of
    each trajectory."""
    mine: dict[int, list[ChartSwitch]] = {}
    for s in switches:
        mine.setdefault(s.track, []).append(s)
    out = []
    for i, charts in enumerate(start):
        first = 0
        for s in mine.get(i, ()):
            if s.row > first:
                out.append((i, first, s.row, charts))
            first, charts = s.row, s.charts
        out.append((i, first, rows, charts))
    return out


def chart_rows(
    model: Model, parts: Sequence[ChartPart], switches: Sequence[ChartSwitch], shape: tuple[int, ...], rows: int
) -> dict[str, NDArray[np.str_]]:
    """The chart of every Euler joint in every row."""
    out = {}
    switching = {part.name: k for k, part in enumerate(parts)}
    for part in chart_parts(model):
        if part.chart == "exp":
            continue
        names = np.full((int(np.prod(shape)), rows), part.chart, dtype="<U3")
        for s in switches if part.name in switching else ():
            names[s.track, s.row :] = s.charts[switching[part.name]]
        out[part.name] = names.reshape(*shape, rows)
    return out


def to_arrays(switches: Sequence[ChartSwitch]) -> dict[str, NDArray[Any]]:
    """The switches as arrays, to be saved."""
    if not switches:
        return {}
    return {f.name: np.array([getattr(s, f.name) for s in switches]) for f in fields(ChartSwitch)}


def from_arrays(arrays: Mapping[str, NDArray[Any]]) -> tuple[ChartSwitch, ...]:
    """The switches from the arrays of `to_arrays`."""
    if not arrays:
        return ()
    out = []
    for k in range(len(arrays["row"])):
        values: dict[str, Any] = {n: arrays[n][k] for n in ("q", "v", "a", "previous_q", "previous_v")}
        values |= {n: tuple(arrays[n][k].tolist()) for n in ("old", "charts")}
        out.append(ChartSwitch(track=int(arrays["track"][k]), row=int(arrays["row"][k]), **values))
    return tuple(out)


def coordinate_rates(model: Model, q: FloatArray, v: FloatArray) -> FloatArray:
    """dq/dt (nq,) of a motion with velocity v."""
    rates = np.zeros(model.nq)

    def fill(joint: Joint, iq: int, iv: int) -> None:
        if isinstance(joint, Composite):
            for part in joint.joints:
                fill(part, iq, iv)
                iq, iv = iq + part.nq, iv + part.nv
        elif isinstance(joint, (Spherical, Free)):
            at = iq + 3 * isinstance(joint, Free)
            x, w, omega = q[at : at + 3], q[at + 3], v[iv : iv + 3]
            rates[at : at + 3] = 0.5 * (w * omega + np.cross(x, omega))
            rates[at + 3] = -0.5 * x @ omega
            if isinstance(joint, Free):
                rates[iq : iq + 3] = quaternion_to_matrix(q[at : at + 4]) @ v[iv + 3 : iv + 6]
        else:
            rates[iq : iq + joint.nq] = v[iv : iv + joint.nv]

    for j in model.joints:
        fill(j.joint, j.q_slice.start, j.v_slice.start)
    return rates
