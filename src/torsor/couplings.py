"""Couplings of joints, q = phi(z): mimic joints, gears, modes, polynomials and users' own functions.

`Model.couple` takes these descriptions and gives a model whose coordinates are fewer: followers are functions of their
leaders, or all named joints of new coordinates z. It is a `Model`, so every function takes it. Sueda 2021, 2.7;
docs/derivations/hyper_reduced.md. For relations that have no explicit function there are constraints
(`torsor.constraints.Coupling`, `Gear`, `PolynomialCoupling`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, final

import numpy as np

from torsor import _check
from torsor._check import listed
from torsor._core import JointKind, complex_step
from torsor._errors import ConstraintError, ModelError
from torsor.spatial import frozen_array

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray
    from typing_extensions import Self

    from torsor._typing import FloatArray
    from torsor.model import Model

Coordinate = str | tuple[str, int]  # a joint of one coordinate or a new coordinate; or a joint and which of its


def _number(value: Any, name: str, owner: str) -> float:
    try:
        x = float(value)
    except (TypeError, ValueError):
        raise ModelError(f"{name} of {owner} is {value!r}, expected a number") from None
    if not np.isfinite(x):
        raise ModelError(f"{name} of {owner} is {x}, expected a finite number")
    return x


def _coordinate(value: Any, name: str, owner: str) -> Coordinate:
    if isinstance(value, str):
        return value
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str) and isinstance(value[1], int):
        return value[0], value[1]
    raise TypeError(f"{name} of {owner} is {value!r}, expected the name of a joint, or (name, k) for its coordinate k")


def shown(coordinate: Coordinate) -> str:
    """The coordinate as messages show it."""
    return repr(coordinate) if isinstance(coordinate, str) else f"coordinate {coordinate[1]} of {coordinate[0]!r}"


class JointCoupling(ABC):
    """A coupling of joints in a model: a function that gives coordinates of joints, its followers.

    It is a function of other coordinates, its leaders (`of`), or of new ones (`names`).
    """

    @property
    @abstractmethod
    def followers(self) -> tuple[Coordinate, ...] | None:
        """The coordinates that it gives; None for all that can be coupled."""

    @property
    @abstractmethod
    def leaders(self) -> tuple[Coordinate, ...]:
        """The coordinates of which it is a function; empty if it has new ones."""

    @property
    def new(self) -> tuple[str, ...]:
        """Names of the coordinates that it adds to the model."""
        return ()

    @property
    @abstractmethod
    def parameters(self) -> dict[str, FloatArray]:
        """Its numbers by name, as arrays: what gradients are taken with respect to."""

    @abstractmethod
    def with_parameters(self, values: Mapping[str, ArrayLike]) -> Self:
        """A copy with other values of some parameters."""

    @abstractmethod
    def renamed(self, rename: Callable[[str], str]) -> Self:
        """A copy in which all joints and coordinates have other names, rename(name)."""


def _renamed(coordinate: Coordinate, rename: Callable[[str], str]) -> Coordinate:
    return rename(coordinate) if isinstance(coordinate, str) else (rename(coordinate[0]), coordinate[1])


@final
@dataclass(frozen=True)
class Mimic(JointCoupling):
    """A joint that follows another: q[joint] = ratio q[of] + offset.

    Parameters
    ----------
    joint, of : str or (str, int)
        Follower and leader: joints of one coordinate each, or (name, k) for the coordinate k of a joint. Two joints of
        several coordinates are coupled coordinate by coordinate. A leader may follow another joint itself, and may be
        a new coordinate of a `Subspace`.
    ratio, offset : float

    Examples
    --------
    >>> coupled = model.couple(ts.Mimic("flange", of="wrist_pitch", ratio=-1.0))
    >>> model.nv, coupled.nv
    (7, 6)
    """

    joint: Coordinate
    of: Coordinate
    ratio: float = 1.0
    offset: float = 0.0

    def __post_init__(self) -> None:
        for name in ("joint", "of"):
            object.__setattr__(self, name, _coordinate(getattr(self, name), name, "Mimic"))
        for name in ("ratio", "offset"):
            object.__setattr__(self, name, _number(getattr(self, name), name, f"Mimic of {shown(self.joint)}"))

    @property
    def followers(self) -> tuple[Coordinate, ...]:
        """(joint,)."""
        return (self.joint,)

    @property
    def leaders(self) -> tuple[Coordinate, ...]:
        """(of,)."""
        return (self.of,)

    @property
    def parameters(self) -> dict[str, FloatArray]:
        """ratio () and offset ()."""
        return {"ratio": np.array(self.ratio), "offset": np.array(self.offset)}

    def with_parameters(self, values: Mapping[str, ArrayLike]) -> Mimic:
        """A copy with other values of some parameters."""
        return replace(self, **_known(self, values))

    def renamed(self, rename: Callable[[str], str]) -> Mimic:
        """A copy in which all joints have other names, rename(name)."""
        return replace(self, joint=_renamed(self.joint, rename), of=_renamed(self.of, rename))


@final
@dataclass(frozen=True)
class Polynomial(JointCoupling):
    """A joint that is a polynomial of another: q[joint] = sum over k of coefficients[k] (q[of] - center)^k.

    Parameters
    ----------
    joint, of : str or (str, int)
        Follower and leader, as for `Mimic`.
    coefficients : (n,) array_like
        Lowest power first, as MJCF's `polycoef`.
    center : float

    Examples
    --------
    >>> coupled = model.couple(ts.Polynomial("flange", of="wrist_pitch", coefficients=(0.01, -0.02, 0.005)))
    >>> coupled.nv
    6
    """

    joint: Coordinate
    of: Coordinate
    coefficients: tuple[float, ...]
    center: float = 0.0

    def __post_init__(self) -> None:
        for name in ("joint", "of"):
            object.__setattr__(self, name, _coordinate(getattr(self, name), name, "Polynomial"))
        owner = f"Polynomial of {shown(self.joint)}"
        given = np.atleast_1d(np.asarray(self.coefficients, dtype=np.float64))
        if given.ndim != 1 or given.size == 0:
            raise ModelError(f"coefficients of {owner} have shape {given.shape}, expected one row of at least 1")
        given = frozen_array(given, given.shape, f"coefficients of {owner}")
        object.__setattr__(self, "coefficients", tuple(given.tolist()))
        object.__setattr__(self, "center", _number(self.center, "center", owner))

    @property
    def followers(self) -> tuple[Coordinate, ...]:
        """(joint,)."""
        return (self.joint,)

    @property
    def leaders(self) -> tuple[Coordinate, ...]:
        """(of,)."""
        return (self.of,)

    @property
    def parameters(self) -> dict[str, FloatArray]:
        """coefficients (n,) and center ()."""
        return {"coefficients": np.array(self.coefficients), "center": np.array(self.center)}

    def with_parameters(self, values: Mapping[str, ArrayLike]) -> Polynomial:
        """A copy with other values of some parameters."""
        return replace(self, **_known(self, values))

    def renamed(self, rename: Callable[[str], str]) -> Polynomial:
        """A copy in which all joints have other names, rename(name)."""
        return replace(self, joint=_renamed(self.joint, rename), of=_renamed(self.of, rename))


@final
@dataclass(frozen=True, eq=False)
class Subspace(JointCoupling):
    """Joints that move in a linear subspace: q[joints] = origin + basis z, with new coordinates z.

    Parameters
    ----------
    joints : sequence of str or (str, int), optional
        Joints with vector coordinates, all of their coordinates in order, or (name, k); by default all joints of the
        model that have vector coordinates and follow no other coupling.
    basis : (k, m) array_like
        A column for each new coordinate, of rank m. Scale its columns so that the z are of order one.
    origin : (k,) array_like, optional
        Zeros by default.
    names : sequence of str, optional
        Names of the new coordinates; "z0", "z1", ... by default.

    Examples
    --------
    >>> rope = ts.models.chain(10)
    >>> modes = np.sin(np.outer(np.arange(1, 11), [0.3, 0.6]))
    >>> rope.couple(ts.Subspace(joints=None, basis=modes, names=["bend_1", "bend_2"])).nv
    2
    """

    joints: tuple[Coordinate, ...] | None
    basis: FloatArray
    origin: FloatArray | None = None
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.joints is not None:
            if isinstance(self.joints, str):
                raise TypeError(f"joints of Subspace is {self.joints!r}, expected a sequence of joints, or None")
            object.__setattr__(self, "joints", tuple(_coordinate(j, "joints", "Subspace") for j in self.joints))
        basis = np.asarray(self.basis, dtype=np.float64)
        if basis.ndim != 2 or 0 in basis.shape:
            raise ModelError(f"basis of Subspace has shape {basis.shape}, expected (coordinates of joints, modes)")
        object.__setattr__(self, "basis", frozen_array(basis, basis.shape, "basis of Subspace"))
        origin = np.zeros(len(basis)) if self.origin is None else self.origin
        object.__setattr__(self, "origin", frozen_array(origin, (len(basis),), "origin of Subspace"))
        names = tuple(self.names) or tuple(f"z{k}" for k in range(basis.shape[1]))
        if len(names) != basis.shape[1] or len({*names}) < len(names):
            raise ModelError(
                f"names of Subspace are {listed(names)}, expected {basis.shape[1]} different ones, one for each column "
                "of basis"
            )
        object.__setattr__(self, "names", names)
        rank = int(np.linalg.matrix_rank(basis))
        if rank < basis.shape[1]:
            raise ModelError(
                f"basis of Subspace has rank {rank}, expected {basis.shape[1]}: its columns are linearly dependent, so "
                "that the mass matrix would be singular; leave columns out"
            )

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Subspace)
            and (self.joints, self.names) == (other.joints, other.names)
            and np.array_equal(self.basis, other.basis)
            and np.array_equal(_origin(self), _origin(other))
        )

    def __hash__(self) -> int:
        return hash((self.joints, self.names, self.basis.tobytes(), _origin(self).tobytes()))

    @property
    def followers(self) -> tuple[Coordinate, ...] | None:
        """The joints."""
        return self.joints

    @property
    def leaders(self) -> tuple[Coordinate, ...]:
        """None."""
        return ()

    @property
    def new(self) -> tuple[str, ...]:
        """The names."""
        return self.names

    @property
    def parameters(self) -> dict[str, FloatArray]:
        """basis (k, m) and origin (k,)."""
        return {"basis": self.basis.copy(), "origin": _origin(self).copy()}

    def with_parameters(self, values: Mapping[str, ArrayLike]) -> Subspace:
        """A copy with other values of some parameters."""
        return replace(self, **_known(self, values))

    def renamed(self, rename: Callable[[str], str]) -> Subspace:
        """A copy in which all joints and coordinates have other names, rename(name)."""
        joints = None if self.joints is None else tuple(_renamed(j, rename) for j in self.joints)
        return replace(self, joints=joints, names=tuple(map(rename, self.names)))


def _origin(subspace: Subspace) -> FloatArray:
    return np.asarray(subspace.origin)


def _without_modes(subspace: Subspace, held: Mapping[str, float]) -> Subspace:
    """The subspace in which some of its new coordinates have fixed values."""
    z = np.array([held.get(name, 0.0) for name in subspace.names])
    kept = [k for k, name in enumerate(subspace.names) if name not in held]
    origin, names = _origin(subspace) + subspace.basis @ z, tuple(subspace.names[k] for k in kept)
    return replace(subspace, basis=subspace.basis[:, kept], origin=origin, names=names)


class CustomCoupling(JointCoupling):
    """A user-defined coupling, written in Python: q[joints] = phi(z).

    Derive a class with an attribute `joints`, the k coordinates that it gives; `of`, the m coordinates of which it is a
    function, or `names`, m new ones; an attribute `p` (n,) if it has parameters; and the methods `phi`, `dphi`, `d2phi`
    and `d3phi`. Each takes one z (m,) and p (n,), float or complex, and returns one array: (k,), (k, m), (k, m, m), (k,
    m, m, m). Inverse and forward dynamics need derivatives to the second order, first derivatives of these to the
    third. Set `batched = True` if the methods also take z (..., m), which avoids a loop in Python.

    They must be analytic, without abs, conj or comparisons of complex numbers: second derivatives of dynamics need
    fourth ones of phi, which are complex steps through `d3phi`, and gradients with respect to p are complex steps
    through all of them. `testing.check_coupling` tests them all.

    The methods run under the interpreter lock, for a few states at a time. To be compared, an instance must have
    `__eq__`, and to be sent to other processes, it must be picklable.
    """

    joints: Sequence[Coordinate]
    of: Sequence[Coordinate] = ()
    names: Sequence[str] = ()
    p: ArrayLike = ()
    batched: ClassVar[bool] = False

    @abstractmethod
    def phi(self, z: Any, p: Any) -> ArrayLike:
        """The coordinates (k,) of the joints at z (m,) with parameters p (n,)."""

    @abstractmethod
    def dphi(self, z: Any, p: Any) -> ArrayLike:
        """The derivatives (k, m) of phi at inputs z with parameters p."""

    @abstractmethod
    def d2phi(self, z: Any, p: Any) -> ArrayLike:
        """The derivatives (k, m, m) of dphi at inputs z with parameters p."""

    @abstractmethod
    def d3phi(self, z: Any, p: Any) -> ArrayLike:
        """The derivatives (k, m, m, m) of d2phi at inputs z with parameters p."""

    @property
    def followers(self) -> tuple[Coordinate, ...]:
        """The joints."""
        joints = getattr(self, "joints", None)
        if isinstance(joints, str) or not isinstance(joints, Iterable):
            raise ModelError(f"{type(self).__name__}.joints is {joints!r}, expected a sequence of joints")
        return tuple(_coordinate(j, "joints", type(self).__name__) for j in joints)

    @property
    def leaders(self) -> tuple[Coordinate, ...]:
        """The coordinates `of`."""
        if isinstance(self.of, str):
            raise ModelError(f"{type(self).__name__}.of is {self.of!r}, expected a sequence of joints")
        return tuple(_coordinate(j, "of", type(self).__name__) for j in self.of)

    @property
    def new(self) -> tuple[str, ...]:
        """The names."""
        return tuple(self.names)

    @property
    def parameters(self) -> dict[str, FloatArray]:
        """{"p": p}, or an empty dict without parameters."""
        p = frozen_array(np.atleast_1d(self.p), (np.size(self.p),), f"p of {type(self).__name__}")
        return {"p": p.copy()} if p.size else {}

    def with_parameters(self, values: Mapping[str, ArrayLike]) -> Self:
        """A copy with the given `values`, {"p": p}."""
        out = copy(self)
        for value in _known(self, values).values():
            object.__setattr__(out, "p", value)
        return out

    def renamed(self, rename: Callable[[str], str]) -> Self:
        """A copy in which all joints and coordinates have other names, rename(name)."""
        out = copy(self)
        object.__setattr__(out, "joints", tuple(_renamed(j, rename) for j in self.followers))
        object.__setattr__(out, "of", tuple(_renamed(j, rename) for j in self.leaders))
        object.__setattr__(out, "names", tuple(map(rename, self.new)))
        return out

    def _evaluate(self, z: NDArray[Any], level: int) -> NDArray[Any]:
        """phi and its derivatives to the order `level` for each row of z, flattened, as the core expects."""
        return self._at(z, level, np.asarray(self.p, dtype=z.dtype).reshape(-1))

    def _vary(self, z: NDArray[Any], level: int, k: int) -> NDArray[Any]:
        """The derivatives of `_evaluate` with respect to the parameter k."""
        p = np.asarray(self.p, dtype=np.complex128).reshape(-1)
        p[k] += 1j * complex_step
        return np.ascontiguousarray(self._at(z.astype(np.complex128), level, p).imag / complex_step)

    def _at(self, z: NDArray[Any], level: int, p: NDArray[Any]) -> NDArray[Any]:
        token = _check.complex_allowed.set(_check.complex_allowed.get() or z.dtype.kind == "c")
        try:
            return self._parts(z, level, p)
        finally:
            _check.complex_allowed.reset(token)

    def _parts(self, z: NDArray[Any], level: int, p: NDArray[Any]) -> NDArray[Any]:
        k, m = len(self.followers), z.shape[1]
        out = []
        for order, function in enumerate((self.phi, self.dphi, self.d2phi, self.d3phi)):
            shape = (k, *(m,) * order)
            if order > level:
                value: NDArray[Any] = np.zeros((len(z), *shape), z.dtype)
            elif self.batched:
                value = np.asarray(function(z, p))
            else:
                rows = [np.asarray(function(row, p)) for row in z]
                odd = [row[None] for row in rows if row.shape != shape]
                value = odd[0] if odd else np.stack(rows)
            if value.shape != (len(z), *shape) or not np.can_cast(value.dtype, z.dtype, "same_kind"):
                raise ModelError(
                    f"{type(self).__name__}.{function.__name__} gave shape {value.shape[1:]} and dtype {value.dtype}, "
                    f"expected {shape} and {z.dtype}"
                )
            out.append(value.reshape(len(z), -1).astype(z.dtype))
        return np.ascontiguousarray(np.concatenate(out, axis=1))


def _known(coupling: JointCoupling, values: Mapping[str, ArrayLike]) -> dict[str, Any]:
    """The values of parameters that the coupling has, in its shapes."""
    if not isinstance(values, Mapping):
        raise TypeError(f"with_parameters takes a mapping from names to values, got {type(values).__name__}")
    own, out = coupling.parameters, {}
    for name, value in values.items():
        if name not in own:
            raise ValueError(f"{type(coupling).__name__} has no parameter {name!r}; it has {listed([*own])}")
        out[name] = frozen_array(value, own[name].shape, name)
    return out


def as_couplings(given: Iterable[Any]) -> tuple[JointCoupling, ...]:
    """The arguments of `Model.couple`: couplings, or {follower: (leader, ratio, offset)}."""
    out: list[JointCoupling] = []
    for one in given:
        if isinstance(one, Mapping):
            for joint, numbers in one.items():
                if not isinstance(numbers, tuple) or not 1 <= len(numbers) <= 3:
                    raise TypeError(f"{joint!r} is coupled by {numbers!r}, expected (leader, ratio, offset)")
                out.append(Mimic(joint, *numbers))
        elif isinstance(one, JointCoupling):
            out.append(one)
        else:
            raise TypeError(
                "couple takes couplings such as Mimic(...), Subspace(...), Polynomial(...) or a CustomCoupling, or a "
                f"mapping from followers to (leader, ratio, offset), got {one!r}; constraints go to with_constraints"
            )
    return tuple(out)


# Numbers of the map, with their derivatives with respect to parameters where these are wanted.


class _Varied:
    """A number that depends on parameters: its value, and its derivatives by index of the parameter."""

    def __init__(self, value: float, parts: dict[int, float]) -> None:
        self.value, self.parts = value, parts

    def __add__(self, other: Any) -> _Varied:
        o = other if isinstance(other, _Varied) else _Varied(other, {})
        return _Varied(
            self.value + o.value, {k: self.parts.get(k, 0.0) + o.parts.get(k, 0.0) for k in self.parts | o.parts}
        )

    __radd__ = __add__

    def __mul__(self, other: Any) -> _Varied:
        o = other if isinstance(other, _Varied) else _Varied(other, {})
        return _Varied(
            self.value * o.value,
            {k: self.parts.get(k, 0.0) * o.value + self.value * o.parts.get(k, 0.0) for k in self.parts | o.parts},
        )

    __rmul__ = __mul__


@dataclass
class _Linear:
    """constant + sum of terms, by reduced coordinate."""

    terms: dict[int, Any]
    constant: Any = 0.0

    def scaled(self, ratio: Any, offset: Any) -> _Linear:
        return _Linear({k: ratio * x for k, x in self.terms.items()}, ratio * self.constant + offset)


@dataclass
class _Bent:
    """offset + scale times an output of a block."""

    block: int
    output: int
    scale: Any = 1.0
    offset: Any = 0.0

    def scaled(self, ratio: Any, offset: Any) -> _Bent:
        return _Bent(self.block, self.output, ratio * self.scale, ratio * self.offset + offset)


@dataclass
class _Block:
    """A nonlinear function of inputs that are linear in reduced coordinates."""

    inputs: list[_Linear]
    outputs: int
    coefficients: list[Any] = field(default_factory=list)
    custom: CustomCoupling | None = None

    @property
    def columns(self) -> list[int]:
        return sorted({k for form in self.inputs for k in form.terms})


def _composed(outer: Sequence[Any], inner: Sequence[Any]) -> list[Any]:
    """Coefficients of outer(inner(x)), by Horner's scheme."""
    out: list[Any] = [outer[-1]]
    for c in reversed(outer[:-1]):
        product: list[Any] = [0.0] * (len(out) + len(inner) - 1)
        for i, x in enumerate(out):
            for j, y in enumerate(inner):
                product[i + j] = product[i + j] + x * y
        product[0] = product[0] + c
        out = product
    return out


def _joined(runs: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Runs (tree, reduced, count), those that continue each other as one."""
    out: list[tuple[int, int, int]] = []
    for tree, reduced, count in runs:
        if count and out and (out[-1][0] + out[-1][2], out[-1][1] + out[-1][2]) == (tree, reduced):
            out[-1] = (*out[-1][:2], out[-1][2] + count)
        elif count:
            out.append((tree, reduced, count))
    return out


Place = tuple[int, int]  # a joint by index, and which of its coordinates


class ReducedMap:
    """Couplings of a tree, resolved: its reduced coordinates, and the functions that give the others.

    Parameters
    ----------
    joints : sequence of ModelJoint
        Those of the tree.
    find : function from a name to an index of a joint, which raises KeyError
    couplings : sequence of JointCoupling
    """

    def __init__(self, joints: Sequence[Any], find: Callable[[str], int], couplings: Sequence[JointCoupling]) -> None:
        self.joints, self.find, self.couplings = joints, find, couplings
        self.rule: dict[Place, tuple[int, int]] = {}  # follower -> its coupling, and which of its outputs
        self.inputs: list[list[Place | str]] = []
        self.new: list[str] = []
        self._outputs: list[list[Place]] = []
        self._chain: tuple[NDArray[Any], NDArray[Any], FloatArray, int] | None = None
        for coupling in couplings:
            self.new += coupling.new
        if len({*self.new}) < len(self.new):
            raise ModelError(f"couplings have new coordinates of one name, {listed(self.new)}; names must differ")
        for name in self.new:
            try:
                find(name)
            except KeyError:
                continue
            raise ModelError(f"a new coordinate is named {name!r} as a joint or body is; give names= others")
        for coupling in couplings:  # those that name their joints come first
            self._outputs.append([] if coupling.followers is None else self._places(coupling, coupling.followers))
        for i, outputs in enumerate(self._outputs):
            self._claim(i, outputs)
        for i, coupling in enumerate(couplings):
            if coupling.followers is None:
                rest = [
                    (j, k)
                    for j, joint in enumerate(joints)
                    if joint.joint.nq == joint.joint.nv
                    for k in range(joint.joint.nq)
                    if (j, k) not in self.rule
                ]
                self._outputs[i] = rest
                self._claim(i, rest)
        for i, coupling in enumerate(couplings):
            self.inputs.append(self._inputs(coupling, self._outputs[i]))
            self._require_size(coupling, self._outputs[i], self.inputs[i])
        self._number_coordinates()
        self._require_no_ring()

    # Names.

    def _places(self, coupling: JointCoupling, given: Sequence[Coordinate]) -> list[Place]:
        out: list[Place] = []
        for coordinate in given:
            name, k = (coordinate, None) if isinstance(coordinate, str) else coordinate
            if name in self.new:
                raise ModelError(f"{type(coupling).__name__} couples {name!r}, which is a new coordinate, not a joint")
            j = self.find(name)
            joint = self.joints[j].joint
            if joint.nq == 0:
                raise ModelError(f"{type(coupling).__name__} couples {name!r}, which is a fixed joint")
            if joint.nq != joint.nv:
                raise ModelError(
                    f"{type(coupling).__name__} couples {name!r}, a {type(joint).__name__} joint, whose coordinates "
                    "are not a vector; couple joints with nq = nv, such as SphericalExp in its place"
                )
            if k is not None and not 0 <= k < joint.nq:
                raise ModelError(f"{type(coupling).__name__} couples coordinate {k} of {name!r}, which has {joint.nq}")
            out += [(j, i) for i in range(joint.nq)] if k is None else [(j, k)]
        return out

    def _claim(self, i: int, outputs: Sequence[Place]) -> None:
        for n, place in enumerate(outputs):
            if place in self.rule:
                raise ModelError(f"{self._shown(place)} is coupled twice; a joint follows one coupling")
            self.rule[place] = (i, n)

    def _inputs(self, coupling: JointCoupling, outputs: list[Place]) -> list[Place | str]:
        if coupling.leaders and coupling.new:
            raise ModelError(f"{type(coupling).__name__} has both `of` and `names`, expected one of them")
        out: list[Place | str] = list(coupling.new)
        for leader in coupling.leaders:
            if isinstance(leader, str) and leader in self.new:
                out.append(leader)
            else:
                out += self._places(coupling, [leader])
        if not out:
            raise ModelError(f"{type(coupling).__name__} has neither `of` nor `names`, expected coordinates")
        return out

    def _require_size(self, coupling: JointCoupling, outputs: list[Place], inputs: list[Place | str]) -> None:
        if isinstance(coupling, (Mimic, Polynomial)) and len(inputs) != len(outputs):
            raise ModelError(
                f"{type(coupling).__name__} couples {shown(coupling.joint)} with {len(outputs)} coordinates to "
                f"{shown(coupling.of)} with {len(inputs)}, expected as many; name one of them by (joint, k)"
            )
        if isinstance(coupling, Subspace) and len(outputs) != len(coupling.basis):
            raise ModelError(
                f"basis of Subspace has {len(coupling.basis)} rows, expected {len(outputs)}, one for each coordinate "
                "of its joints"
            )

    def _shown(self, place: Place | str) -> str:
        if isinstance(place, str):
            return repr(place)
        joint = self.joints[place[0]]
        return f"joint {joint.name!r}" if joint.joint.nq == 1 else f"coordinate {place[1]} of joint {joint.name!r}"

    # Coordinates.

    def _number_coordinates(self) -> None:
        """Joints in their order without followers, then new coordinates."""
        nq = nv = 0
        self.q_slices: list[slice] = []
        self.v_slices: list[slice] = []
        self.columns: dict[Place | str, int] = {}  # reduced velocities of vector coordinates
        self.position: list[int] = []
        self.bodies: list[tuple[int, int, int, int, int]] = []  # of the manifold
        self.runs_q: list[tuple[int, int, int]] = []
        self.runs_v: list[tuple[int, int, int]] = []
        tree_q = tree_v = 0
        led = {place for inputs in self.inputs for place in inputs}
        for j, joint in enumerate(self.joints):
            start_q, start_v, k, at_v = nq, nv, 0, 0  # k and at_v: where the factor begins in its joint
            for factor in joint.joint._factors[0]:
                own = [(j, k + i) for i in range(factor.nq)]
                free = [i for i, place in enumerate(own) if place not in self.rule]
                # Exponential coordinates that others follow are not equivalent to those a turn further.
                apart = factor.kind == JointKind.exponential and not led.isdisjoint(own)
                if factor.nq != factor.nv or (len(free) == factor.nq and not apart):  # as a whole
                    self.bodies.append((int(factor.kind), nq, nv, factor.nv, j))
                    self.runs_q.append((tree_q + k, nq, factor.nq))
                    self.runs_v.append((tree_v + at_v, nv, factor.nv))
                    for i in range(factor.nv):
                        self.position.append(nq + i if factor.nq == factor.nv else -1)
                        if factor.nq == factor.nv:
                            self.columns[j, k + i] = nv + i
                    nq, nv = nq + factor.nq, nv + factor.nv
                else:
                    for i in free:
                        self._add_number(nq, nv, j)
                        self.runs_q.append((tree_q + k + i, nq, 1))
                        self.runs_v.append((tree_v + at_v + i, nv, 1))
                        self.columns[j, k + i] = nv
                        nq, nv = nq + 1, nv + 1
                k, at_v = k + factor.nq, at_v + factor.nv
            self.q_slices.append(slice(start_q, nq))
            self.v_slices.append(slice(start_v, nv))
            tree_q, tree_v = tree_q + joint.joint.nq, tree_v + joint.joint.nv
        for i, name in enumerate(self.new):
            self._add_number(nq, nv, len(self.joints) + i)
            self.columns[name] = nv
            nq, nv = nq + 1, nv + 1
        self.nq, self.nv = nq, nv
        self.runs_q, self.runs_v = _joined(self.runs_q), _joined(self.runs_v)

    def _add_number(self, nq: int, nv: int, joint: int) -> None:
        self.bodies.append((int(JointKind.prismatic), nq, nv, 1, joint))
        self.position.append(nq)

    def _require_no_ring(self) -> None:
        done: set[Place] = set()

        def visit(place: Place, path: tuple[Place, ...]) -> None:
            if place in done or place not in self.rule:
                return
            if place in path:
                ring = [*path[path.index(place) :], place]
                raise ModelError(f"couplings are a ring: {' follows '.join(self._shown(p) for p in ring)}")
            for other in self._read(place):
                if not isinstance(other, str):
                    visit(other, (*path, place))
            done.add(place)

        for place in self.rule:
            visit(place, ())

    def _read(self, place: Place) -> list[Place | str]:
        """The coordinates of which a follower is a direct function."""
        i, output = self.rule[place]
        inputs = self.inputs[i]
        return [inputs[output]] if isinstance(self.couplings[i], (Mimic, Polynomial)) else inputs

    def follows(self, joint: int) -> tuple[str, ...]:
        """Names of the joints and new coordinates of which a joint is a direct function."""
        out: dict[str, None] = {}
        for k in range(self.joints[joint].joint.nq):
            for place in self._read((joint, k)) if (joint, k) in self.rule else []:
                out[place if isinstance(place, str) else self.joints[place[0]].name] = None
        return tuple(out)

    def named(self) -> tuple[JointCoupling, ...]:
        """The couplings, each with the names of all joints that it couples."""
        out = []
        for coupling, outputs in zip(self.couplings, self._outputs, strict=True):
            if isinstance(coupling, Subspace) and coupling.joints is None:
                every = [(self.joints[j].name, k, self.joints[j].joint.nq) for j, k in outputs]
                coupling = replace(coupling, joints=tuple(name if n == 1 else (name, k) for name, k, n in every))
            out.append(coupling)
        return tuple(out)

    def joints_of(self, i: int) -> set[int]:
        """Indices of all joints that a coupling names."""
        return {place[0] for place in (*self._outputs[i], *self.inputs[i]) if not isinstance(place, str)}

    def locked(self, joints: Iterable[int], new: Mapping[str, float]) -> tuple[set[int], tuple[JointCoupling, ...]]:
        """What a lock of some joints, and of new coordinates at given values, leaves: all joints that it locks, and the
        couplings of the others."""
        still: set[Place | str] = {(j, k) for j in joints for k in range(self.joints[j].joint.nq)}
        still.update(new)
        while True:
            more = {place for place in self.rule if place not in still and still.issuperset(self._read(place))}
            if not more:
                break
            still |= more
        kept: list[JointCoupling] = []
        for i, coupling in enumerate(self.couplings):
            ends = [place in still for place in self._outputs[i]]
            if all(ends):
                continue
            if isinstance(coupling, Subspace) and not any(ends):
                kept.append(_without_modes(coupling, new))
                continue
            if any(ends) or any(place in still for place in self.inputs[i]):
                names = listed([self.joints[j].name for j in sorted(self.joints_of(i))])
                raise ModelError(
                    f"{type(coupling).__name__} of {names} cannot be locked in part; lock all of its leaders"
                )
            kept.append(coupling)
        found = {place[0] for place in still if not isinstance(place, str)}
        for j in found:
            if any((j, k) not in still for k in range(self.joints[j].joint.nq)):
                raise ModelError(
                    f"joint {self.joints[j].name!r} follows locked joints in some coordinates only; lock it too"
                )
        return found, tuple(kept)

    # The map.

    def resolve(self, varied: bool = False) -> tuple[dict[Place, _Linear | _Bent], list[_Block]]:
        """The functions of all followers in reduced coordinates; with `varied`, with derivatives of their numbers with
        respect to the parameters, in their order."""
        numbers: list[dict[str, Any]] = []
        count = 0
        for coupling in self.couplings:
            own: dict[str, Any] = {}
            for name, array in coupling.parameters.items():
                flat: list[Any] = array.ravel().tolist()
                if varied:
                    flat = [_Varied(x, {count + k: 1.0}) for k, x in enumerate(flat)]
                count += len(flat)
                own[name] = flat if array.ndim else flat[0]
            numbers.append(own)
        blocks: list[_Block] = []
        custom: dict[int, int] = {}  # coupling -> its block
        found: dict[Place, _Linear | _Bent] = {}

        def value(place: Place | str) -> _Linear | _Bent:
            if isinstance(place, str) or place not in self.rule:
                return _Linear({self.columns[place]: 1.0})
            if place not in found:
                found[place] = follower(place)
            return found[place]

        def follower(place: Place) -> _Linear | _Bent:
            i, output = self.rule[place]
            coupling, own = self.couplings[i], numbers[i]
            if isinstance(coupling, Mimic):
                return value(self.inputs[i][output]).scaled(own["ratio"], own["offset"])
            if isinstance(coupling, Subspace):
                row = own["basis"][output * len(self.inputs[i]) : (output + 1) * len(self.inputs[i])]
                columns = [self.columns[name] for name in self.inputs[i]]
                return _Linear(dict(zip(columns, row, strict=True)), own["origin"][output])
            if isinstance(coupling, Polynomial):
                leader = value(self.inputs[i][output])
                if isinstance(leader, _Linear):
                    blocks.append(_Block([leader.scaled(1.0, -1.0 * own["center"])], 1, own["coefficients"]))
                    return _Bent(len(blocks) - 1, 0)
                block = blocks[leader.block]
                if block.custom is None:
                    inner = [leader.scale * c for c in block.coefficients]
                    inner[0] = inner[0] + leader.offset + -1.0 * own["center"]
                    blocks.append(_Block(block.inputs, 1, _composed(own["coefficients"], inner)))
                    return _Bent(len(blocks) - 1, 0)
                raise ModelError(
                    f"{self._shown(place)} is a Polynomial of {self._shown(self.inputs[i][output])}, which follows a "
                    f"{type(block.custom).__name__}; give both by one CustomCoupling"
                )
            assert isinstance(coupling, CustomCoupling)
            if i not in custom:
                forms = [value(x) for x in self.inputs[i]]
                for form, x in zip(forms, self.inputs[i], strict=True):
                    if isinstance(form, _Bent):
                        raise ModelError(
                            f"{type(coupling).__name__} is a function of {self._shown(x)}, which follows a nonlinear "
                            "coupling; make it a function of the leaders of that"
                        )
                linear = [form for form in forms if isinstance(form, _Linear)]
                custom[i] = len(blocks)
                blocks.append(_Block(linear, len(self._outputs[i]), custom=coupling))
            return _Bent(custom[i], output)

        return {place: value(place) for place in sorted(self.rule)}, blocks

    def compiled(self, solver: int = -1) -> tuple[Any, ...]:
        """The arguments of `_core.Model.couple`. Solvers of forward dynamics: 0 dense, 1 by columns, 2 by multipliers;
        -1 for the one that is expected to be the fastest."""
        found, blocks = self.resolve()
        starts = self._tree_starts()
        rows = []
        for (j, k), form in found.items():
            place = (starts[j][0] + k, starts[j][1] + k, j)
            if isinstance(form, _Linear):
                rows.append(
                    (*place, -1, 0, 0.0, float(form.constant), [*form.terms], [*map(float, form.terms.values())])
                )
            else:
                rows.append((*place, form.block, form.output, float(form.scale), float(form.offset), [], []))
        made = []
        for block in blocks:
            B = [float(form.terms.get(c, 0.0)) for form in block.inputs for c in block.columns]
            constants = [float(form.constant) for form in block.inputs]
            parameters = 0 if block.custom is None else int(np.size(block.custom.p))
            coefficients = [float(c) for c in block.coefficients]
            made.append((block.outputs, constants, block.columns, B, coefficients, block.custom, parameters))
        return (self.nq, self.nv, self.bodies), self.runs_q, self.runs_v, self.position, rows, made, solver

    def rows(self) -> tuple[list[int], list[int]]:
        """Which coordinates and velocities of the tree are coupled."""
        starts = self._tree_starts()
        places = sorted(self.rule)
        return [starts[j][0] + k for j, k in places], [starts[j][1] + k for j, k in places]

    def _tree_starts(self) -> list[tuple[int, int]]:
        out, nq, nv = [], 0, 0
        for joint in self.joints:
            out.append((nq, nv))
            nq, nv = nq + joint.joint.nq, nv + joint.joint.nv
        return out

    @property
    def is_nonlinear(self) -> NDArray[np.bool_]:
        """Which velocities of the tree are of followers that are no linear functions (nv of the tree,)."""
        starts = self._tree_starts()
        out = np.zeros(sum(joint.joint.nv for joint in self.joints), dtype=bool)
        for (j, k), form in self.resolve()[0].items():
            out[starts[j][1] + k] = isinstance(form, _Bent)
        return out

    def chain(self) -> tuple[NDArray[Any], NDArray[Any], FloatArray, int]:
        """Derivatives of the core's numbers with respect to all parameters: rows, columns and values of those that are
        not zero, and the number of parameters."""
        found, blocks = self.resolve(varied=True)
        flat: list[Any] = []
        for form in found.values():
            if isinstance(form, _Linear):
                flat += [form.constant, *form.terms.values()]
            else:
                flat += [form.offset, form.scale]
        for block in blocks:
            flat += [form.terms.get(c, 0.0) for form in block.inputs for c in block.columns]
            flat += [form.constant for form in block.inputs]
            flat += block.coefficients
            if block.custom is not None:
                at = self._parameter_start([c is block.custom for c in self.couplings].index(True))
                flat += [_Varied(0.0, {at + k: 1.0}) for k in range(np.size(block.custom.p))]
        entries = [(r, k, d) for r, x in enumerate(flat) if isinstance(x, _Varied) for k, d in x.parts.items()]
        rows, columns, values = zip(*entries, strict=True) if entries else ((), (), ())
        count = self._parameter_start(len(self.couplings))
        return np.array(rows, dtype=int), np.array(columns, dtype=int), np.array(values, dtype=float), count

    def _parameter_start(self, i: int) -> int:
        return sum(x.size for coupling in self.couplings[:i] for x in coupling.parameters.values())

    def gradients(self, numbers: FloatArray) -> tuple[dict[str, NDArray[Any]], ...]:
        """Gradients with respect to the parameters, a dict for each coupling, from those with respect to the numbers of
        the core (..., n)."""
        if self._chain is None:
            self._chain = self.chain()
        rows, columns, values, count = self._chain
        each = numbers.reshape(-1, numbers.shape[-1])[:, rows] * values
        flat = np.zeros((count, len(each)))
        np.add.at(flat, columns, each.T)
        return self.records(flat.T.reshape((*numbers.shape[:-1], count)))

    def records(self, flat: NDArray[Any]) -> tuple[dict[str, NDArray[Any]], ...]:
        """Rows of all parameters (..., n) as a dict for each coupling."""
        out, at = [], 0
        for coupling in self.couplings:
            own = {}
            for name, value in coupling.parameters.items():
                own[name] = flat[..., at : at + value.size].reshape((*flat.shape[:-1], *value.shape))
                at += value.size
            out.append(own)
        return tuple(out)

    # Limits.

    def limits(self, lower: FloatArray, upper: FloatArray, own: tuple[FloatArray, FloatArray]) -> None:
        """Narrows limits `own` of reduced coordinates by those of followers that are linear in one coordinate, given by
        the tree's coordinates."""
        starts = self._tree_starts()
        for (j, k), form in self.resolve()[0].items():
            if not isinstance(form, _Linear) or len(form.terms) != 1:
                continue
            ((column, ratio),) = form.terms.items()
            if ratio == 0.0:
                continue
            at = starts[j][0] + k
            ends = sorted(((lower[at] - form.constant) / ratio, (upper[at] - form.constant) / ratio))
            place = self.position[column]
            own[0][place], own[1][place] = max(own[0][place], ends[0]), min(own[1][place], ends[1])
            if own[0][place] > own[1][place] + 1e-12 * max(abs(own[0][place]), abs(own[1][place])):
                name = next(key for key, c in self.columns.items() if c == column)
                raise ModelError(
                    f"limits of {self._shown((j, k))} leave no position for {self._shown(name)}, which it follows: "
                    f"that would have to be between {own[0][place]:.6g} and {own[1][place]:.6g}; correct limits, ratio "
                    "or offset"
                )
            if own[0][place] >= own[1][place]:  # by rounding, or 0 and -0
                own[0][place] = own[1][place]

    def narrow_velocities(self, tree: FloatArray, own: FloatArray) -> None:
        """The same of limits of speeds."""
        starts = self._tree_starts()
        for (j, k), form in self.resolve()[0].items():
            if isinstance(form, _Linear) and len(form.terms) == 1:
                ((column, ratio),) = form.terms.items()
                if ratio != 0.0:
                    own[column] = min(own[column], tree[starts[j][1] + k] / abs(ratio))


# States of the tree.


def reduced_position(model: Model, tree_q: FloatArray, near: FloatArray, tolerance: float) -> FloatArray:
    """The reduced configuration of one of the tree: its own coordinates, and new ones by Gauss-Newton's method."""
    coupling, tree = model._map, model.tree
    if coupling is None:
        return np.array(tree_q)
    q: FloatArray = np.array(
        np.broadcast_to(near, (*np.broadcast_shapes(tree_q.shape[:-1], near.shape[:-1]), model.nq))
    )
    for start, reduced, count in coupling.runs_q:
        q[..., reduced : reduced + count] = tree_q[..., start : start + count]
    rows_q, rows_v = coupling.rows()
    first = model.nv - len(coupling.new)
    for _ in range(50 if coupling.new else 0):
        P = model.coupling_jacobian(q)[..., rows_v, first:]
        miss = (tree_q - model.expand(q))[..., rows_q]
        d = np.einsum("...ij,...j->...i", np.linalg.pinv(P), miss)
        q[..., model.nq - len(coupling.new) :] += d
        if np.abs(d).max(initial=0.0) <= 1e-14 * np.abs(q).max(initial=1.0):
            break
    miss = (tree_q - model.expand(q))[..., rows_q]
    _require_coupled(tree, rows_q, miss, tolerance, "tree_q", "q_slice")
    return q


def reduced_velocity(model: Model, q: FloatArray, tree_v: FloatArray, tolerance: float) -> FloatArray:
    """The reduced velocity at q of one of the tree."""
    coupling, tree = model._map, model.tree
    if coupling is None:
        return np.array(tree_v)
    v = np.zeros((*np.broadcast_shapes(q.shape[:-1], tree_v.shape[:-1]), model.nv))
    for start, reduced, count in coupling.runs_v:
        v[..., reduced : reduced + count] = tree_v[..., start : start + count]
    rows = coupling.rows()[1]
    if coupling.new:
        first = model.nv - len(coupling.new)
        miss = (tree_v - model.expand_velocity(q, v))[..., rows]
        P = model.coupling_jacobian(q)[..., rows, first:]
        v[..., first:] = np.einsum("...ij,...j->...i", np.linalg.pinv(P), miss)
    miss = (tree_v - model.expand_velocity(q, v))[..., rows]
    _require_coupled(tree, rows, miss, tolerance, "tree_v", "v_slice")
    return v


def _require_coupled(
    tree: Model, rows: Sequence[int], miss: FloatArray, tolerance: float, name: str, kind: str
) -> None:
    worst = np.abs(miss).reshape(-1, len(rows)).max(axis=0, initial=0.0)
    if not (worst > tolerance).any():
        return
    at = rows[int(np.argmax(worst))]
    joint = next(j.name for j in tree.joints if getattr(j, kind).start <= at < getattr(j, kind).stop)
    raise ConstraintError(
        f"{name} does not fulfil the couplings of the model: joint {joint!r} is off by {worst.max():.3g}, expected "
        f"{tolerance:.3g} at most; correct it, or give a larger tolerance="
    )
