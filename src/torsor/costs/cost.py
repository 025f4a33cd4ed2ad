"""The base class of costs, sums and multiples of costs, and their validation."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from math import inf, isfinite
from numbers import Real
from operator import index
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, final

import numpy as np

from torsor import _core
from torsor._check import as_array, listed
from torsor.forces.force import CompiledForces, Force, as_tuple, compile_forces, require_forces
from torsor.model import Model, require_model
from torsor.spatial import refuse_mask

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from torsor._typing import At, FloatArray


class CostValue(NamedTuple):
    """A cost (...) at states and its derivatives; None for derivatives that vanish at all states or were not requested.

    dq and dv are (..., nv), du is (..., nu), dq in the tangent space. Second derivatives have two such dimensions: dqdu
    is (..., nv, nu). dqdq is that of cost(model.plus(q, x)) with respect to x at 0, which is symmetric: for two
    directions of one quaternion joint the mean of the successive derivatives in either order.
    """

    value: FloatArray
    dq: FloatArray | None = None
    dv: FloatArray | None = None
    du: FloatArray | None = None
    dqdq: FloatArray | None = None
    dqdv: FloatArray | None = None
    dqdu: FloatArray | None = None
    dvdv: FloatArray | None = None
    dvdu: FloatArray | None = None
    dudu: FloatArray | None = None


@dataclass(frozen=True)
class States:
    """States at which a cost is evaluated: validated arrays of one batch shape, None for inputs that are not used."""

    model: Model
    shape: tuple[int, ...]
    q: Any
    v: Any
    u: Any
    t: FloatArray  # broadcasts with the shape
    rows: NDArray[np.int64] | None = None  # along the last axis, which row of a target with rows belongs to a state
    springs: CompiledForces | None = None  # forces that have an energy, with parameters that broadcast with the shape

    @cached_property
    def on_tree(self) -> States:
        """The same states of the tree, on which costs of models with couplings are evaluated."""
        if not self.model.couplings:
            return self
        if self.q is None:
            return replace(self, model=self.model.tree)
        v = None if self.v is None else _core.expand_velocity(self.model, self.q, self.v, None, 1)
        return replace(self, model=self.model.tree, q=_core.expand(self.model, self.q, None, 1), v=v)


class Cost(ABC):
    """Base class of costs: small frozen descriptions, for any model that has the bodies and joints that they name.

    `evaluate` gives value and derivatives at states. Over a trajectory (`torsor.loss`, `torsor.adjoint`) the cost is
    summed over the rows selected by `at`, an index, a slice or a list of indices, or integrated with `at="time"`. Costs
    can be added, subtracted, and multiplied and divided by numbers; `sum` works too.
    """

    at: At
    inputs: ClassVar[str]  # those of "q", "v" and "u" on which it depends
    uses_forces: bool = False  # whether it contains energies of forces
    timed: ClassVar[bool] = False  # whether a cost of controls depends on t
    __array_ufunc__: ClassVar[None] = None  # so that products with NumPy numbers are costs

    def evaluate(
        self,
        model: Model,
        q: ArrayLike,
        v: ArrayLike | None = None,
        u: ArrayLike | None = None,
        t: ArrayLike = 0.0,
        *,
        forces: Iterable[Force] = (),
        hessians: bool = False,
    ) -> CostValue:
        """The cost at states and its derivatives, whatever its `at`.

        Parameters
        ----------
        model : Model
        q : (..., nq) array_like
            Configurations.
        v : (..., nv) array_like, optional
            Velocities, if the cost depends on them.
        u : (..., nu) array_like, optional
            Controls, if the cost depends on them.
        t : (...) array_like
            Times.
        forces : iterable of Force
            Forces whose energies the cost contains.
        hessians : bool
            Whether to compute second derivatives.

        Returns
        -------
        CostValue
            value (...), gradients (..., n) and, with `hessians`, second derivatives (..., n, n).
        """
        return self._value(self._states(model, q, v, u, t, forces), hessians)

    @final
    def _value(self, x: States, hessians: bool) -> CostValue:
        """The cost at states: for a model with couplings that at states of its tree, by the chain rule."""
        if self._is_reduced(x.model):
            return self._evaluate(x, hessians)
        found = self._evaluate(x.on_tree, hessians)
        return found if x.on_tree is x or x.q is None else _chained(x, found, hessians)

    @final
    def _states(self, model: Model, q: Any, v: Any, u: Any, t: Any, forces: Iterable[Force]) -> States:
        """The arguments of `evaluate`, validated."""
        require_model(model)
        given = {"q": q, "v": v, "u": u, "t": t}
        lengths = {"q": model.nq, "v": model.nv}
        arrays: dict[str, Any] = dict.fromkeys(given)
        batches = []
        for name, value in given.items():
            if value is None:
                if name in self.inputs:
                    term = next(type(term).__name__ for _, term in self.terms if name in term.inputs)
                    raise TypeError(f"{name} is missing: {term} depends on it")
                continue
            arrays[name] = array = as_array(name, value)
            if name in lengths and array.shape[-1:] != (lengths[name],):
                n = lengths[name]
                raise ValueError(f"{name} has shape {array.shape}, expected (..., {n}): model.n{name} is {n}")
            if name == "u" and array.ndim == 0:
                raise ValueError("u is a number, expected (..., nu)")
            batches.append(array.shape if name == "t" else array.shape[:-1])
        try:
            shape = np.broadcast_shapes(*batches)
        except ValueError:
            shapes = ", ".join(f"{name} {a.shape}" for name, a in arrays.items() if a is not None)
            raise ValueError(f"batch shapes do not fit together: {shapes}") from None
        for name, a in arrays.items():
            if a is not None:
                tail = () if name == "t" else a.shape[-1:]
                arrays[name] = np.broadcast_to(a, (*shape, *tail))
        springs = [force for force in require_forces(forces) if force.has_energy]
        compiled = compile_forces(model, springs) if springs else None
        return States(model, shape, **arrays, springs=compiled)

    @property
    def terms(self) -> tuple[tuple[float, Cost], ...]:
        """Pairs of a factor and a cost of which this cost is the sum: itself alone, unless it is a `CostSum`."""
        return ((1.0, self),)

    @abstractmethod
    def _evaluate(self, x: States, hessians: bool) -> CostValue:
        """The cost at states."""

    def _by_parameters(self, x: States) -> dict[str, FloatArray]:
        """Derivatives with respect to parameters at fixed states: "inertia" (..., nbodies, 10), "placement" (...,
        nbodies, 6), "gravity" (..., 3), "armature" (..., nv), and "springs" (..., n), the parameters of forces with an
        energy."""
        return {}

    def _rows(self) -> int | None:
        """Number of rows of the target, if it has one for each selected row of a trajectory."""
        return None

    def _is_reduced(self, model: Model) -> bool:
        """Whether it is a cost of new coordinates of couplings, not of states of the tree."""
        return False

    def _coordinates(self, model: Model) -> Sequence[int]:
        """Indices of the joints in whose coordinates the cost is given."""
        return ()

    def __getstate__(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    def __add__(self, other: Cost) -> Cost:
        if not isinstance(other, Cost):
            return NotImplemented
        return CostSum((*self.terms, *other.terms))

    def __radd__(self, other: int) -> Cost:
        # sum() begins with 0.
        return self if isinstance(other, int) and other == 0 else NotImplemented

    def __mul__(self, factor: float) -> Cost:
        if not isinstance(factor, Real):
            return NotImplemented
        if not isfinite(factor):
            raise ValueError(f"a cost is multiplied by {factor!r}, expected a finite number")
        return CostSum(tuple((float(factor) * c, term) for c, term in self.terms))

    __rmul__ = __mul__

    def __truediv__(self, divisor: float) -> Cost:
        if not isinstance(divisor, Real):
            return NotImplemented
        if divisor == 0:
            raise ZeroDivisionError("a cost is divided by 0")
        return self * (1.0 / float(divisor))

    def __neg__(self) -> Cost:
        return self * -1.0

    def __sub__(self, other: Cost) -> Cost:
        return self + -other if isinstance(other, Cost) else NotImplemented


def _chained(x: States, c: CostValue, hessians: bool) -> CostValue:
    """Derivatives with respect to reduced coordinates from those with respect to the tree's."""
    P = _core.coupling_jacobian(x.model, x.q, None, 1)
    Pdot = np.zeros(P.shape) if x.v is None else _core.coupling_rate(x.model, x.q, x.v, None, 1)

    def total(*parts: tuple[FloatArray, FloatArray | None, FloatArray | None]) -> FloatArray | None:
        """The sum of A^T X B; X is a vector, or has a column for each control, where B is None."""
        out: FloatArray | None = None
        for A, X, B in parts:
            if X is None:
                continue
            left = np.swapaxes(A, -1, -2)
            term = (left @ X[..., None])[..., 0] if X.ndim < A.ndim else left @ X if B is None else left @ X @ B
            out = term if out is None else out + term
        return out

    def curved(found: FloatArray | None, y: FloatArray | None, z: FloatArray | None = None) -> FloatArray | None:
        z = None if x.v is None else z
        if not hessians or (y is None and z is None):
            return found
        y = np.zeros(P.shape[:-1]) if y is None else y
        added = _core.coupling_curvature(x.model, x.q, y, None if z is None else x.v, z, None, 1)
        return added if found is None else found + added

    vq = None if c.dqdv is None else np.swapaxes(c.dqdv, -1, -2)
    return CostValue(
        c.value,
        total((P, c.dq, None), (Pdot, c.dv, None)),
        total((P, c.dv, None)),
        c.du,
        curved(total((P, c.dqdq, P), (P, c.dqdv, Pdot), (Pdot, vq, P), (Pdot, c.dvdv, Pdot)), c.dq, c.dv),
        curved(total((P, c.dqdv, P), (Pdot, c.dvdv, P)), c.dv),
        total((P, c.dqdu, None), (Pdot, c.dvdu, None)),
        total((P, c.dvdv, P)),
        total((P, c.dvdu, None)),
        c.dudu,
    )


@final
@dataclass(frozen=True)
class CostSum(Cost):
    """A sum of multiples of costs, each with its own `at`: the type of `a + 2.0 * b`.

    Parameters
    ----------
    summands : sequence of (float, Cost)
        One or more pairs of a factor and a cost that is not a sum itself.
    """

    summands: tuple[tuple[float, Cost], ...]

    def __post_init__(self) -> None:
        expected = "expected pairs of a finite number and a Cost that is not a sum: a + 2.0 * b makes them"
        if not isinstance(self.summands, (tuple, list)):
            raise TypeError(f"summands are {self.summands!r}, {expected}")
        if not self.summands:
            raise ValueError(f"there are no summands, {expected}")
        for pair in self.summands:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TypeError(f"summands have {pair!r}, {expected}")
            factor, term = pair
            if not isinstance(factor, Real) or not isinstance(term, Cost) or isinstance(term, CostSum):
                raise TypeError(f"summands have {pair!r}, {expected}")
            if not isfinite(factor):
                raise ValueError(f"summands have the factor {factor!r}, {expected}")
        object.__setattr__(self, "summands", tuple((float(factor), term) for factor, term in self.summands))

    @property
    def at(self) -> At:  # type: ignore[override]
        """Not defined for a sum: each term has its own."""
        raise AttributeError("a sum of costs has no `at` of its own; its terms have: [c.at for _, c in cost.terms]")

    @property
    def inputs(self) -> str:  # type: ignore[override]
        """Those of "q", "v" and "u" on which the terms depend."""
        return "".join(a for a in "qvu" if any(a in term.inputs for _, term in self.summands))

    @property
    def terms(self) -> tuple[tuple[float, Cost], ...]:
        """Pairs of a factor and a cost."""
        return self.summands

    def _evaluate(self, x: States, hessians: bool) -> CostValue:
        total: dict[str, Any] = {"value": np.zeros(x.shape)}
        for factor, term in self.summands:
            for name, part in zip(CostValue._fields, term._evaluate(x, hessians), strict=True):
                if part is not None:
                    total[name] = factor * part + total.get(name, 0.0)
        return CostValue(**total)


# ---- fields


def when(at: Any, inputs: str) -> At:
    """`at` as it is stored."""
    expected = "expected 'time', an index, a slice or a list of indices"
    out: At
    if isinstance(at, str):
        if at != "time":
            raise ValueError(f"at is {at!r}, {expected}")
        out = "time"
    elif isinstance(at, slice):
        try:
            out = slice(*(None if k is None else index(k) for k in (at.start, at.stop, at.step)))
        except TypeError:
            raise TypeError(f"at is {at!r}, expected a slice of indices") from None
        if out.step == 0:
            raise ValueError(f"at is {at!r}, expected a step other than 0")
    else:
        refuse_mask("at", at)
        several = isinstance(at, Sequence) or (isinstance(at, np.ndarray) and at.ndim > 0)
        rows = list(at) if several else [at]
        if any(isinstance(r, (bool, np.bool_)) for r in rows):
            raise TypeError(f"at is {at!r}, {expected}; np.flatnonzero(mask) has the indices of a mask")
        try:
            given = tuple(index(r) for r in rows)
        except TypeError:
            raise TypeError(f"at is {at!r}, {expected}") from None
        if not given:
            raise ValueError(f"at is {at!r}, which selects no row, {expected}")
        out = given if several else given[0]
    if "u" in inputs and out != "time":
        raise ValueError(
            f"at is {at!r}, but controls belong to steps, not to rows: a cost of controls is an integral, at='time'"
        )
    return out


def weights(value: Any, *, one: bool = False) -> float | tuple[float, ...]:
    """Nonnegative numbers: one, or one for each velocity or control, whose number is checked with the model."""
    if isinstance(value, float) and 0 <= value < inf:
        return value
    a = as_array("weight", value)
    if a.ndim > (0 if one else 1):
        raise ValueError(
            f"weight has shape {a.shape}, expected {'a number' if one else 'a number, or one for each (n,)'}"
        )
    if not np.isfinite(a).all():
        raise ValueError(f"weight is not finite: got {a.tolist()}")
    if (a < 0).any():
        raise ValueError(f"weight is {a.tolist()}, expected at least 0; to maximise a cost, negate it: -cost")
    return float(a) if a.ndim == 0 else as_tuple(a)


def target_rows(value: Any, times: Any, *, number: bool = False) -> tuple[Any, tuple[float, ...] | None]:
    """A target and its times as they are stored: (k,), or a number, or rows (n, k)."""
    a = as_array("target", value)
    if not np.isfinite(a).all():
        raise ValueError("target is not finite")
    if a.ndim > 2 or (a.ndim == 0 and not number) or (a.ndim == 2 and len(a) == 0):
        raise ValueError(f"target has shape {a.shape}, expected {'a number, ' if number else ''}(k,), or rows (n, k)")
    kept = float(a) if a.ndim == 0 else as_tuple(a)
    if times is None:
        return kept, None
    t = as_array("times", times)
    if a.ndim != 2 or t.shape != (len(a),):
        raise ValueError(
            f"target has shape {a.shape} and times {t.shape}, expected (n, k) and (n,): a row for each of the times"
        )
    if not np.isfinite(t).all():
        raise ValueError("times are not finite")
    if (np.diff(t) <= 0).any():
        k = int(np.argmax(np.diff(t) <= 0))
        raise ValueError(f"times must increase, but times[{k + 1}] is {t[k + 1]:g} after {t[k]:g}")
    return kept, as_tuple(t)


def row_count(target: Any, times: Any) -> int | None:
    """Number of rows of a target without times."""
    return len(target) if times is None and np.ndim(target) == 2 else None


def _evenly(before: FloatArray, after: FloatArray, fraction: FloatArray) -> FloatArray:
    return before + fraction * (after - before)


def target_at(target: FloatArray, times: Any, x: States, between: Callable[..., FloatArray] = _evenly) -> FloatArray:
    """The target at states: (k,), or (..., k). `between` interpolates between two times; before the first and after the
    last it is constant."""
    if target.ndim < 2:
        return target
    if times is None:
        if x.rows is not None:
            return np.asarray(target[x.rows])
        if x.shape[-1:] != (len(target),):
            raise ValueError(
                f"target has {len(target)} rows, one for each state, but the states have the shape {x.shape}, expected "
                f"(..., {len(target)}); give times= for a target that depends on time"
            )
        return target
    if len(times) == 1:
        return np.asarray(target[0])
    table = np.array(times)
    first = np.clip(np.searchsorted(table, x.t, side="right") - 1, 0, len(table) - 2)
    fraction = np.clip((x.t - table[first]) / (table[first + 1] - table[first]), 0.0, 1.0)
    return between(target[first], target[first + 1], np.asarray(fraction)[..., None])


def joint_names(joints: Any) -> str | tuple[str, ...] | None:
    """Names of joints, not yet looked up: one, several, or None for all."""
    if joints is None or isinstance(joints, str):
        return joints
    refuse_mask("joints", joints)
    if not isinstance(joints, Iterable):
        raise TypeError(f"joints is {joints!r}, expected a name, a list of names, or None for all joints")
    names = tuple(joints)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"joints has {name!r}, expected names of joints")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"joints is {names!r}, expected each joint once; None is all joints")
    return names


def are_new(model: Model, joints: str | tuple[str, ...] | None) -> bool:
    """Whether these are names of new coordinates of couplings."""
    names = (joints,) if isinstance(joints, str) else joints or ()
    new = [] if model._map is None else [name for name in names if name in model._map.new]
    if new and len(new) < len(names):
        raise ValueError(
            f"joints is {names!r}, in which {listed(new)} are new coordinates of couplings beside joints; give two "
            "costs"
        )
    return bool(new)


class Selection:
    """Coordinates and velocities of some joints of a model, or of new coordinates of its couplings."""

    def __init__(self, model: Model, joints: str | tuple[str, ...] | None) -> None:
        self.q: Any = slice(None)
        self.v: Any = slice(None)
        self.nq, self.nv, self.label = model.nq, model.nv, f"{model._label} has"
        self.indices: Sequence[int] = range(model.nbodies)
        if joints is not None:
            names = (joints,) if isinstance(joints, str) else joints
            self.label = f"{', '.join(map(repr, names))} {'has' if len(names) == 1 else 'have'}"
            if are_new(model, joints) and model._map is not None:
                self.indices, self.v = [], np.array([model._map.columns[name] for name in names])
                self.q = np.array(model._map.position)[self.v]
                self.nq = self.nv = len(names)
                return
            found = [model.joint(name) for name in names]
            self.indices = [model._find(name, "joint") for name in names]
            if len(set(self.indices)) < len(names):
                raise ValueError(f"joints is {names!r}, which has a joint twice, by its name and by its body's")
            self.q = np.concatenate([np.arange(j.q_slice.start, j.q_slice.stop) for j in found])
            self.v = np.concatenate([np.arange(j.v_slice.start, j.v_slice.stop) for j in found])
            self.nq, self.nv = len(self.q), len(self.v)

    def require(self, name: str, value: FloatArray, size: int, what: str, *, number: bool = True) -> None:
        """Requires that the last dimension of a field is that of the joints."""
        if value.shape[-1:] != (size,) and not (number and value.ndim == 0):
            expected = f"one number or (..., {size})" if number else f"(..., {size})"
            raise ValueError(f"{name} has shape {value.shape}, expected {expected}: {self.label} {size} {what}")

    def weights(self, model: Model, weight: FloatArray) -> FloatArray:
        """One for each velocity of the model (nv,), 0 for those of other joints."""
        self.require("weight", weight, self.nv, "velocities")
        out = np.zeros(model.nv)
        out[self.v] = weight
        return out


def diagonal(x: States, values: FloatArray) -> FloatArray:
    """Second derivatives (..., n, n) that are the same diagonal matrix at all states."""
    return np.array(np.broadcast_to(np.diag(values), (*x.shape, len(values), len(values))))


def symmetric(a: FloatArray) -> FloatArray:
    """The symmetric part of matrices (..., n, n)."""
    return np.asarray(0.5 * (a + np.swapaxes(a, -1, -2)))
