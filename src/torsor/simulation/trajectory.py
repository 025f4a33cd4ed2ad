"""Trajectories: the rows of a motion, its energies, files and plots."""

from __future__ import annotations

import hashlib
import os
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import InitVar, dataclass, field, fields, replace
from functools import cached_property
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from torsor import _core
from torsor._files import whole_file
from torsor.constraints.constraint import Constraint
from torsor.dynamics import generalized_momenta, kinetic_energy, potential_energy
from torsor.forces.evaluation import ContactStates, contact_places
from torsor.forces.force import Force
from torsor.integrators import HardContact, Integrator
from torsor.model import Model
from torsor.simulation import archive as _archive
from torsor.simulation import charts as _charts
from torsor.simulation import fingerprint as _fingerprint
from torsor.simulation.batch import Batch, Span
from torsor.simulation.controls import Policy, controls_of
from torsor.simulation.failures import Failed, Failure
from torsor.simulation.parameters import steps_of_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torsor._typing import FloatArray
    from torsor.pictures.scene import Camera
    from torsor.simulation.controls import OfState
    from torsor.view.geometry import Show


class Energies(NamedTuple):
    """Energies of a trajectory: kinetic, potential and total (..., rows), and those of n forces (..., rows, n)."""

    kinetic: FloatArray
    potential: FloatArray
    forces: FloatArray
    total: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class Trajectory:
    """A simulated motion, the result of `simulate`.

    Attributes
    ----------
    model : Model
        The model, or the first of several in a batch.
    integrator : Integrator
    forces : tuple of Force
    t : (rows,)
        Times of the rows: steps + 1 of them, or one every `every` steps.
    q : (..., rows, nq)
    v, a : (..., rows, nv)
        a is that of the integrator's formula; in the first row of an implicit integrator and in the last row of an
        explicit one, that of forward dynamics (NaN without steps).
    controls : (..., steps, nu), (..., steps, stages, nu) or None
        Torques of each step, also those of a policy. A function of time has a row for each stage of the integrator: for
        `BDF2` and `SDIRK2` at (1 - sqrt(1/2)) h and at the end of the step, for `Variational` at each point of the
        quadrature.
    substeps : (..., steps)
        Number of parts into which each step was divided; 0 for a step of order two or more in which bodies hit each
        other harder than it resolves, which implicit Euler takes; negative for a step of `BDF2` that started anew,
        because a contact changed just before (-1), or because one ceased to slip in it (-2, in halves).
    switches : tuple of ChartSwitch
        Changes of the coordinates of joints. From the step of a switch on, q, v and a are in the new coordinates.
    models : tuple of Model
        The models of a batch with several, else empty.
    parameters : tuple of dicts
        For each force the parameters that replaced its own, each (..., *shape of the parameter).
    every : int
        Number of steps between rows.
    previous : (..., rows, nq) and (..., rows, nv), or None
        With `every`, the states one step before the rows, in their coordinates, where the integrator needs them.
    signals : tuple of dicts
        For each force the parameters with a value for each step, (..., steps, *shape of the parameter).
    actuation : (nv, nu) or None
        Matrix B of the torques B u of controls u; None for nu = nv torques.
    policy : Policy or None
        The policy that gave the controls.
    failed : tuple of Failure
        The trajectories that could not take all steps: index, step, t and reason of each, in the order of the batch.
        Their later rows of q, v and a are NaN, as are controls of a policy that were not used; the trajectory of a
        `ConvergenceError` of a single motion ends before the step instead. They have no gradients.
    constraints : tuple of Constraint
    kinks : (..., steps) or None
        Of `HardContact`, the number of contacts and limits in each step that were about to open, to close, to stick or
        to slip: gradients are those of one side there, and differ from those of the other.
    """

    model: Model
    integrator: Integrator
    forces: tuple[Force, ...]
    t: FloatArray
    q: FloatArray
    v: FloatArray
    a: FloatArray
    controls: FloatArray | None
    substeps: NDArray[np.int32]
    switches: tuple[_charts.ChartSwitch, ...] = field(default=())
    models: tuple[Model, ...] = ()
    parameters: tuple[dict[str, FloatArray], ...] = ()
    every: int = 1
    previous: tuple[FloatArray, FloatArray] | None = None
    signals: tuple[dict[str, FloatArray], ...] = ()
    actuation: FloatArray | None = None
    policy: Policy | None = None
    failed: tuple[Failure, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    kinks: NDArray[np.int32] | None = None
    compiled: InitVar[Batch | None] = None  # the models and the forces as simulate compiled them

    def __repr__(self) -> str:
        shape = self.q.shape[:-2]
        steps = self.substeps.shape[-1]
        parts = [f"{self.model.name!r}", f"batch of {shape}"] if shape else [f"{self.model.name!r}"]
        parts += [f"{steps} steps of {type(self.integrator).__name__}"]
        if len(self.t):
            parts += [f"t from {self.t[0]:g} to {self.t[-1]:g}"]
        parts += [f"{len(self.t)} rows"] if self.every > 1 else []
        for found, word in ((self.forces, "force"), (self.constraints, "constraint")):
            parts += [f"{len(found)} {word}{'s' if len(found) > 1 else ''}"] if found else []
        parts += [f"{len(self.failed)} failed"] if self.failed else []
        return f"<Trajectory of {', '.join(parts)}>"

    def __post_init__(self, compiled: Batch | None) -> None:
        if compiled is not None:
            self.__dict__["_batch"] = compiled  # else made on first use
        for array in (self.t, self.q, self.v, self.a, self.controls, self.substeps, self.kinks, *(self.previous or ())):
            if array is not None:
                array.setflags(write=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Trajectory, tuple(getattr(self, f.name) for f in fields(self))  # without compiled objects

    @property
    def steps(self) -> int:
        """Number of steps."""
        return (len(self.t) - 1) * self.every

    @property
    def batch_shape(self) -> tuple[int, ...]:
        """Shape of the batch, () for one trajectory."""
        return self.q.shape[:-2]

    @property
    def finished(self) -> NDArray[np.bool_]:
        """Which trajectories have taken all steps, (...): `trajectory.q[trajectory.finished]` are those without
        failures."""
        out = np.array(np.isfinite(self.q[..., -1, :]).all(axis=-1))
        for failure in self.failed:
            out[failure.index] = False
        return out

    @cached_property
    def _failed_tracks(self) -> dict[int, Failure]:
        """The failures by the flat index of their trajectories, in this order. A trajectory that ends before the step
        that failed, as that of an error, has all its rows."""
        shape, failed = self.batch_shape, [f for f in self.failed if f.step < self.steps]
        tracks = {int(np.ravel_multi_index(f.index, shape)) if shape else 0: f for f in failed}
        return dict(sorted(tracks.items()))

    def _failed_in(self, part: slice) -> dict[int, Failed]:
        """The failures in a part of the batch, with the last rows of their trajectories."""
        if not self._failed_tracks:
            return {}
        q, v = (x.reshape(prod(self.batch_shape), *x.shape[-2:]) for x in (self.q, self.v))
        tracks, out = [*self._failed_tracks], {}
        for i in tracks[bisect_left(tracks, part.start) : bisect_left(tracks, part.stop)]:
            failure = self._failed_tracks[i]
            row = failure.step // self.every
            out[i - part.start] = Failed(failure.step, failure.reason, q[i, row], v[i, row])
        return out

    @cached_property
    def _batch(self) -> Batch:
        parameters = self.parameters or tuple({} for _ in self.forces)
        return Batch(
            self.models or (self.model,), self.forces, parameters, self.batch_shape, self.signals, self.constraints
        )

    @cached_property
    def _row_switches(self) -> list[_charts.ChartSwitch]:
        """The switches with the rows, not the steps, at which they take effect."""
        return [replace(s, row=-(-s.row // self.every)) for s in self.switches]

    def _spans(self, batch: Batch | None = None) -> list[Span]:
        return (self._batch if batch is None else batch).spans(self._row_switches, len(self.t), self.every)

    @cached_property
    def charts(self) -> dict[str, NDArray[np.str_]]:
        """The chart of every `SphericalEuler` joint in every row: name of the joint -> (..., rows)."""
        parts = self._batch.parts
        return _charts.chart_rows(self.model, parts, self._row_switches, self.batch_shape, len(self.t))

    @property
    def tree_q(self) -> FloatArray:
        """Coordinates of all joints, (..., rows, nq of the tree): `q` itself, if the model has no couplings."""
        return self._expanded(self.q) if self.model.couplings else self.q

    @property
    def tree_v(self) -> FloatArray:
        """Velocities of all joints, (..., rows, nv of the tree)."""
        return self._expanded(self.q, self.v) if self.model.couplings else self.v

    def _expanded(self, q: FloatArray, v: FloatArray | None = None) -> FloatArray:
        """Coordinates or velocities of the tree, by the couplings of the model of each motion."""
        models = self.models or (self.model,)
        if len(models) == 1:
            return self.model.expand(q) if v is None else self.model.expand_velocity(q, v)
        out = np.empty((prod(self.batch_shape), len(self.t), self.model.tree.nq if v is None else self.model.tree.nv))
        rows = [x.reshape(len(out), len(self.t), x.shape[-1]) for x in (q, v) if x is not None]
        for k, m in enumerate(self._batch.model_of):
            expand = models[m].expand if v is None else models[m].expand_velocity
            out[k] = expand(*(x[k] for x in rows))
        return out.reshape(*self.batch_shape, len(self.t), out.shape[-1])

    @cached_property
    def p(self) -> FloatArray:
        """Momenta M(q) v, (..., rows, nv): a state variable of `Variational`."""
        rows, n = len(self.t), prod(self.batch_shape)
        q, v = self.q.reshape(n, rows, self.model.nq), self.v.reshape(n, rows, self.model.nv)
        p = np.empty_like(v)
        for s in self._spans():
            at = (s.tracks, s.rows)
            p[at] = generalized_momenta(s.model, q[at], v[at])
        return p.reshape(self.v.shape)

    def segments(self) -> list[tuple[int, int, int, Model]]:
        """Parts in one set of coordinates: (trajectory, first row, last row, model in these coordinates)."""
        batch = self._batch
        parts = _charts.segments([batch.charts] * batch.size, self._row_switches, len(self.t))
        return [(i, first, last, batch.ready(c, int(batch.model_of[i]))[0]) for i, first, last, c in parts]

    @cached_property
    def energies(self) -> Energies:
        """Kinetic energy, potential energy of gravity, energies of the forces, and their sum, for every row."""
        rows, n = len(self.t), prod(self.batch_shape)
        kinetic, potential = np.empty((n, rows)), np.empty((n, rows))
        of_forces = np.zeros((n, rows, len(self.forces)))
        q, v = self.q.reshape(n, rows, self.model.nq), self.v.reshape(n, rows, self.model.nv)
        for s in self._spans():
            at, rest = (s.tracks, s.rows), np.zeros(s.model.nv)
            kinetic[at], potential[at] = kinetic_energy(s.model, q[at], v[at]), potential_energy(s.model, q[at])
            of_forces[at] = _core.force_energies(s.model, q[at], rest, self.t[s.rows], s.parameters, s.options, None, 1)
        shape = (*self.batch_shape, rows)
        parts = kinetic.reshape(shape), potential.reshape(shape), of_forces.reshape((*shape, len(self.forces)))
        return Energies(*parts, total=parts[0] + parts[1] + parts[2].sum(axis=-1))

    @cached_property
    def dissipated(self) -> FloatArray:
        """Work that the forces have taken from the motion since the first row without storing it, (..., rows).

        Its rate is that of the part of the forces that vanishes at rest, (tau(q, 0) - tau(q, v)).v: of dampers, of
        friction and of the dissipation of contacts. It is integrated by trapezoids between rows, so that it grows
        wherever no such force does positive work. Without controls it is the loss of `energies.total`, to the order of
        the integrator where rows resolve the motion; impacts within a step or two are only known roughly, and by a
        factor of a few in the worst case. It needs all rows: `every` = 1.
        """
        if self.every > 1:
            raise ValueError(f"dissipated needs the rows of all steps, got every = {self.every}; simulate with every=1")
        rows, n = len(self.t), prod(self.batch_shape)
        power = np.zeros((n, rows))
        q, v = self.q.reshape(n, rows, self.model.nq), self.v.reshape(n, rows, self.model.nv)
        for s in self._spans() if self.forces and power.size else []:
            at, rest = (s.tracks, s.rows), np.zeros(s.model.nv)
            both = (
                np.asarray(
                    _core.generalized_forces(s.model, q[at], x, self.t[s.rows], s.parameters, s.options, None, 1)
                )
                for x in (rest, v[at])
            )
            power[at] = np.einsum("...i,...i->...", next(both) - next(both), v[at])
        out = np.zeros((n, rows))
        np.cumsum(0.5 * np.diff(self.t) * (power[:, :-1] + power[:, 1:]), axis=1, out=out[:, 1:])
        return out.reshape((*self.batch_shape, rows))

    @cached_property
    def contacts(self) -> ContactStates:
        """`contact_states` of all rows: gaps (..., rows, n) of n places and so on, with the force at the end of each
        step. With `HardContact` the forces are those of the steps that begin at the rows."""
        rows, count = len(self.t), len(self._batch.compiled.core.contact_forces)
        n = prod(self.batch_shape)
        out = [np.zeros((n, rows, count, *tail)) for tail in ((), (3,), (3,), (3,), (3,))]
        q, v = self.q.reshape(n, rows, self.model.nq), self.v.reshape(n, rows, self.model.nv)
        for s in self._spans() if count and n else []:
            at = (s.tracks, s.rows)
            values = _core.contact_states(s.model, q[at], v[at], self.t[s.rows], s.parameters, s.options, None, 1)
            for to, value in zip(out, values, strict=True):
                to[at] = value
            if isinstance(self.integrator, HardContact):
                options = {**s.options, **self.integrator._options}
                if s.constraints is not None:
                    options["constraints"] = s.constraints
                u, t = self._torques(s, begins=True), self.t[s.rows]
                out[3][at] = _core.hard_contact_forces(s.model, q[at], v[at], u, t, s.parameters, options, None, 1)
        gap, point, normal, force, slip = (x.reshape((*self.batch_shape, *x.shape[1:])) for x in out)
        places = contact_places(self.forces, self._batch.compiled.core)
        return ContactStates(gap, point, normal, force, slip, *places)

    @cached_property
    def multipliers(self) -> FloatArray:
        """Multipliers of the constraints, (..., rows, number of rows of constraints): those of constrained forward
        dynamics at every row, with the forces and controls of the step that ends there, at the first row of the first
        step. They are of least norm where rows depend on each other."""
        rows, n = len(self.t), prod(self.batch_shape)
        count = 0 if self._batch.rows is None else self._batch.rows.rows
        out = np.zeros((n, rows, count))
        q, v = self.q.reshape(n, rows, self.model.nq), self.v.reshape(n, rows, self.model.nv)
        for s in self._spans() if count and out.size else []:
            at = (s.tracks, s.rows)
            tau = np.asarray(
                _core.generalized_forces(s.model, q[at], v[at], self.t[s.rows], s.parameters, s.options, None, 1)
            )
            torques = self._torques(s)
            options, tau = {"constraints": s.constraints}, tau if torques is None else tau + torques
            _, out[at], _ = _core.constrained_forward_dynamics(
                s.model, q[at], v[at], self.t[s.rows], tau, None, options, None, 1
            )
        return out.reshape((*self.batch_shape, rows, count))

    @cached_property
    def reactions(self) -> FloatArray:
        """Wrenches of the constraints on their second bodies, (..., rows, number of constraints, 6), each in the frame
        of that body, moment first: of `multipliers`. Zero for constraints of coordinates."""
        rows, n = len(self.t), prod(self.batch_shape)
        multipliers = self.multipliers.reshape(n, rows, self.multipliers.shape[-1])
        out = np.zeros((n, rows, len(self.constraints), 6))
        q = self.q.reshape(n, rows, self.model.nq)
        for s in self._spans() if multipliers.size else []:
            at, options = (s.tracks, s.rows), {"constraints": s.constraints}
            out[at] = _core.constraint_wrenches(s.model, q[at], multipliers[at], self.t[s.rows], options, None, 1)
        return out.reshape((*self.batch_shape, *out.shape[1:]))

    def _torques(self, span: Span, begins: bool = False) -> FloatArray | None:
        """Torques of the controls at the rows of a span, (tracks, rows, nv): of the last stage of the step that ends
        there, at the first row of the first stage of the first step; or of the step that begins there, at the last row
        of the last step."""
        given = controls_of(self)
        if given.values is None or not given.values.shape[1]:
            return None
        rows = np.arange(span.rows.start, span.rows.stop)
        last = np.where((rows == 0) | begins, 0, given.values.shape[2] - 1)
        tracks = span.tracks if len(given.values) > 1 else slice(None)
        steps = np.minimum(self.every * rows, self.steps - 1) if begins else steps_of_rows(rows, self.every)
        u = given.values[tracks, steps, last]
        return u if given.actuation is None else given.actuation.torques(u)

    @property
    def _description(self) -> _fingerprint.Description:
        """A description of models and forces, in words and numbers."""
        replaced = [*self.parameters] or [{} for _ in self.forces]
        replaced = [{**a, **b} for a, b in zip(replaced, self.signals or replaced, strict=True)]
        return _fingerprint.describe(self.models or (self.model,), self.forces, replaced, self.constraints)

    @cached_property
    def _digest(self) -> str:
        """A digest of everything that a loss depends on: copies of a trajectory have the same."""
        digest = hashlib.blake2b(_fingerprint.to_bytes(self._description), digest_size=16)
        digest.update(repr((self.integrator, getattr(self.integrator, "A", None), self.q.shape, self.every)).encode())
        given = (*self.parameters, *self.signals)
        arrays = [self.t, self.q, self.v, self.controls, *(x for values in given for x in values.values())]
        for array in arrays:
            digest.update(b"" if array is None else np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes all arrays, without loss, to the .npz file `path`, with the model, the forces and the constraints.

        What a file cannot describe, such as joints and forces of users' own, functions of time and policies, is not in
        it. `load` then needs the model, forces and constraints, and rejects others than those of the simulation.
        """
        _archive.save(self, path)

    @staticmethod
    def load(
        path: str | os.PathLike[str],
        model: Model | Sequence[Model] | None = None,
        forces: Sequence[Force] = (),
        policy: Policy | OfState | None = None,
        constraints: Sequence[Constraint] | None = None,
    ) -> Trajectory:
        """Reads a file that `save` wrote.

        Models, forces and constraints other than those of the simulation are rejected, with a description of the
        difference. User-defined joints, forces, constraints and functions are compared by their names and public
        attributes.

        Parameters
        ----------
        path : path
            The file.
        model : Model, or sequence of Model, optional
            The model or models of the simulation. By default those in the file, with the forces and constraints there.
        forces : sequence of Force
            Its forces; with a model that is not given, those in the file by default.
        policy : Policy or function, optional
            The policy that gave the controls, if any. Without it the trajectory has no gradients.
        constraints : sequence of Constraint, optional
            Its constraints; those of the model by default.

        Returns
        -------
        Trajectory

        Raises
        ------
        ValueError
            If the file is not one of a trajectory, is damaged, or is of other models, forces or constraints; or if the
            model is not given, and the file cannot describe a part of the simulation.

        Examples
        --------
        >>> ts.simulate(model, q, T=0.1, integrator=ts.BDF2(h=0.01)).save("motion.npz")
        >>> again = ts.Trajectory.load("motion.npz")
        """
        return Trajectory(**_archive.read(path, model, forces, policy, constraints))

    def html(
        self,
        path: str | os.PathLike[str],
        *,
        fps: float = 30.0,
        speed: float = 1.0,
        index: int | Sequence[int] | None = None,
        show: Show = "visual",
        contacts: bool = True,
        constraints: bool = False,
        triangles: int = 300_000,
        pictures: int = 2_000,
    ) -> None:
        """Writes a page that plays the motion: one file, which needs nothing else and no network.

        Needs viser, the extra `torsor[view]`. A notebook shows a trajectory in the same way.

        Parameters
        ----------
        path : path
            Of the file, such as "motion.html".
        fps : float
            Pictures a second.
        speed : float
            1 is real time, if times are in seconds.
        index : int or sequence of int, optional
            Flat indices of the motions of a batch; the first 25 by default, side by side.
        show : {"visual", "collision", "inertia", "skeleton"}
            What to draw of bodies, as for `torsor.view.geometry.parts`.
        contacts : bool
            Whether to draw contact points and forces.
        constraints : bool
            Whether to draw where constraints are open.
        triangles : int
            Most triangles of all shapes together, about; finer meshes are made coarser.
        pictures : int
            Most pictures; a longer motion has fewer of them a second.
        """
        from torsor.view.page import trajectory_page

        page = trajectory_page(
            self,
            fps=fps,
            speed=speed,
            index=index,
            show=show,
            contacts=contacts,
            constraints=constraints,
            triangles=triangles,
            pictures=pictures,
        )
        with whole_file(path) as unfinished:
            unfinished.write_text(page, encoding="utf-8")

    def _repr_html_(self) -> str | None:
        from torsor.view.page import trajectory_output

        return trajectory_output(self)

    def plot(
        self,
        joints: Sequence[str] | None = None,
        index: int | tuple[int, ...] | list[int | tuple[int, ...]] = 0,
        quantities: str | Sequence[str] = ("q", "v", "energies"),
    ) -> Any:
        """Plots quantities over time with Matplotlib, in panels of a few joints each.

        Joints are in the groups that they form in the tree, as legs and arms do, with angles, lengths and quaternions
        apart. A panel has eight lines at most, and its names stand beside it.

        Parameters
        ----------
        joints : sequence of str, optional
            Names of the joints to plot, all by default; of a model with couplings, joints that follow others are
            plotted as dashed lines if they are named here.
        index : int, tuple of int or list of these
            The trajectory in a batch: its flat index, or its index in the shape of the batch, as that of a `Failure`.
            Several, in a list, are plotted in the same panels, the later ones paler.
        quantities : str or sequence of str
            Of "q", "v", "a", "tau" (`inverse_dynamics` of the motion: the sum of all that acts on the joints),
            "controls" and "energies".

        Returns
        -------
        matplotlib.figure.Figure
        """
        from torsor.pictures.plots import plot

        return plot(self, joints, self._tracks(index), quantities)

    def draw(
        self,
        rows: int | Sequence[int] | None = None,
        ax: Any = None,
        *,
        index: int | tuple[int, ...] = 0,
        trace: str | Sequence[str] = (),
        camera: Camera | None = None,
        frames: bool | str | Sequence[str] | None = None,
        names: bool | str | Sequence[str] = False,
        ground: bool | float | None = None,
        legend: bool | None = None,
    ) -> Any:
        """Draws rows of the motion as stick figures in one picture with Matplotlib, the last row in full colours and
        those before it paler.

        Parameters
        ----------
        rows : int or sequence of int, optional
            Numbers of the rows, negative ones from the end; six, evenly spread, by default.
        ax : mpl_toolkits.mplot3d.Axes3D, optional
            Axes to draw in; those of a new figure by default.
        index : int or tuple of int
            The trajectory in a batch, as for `plot`.
        trace : str or sequence of str
            Bodies and frames whose ways through all rows are drawn.
        camera, frames, names, ground, legend
            As those of `Model.draw`.

        Returns
        -------
        mpl_toolkits.mplot3d.Axes3D

        Examples
        --------
        >>> motion = ts.simulate(model, q, T=0.5, integrator=ts.BDF2(h=0.01))
        >>> motion.draw(rows=range(0, 51, 10), trace="hand").figure.savefig("motion.png")
        """
        from torsor.pictures.stick_figure import draw_trajectory

        options = {"camera": camera, "frames": frames, "names": names, "ground": ground, "legend": legend}
        return draw_trajectory(self, rows, ax, self._flat(index), trace, **options)

    def movie(
        self,
        path: str | os.PathLike[str],
        fps: float = 30,
        size: tuple[int, int] = (640, 480),
        camera: Camera | None = None,
        *,
        index: int | tuple[int, ...] | list[int | tuple[int, ...]] = 0,
        speed: float = 1.0,
        ground: bool | float | None = None,
        show: Show = "visual",
        progress: bool = False,
    ) -> Path:
        """Writes the motion as a movie, on any machine: it is rendered without a display and without OpenGL.

        Visuals of the bodies are shown, and what stands for them where there are none. Between rows, joints move
        evenly. Needs the extra `torsor[view]`.

        Parameters
        ----------
        path : path
            File to write, .mp4 or .gif. It appears when it is complete.
        fps : float
            Frames per second.
        size : (width, height)
            In pixels; even numbers for mp4.
        camera : pictures.Camera, optional
            From where it is seen, and what it follows. By default all of the motion is in view.
        index : int, tuple of int or list of these
            The trajectory in a batch, as for `plot`. Several, in a list, are shown side by side.
        speed : float
            Seconds of the motion in a second of the movie.
        ground : bool or float, optional
            Height of the ground, or False for none. By default a level surface for contact, height 0 where nothing is
            below it, or below the motion.
        show : {"visual", "collision", "inertia", "skeleton"}
            What is shown of the bodies.
        progress : bool
            Whether to show a progress bar.

        Returns
        -------
        Path
            The file.

        Examples
        --------
        >>> motion = ts.simulate(model, q, T=0.1, integrator=ts.BDF2(h=0.01))
        >>> path = motion.movie("motion.gif", size=(160, 120), camera=ts.pictures.Camera(track="hand"))
        """
        from torsor.pictures.movie import movie

        return movie(self, path, fps, size, camera, self._tracks(index), speed, ground, show, progress)

    def plot_contacts(self, index: int | tuple[int, ...] = 0) -> Any:
        """Plots normal and friction forces of all contacts that touch over time with Matplotlib.

        Each line is a `Contact`, the sum of its places: of normal forces, and the length of the sum of friction forces,
        with the largest friction, the coefficient times the normal force, as a thin line (if the coefficient is that of
        the force itself).

        Parameters
        ----------
        index : int or tuple of int
            The trajectory in a batch, as for `plot`.

        Returns
        -------
        matplotlib.figure.Figure
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise ImportError("plot_contacts needs Matplotlib: pip install 'torsor[view]'") from None
        track, states = self._flat(index), self.contacts
        gap, force, normal = (
            x.reshape(prod(self.batch_shape), *x.shape[len(self.batch_shape) :])[track]
            for x in (states.gap, states.force, states.normal)
        )
        pushes = np.einsum("...i,...i->...", force, normal)
        replaced = [{*values, *own} for values, own in zip(self._batch.parameters, self._batch.signals, strict=True)]
        figure = Figure(figsize=(8, 6), layout="constrained")
        axes = figure.subplots(2, 1, sharex=True)
        for k in np.unique(states.force_index[(gap < 0).any(axis=0)]).tolist():
            own = states.force_index == k
            push = pushes[:, own].sum(axis=1)
            rub = np.linalg.norm((force[:, own] - pushes[:, own, None] * normal[:, own]).sum(axis=1), axis=-1)
            (line,) = axes[0].plot(self.t, push, label=" - ".join(states.bodies[int(np.argmax(own))]))
            axes[1].plot(self.t, rub, color=line.get_color())
            if "friction" not in replaced[k]:
                largest = float(self.forces[k].parameters["friction"]) * push
                axes[1].plot(self.t, largest, color=line.get_color(), linewidth=0.5)
        for axis, label in zip(axes, ("normal force", "friction force"), strict=True):
            axis.set_ylabel(label)
        if axes[0].lines:
            axes[0].legend(fontsize="small")
        axes[1].set_xlabel("t")
        return figure

    def _tracks(self, index: int | tuple[int, ...] | list[int | tuple[int, ...]]) -> list[int]:
        """The flat indices of one trajectory in the batch, or of those in a list."""
        if index == []:
            raise ValueError("index is an empty list, expected at least one trajectory")
        return [self._flat(i) for i in (index if isinstance(index, list) else [index])]

    def _flat(self, index: int | tuple[int, ...]) -> int:
        """The flat index of a trajectory in the batch."""
        if not isinstance(index, tuple):
            n = prod(self.batch_shape)
            if not -n <= index < n:
                raise IndexError(f"index is {index}, but the batch has {n} trajectories, of shape {self.batch_shape}")
            return index % n
        if len(index) != len(self.batch_shape):
            raise ValueError(f"index is {index}, expected one trajectory of a batch of shape {self.batch_shape}")
        return int(np.arange(prod(self.batch_shape)).reshape(self.batch_shape)[index])
