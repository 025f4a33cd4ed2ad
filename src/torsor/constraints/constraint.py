"""The base class of constraints, their validation, and their compilation for the core."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from torsor import _core
from torsor._check import listed, unknown
from torsor._errors import ConstraintError
from torsor.forces.force import require_names
from torsor.model import WORLD, Model, carrier, place_name, require_model
from torsor.spatial import SE3, frozen_array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from torsor._typing import FloatArray

    Part = tuple[Any, ...]  # as core/bind/constraint_set.cpp reads it


class Constraint(ABC):
    """Base class of constraints: small frozen descriptions, for any model that has the bodies and joints that they
    name.

    A constraint has one row or several, g(q, t) = 0, each with a multiplier. All numbers in a constraint are
    parameters, with respect to which gradients are available. A placement counts as the twist x (6,) that moves it to
    placement @ SE3.exp(x): zeros in `parameters`.
    """

    name: str | None = None
    _numbers: ClassVar[tuple[str, ...]] = ()  # names of the fields that are parameters
    _frozen: ClassVar[bool] = True  # whether its parameters are those that it was made with
    _of_bodies: ClassVar[tuple[str, ...]] = ()  # names of the fields that name bodies: one, or several with numbers
    _of_joints: ClassVar[tuple[str, ...]] = ()  # names of the fields that name joints or coordinates of them

    @property
    def shown_name(self) -> str:
        """The name, or what stands for it in messages: "Loop(coupler, rocker)"."""
        return self.name if self.name is not None else f"{type(self).__name__}({', '.join(self._subjects())})"

    @property
    def parameters(self) -> dict[str, FloatArray]:
        """Numbers of the constraint by name; of a placement the twist (6,) from where it is, zeros."""
        values = ((name, getattr(self, name)) for name in self._numbers)
        return {
            name: np.zeros(6) if isinstance(value, SE3) else np.array(value, dtype=np.float64)
            for name, value in values
            if not callable(value) and np.size(value)
        }

    def with_parameters(self, values: Mapping[str, ArrayLike | SE3]) -> Self:
        """A copy with the given `values` of some parameters, by name; a placement moves by a twist (6,), or is replaced
        by an SE3."""
        require_names(values)
        known = self.parameters
        changed: dict[str, Any] = {}
        for name, value in values.items():
            if name not in known:
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {listed([*known], name) or 'none'}"
                )
            now = getattr(self, name, None)
            if isinstance(now, SE3) and not isinstance(value, SE3):
                changed[name] = now @ SE3.exp(frozen_array(value, (6,), name))
            else:
                changed[name] = value
        return self._replaced(changed)

    def _replaced(self, values: dict[str, Any]) -> Self:
        """A copy with other values of some parameters."""
        return replace(self, **values)  # type: ignore[type-var]

    def row_names(self, model: Model) -> tuple[str, ...]:
        """Names of the rows for a `model`, in the order of the multipliers."""
        return named_rows(self.shown_name, self._labels(require_model(model).tree))

    def flipped(self, model: Model, q: ArrayLike, *, t: float = 0.0) -> bool:
        """Whether orientations are half a turn from those that are meant, at the configuration q (nq,) of the model and
        the time t.

        Rows of orientation are zero there too. False for constraints without such rows.
        """
        return False

    def _joints(self, model: Model) -> tuple[str, ...]:
        """Names of the joints in whose coordinates the constraint is given; none for a constraint of bodies."""
        return ()

    def _named(self) -> tuple[set[str], set[str]] | None:
        """Names of the bodies and frames, and of the joints, that it is given in; None if in all coordinates."""
        bodies, joints = (
            {_name_of(part) for name in names for part in _parts_of(getattr(self, name))}
            for names in (self._of_bodies, self._of_joints)
        )
        return bodies, joints

    def _renamed(self, rename: Callable[[str], str], name: str | None) -> Self:
        """The same constraint of bodies and joints with other names, and with another name of its own."""

        def renamed(part: Any) -> Any:
            return rename(part) if isinstance(part, str) else (rename(part[0]), *part[1:])

        changed: dict[str, Any] = {"name": name}
        for key in (*self._of_bodies, *self._of_joints):
            value = getattr(self, key)
            several = _parts_of(value)
            changed[key] = tuple(map(renamed, several)) if several is value else renamed(value)
        return replace(self, **changed)  # type: ignore[type-var]

    def _on(self, moved: Mapping[str, tuple[str, SE3]]) -> Constraint:
        """The same constraint where bodies have become parts of others: name -> (the other, its pose there)."""
        return self

    @abstractmethod
    def _subjects(self) -> tuple[str, ...]:
        """Names of its bodies or joints."""

    @abstractmethod
    def _labels(self, model: Model) -> tuple[str, ...]:
        """What each row is about; "" if there is one row only."""

    @abstractmethod
    def _parts(self, model: Model) -> list[Part]:
        """The constraint as parts of the core, whose rows are those of the constraint."""

    @abstractmethod
    def _gradient(self, flat: FloatArray) -> dict[str, FloatArray]:
        """Gradients with respect to the parameters, (..., *shape), from those of the parts of the core (..., n)."""


def _parts_of(value: Any) -> Any:
    """The entries of a field that names bodies or joints: of one, (it,); of several, the field itself."""
    single = isinstance(value, str) or (len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int))
    return (value,) if single else value


def _name_of(part: Any) -> str:
    return part if isinstance(part, str) else part[0]


def named_rows(name: str, labels: tuple[str, ...]) -> tuple[str, ...]:
    """Names of the rows of a constraint."""
    return tuple(f"{name}: {label}" if label else name for label in labels)


def part_size(part: Part) -> int:
    """Number of entries of a part in the flat gradient."""
    kind = part[0]
    if kind == "pair":
        return 12 + len(part[3])
    if kind == "coupling":
        return len(part[1]) + 1
    if kind == "twist":
        return 6 * len(part[1]) + len(part[2])
    return int(part[3])


def part_rows(part: Part) -> int:
    """Number of rows of a part."""
    kind = part[0]
    if kind == "pair":
        return len(part[3])
    return int(part[2]) if kind == "custom" else 1


@dataclass(frozen=True)
class CompiledConstraints:
    """Constraints compiled for one model."""

    constraints: tuple[Constraint, ...]
    names: tuple[str, ...]  # of the constraints; equal shown names are numbered
    row_names: tuple[str, ...]
    row_slices: tuple[slice, ...]  # the rows of each constraint
    columns: tuple[slice, ...]  # where each constraint lies in the flat gradient
    parts: tuple[tuple[int, Part], ...]
    joints: frozenset[str]  # in whose coordinates constraints are given: their charts must not change
    changeable: tuple[tuple[Constraint, dict[str, FloatArray]], ...]  # mutable ones, and their parameters when compiled
    model_core: _core.Model

    @property
    def rows(self) -> int:
        """Number of rows, and of multipliers."""
        return len(self.row_names)

    @property
    def size(self) -> int:
        """Length of the flat gradient."""
        return self.columns[-1].stop if self.columns else 0

    @cached_property
    def core(self) -> _core.ConstraintSet:
        """The constraints in the core."""
        made = _core.ConstraintSet(self.model_core, len(self.constraints), list(self.parts))
        made.row_names = list(self.row_names)
        return made

    @cached_property
    def options(self) -> dict[str, Any]:
        """Options of a function of the core."""
        return {"constraints": self.core}

    def is_current(self) -> bool:
        """Whether all constraints still have the parameters with which they were compiled."""
        for constraint, then in self.changeable:
            now = constraint.parameters
            if now.keys() != then.keys() or any(not np.array_equal(now[name], then[name]) for name in then):
                return False
        return True

    def unflatten(self, flat: FloatArray) -> tuple[dict[str, FloatArray], ...]:
        """For each constraint the gradients (..., *shape) by name of the parameter, from the flat ones (..., size)."""
        return tuple(c._gradient(flat[..., at]) for c, at in zip(self.constraints, self.columns, strict=True))


def require_constraints(constraints: Iterable[Constraint]) -> tuple[Constraint, ...]:
    """Validated tuple of constraints, whose names differ."""
    if isinstance(constraints, (Constraint, str, Mapping)) or not isinstance(constraints, Iterable):
        hint = f"; did you mean [{type(constraints).__name__}(...)]?" if isinstance(constraints, Constraint) else ""
        raise TypeError(f"constraints must be a sequence of constraints, got {type(constraints).__name__}{hint}")
    out = tuple(constraints)
    seen: dict[str, int] = {}
    for i, given in enumerate(out):
        if not isinstance(given, Constraint):
            hint = f"; did you mean {given.__name__}(...)?" if isinstance(given, type) else ""
            raise TypeError(f"constraint {i} must be a Constraint, got {given!r}{hint}")
        if given.name is None:
            continue
        if given.name in seen:
            raise ConstraintError(
                f"constraints {seen[given.name]} and {i} are both named {given.name!r}; give name= another, or none"
            )
        seen[given.name] = i
    return out


_KEPT = 8  # lists of constraints that a model caches
_lock = Lock()


def compile_constraints(model: Model, constraints: Iterable[Constraint]) -> CompiledConstraints:
    """The constraints compiled for the core.

    The model caches the lists that it compiled last, by the identity of the constraints. They are rows of the tree of a
    model with couplings.
    """
    model = require_model(model).tree
    cache: dict[tuple[int, ...], CompiledConstraints] = model._cache.setdefault("constraints", {})
    if type(constraints) is not tuple and type(constraints) is not list:
        constraints = require_constraints(constraints)
    key = tuple(map(id, constraints))  # of objects that `found.constraints` keeps alive
    found = cache.get(key)
    if found is not None and found.is_current():
        return found
    made = _compile(model, require_constraints(constraints))
    with _lock:
        cache.pop(key, None)
        while len(cache) >= _KEPT:
            del cache[next(iter(cache))]
        cache[key] = made
    return made


def _compile(model: Model, constraints: tuple[Constraint, ...]) -> CompiledConstraints:
    parts: list[tuple[int, Part]] = []
    row_names: list[str] = []
    row_slices: list[slice] = []
    columns: list[slice] = []
    joints: set[str] = set()
    names = _unique([c.shown_name for c in constraints])
    count = 0
    for i, (constraint, name) in enumerate(zip(constraints, names, strict=True)):
        own = constraint._parts(model)
        parts.extend((i, part) for part in own)
        first = len(row_names)
        row_names.extend(named_rows(name, constraint._labels(model)))
        row_slices.append(slice(first, first + sum(map(part_rows, own))))
        size = sum(map(part_size, own))
        columns.append(slice(count, count + size))
        count += size
        joints.update(constraint._joints(model))
    changeable = tuple((c, c.parameters) for c in constraints if not c._frozen)
    return CompiledConstraints(
        constraints,
        names,
        tuple(row_names),
        tuple(row_slices),
        tuple(columns),
        tuple(parts),
        frozenset(joints),
        changeable,
        model._core,
    )


def _unique(shown: list[str]) -> tuple[str, ...]:
    """Names that differ: those that were not given are numbered where they occur again."""
    out: list[str] = []
    seen: set[str] = set()
    for name in shown:
        k, unique = 2, name
        while unique in seen:
            unique, k = f"{name} ({k})", k + 1
        seen.add(unique)
        out.append(unique)
    return tuple(out)


# ---- checks


def set_name(constraint: Constraint, name: Any) -> None:
    """Sets the name of a constraint, a non-empty string or None."""
    if name is not None and (not isinstance(name, str) or not name):
        raise TypeError(f"name of a {type(constraint).__name__} must be a non-empty string, got {name!r}")
    object.__setattr__(constraint, "name", name)


def require_pose(value: Any, name: str, constraint: Constraint) -> SE3:
    """A pose, checked to be one."""
    if not isinstance(value, SE3):
        hint = "; SE3.translation(x, y, z) or SE3.from_matrix(T) make one"
        raise TypeError(f"{name} of {type(constraint).__name__} must be an SE3, got {value!r}{hint}")
    return value


def body_of(model: Model, name: str, constraint: Constraint) -> int:
    """Index of a body or frame; -1 for the world."""
    if name == WORLD:
        return -1
    if name not in model._index["frame"]:
        names = [WORLD, *(b.name for b in model.bodies), *(f.name for f in model.frames)]
        raise unknown("body", name, names, f" for {constraint.shown_name}")
    return model._index["frame"][name]


def require_apart(model: Model, a: int, b: int, constraint: Constraint) -> None:
    """Rejects two bodies that do not move relative to each other, between which rows are constant."""
    names = [place_name(model, i) for i in (a, b)]
    if a == b:
        raise ConstraintError(
            f"{constraint.shown_name} is between {names[0]!r} and itself, expected two bodies that move relative to "
            "each other"
        )
    if carrier(model, a) == carrier(model, b):
        raise ConstraintError(
            f"{constraint.shown_name} is between {names[0]!r} and {names[1]!r}, which are fixed to each other: its "
            "rows are constant, expected two bodies that move relative to each other"
        )


Motion = Callable[[float], Any]


def over(motion: Motion, t: float, parts: tuple[tuple[str, tuple[int, ...]], ...], owner: str) -> list[FloatArray]:
    """What a prescribed motion gives at the time t, checked: one array for each of `parts`, (name, shape)."""
    given = motion(t)
    wanted = f"({', '.join(name for name, _ in parts)})"
    sequence = isinstance(given, (tuple, list)) or (isinstance(given, np.ndarray) and given.ndim > 0)
    if not sequence or len(given) != len(parts):
        raise ValueError(f"the motion of {owner} gave {given!r} at t = {t:g}, expected {wanted}")
    out: list[FloatArray] = []
    for (name, shape), value in zip(parts, given, strict=True):
        if shape == (4, 4):
            if not isinstance(value, SE3):
                raise TypeError(
                    f"the motion of {owner} gave {value!r} as {name} at t = {t:g}, expected an SE3 in {wanted}"
                )
            out.append(np.concatenate([value.R.ravel(), value.p]))
            continue
        try:
            value = np.atleast_1d(value) if shape == (1,) else value
            out.append(frozen_array(value, shape, f"{name} of the motion of {owner} at t = {t:g}"))
        except (TypeError, ValueError) as error:
            raise ValueError(f"{error}; the motion must give {wanted}") from None
    return out
