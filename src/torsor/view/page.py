"""Pages that show models and motions by themselves, without a server: files and outputs of notebooks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from torsor.model import Model
from torsor.view import geometry
from torsor.view import motion as _motion
from torsor.view import server as _server
from torsor.view.stage import Stage

if TYPE_CHECKING:
    from torsor.simulation.trajectory import Trajectory
    from torsor.view.geometry import Show
    from torsor.view.motion import Motion

_NOTEBOOK_TRIANGLES = 60_000
_NOTEBOOK_POSES = 12_000  # bodies times pictures
_NOTEBOOK_SIZE = 4_000_000  # characters


def trajectory_page(
    trajectory: Trajectory,
    *,
    fps: float = 30.0,
    speed: float = 1.0,
    index: int | Sequence[int] | None = None,
    show: Show = "visual",
    contacts: bool = True,
    constraints: bool = False,
    triangles: int = 300_000,
    pictures: int = 2_000,
) -> str:
    """A page that plays a motion, as `Trajectory.html` writes it.

    Parameters
    ----------
    trajectory : Trajectory
    fps : float
        Pictures a second.
    speed : float
        1 is real time, if times are in seconds.
    index : int or sequence of int, optional
        Flat indices of the motions of a batch; the first 25 by default, side by side.
    show : {"visual", "collision", "inertia", "skeleton"}
        What to draw of bodies.
    contacts : bool
        Whether to draw contact points and forces.
    constraints : bool
        Whether to draw where constraints are open.
    triangles : int
        Most triangles of all shapes together, about; finer meshes are made coarser.
    pictures : int
        Most pictures; a longer motion has fewer of them a second.
    """
    for name, value in (("fps", fps), ("speed", speed)):
        if not (np.isreal(value) and 0.0 < value < np.inf):
            raise ValueError(f"{name} is {value!r}, expected a number above 0")
    found = _motion.motions(trajectory, index)
    return _page(trajectory.model, found, show, fps, speed, triangles, pictures, contacts, constraints)


def _page(
    model: Model,
    motions: Sequence[Motion],
    show: Show,
    fps: float,
    speed: float,
    triangles: int,
    pictures: int,
    contacts: bool = False,
    constraints: bool = False,
) -> str:
    server = _server.start("127.0.0.1", 0)
    try:
        stage = Stage(server, model, show, _limit(model, show, triangles // max(len(motions), 1)))
        if contacts:
            stage.contacts()
        if constraints:
            stage.constraint_gaps()
        stage.play(motions)
        first, end = stage.span
        duration = (end - first) / speed
        count = min(int(np.ceil(duration * fps)) + 1, max(pictures, 2)) if duration > 0 else 1
        times = np.linspace(first, end, count)
        stage.at(first)
        record = server.get_scene_serializer()
        for when in times[1:]:
            record.insert_sleep(duration / (count - 1))
            stage.at(float(when))
        out: str = record.as_html()
        return out
    finally:
        _server.stop(server)


def _limit(model: Model, show: Show, triangles: int) -> int | None:
    """The most triangles that each part may have so that all have no more than `triangles`; None if they have not."""
    counts = np.sort([len(part.faces) for part in geometry.parts(model, show)] or [0])
    if counts.sum() <= triangles:
        return None
    # the k smallest parts stay as they are, the others have the same number of triangles
    rest = triangles - np.concatenate([[0], np.cumsum(counts[:-1])])
    shares = rest // np.arange(len(counts), 0, -1)
    return max(int(shares[np.argmax(shares < counts)]), 12)


# ---- notebooks


def trajectory_output(trajectory: Trajectory) -> str | None:
    """What a notebook shows of a motion, no larger than 4 MB; None if that is not possible."""
    bodies = max(sum(body.joint.nv > 0 for body in trajectory.model.bodies), 1)
    return _output(
        lambda: trajectory_page(
            trajectory,
            index=range(min(int(np.prod(trajectory.batch_shape)), 4)),
            triangles=_NOTEBOOK_TRIANGLES,
            pictures=max(_NOTEBOOK_POSES // bodies, 2),
        )
    )


def model_output(model: Model) -> str | None:
    """What a notebook shows of a model, no larger than 4 MB; None if that is not possible."""
    still = _motion.still(model, model.start)
    return _output(lambda: _page(model, still, "visual", 30.0, 1.0, _NOTEBOOK_TRIANGLES, 1))


def _output(make: Callable[[], str]) -> str | None:
    """A page as a notebook shows it."""
    try:
        page = make()
    except Exception:  # in place of an error a notebook shows the text of the object
        return None
    shown = escape(page)
    if len(shown) > _NOTEBOOK_SIZE:
        return None
    return f'<iframe srcdoc="{shown}" width="100%" height="420" style="border:1px solid #ddd"></iframe>'
