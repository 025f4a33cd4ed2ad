"""A viewer of models and motions in a browser."""

from __future__ import annotations

import atexit
import os
import sys
import time
import webbrowser
from collections.abc import Sequence
from html import escape
from threading import Event, RLock, Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor._errors import ConstraintError, ConvergenceError, SingularMassMatrixError
from torsor.constraints.projection import project
from torsor.model import Model, require_model
from torsor.view import motion as _motion
from torsor.view import server as _server
from torsor.view.sliders import Handle, handles
from torsor.view.stage import Stage

if TYPE_CHECKING:
    from types import TracebackType

    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from torsor._typing import FloatArray
    from torsor.simulation.trajectory import Trajectory
    from torsor.view.geometry import Show

_RATE = 30.0  # pictures a second
_SPEEDS = ("0.1", "0.25", "0.5", "1", "2", "4")
_MOST_SLIDERS = 40  # of all joints at once; of more joints, one is chosen


class Viewer:
    """A page in a browser that shows a model, moves its joints by sliders, and plays motions.

    The page is served from this process, to browsers of this machine only, until `close` or the end of the process.
    Needs viser, the extra `torsor[view]`.

    Parameters
    ----------
    model : Model
    port : int, optional
        Of the page; the first free one from 8080 on by default.
    host : str
        Address at which the page is served. "0.0.0.0" serves it to the whole network, without any protection.
    open_browser : bool
        Whether to open the page in a browser, if there is a screen.
    show : {"visual", "collision", "inertia", "skeleton"}
        What to draw of bodies, as for `geometry.parts`.

    Attributes
    ----------
    url : str
        Address of the page.
    q : (nq,)
        The configuration that is shown: that of the sliders.

    Examples
    --------
    >>> import torsor as ts
    >>> from torsor.view import Viewer
    >>> view = Viewer(ts.models.arm7(), open_browser=False)
    >>> view.show([0.0, 0.5, 0.0, -1.2, 0.0, 0.8, 0.0])
    >>> view.close()
    """

    def __init__(
        self,
        model: Model,
        port: int | None = None,
        host: str = "127.0.0.1",
        open_browser: bool = True,
        show: Show = "visual",
    ) -> None:
        self.model = require_model(model)
        self._lock = RLock()
        self._closed, self._playing = Event(), Event()
        self._server = _server.start(host, port, label=model.name)
        self.host, self.port = host, int(self._server.get_port())
        atexit.register(self.close)
        self._time, self._speed, self._loop = 0.0, 1.0, True
        self._motions: list[_motion.Motion] = []  # of the time line
        self._spacing: float | None = None
        self._thread: Thread | None = None
        try:
            self._stage = Stage(self._server, model, show)
            self._handles = handles(model, _rounded(self._stage.extent.size))
            self._q = self._within_limits(model.start)
            self._stage.play(_motion.still(model, self._q))
            self._gui = _Controls(self)
            self._stage.at(0.0)
        except BaseException:
            self.close()
            raise
        if open_browser and _has_screen():
            webbrowser.open(self.url)

    @property
    def url(self) -> str:
        """Address of the page."""
        host = "127.0.0.1" if self.host in ("", "0.0.0.0") else self.host
        return f"http://[{host}]:{self.port}" if ":" in host else f"http://{host}:{self.port}"

    def __repr__(self) -> str:
        return f"<Viewer of {self.model.name!r} at {self.url}{', closed' if self._closed.is_set() else ''}>"

    def _repr_html_(self) -> str | None:
        if self._closed.is_set():
            return None
        return f'<iframe src="{escape(self.url)}" width="100%" height="480" style="border:1px solid #ddd"></iframe>'

    # ---- what is shown

    @property
    def q(self) -> FloatArray:
        """The configuration that is shown (nq,)."""
        with self._lock:
            return np.array(self._q)

    def show(self, q: ArrayLike, spacing: float | None = None) -> None:
        """Shows a configuration, in place of all motions; of a batch, all side by side.

        Parameters
        ----------
        q : (..., nq) array_like
        spacing : float, optional
            Distance of models of a batch; 0 shows them at one place. By default they do not overlap.
        """
        found = _motion.still(self.model, q)
        with self._lock:
            self._require_open()
            self._playing.clear()
            self._motions = []
            if found:
                self._q = found[0].q[0].copy()
            self._hold(found, spacing)
            self._gui.read(self._q)
            self._gui.time_line(None)

    def play(
        self,
        trajectory: Trajectory,
        speed: float = 1.0,
        loop: bool = True,
        index: int | Sequence[int] | None = None,
        spacing: float | None = None,
    ) -> None:
        """Plays a motion, or motions of a batch side by side. Returns at once; `wait` waits.

        The page has a time line, the speed, and whether to begin anew at the end. States between rows are on the
        shortest way from one to the next. A motion that failed ends with its last state.

        Parameters
        ----------
        trajectory : Trajectory
            Of the model of the viewer, or of one with the same bodies.
        speed : float
            1 is real time, if times are in seconds.
        loop : bool
            Whether it begins anew at the end.
        index : int or sequence of int, optional
            Flat indices of the motions of a batch; the first 25 by default.
        spacing : float, optional
            Distance of models of a batch; 0 shows them at one place. By default they do not overlap.
        """
        if not (np.isreal(speed) and 0.0 < speed < np.inf):
            raise ValueError(f"speed is {speed!r}, expected a number above 0; 1 is real time")
        found = _motion.motions(trajectory, index)
        self._require_same_bodies(trajectory.model)
        with self._lock:
            self._require_open()
            self._motions, self._spacing = found, spacing
            self._speed, self._loop = float(speed), bool(loop)
            self._stage.play(found, spacing)
            self._stage.look()
            self._time = self._stage.span[0]
            self._stage.at(self._time)
            self._gui.time_line(self._stage.span)
            self._playing.set()
            if self._thread is None:
                self._thread = Thread(target=self._run, name="torsor viewer", daemon=True)
                self._thread.start()

    def add_frame(self, name: str, length: float | None = None) -> None:
        """Draws the axes of a body, of the body of a joint, or of a frame: x red, y green, z blue.

        Parameters
        ----------
        name : str
        length : float, optional
            Of the axes; an eighth of the size of the model by default.
        """
        with self._lock:
            self._require_open()
            self._stage.add_frame(name, length)
            self._stage.at(self._time)

    def add_center_of_mass(self) -> None:
        """Draws the centre of mass of what moves."""
        self._gui.check("center of mass")

    def add_contacts(self, trajectory: Trajectory | None = None, scale: float | None = None) -> None:
        """Draws the points where shapes touch, and the forces there.

        Parameters
        ----------
        trajectory : Trajectory, optional
            Is played, unless it is already.
        scale : float, optional
            Length of an arrow for a force of 1. By default that of the weight of the model is two thirds of its size.
        """
        if trajectory is not None and not any(m.trajectory is trajectory for m in self._motions):
            self.play(trajectory)
        self._gui.check("contacts", scale)

    def add_constraint_gaps(self) -> None:
        """Draws where constraints hold bodies together, in green, and red lines where they are open: those of the
        trajectory, or of the model."""
        self._gui.check("constraints")

    def add_ghost(self, other: Trajectory | ArrayLike, index: int = 0) -> None:
        """Draws another motion, or another configuration, transparent, at the same place.

        Parameters
        ----------
        other : Trajectory, or (nq,) array_like
            A motion follows the time line.
        index : int
            Flat index of the motion in a batch.
        """
        given: Any = other
        if hasattr(given, "segments"):
            self._require_same_bodies(given.model)
            (found,) = _motion.motions(given, index)
        else:
            (found,) = _motion.still(self.model, np.atleast_2d(np.asarray(given, float))[index])
        with self._lock:
            self._require_open()
            self._stage.add_ghost(found)
            self._stage.at(self._time)
            if found.moving and not self._motions:
                self._gui.time_line(self._stage.span)

    def remove_ghosts(self) -> None:
        """Takes away what `add_ghost` added."""
        with self._lock:
            self._require_open()
            self._stage.remove_ghosts()

    # ---- the process

    def wait(self) -> None:
        """Waits until the viewer is closed, or until Ctrl-C: at the end of a script, so that the page stays."""
        try:
            while not self._closed.wait(0.2):
                pass
        except KeyboardInterrupt:
            return

    def close(self) -> None:
        """Stops serving the page. A page that is open stays as it is."""
        if self._closed.is_set():
            return
        self._closed.set()
        self._playing.set()  # wakes the thread, which ends
        if self._thread is not None:
            self._thread.join()
        with self._lock:
            _server.stop(self._server)
        atexit.unregister(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def _require_open(self) -> None:
        if self._closed.is_set():
            raise RuntimeError("the viewer is closed; make a new one")

    def _require_same_bodies(self, model: Model) -> None:
        here, there = ([body.name for body in x.bodies] for x in (self.model, model))
        if here != there:
            raise ValueError(
                f"the trajectory is of the model {model.name!r} with {len(there)} bodies, the viewer of "
                f"{self.model.name!r} with {len(here)}; make a Viewer of trajectory.model"
            )

    def _within_limits(self, q: FloatArray) -> FloatArray:
        """q with joints moved to where their sliders end."""
        for handle in self._handles:
            values = handle.clipped(q)
            if (values != handle.read(q)).any():
                q = handle.write(q, values)
        return q

    def _hold(self, found: list[_motion.Motion], spacing: float | None = None) -> None:
        """Shows configurations, without drawing anew if there is one as before."""
        present = [actor for actor in self._stage.actors if not actor.ghost]
        if len(found) == 1 and len(present) == 1 and present[0].motion.trajectory is None:
            present[0].motion = found[0]
        else:
            self._stage.play(found, spacing)
            self._stage.look()
        self._stage.at(self._time)

    def _run(self) -> None:
        """Moves the time on, until the viewer is closed."""
        last, shown = time.perf_counter(), 0.0
        while True:
            while not self._playing.is_set() and not self._closed.is_set():
                self._playing.wait(0.1)  # `close` sets it, and a motion that ends just then clears it again
                last = time.perf_counter()
            if self._closed.is_set():
                return
            now = time.perf_counter()
            with self._lock:
                first, end = self._stage.span
                self._time += self._speed * (now - last)
                last = now
                if self._time > end:
                    if not self._loop or end <= first:
                        self._playing.clear()
                        self._gui.paused()
                    self._time = first + (self._time - first) % (end - first) if self._playing.is_set() else end
                self._stage.at(self._time)
                if now - shown > 0.15 or not self._playing.is_set():
                    self._gui.set_time(self._time)
                    shown = now
            self._closed.wait(max(0.0, 1.0 / _RATE - (time.perf_counter() - now)))

    # ---- what the page asks for

    def _seek(self, when: float) -> None:
        """Shows another time."""
        with self._lock:
            if self._motions and not any(actor.motion.trajectory for actor in self._stage.actors if not actor.ghost):
                self._stage.play(self._motions, self._spacing)  # in place of a configuration by sliders
            self._time = when
            self._stage.at(when)

    def _move(self, handle: Handle, values: FloatArray, closed: bool) -> str:
        """Moves a joint by its sliders. Constraints of the model are kept if wanted; a message says if they cannot."""
        with self._lock:
            self._playing.clear()
            self._gui.paused()
            q, message = handle.write(self._q, values), ""
            if closed and self.model.constraints:
                names = {joint.name for joint in self.model.joints}
                try:
                    q = project(
                        self.model, self.model.constraints, q, keep=[handle.name] if handle.name in names else ()
                    )
                except (ConvergenceError, ConstraintError, SingularMassMatrixError):
                    message = "The constraints cannot be met here."
            self._q = q
            self._hold(_motion.still(self.model, q))
            self._gui.read(q, but=handle)
            return message


class _Controls:
    """The panel of the page."""

    def __init__(self, viewer: Viewer) -> None:
        self._viewer, self._stage, self._gui = viewer, viewer._stage, viewer._server.gui
        self._gui.configure_theme(show_logo=False, show_share_button=False, control_width="medium")
        self._time: Any = None
        self._button: Any = None
        self._motion: Any = None
        self._inputs: list[tuple[Handle, list[Any]]] = []
        self._checks: dict[str, Any] = {}
        self._shapes()
        self._joints()

    # ---- time line

    def time_line(self, span: tuple[float, float] | None) -> None:
        """Makes the time line from the first to the last time, or takes it away."""
        if self._motion is not None:
            self._motion.remove()
        self._motion = self._time = self._button = None
        if span is None or not span[1] > span[0]:
            return
        viewer, gui = self._viewer, self._gui
        self._motion = gui.add_folder("Motion", order=0)
        with self._motion:
            step = float(10.0 ** np.floor(np.log10((span[1] - span[0]) / 500.0)))
            self._time = gui.add_slider("time", *span, step, span[0])
            self._button = gui.add_button("Pause")
            chosen = f"{viewer._speed:g}"
            speeds = sorted({*_SPEEDS, chosen}, key=float)
            speed = gui.add_dropdown("speed", speeds, initial_value=chosen)
            loop = gui.add_checkbox("loop", viewer._loop)

        def seek(event: Any) -> None:
            if event.client is not None:
                viewer._seek(float(event.target.value))

        def start_or_stop(event: Any) -> None:
            with viewer._lock:
                if viewer._playing.is_set():
                    viewer._playing.clear()
                    self.paused()
                else:
                    first, end = self._stage.span
                    viewer._seek(first if viewer._time >= end else viewer._time)
                    self._button.label = "Pause"
                    viewer._playing.set()

        def set_speed(event: Any) -> None:
            viewer._speed = float(event.target.value)

        def set_loop(event: Any) -> None:
            viewer._loop = bool(event.target.value)

        self._time.on_update(seek)
        self._button.on_click(start_or_stop)
        speed.on_update(set_speed)
        loop.on_update(set_loop)

    def paused(self) -> None:
        """Says that the motion does not run."""
        if self._button is not None and self._button.label != "Play":
            self._button.label = "Play"

    def set_time(self, when: float) -> None:
        """Moves the slider of the time."""
        if self._time is not None:
            self._time.value = float(np.clip(when, self._time.min, self._time.max))

    # ---- what is drawn

    def _shapes(self) -> None:
        stage, gui = self._stage, self._gui
        with gui.add_folder("Show", order=1, expand_by_default=False):
            kinds = gui.add_dropdown("shapes", ("visual", "collision", "inertia", "skeleton"), initial_value=stage.show)
            for label, apply in (
                ("frames", stage.frames),
                ("center of mass", stage.center_of_mass),
                ("contacts", stage.contacts),
                ("constraints", stage.constraint_gaps),
            ):
                self._checks[label] = check = gui.add_checkbox(label, False)
                check.on_update(self._drawing(lambda event, apply=apply: apply(bool(event.target.value))))
            ground = gui.add_checkbox("ground", True)
            reset = gui.add_button("Reset camera")
        kinds.on_update(self._drawing(lambda event: stage.set_show(event.target.value)))
        ground.on_update(self._drawing(lambda event: stage.set_ground(bool(event.target.value))))
        reset.on_click(self._drawing(lambda event: stage.look()))

    def _drawing(self, draw: Any) -> Any:
        """A callback that draws, then shows all where it is now."""
        viewer = self._viewer

        def update(event: Any) -> None:
            with viewer._lock:
                draw(event)
                self._stage.at(viewer._time)

        return update

    def check(self, label: str, scale: float | None = None) -> None:
        """Draws something, as if its box had been checked."""
        viewer, stage = self._viewer, self._stage
        with viewer._lock:
            viewer._require_open()
            apply = {"center of mass": stage.center_of_mass, "constraints": stage.constraint_gaps}
            if label == "contacts":
                stage.contacts(True, scale)
            else:
                apply[label]()
            stage.at(viewer._time)

    # ---- joints

    def _joints(self) -> None:
        viewer, gui = self._viewer, self._gui
        found = viewer._handles
        if not found:
            return
        self._folder = gui.add_folder("Joints", order=2)
        with self._folder:
            self._keep = None
            if viewer.model.constraints:
                self._keep = gui.add_checkbox("keep constraints", True)
            self._message = gui.add_markdown("", visible=False)
            reset = gui.add_button("Reset joints")
            if sum(len(handle.sliders) for handle in found) <= _MOST_SLIDERS:
                for handle in found:
                    self._add_sliders(handle)
            else:
                choice = gui.add_dropdown("joint", [handle.name for handle in found], initial_value=found[0].name)
                self._add_sliders(found[0])
                choice.on_update(self._chosen)

        reset.on_click(lambda event: viewer.show(viewer._within_limits(viewer.model.start)))

    def _chosen(self, event: Any) -> None:
        """Replaces the sliders by those of another joint."""
        with self._viewer._lock:
            for _, inputs in self._inputs:
                for slider in inputs:
                    slider.remove()
            self._inputs = []
            name = event.target.value
            with self._folder:
                self._add_sliders(next(handle for handle in self._viewer._handles if handle.name == name))

    def _add_sliders(self, handle: Handle) -> None:
        values = handle.clipped(self._viewer._q)
        inputs = [
            self._gui.add_slider(s.label, s.lower, s.upper, s.step, float(value))
            for s, value in zip(handle.sliders, values, strict=True)
        ]
        self._inputs.append((handle, inputs))

        def update(event: Any) -> None:
            if event.client is None:
                return
            # a number that is typed may be beyond the slider
            values = np.array([np.clip(x.value, s.lower, s.upper) for x, s in zip(inputs, handle.sliders, strict=True)])
            message = self._viewer._move(handle, values, self._keep is not None and self._keep.value)
            self._message.content, self._message.visible = message, bool(message)
            for slider, value in zip(inputs, values, strict=True):
                slider.value = float(value)

        for slider in inputs:
            slider.on_update(update)

    def read(self, q: FloatArray, but: Handle | None = None) -> None:
        """Moves sliders to where the joints are."""
        for handle, inputs in self._inputs:
            if handle is not but:
                for slider, value in zip(inputs, handle.clipped(q), strict=True):
                    slider.value = float(value)


def _rounded(size: float) -> float:
    """A size to one digit, upwards."""
    unit = 10.0 ** np.floor(np.log10(size))
    return float(unit * np.ceil(size / unit))


def _has_screen() -> bool:
    """Whether a browser can be opened: on Linux, only with a display, and not over ssh."""
    if sys.platform in ("win32", "darwin"):
        return "SSH_CONNECTION" not in os.environ
    return any(os.environ.get(name) for name in ("DISPLAY", "WAYLAND_DISPLAY"))
