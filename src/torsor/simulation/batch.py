"""Models, forces and parameters of each trajectory of a batch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from torsor import _core
from torsor.constraints.constraint import Constraint, compile_constraints, require_constraints
from torsor.forces.force import Force, compile_forces
from torsor.model import Model, require_model
from torsor.simulation import charts as _charts
from torsor.simulation.parameters import leads_of, shapes_of, steps_of_rows

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from torsor._typing import FloatArray
    from torsor.simulation.parameters import Parameters

    Charts = tuple[str, ...]

_STRUCTURE = "models of a batch must have the same bodies and the same kinds of joints, in the same order"


def read_models(model: Any) -> tuple[Model, ...]:
    """One model, or the several of a batch."""
    if not isinstance(model, (list, tuple)):
        return (require_model(model),)
    if not model:
        raise ValueError("model is an empty sequence, expected one model, or several of the same structure")
    for k, one in enumerate(model):
        if not isinstance(one, Model):
            raise TypeError(f"model[{k}] must be a torsor.Model, got {type(one).__name__}")
        if one.nbodies != model[0].nbodies:
            raise ValueError(f"model[{k}] has {one.nbodies} bodies, model[0] has {model[0].nbodies}; {_STRUCTURE}")
        _require_same_couplings(k, model[0], one)
        _require_same_frames(k, model[0], one)
        if _same_structure(model[0], one):
            continue
        for a, b in zip(model[0].bodies, one.bodies, strict=True):
            if (a.name, a.parent) != (b.name, b.parent):
                raise ValueError(
                    f"model[{k}] has {b.name!r} on {b.parent!r} where model[0] has {a.name!r} on {a.parent!r}; "
                    f"{_STRUCTURE}"
                )
            if _kinds(a.joint) != _kinds(b.joint):
                raise ValueError(
                    f"the joint of {a.name!r} is {b.joint!r} in model[{k}] and {a.joint!r} in model[0]; {_STRUCTURE}"
                )
    return tuple(model)


def _require_same_couplings(k: int, first: Model, other: Model) -> None:
    """Rejects a model of a batch whose couplings have other kinds, joints or sizes; their numbers may differ."""
    if first.couplings == other.couplings:
        return
    if len(first.couplings) != len(other.couplings):
        raise ValueError(
            f"model[{k}] has {len(other.couplings)} couplings, model[0] has {len(first.couplings)}; models of a batch "
            "must couple the same joints, by couplings of the same kinds in the same order"
        )
    for i, both in enumerate(zip(first.couplings, other.couplings, strict=True)):
        a, b = ((type(c).__name__, c.followers, c.leaders, c.new) for c in both)
        what = [x for x, y, z in zip(("kind", "joints", "leaders", "new coordinates"), a, b, strict=True) if y != z]
        sizes = [{name: x.shape for name, x in c.parameters.items()} for c in both]
        what += [] if sizes[0] == sizes[1] else ["numbers of parameters"]
        if what:
            raise ValueError(
                f"coupling {i} of model[{k}], {both[1]!r}, differs from that of model[0], {both[0]!r}, in its "
                f"{', '.join(what)}; in models of a batch only values of their parameters may differ"
            )


def _require_same_frames(k: int, first: Model, other: Model) -> None:
    """Rejects a model of a batch that has other frames, by which forces and constraints may be given."""
    if first.frames is other.frames:
        return
    a, b = ([(f.name, f.body) for f in one.frames] for one in (first, other))
    if a != b:
        odd = next((x, y) for x, y in zip_longest(a, b) if x != y)
        shown = ["no further frame" if x is None else f"the frame {x[0]!r} on {x[1]!r}" for x in odd]
        raise ValueError(
            f"model[{k}] has {shown[1]} where model[0] has {shown[0]}; models of a batch must have the same frames"
        )


def own_constraints(models: Sequence[Model]) -> tuple[Constraint, ...]:
    """The constraints that the models have themselves, which must be the same in all of them."""
    own = models[0].constraints
    for k, one in enumerate(models):
        if one is not models[0] and one.constraints != own:
            raise ValueError(f"model[{k}] has other constraints of its own than model[0]; give constraints= for all")
    return require_constraints(own)


def _same_structure(model: Model, other: Model) -> bool:
    """Whether the bodies have the same names, parents and kinds of joints. Models that were compared share the list of
    these, so that comparing them again takes no time."""
    lists = []
    for one in (model, other):
        if "structure" not in one._cache:
            one._cache["structure"] = [(b.name, b.parent, _kinds(b.joint)) for b in one.bodies]
        lists.append(one._cache["structure"])
    same = lists[0] is lists[1] or lists[0] == lists[1]
    if same:
        other._cache["structure"] = lists[0]
    return same


def _kinds(joint: Any) -> Any:
    """The properties in which the joints of one body must agree."""
    parts = [_kinds(part) for part in getattr(joint, "joints", ())]
    return type(joint), joint.nq, joint.nv, getattr(joint, "chart", None), parts


@dataclass(frozen=True)
class Span:
    """Rows of some trajectories with one model and one set of coordinates."""

    tracks: slice
    rows: slice
    model: Model
    forces: _core.ForceSet
    constraints: _core.ConstraintSet | None
    parameters: FloatArray  # of the forces, to go with states (tracks, rows, nq)
    by_row: bool = False  # whether the parameters differ between rows

    def at(self, rows: NDArray[np.int64]) -> Span:
        """The span with the parameters of some of its rows."""
        return replace(self, parameters=self.parameters[:, rows - self.rows.start]) if self.by_row else self

    @property
    def options(self) -> dict[str, Any]:
        """Options of a function of the core."""
        return {"forces": self.forces}


class Batch:
    """The models of a batch of trajectories, and the forces and constraints compiled for each model and set of charts.

    `models` is one for all, or a batch of shape (n,); `parameters` broadcast to `shape` as well, and so do `signals`,
    parameters with a row for each step.
    """

    def __init__(
        self,
        models: tuple[Model, ...],
        forces: Sequence[Force],
        parameters: Parameters,
        shape: tuple[int, ...],
        signals: Parameters = (),
        constraints: Sequence[Constraint] = (),
    ) -> None:
        self.models, self.forces, self.parameters, self.shape = models, tuple(forces), parameters, shape
        self.constraints = tuple(constraints)
        self.signals = signals or tuple({} for _ in self.forces)
        self.places: Sequence[int] = range(len(self.forces))  # among those of the trajectory
        self.size = prod(shape)
        self.model_of = np.zeros(self.size, np.int64)
        if len(models) > 1:
            self.model_of[:] = np.broadcast_to(np.arange(len(models)), shape).ravel()
        self._ready: dict[tuple[Charts, int], tuple[Model, _core.ForceSet, _core.ConstraintSet | None]] = {}
        self.parts = switching_parts(models[0], self.forces, self.constraints)
        self.charts: Charts = tuple(p.chart for p in self.parts)
        self._first = self.forces if not any(parameters) and not any(self.signals) else self._with_first()
        self.compiled = compile_forces(models[0], self._first)  # for the first model
        self.rows = compile_constraints(models[0], self.constraints) if self.constraints else None
        # Forces and constraints know bodies and joints by index, so that all models of one tree share a set, in
        # whatever charts.
        self._sets = [(models[0]._core, self.compiled.core, None if self.rows is None else self.rows.core)]
        # Parameters of all forces: (batch, n), or (1, n) where they are the same for all.
        same = self.size == 0 or (len(models) == 1 and not any(parameters))
        self.flat = self.compiled.parameters[None] if same else self._flatten()
        # The columns of `flat` that signals replace, and their values (batch, steps, columns), or (1, ...) where they
        # are the same for all.
        self.signal_table = self._tabulate() if any(self.signals) else None

    def _with_first(self) -> tuple[Force, ...]:
        """The forces to compile, with the first of the given parameters where they lack their own."""
        out = []
        for force, values, signals in zip(self.forces, self.parameters, self.signals, strict=True):
            given = {**values, **signals}
            if given.keys() - shapes_of(self.models[0], force).keys():
                force = force.with_parameters({n: x[0] for n, x in self._rows(force, given).items() if len(x)})
            out.append(force)
        return tuple(out)

    def _rows(self, force: Force, values: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
        """All values of parameters of a force, (n, *shape of the parameter) each."""
        leads = leads_of(self.models[0], force, values)
        return {
            name: value.reshape(prod(lead), *value.shape[len(lead) :])
            for (name, value), lead in zip(values.items(), leads, strict=True)
        }

    def _flatten(self) -> FloatArray:
        places: list[tuple[slice, FloatArray]] = []  # columns, and values that broadcast to the batch
        for k, (force, values) in enumerate(zip(self.forces, self.parameters, strict=True)):
            if not self._is_simple(k):
                table = self._of_each(k)
                lead = () if len(table) == 1 else self.shape
                places.append((self.compiled.columns(k), table.reshape(*lead, table.shape[1])))
                continue
            for (name, value), lead in zip(values.items(), leads_of(self.models[0], force, values), strict=True):
                at = self.compiled.columns(k, name)
                places.append((at, value.reshape(*lead, at.stop - at.start)))
        shape = self.shape if any(x.size != x.shape[-1] for _, x in places) else ()
        out = np.empty((*shape, len(self.compiled.parameters)))
        out[...] = self.compiled.parameters
        for at, x in places:
            out[..., at] = x if shape else x.reshape(x.shape[-1])
        return out.reshape(prod(shape), out.shape[-1])

    def _is_simple(self, k: int) -> bool:
        """Whether a force has the same parameters in all models, except for given ones, which it accepts. Where the
        allowed values are intervals, the extreme values decide."""
        force, values, several = self.forces[k], self.parameters[k], len(self.models) > 1
        if not force._frozen or force is not self._first[k]:
            return False
        if several and shapes_of(self.models[0], force).keys() - force.parameters.keys():  # taken from the model
            return False
        if not values:
            return True
        if values.keys() & set(force._coupled(self.models[0])):
            return False
        try:
            rows = self._rows(force, values)
            for end in (np.min, np.max) if max(map(len, rows.values())) > 1 else (np.min,):
                force.with_parameters({name: end(x, axis=0) for name, x in rows.items()})
        except ValueError:
            return False  # raised again for the trajectory that has them
        return True

    def _of_each(self, k: int) -> FloatArray:
        """Parameters of a force (batch, n), or (1, n), made for every pair of a model and values once."""
        force, values = self.forces[k], self.parameters[k]
        leads = leads_of(self.models[0], force, values)
        lead = np.broadcast_shapes(*leads)
        rows = {
            name: np.broadcast_to(value, lead + value.shape[len(given) :]).reshape(
                prod(lead), *value.shape[len(given) :]
            )
            for (name, value), given in zip(values.items(), leads, strict=True)
        }
        first = {name: x[0] for name, x in self._rows(force, self.signals[k]).items() if len(x)}
        which = np.broadcast_to(np.arange(prod(lead)).reshape(lead), self.shape).reshape(self.size)
        pairs, inverse = np.unique(np.stack([self.model_of, which]), axis=1, return_inverse=True)
        numbers = []
        for m, j in pairs.T.tolist():
            try:
                given = {**{name: x[j] for name, x in rows.items()}, **first}
                one = force.with_parameters(given) if given else force
                own = one._for_model(self.models[m].tree).parameters
            except ValueError as error:
                i = int(np.argmax((self.model_of == m) & (which == j)))
                where = f" in trajectory {i} of the batch" if self.shape else ""
                raise ValueError(f"force {k} ({type(force).__name__}){where}: {error}") from None
            numbers.append(np.concatenate([np.zeros(0), *(x.ravel() for x in own.values())]))
        size = sum(x.size for x in self.compiled.forces[k].parameters.values())
        table = np.array(numbers).reshape(len(numbers), size)
        return table if len(table) == 1 else table[inverse.ravel()]

    def _tabulate(self) -> tuple[NDArray[np.int64], FloatArray]:
        columns, tables = [], []
        for k, given in enumerate(self.signals):
            if not given:
                continue
            self._check_signals(k)
            for name, value, lead in self._signals_of(k):
                at, steps = self.compiled.columns(k, name), value.shape[len(lead)]
                table = value.reshape(*lead, steps, at.stop - at.start)
                rows = self.shape if prod(lead) != 1 else lead
                tables.append(np.broadcast_to(table, rows + table.shape[-2:]).reshape(prod(rows), *table.shape[-2:]))
                columns.append(np.arange(at.start, at.stop))
        n = max(len(table) for table in tables)
        wide = [np.broadcast_to(table, (n, *table.shape[1:])) for table in tables]
        return np.concatenate(columns), np.concatenate(wide, axis=-1)

    def _signals_of(self, k: int) -> list[tuple[str, FloatArray, tuple[int, ...]]]:
        """Name, values and batch shape of each signal of a force."""
        values = self.signals[k]
        leads = leads_of(self.models[0], self.forces[k], values, 1)
        return [(name, value, lead) for (name, value), lead in zip(values.items(), leads, strict=True)]

    def _check_signals(self, k: int) -> None:
        """Rejects values that a force does not accept. Where these are intervals, the extreme values decide."""
        force, model, signals = self._first[k], self.models[0], self._signals_of(k)
        rows = {name: x for name, x in self._rows(force, self.signals[k]).items() if len(x)}
        if not rows:
            return
        if not rows.keys() & set(force._coupled(model)):
            try:
                for end in (np.min, np.max) if max(map(len, rows.values())) > 1 else (np.min,):
                    force.with_parameters({name: end(x, axis=0) for name, x in rows.items()})
                return
            except ValueError:
                pass  # raised again below, with its step
        fixed, fixed_leads = self.parameters[k], leads_of(model, self.forces[k], self.parameters[k])
        lead = np.broadcast_shapes(*(lead for _, _, lead in signals), *fixed_leads)
        steps = signals[0][1].shape[len(signals[0][2])]
        others = {
            name: np.broadcast_to(value, lead + value.shape[len(own) :]).reshape(prod(lead), *value.shape[len(own) :])
            for (name, value), own in zip(fixed.items(), fixed_leads, strict=True)
        }
        wide = {
            name: np.broadcast_to(value, lead + value.shape[len(own) :]).reshape(
                prod(lead) * steps, *rows[name].shape[1:]
            )
            for name, value, own in signals
        }
        for j in range(prod(lead) * steps):
            try:
                given = {name: x[j // steps] for name, x in others.items()}
                force.with_parameters({**given, **{name: x[j] for name, x in wide.items()}})._for_model(model.tree)
            except ValueError as error:
                which = np.broadcast_to(np.arange(prod(lead)).reshape(lead), self.shape).ravel()
                i = int(np.argmax(which == j // steps))
                where = f" in trajectory {i} of the batch" if self.shape else ""
                raise ValueError(f"force {k} ({type(force).__name__}) at step {j % steps}{where}: {error}") from None

    def signals_by_name(self, table: FloatArray) -> Parameters:
        """For each force its part of a table (..., steps, columns), shaped as the signals."""
        out: list[dict[str, FloatArray]] = []
        at = 0
        for k, values in enumerate(self.signals):
            out.append({})
            for name in values:
                shape = self.compiled.forces[k].parameters[name].shape
                out[-1][name] = table[..., at : at + prod(shape)].reshape((*table.shape[:-1], *shape))
                at += prod(shape)
        return tuple(out)

    def signals_until(self, steps: int) -> Parameters:
        """The signals of the first steps."""
        if self.signal_table is not None and steps == self.signal_table[1].shape[1]:
            return self.signals
        return tuple(
            {name: value[(slice(None),) * len(lead) + (slice(steps),)] for name, value, lead in self._signals_of(k)}
            for k in range(len(self.forces))
        )

    def ready(self, charts: Charts, m: int) -> tuple[Model, _core.ForceSet, _core.ConstraintSet | None]:
        """A model in these charts, and the forces and constraints compiled for it: once for all models of one tree."""
        if (charts, m) not in self._ready:
            model = self.models[m]
            if charts != self.charts:
                model = _charts.with_charts(model, self.parts, charts)
            found = next((sets for sets in self._sets if sets[0].same_tree(model._core)), None)
            if found is None:
                rows = compile_constraints(model, self.constraints).core if self.constraints else None
                found = (model._core, compile_forces(model, self._first).core, rows)
                self._sets.append(found)
            self._ready[charts, m] = (model, *found[1:])
        return self._ready[charts, m]

    def arguments(
        self, charts: Charts, chosen: NDArray[np.int64], part: slice
    ) -> tuple[list[Any], list[Any], NDArray[np.int64], FloatArray, list[Any]]:
        """The arguments of the core for some trajectories in the same charts, counted from the first of a part."""
        n = len(chosen)
        at: Any = part if n == part.stop - part.start else chosen + part.start
        used, of = [0], np.zeros(n, np.int64)
        if len(self.models) > 1 and n:
            unique, inverse = np.unique(self.model_of[at], return_inverse=True)
            used, of = unique.tolist(), inverse.ravel().astype(np.int64)
        ready = [self.ready(charts, m) for m in used]
        flat = self.flat if len(self.flat) == 1 else self.flat[at]
        sets = [core if self.forces else None for _, core, _ in ready]
        return [model for model, _, _ in ready], sets, of, flat, [rows for _, _, rows in ready]

    def spans(self, switches: Sequence[_charts.ChartSwitch], rows: int, every: int) -> list[Span]:
        """All rows of all trajectories, `every` steps apart."""
        by_row = self._row_parameters(rows, every)
        if len(self.models) == 1 and not switches:
            flat = self.flat[0] if len(self.flat) == 1 else self.flat[:, None]
            flat, differ = (flat, False) if by_row is None else (by_row, True)
            return [Span(slice(None), slice(0, rows), *self.ready(self.charts, 0), flat, differ)]
        out = []
        for i, first, last, charts in _charts.segments([self.charts] * self.size, switches, rows):
            flat = self.flat[0 if len(self.flat) == 1 else i]
            flat, differ = (flat, False) if by_row is None else (by_row[i : i + 1, first:last], True)
            ready = self.ready(charts, int(self.model_of[i]))
            out.append(Span(slice(i, i + 1), slice(first, last), *ready, flat, differ))
        return out

    def _row_parameters(self, rows: int, every: int) -> FloatArray | None:
        """With signals, the parameters (batch, rows, n) at all rows: those of the step that ends there, at the first
        row of the first step."""
        if self.signal_table is None:
            return None
        columns, table = self.signal_table
        out = np.repeat(np.broadcast_to(self.flat, (self.size, self.flat.shape[1]))[:, None], rows, axis=1)
        if table.shape[1]:
            out[..., columns] = table[:, steps_of_rows(np.arange(rows), every)]
        return out

    def select(self, chosen: Sequence[int]) -> Batch:
        """The batch with some of the forces only, and the charts of all."""
        parameters = tuple(self.parameters[k] for k in chosen)
        signals = tuple(self.signals[k] for k in chosen)
        out = Batch(self.models, [self.forces[k] for k in chosen], parameters, self.shape, signals, self.constraints)
        out.parts, out.charts, out.places = self.parts, self.charts, chosen
        return out


def switching_parts(
    model: Model, forces: Sequence[Force], constraints: Sequence[Constraint] = ()
) -> Sequence[_charts.ChartPart]:
    """The joints that change their charts: all joints with charts, except where a force, a constraint or a coupling is
    given in coordinates."""
    parts = _charts.chart_parts(model)
    given: tuple[Force | Constraint, ...] = (*forces, *constraints)
    kept = {name for one in given for name in one._joints(model)} if parts else set()
    for joint in model.joints if parts else ():
        if joint.follows:
            kept.update((joint.name, *joint.follows))
    return [p for p in parts if model.joints[p.body].name not in kept]
