"""The base class of forces, their validation, and their compilation for the core."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from torsor import _core, spatial
from torsor._check import listed, unknown
from torsor.model import WORLD, Model, require_model

if TYPE_CHECKING:
    from numpy.typing import ArrayLike
    from typing_extensions import Self

    from torsor._typing import FloatArray

    Part = tuple[Any, ...]  # as core/bind/forces.cpp reads it

Numbers = float | tuple[Any, ...]


class Force(ABC):
    """Base class of forces: small frozen descriptions, for any model that has the bodies and joints that they name.

    `generalized_forces` evaluates forces, `simulate` and `step` apply them. All numbers in a force are parameters, with
    respect to which gradients are available.
    """

    has_energy: ClassVar[bool] = True
    _numbers: ClassVar[tuple[str, ...]] = ()  # names of the fields that are parameters, in the order of the flat array
    _frozen: ClassVar[bool] = True  # whether its parameters are those that it was made with
    _needs_accelerations: ClassVar[bool] = False

    @property
    def parameters(self) -> dict[str, FloatArray]:
        """Numbers of the force by name, without those that are taken from the model."""
        values = ((name, getattr(self, name)) for name in self._numbers)
        return {name: np.array(value, dtype=np.float64) for name, value in values if value is not None}

    def with_parameters(self, values: Mapping[str, ArrayLike]) -> Self:
        """A copy with the given `values` of some parameters, by name."""
        require_names(values)
        for name in values:
            if name not in self._numbers:
                raise ValueError(
                    f"{type(self).__name__} has no parameter {name!r}; it has {listed(self._numbers, name)}"
                )
        return replace(self, **values)  # type: ignore[type-var]

    def _for_model(self, model: Model) -> Force:
        """The force with all values that it takes from the model, which were None, filled in."""
        return self

    def _joints(self, model: Model) -> tuple[str, ...]:
        """Names of the joints in whose coordinates the force is given; none for a force on bodies."""
        return ()

    def _coupled(self, model: Model) -> tuple[str, ...]:
        """Parameters whose allowed values are not described by two bounds for each number."""
        return ()

    @abstractmethod
    def _parts(self, model: Model, at: dict[str, int]) -> list[Part]:
        """The force as parts of the core; `at` has the index at which each parameter begins in the flat array."""


@dataclass(frozen=True)
class CompiledForces:
    """Forces compiled for one model."""

    given: tuple[Force, ...]
    forces: tuple[Force, ...]  # with the values that they take from the model
    core: _core.ForceSet
    parameters: FloatArray  # of all forces, flat
    changeable: tuple[tuple[Force, dict[str, FloatArray]], ...]  # mutable forces, and their parameters when compiled

    def __post_init__(self) -> None:
        self.parameters.flags.writeable = False

    @cached_property
    def options(self) -> dict[str, Any]:
        """Options of a function of the core."""
        return {"forces": self.core}

    @cached_property
    def accelerated(self) -> Force | None:
        """The first force that depends on accelerations, if any."""
        return next((force for force in self.forces if force._needs_accelerations), None)

    def refuse_accelerated(self, why: str) -> None:
        """Rejects forces that depend on accelerations."""
        if self.accelerated is not None:
            name, joint = type(self.accelerated).__name__, getattr(self.accelerated, "joint", None)
            raise ValueError(
                f"{name} of {joint!r} depends on accelerations, {why}; it acts in simulate, step and step_derivatives "
                "with BDF1, BDF2, SDIRK2 or SDIRK3, and with HardContact"
            )

    def is_current(self) -> bool:
        """Whether all forces still have the parameters with which they were compiled."""
        for force, then in self.changeable:
            now = force.parameters
            if now.keys() != then.keys() or any(not np.array_equal(now[name], then[name]) for name in then):
                return False
        return True

    @cached_property
    def _columns(self) -> list[dict[str | None, slice]]:
        out: list[dict[str | None, slice]] = []
        at = 0
        for force in self.forces:
            first = at
            out.append({})
            for name, value in force.parameters.items():
                out[-1][name] = slice(at, at + value.size)
                at += value.size
            out[-1][None] = slice(first, at)
        return out

    def columns(self, force: int, name: str | None = None) -> slice:
        """Where a parameter of a force lies in the flat array, or all of them."""
        return self._columns[force][name]

    def unflatten(self, flat: FloatArray) -> tuple[dict[str, FloatArray], ...]:
        """For each force its part of (..., n) numbers, by name and shaped (..., *shape of the parameter)."""
        out: list[dict[str, FloatArray]] = []
        at = 0
        for force in self.forces:
            out.append({})
            for name, value in force.parameters.items():
                out[-1][name] = flat[..., at : at + value.size].reshape((*flat.shape[:-1], *value.shape))
                at += value.size
        return tuple(out)


def require_forces(forces: Iterable[Force]) -> tuple[Force, ...]:
    """Validated tuple of forces."""
    if isinstance(forces, Force) or not isinstance(forces, Iterable):
        hint = f"; did you mean [{type(forces).__name__}(...)]?" if isinstance(forces, Force) else ""
        raise TypeError(f"forces must be a sequence of forces, got {type(forces).__name__}{hint}")
    listed_forces = tuple(forces)
    for i, given in enumerate(listed_forces):
        if not isinstance(given, Force):
            hint = f"; did you mean {given.__name__}(...)?" if isinstance(given, type) else ""
            raise TypeError(f"force {i} must be a Force, got {given!r}{hint}")
    return listed_forces


_KEPT = 8  # lists of forces that a model caches
_lock = Lock()


def compile_forces(model: Model, forces: Iterable[Force]) -> CompiledForces:
    """The forces compiled for the core, with their parameters in one flat array.

    The model caches the lists that it compiled last, by the identity of the forces: a look-up takes a hundredth of the
    time of compiling. Forces act on the tree of a model with couplings.
    """
    model = require_model(model).tree
    cache: dict[tuple[int, ...], CompiledForces] = model._cache.setdefault("forces", {})
    if type(forces) is not tuple and type(forces) is not list:
        forces = require_forces(forces)
    key = tuple(map(id, forces))  # of objects that `found.given` keeps alive
    found = cache.get(key)
    if found is not None and found.is_current():
        return found
    made = _compile(model, require_forces(forces))
    with _lock:
        cache.pop(key, None)
        while len(cache) >= _KEPT:
            del cache[next(iter(cache))]
        cache[key] = made
    return made


def _compile(model: Model, forces: tuple[Force, ...]) -> CompiledForces:
    ready: list[Force] = []
    parts: list[tuple[int, Part]] = []
    flat: list[FloatArray] = [np.zeros(0)]
    count = 0
    for i, given in enumerate(forces):
        force = given._for_model(model)
        at: dict[str, int] = {}
        for name, value in force.parameters.items():
            at[name] = count
            flat.append(value.ravel())
            count += value.size
        parts.extend((i, part) for part in force._parts(model, at))
        ready.append(force)
    core = _core.ForceSet(model._core, len(ready), count, parts)
    changeable = tuple((force, force.parameters) for force in forces if not force._frozen)
    return CompiledForces(forces, tuple(ready), core, np.concatenate(flat), changeable)


# ---- checks


def scalar(value: Any, name: str, *, least: float | None = None, positive: bool = False) -> float:
    """A finite number, not below `least`."""
    x = float(spatial.frozen_array(value, (), name))
    if positive and x <= 0:
        raise ValueError(f"{name} is {x:g}, expected a number above 0")
    if least is not None and x < least:
        raise ValueError(f"{name} is {x:g}, expected {least:g} at least")
    return x


def numbers(value: Any, shape: tuple[int, ...], name: str) -> tuple[Any, ...]:
    """A finite array of this shape, as nested tuples."""
    return as_tuple(spatial.frozen_array(value, shape, name))


def direction(value: Any, name: str) -> tuple[Any, ...]:
    """A vector (3,) of which only the direction matters, as given: the core normalises it."""
    x = spatial.frozen_array(value, (3,), name)
    largest = float(np.abs(x).max())
    if largest == 0:
        raise ValueError(f"{name} is zero, expected a vector (x, y, z) of any positive length")
    if not 1e-100 < largest < 1e100:  # the square of its length would overflow or underflow
        raise ValueError(f"{name} is {x.tolist()}, expected a vector of a length between 1e-100 and 1e100")
    return as_tuple(x)


def as_tuple(a: FloatArray) -> tuple[Any, ...]:
    """An array as nested tuples."""
    return tuple(a.tolist()) if a.ndim == 1 else tuple(as_tuple(row) for row in a)


def row(value: Any, name: str) -> tuple[float, ...]:
    """Finite numbers (n,), or one, as a tuple."""
    a = np.atleast_1d(value)
    if a.ndim != 1:
        raise ValueError(f"{name} has shape {a.shape}, expected (n,)")
    return numbers(a, a.shape, name)


def require_names(values: Any) -> None:
    """Rejects values of parameters that are not given by name."""
    if not isinstance(values, Mapping):
        raise TypeError(f"values is {values!r}, expected a dict of parameters by name")


def each(value: Any, name: str, *, least: float | None = 0.0) -> Numbers:
    """One number for all velocities, or one for each: how many is checked with the model."""
    if np.ndim(value) == 0:
        return scalar(value, name, least=least)
    if np.ndim(value) != 1:
        raise ValueError(f"{name} has shape {np.shape(value)}, expected one number or one for each velocity")
    x = spatial.frozen_array(value, np.shape(value), name)
    if least is not None and (x < least).any():
        raise ValueError(f"{name} is {x.tolist()}, expected numbers of {least:g} at least")
    return as_tuple(x)


def slip_velocity(value: Any, name: str = "slip") -> Numbers:
    """Velocities from which on dry friction is the whole limit, as `each`; above 0."""
    slip = each(value, name, least=None)
    if (np.asarray(slip) <= 0).any():
        raise ValueError(f"{name} is {slip}, expected above 0: dry friction without a slip velocity has no derivative")
    return slip


def over_time(value: Any, times: Any, size: int | None, name: str) -> tuple[tuple[Any, ...], tuple[float, ...] | None]:
    """A row of `size` numbers, or with times one row for each time."""
    if times is None:
        if size is None and np.ndim(value) != 1:
            raise ValueError(f"{name} has shape {np.shape(value)}, expected (n,); give times= for a table")
        return numbers(value, np.shape(value) if size is None else (size,), name), None
    if np.ndim(times) != 1 or np.size(times) == 0:
        raise ValueError(f"times has shape {np.shape(times)}, expected (n,): one time for each row of {name}")
    t = spatial.frozen_array(times, np.shape(times), "times")
    if (np.diff(t) <= 0).any():
        k = int(np.argmax(np.diff(t) <= 0))
        raise ValueError(f"times must increase, but times[{k + 1}] is {t[k + 1]:g} after {t[k]:g}")
    if np.ndim(value) != 2:
        raise ValueError(f"{name} has shape {np.shape(value)}, expected ({len(t)}, n): one row for each of the times")
    columns = np.shape(value)[1] if size is None else size
    return numbers(value, (len(t), columns), name), as_tuple(t)


def body_index(model: Model, name: str, *, world: bool = False) -> int:
    """Index of a body or frame; -1 for the world, where that is allowed."""
    if name == WORLD:
        if world:
            return -1
        raise ValueError(f"a force on {WORLD!r} has no effect; name one of the bodies {listed(_names(model))}")
    if not isinstance(name, str) or name not in model._index["frame"]:
        raise unknown("body", name, [WORLD, *_names(model)] if world else _names(model), " for a force to act on")
    return model._index["frame"][name]


def _names(model: Model) -> list[str]:
    return [b.name for b in model.bodies] + [f.name for f in model.frames]


def body_name(name: Any) -> str:
    """A body's name, not yet looked up."""
    if not isinstance(name, str):
        raise TypeError(f"a body is named by a string, got {name!r}")
    return name


def number(value: Any, dtype: Any, name: str, force: Force) -> FloatArray:
    """The result of a user-defined function that returns a number, as an array (1,)."""
    a = np.asarray(value)
    if a.shape != () or not np.can_cast(a.dtype, dtype, "same_kind"):
        raise ValueError(
            f"{name} of {type(force).__name__} gave shape {a.shape} and dtype {a.dtype}, expected a number"
        )
    return np.array([a], dtype=dtype)
