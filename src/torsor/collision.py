"""Collision shapes of a model: what files say about contact, kept as they say it. `contacts` makes forces of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from torsor._errors import ModelError
from torsor.shapes import HalfSpace, Shape, Sphere
from torsor.spatial import SE3

if TYPE_CHECKING:
    from torsor._typing import ParentFilter

_PARENTS = ("filter", "filter_moving", "allow")


@final
@dataclass(frozen=True)
class Collision:
    """A shape of a body for contact, and what the file says about its contacts.

    Parameters
    ----------
    shape : Shape
        In the frame of the body.
    name : str, optional
    friction : float, optional
        Coefficient of sliding friction; None if the file has none.
    contype, conaffinity : int
        Bits: two shapes may touch if one has a bit in `contype` that the other has in `conaffinity`.
    priority : int
        Of two shapes, friction and softness are those of the one with the larger priority.
    condim : {1, 3, 4, 6}
        Dimension of a contact in MuJoCo; 1 is without friction.
    solref : (float, float), optional
    solimp : (float, float, float, float, float), optional
        MuJoCo's softness of contact, as in the file: reference and impedance.
    solmix : float
        Weight of this shape's softness beside that of the other.
    margin, gap : float
        Distances of MuJoCo's contact detection, as in the file.
    source : str, optional
        The body that carried the shape before `Model.lock` made it part of another; `CollisionRules` name it so.
    """

    shape: Shape
    name: str | None = None
    friction: float | None = None
    contype: int = 1
    conaffinity: int = 1
    priority: int = 0
    condim: int = 3
    solref: tuple[float, float] | None = None
    solimp: tuple[float, float, float, float, float] | None = None
    solmix: float = 1.0
    margin: float = 0.0
    gap: float = 0.0
    source: str | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.shape, Shape):
            raise TypeError(f"shape of a Collision must be one of torsor.shapes, got {self.shape!r}")
        _require_friction(self.friction)
        _require_dimension(self.condim)
        for name in ("contype", "conaffinity"):
            if not isinstance(getattr(self, name), int):
                raise TypeError(f"{name} of a Collision must be an integer of bits, got {getattr(self, name)!r}")

    def moved(self, pose: SE3) -> Collision:
        """The same seen from another frame, in which its own is at `pose`."""
        return replace(self, shape=moved(self.shape, pose))

    def __str__(self) -> str:
        kind = type(self.shape).__name__
        return kind if self.name is None else f"{kind} {self.name!r}"


@final
@dataclass(frozen=True)
class CollisionPair:
    """A pair of shapes that may touch whatever the rules for others say, with numbers of its own: MJCF's `<pair>`.

    Parameters
    ----------
    first, second : str
        Names of two `Collision` records of a model.
    friction, condim, solref, solimp, margin, gap
        As those of `Collision`, for this pair.
    """

    first: str
    second: str
    friction: float | None = None
    condim: int = 3
    solref: tuple[float, float] | None = None
    solimp: tuple[float, float, float, float, float] | None = None
    margin: float = 0.0
    gap: float = 0.0

    def __post_init__(self) -> None:
        _require_friction(self.friction)
        _require_dimension(self.condim)


@final
@dataclass(frozen=True)
class CollisionRules:
    """Which collision shapes of a model may touch, beyond the bits of the shapes themselves.

    Shapes of one body never touch, nor those of bodies that are fixed to each other.

    Parameters
    ----------
    parents : {"filter", "filter_moving", "allow"}
        Whether bodies on two sides of a joint are left out: always; unless one of them is fixed to the world, as in
        MuJoCo; or never.
    exclude : iterable of (str, str)
        Names of two bodies each, between which there is no contact.
    pairs : iterable of CollisionPair
        Pairs that may touch in any case.
    """

    parents: ParentFilter = "filter"
    exclude: tuple[tuple[str, str], ...] = ()
    pairs: tuple[CollisionPair, ...] = ()

    def __post_init__(self) -> None:
        if self.parents not in _PARENTS:
            raise ValueError(f"parents is {self.parents!r}, expected {', '.join(map(repr, _PARENTS))}")
        object.__setattr__(self, "exclude", name_pairs(self.exclude, "exclude"))
        object.__setattr__(self, "pairs", tuple(self.pairs))
        for pair in self.pairs:
            if not isinstance(pair, CollisionPair):
                raise TypeError(f"pairs must be CollisionPair records, got {pair!r}")


def name_pairs(given: Iterable[tuple[str, str]], name: str) -> tuple[tuple[str, str], ...]:
    """Pairs of names, checked."""
    if isinstance(given, str) or not isinstance(given, Iterable):
        raise TypeError(f"{name} must be a sequence of pairs of names, got {given!r}")
    out = []
    for pair in given:
        if isinstance(pair, str) or not isinstance(pair, Iterable) or len(both := tuple(pair)) != 2:
            raise TypeError(f"{name} must be a sequence of pairs of names, got {pair!r} in it")
        if not all(isinstance(one, str) for one in both):
            raise TypeError(f"{name} must be a sequence of pairs of names, got {pair!r} in it")
        out.append((both[0], both[1]))
    return tuple(out)


def require_collisions(given: Iterable[Any], owner: str) -> tuple[Collision, ...]:
    """Collision records, checked."""
    out = tuple(given)
    for one in out:
        if not isinstance(one, Collision):
            hint = f"; did you mean Collision({type(one).__name__}(...))?" if isinstance(one, Shape) else ""
            raise TypeError(f"collisions of {owner} must be Collision records, got {one!r}{hint}")
    return out


def moved(shape: Shape, pose: SE3) -> Shape:
    """A shape seen from another frame, in which its own is at `pose`."""
    if isinstance(shape, HalfSpace):
        n = pose.R @ np.array(shape.normal)
        return HalfSpace(n, shape.offset + float(n @ pose.p) / float(np.linalg.norm(n)))
    if isinstance(shape, Sphere):
        return Sphere(shape.radius, pose @ np.array(shape.position))
    placement: SE3 = shape.placement  # type: ignore[attr-defined]
    return replace(shape, placement=pose @ placement)  # type: ignore[type-var]


def _require_friction(value: Any) -> None:
    if value is not None and not (np.isreal(value) and 0 <= value < np.inf):
        raise ModelError(f"friction of a collision shape is {value!r}, expected a number of at least 0")


def _require_dimension(value: Any) -> None:
    if value not in (1, 3, 4, 6):
        raise ModelError(f"condim of a collision shape is {value!r}, expected 1, 3, 4 or 6")
