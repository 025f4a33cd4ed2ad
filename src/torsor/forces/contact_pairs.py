"""`contacts`: forces for all pairs of collision shapes of a model that may touch."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from torsor import _core
from torsor._check import unknown
from torsor.collision import Collision, name_pairs
from torsor.dynamics import mass_matrix_inverse
from torsor.forces.collision_filter import Carried, Clusters, allowed_pairs, carried_shapes
from torsor.forces.contact import Contact
from torsor.forces.evaluation import contact_states
from torsor.kinematics import point_jacobian
from torsor.model import WORLD, Model, require_model
from torsor.shapes import Shape

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from torsor._typing import FloatArray, RaiseOrSkip
    from torsor.collision import CollisionPair

_DEPTH = 1e-3  # m, by which the lighter mechanism sinks in under its weight, if a file says nothing of softness
_FRICTION = 0.8
_DISSIPATION = 0.5  # s/m
_GRAVITY = 9.81  # by which softness is measured in a world without
_TINY = 1e-15  # below which MuJoCo takes a weight for zero
_LEAST = 1e-4  # impedance in MuJoCo, which is also this far from 1
_EVERY_BIT = 0x7FFFFFFF


def contacts(
    model: Model,
    *,
    stiffness: float | None = None,
    dissipation: float | None = None,
    friction: float | None = None,
    slip: float = 1e-3,
    onset: float = 0.0,
    ground: Shape | Collision | None = None,
    bodies: Iterable[str] | None = None,
    world_only: bool = False,
    exclude: Iterable[tuple[str, str]] = (),
    skip_overlapping_at: ArrayLike | None = None,
    unsupported: RaiseOrSkip = "raise",
) -> list[Contact]:
    """Forces of contact for all pairs of collision shapes of a model that may touch.

    Pairs are those of MuJoCo: the bits `contype` and `conaffinity` of two shapes meet; their bodies are not fixed to
    each other, not on two sides of a joint, and not excluded by the file; and those of MJCF's `<pair>` in any case. In
    MJCF a body and its parent may touch if the parent is fixed to the world, in URDF they never do.

    Numbers that are not given come from the file; `docs/contact_files.md` has the table. Friction is the larger one of
    the two shapes, or that of the shape with priority; 0.8 if neither has one. Softness is that of `solref` and
    `solimp`: each contact sinks in under its effective mass as deep as in MuJoCo, and has its damping ratio there. If
    the file says nothing, the lighter of the two mechanisms sinks in by 1 mm under its weight, and the dissipation is
    0.5 s/m.

    Parameters
    ----------
    model : Model
    stiffness, dissipation, friction, slip, onset : float, optional
        Numbers of all contacts, as those of `Contact`; `**Contact.rigid(h, mass)` gives those of rigid bodies.
    ground : Shape or Collision, optional
        A further shape of the world, as `shapes.HalfSpace()`, that all others may touch.
    bodies : iterable of str, optional
        Names of bodies, of which each pair has at least one; all by default.
    world_only : bool
        Whether bodies touch the world alone, and not each other.
    exclude : iterable of (str, str)
        Names of two bodies each that do not touch, beyond those of the file.
    skip_overlapping_at : (..., nq) array_like, optional
        Configurations; pairs of two bodies that overlap in one of them are left out, those with the world never.
    unsupported : {'raise', 'skip'}
        Whether pairs of shapes without a formula raise an error that names them, or are left out.

    Returns
    -------
    list of Contact
        In the order of the bodies; the first body of each is the later one of the two.

    Examples
    --------
    >>> forces = ts.contacts(model, ground=ts.shapes.HalfSpace(), friction=0.8)
    """
    require_model(model)
    if unsupported not in ("raise", "skip"):
        raise ValueError(f"unsupported is {unsupported!r}, expected 'raise' or 'skip'")
    shapes = carried_shapes(model)
    if ground is not None:
        shapes.insert(0, Carried(WORLD, _ground(ground)))
    chosen = None if bodies is None else _names(model, bodies)
    softness = _Softness(model, stiffness, dissipation)
    out: list[Contact] = []
    refused: list[str] = []
    for a, b, pair in allowed_pairs(model, shapes, name_pairs(exclude, "exclude")):
        if chosen is not None and not chosen & {a.body, b.body, a.source, b.source}:
            continue
        if world_only and not softness.clusters.filtered(b.body, WORLD, "allow"):
            continue
        if not _has_formula(a.collision.shape, b.collision.shape):
            refused.append(f"{a} with {b}")
            continue
        material = _mixed(a.collision, b.collision) if pair is None else _own(pair)
        k, d = softness(a, b, material)
        out.append(
            Contact(
                a.body,
                a.collision.shape,
                b.body,
                b.collision.shape,
                stiffness=k,
                dissipation=d,
                friction=material.friction if friction is None else friction,
                slip=slip,
                onset=onset,
            )
        )
    if refused and unsupported == "raise":
        shown = "; ".join(refused[:4]) + (f"; and {len(refused) - 4} more" if len(refused) > 4 else "")
        raise ValueError(
            f"there is no formula for the contact of {shown}; replace the shapes by others, exclude their bodies, or "
            "pass unsupported='skip' to leave these pairs out"
        )
    return out if skip_overlapping_at is None else _apart(model, out, skip_overlapping_at)


def _ground(given: Shape | Collision) -> Collision:
    if isinstance(given, Collision):
        return given
    if not isinstance(given, Shape):
        raise TypeError(f"ground must be one of torsor.shapes or a Collision, got {given!r}")
    return Collision(given, contype=_EVERY_BIT, conaffinity=_EVERY_BIT)


def _names(model: Model, given: Iterable[str]) -> set[str]:
    names = {given} if isinstance(given, str) else {*given}
    shapes = {s.source for s in carried_shapes(model)}
    known = {WORLD, *(b.name for b in model.bodies), *(f.name for f in model.frames), *shapes}
    for name in names - known:
        raise unknown("body", name, sorted(known), " for contacts")
    on = {f.name: f.body for f in model.frames if f.name not in shapes}
    return {on.get(name, name) for name in names}


def _apart(model: Model, made: list[Contact], q: ArrayLike) -> list[Contact]:
    """The contacts with the world, and those that are open at all of these configurations."""
    states = contact_states(model, made, q, np.zeros(model.nv))
    closed = (states.gap < 0).any(axis=tuple(range(states.gap.ndim - 1)))
    overlapping = {*states.force_index[closed].tolist()}
    return [x for k, x in enumerate(made) if k not in overlapping or WORLD in (x.body, x.other)]


def _has_formula(a: Shape, b: Shape) -> bool:
    return _core.contact_places(a._kind, b._kind) > 0


# ---- numbers of a pair


class _Material(NamedTuple):
    friction: float
    solref: tuple[float, ...] | None
    solimp: tuple[float, ...] | None


def _own(pair: CollisionPair) -> _Material:
    """That of a pair with numbers of its own."""
    friction = _FRICTION if pair.friction is None else pair.friction
    return _Material(0.0 if pair.condim == 1 else friction, pair.solref, pair.solimp)


def _mixed(a: Collision, b: Collision) -> _Material:
    """That of two shapes, by MuJoCo's rules: of the one with priority, or friction the larger one and softness by
    weights."""
    if a.priority != b.priority:
        first = a if a.priority > b.priority else b
        friction, condim, solref, solimp = first.friction, first.condim, first.solref, first.solimp
    else:
        known = [one for one in (a, b) if one.friction is not None]
        friction = max((one.friction for one in known if one.friction is not None), default=None)
        condim = max((one.condim for one in known), default=3)
        weights = [one.solmix if one.solmix >= _TINY else 0.0 for one in (a, b)]
        part = weights[0] / sum(weights) if any(weights) else 0.5
        solref, solimp = a.solref or b.solref, a.solimp or b.solimp
        if a.solref and b.solref:
            mixed = part * np.array(a.solref) + (1.0 - part) * np.array(b.solref)
            both = np.minimum(a.solref, b.solref)
            solref = tuple((mixed if both[0] > 0 else both).tolist())
        if a.solimp and b.solimp:
            solimp = tuple((part * np.array(a.solimp) + (1.0 - part) * np.array(b.solimp)).tolist())
    return _Material(0.0 if condim == 1 else _FRICTION if friction is None else friction, solref, solimp)


class _Softness:
    """Stiffness and dissipation of pairs, those that are given or those of the file."""

    def __init__(self, model: Model, stiffness: float | None, dissipation: float | None) -> None:
        self.model, self.stiffness, self.dissipation = model, stiffness, dissipation
        self.clusters = Clusters(model)
        self.gravity = float(np.linalg.norm(model.gravity)) or _GRAVITY
        self._inverse: dict[str, float] = {WORLD: 0.0}

    def __call__(self, a: Carried, b: Carried, material: _Material) -> tuple[float, float]:
        """Of a pair."""
        k, d = self.stiffness, self.dissipation
        if k is not None and d is not None:
            return k, d
        if material.solref is None or material.solimp is None:
            k = self._lighter(a.body, b.body) * self.gravity / _DEPTH if k is None else k
            return k, _DISSIPATION if d is None else d
        depth, ratio = _static_depth(material.solref, material.solimp, self.gravity)
        k = self._effective(a.body, b.body) * self.gravity / depth if k is None else k
        return k, 2.0 * ratio / float(np.sqrt(self.gravity * depth)) if d is None else d

    def _effective(self, a: str, b: str) -> float:
        """Mass that a force between two bodies moves."""
        inverse = self._inverse_mass(a) + self._inverse_mass(b)
        return 1.0 / inverse if inverse > _TINY else self._lighter(a, b)

    def _inverse_mass(self, body: str) -> float:
        """Acceleration of the centre of mass of a body by a unit force, mean over directions, at the neutral
        configuration: MuJoCo's `body_invweight0`."""
        if body not in self._inverse:
            J = point_jacobian(self.model, self.model.neutral, body, self.model.body(body).inertia.com)
            self._inverse[body] = float(np.einsum("ij,jk,ik->", J, self._mass_inverse, J)) / 3.0
        return self._inverse[body]

    @cached_property
    def _mass_inverse(self) -> FloatArray:
        return mass_matrix_inverse(self.model, self.model.neutral)

    @cached_property
    def _masses(self) -> list[float]:
        """Mass of the mechanism that each cluster of bodies belongs to; 0 if it is fixed to the world."""
        clusters = self.clusters
        root: list[int] = []
        for i, parent in enumerate(clusters.parent):
            root.append(i if parent is None or clusters.fixed[parent] else root[parent])
        sums = np.zeros(len(root))
        for b in self.model.bodies:
            sums[root[clusters.of[b.name]]] += b.inertia.mass
        return [0.0 if fixed else float(sums[root[i]]) for i, fixed in enumerate(clusters.fixed)]

    def _lighter(self, a: str, b: str) -> float:
        """Mass of the lighter one of two mechanisms."""
        masses = [self._masses[self.clusters.of[body]] for body in (a, b) if body != WORLD]
        mass = min((m for m in masses if m > 0.0), default=0.0)
        if mass == 0.0:
            raise ValueError(f"bodies {a!r} and {b!r} have no mass to choose a stiffness by; give stiffness=")
        return mass


def _static_depth(solref: tuple[float, ...], solimp: tuple[float, ...], gravity: float) -> tuple[float, float]:
    """How deep MuJoCo's contact of a mass under its weight is, and its damping ratio.

    At depth x, with the velocity v of separation, its acceleration is a = (1 - d) a0 - d (b v - k d x), where a0 is the
    one without contact and d(x) the impedance. So a mass rests where d^2 k x = (1 - d) g, and the damping ratio is
    b / (2 sqrt(k)).
    """
    largest, width = solimp[1], solimp[2]
    if solref[0] > 0:
        time, ratio = solref
        k = 1.0 / (largest * time * ratio) ** 2
    else:
        k, ratio = -solref[0] / largest**2, -solref[1] / (2.0 * np.sqrt(-solref[0]))
    low, high = 0.0, 1.0
    while gravity * (1.0 - _impedance(high, solimp)) > _impedance(high, solimp) ** 2 * k * high:
        high *= 2.0
    for _ in range(100):  # the load falls with the depth, and what carries it rises
        x = 0.5 * (low + high)
        d = _impedance(x, solimp)
        low, high = (low, x) if d**2 * k * x > gravity * (1.0 - d) else (x, high)
    return max(high, 1e-3 * width, _TINY), ratio


def _impedance(x: float, solimp: tuple[float, ...]) -> float:
    """MuJoCo's d(x): from the first to the second of the numbers over the width, by powers of two sides."""
    first, last, width, middle, power = solimp
    if width < _TINY:
        return min(max(0.5 * (first + last), _LEAST), 1.0 - _LEAST)
    y = min(x / width, 1.0)
    if power > 1.0:
        y = (
            y**power / middle ** (power - 1.0)
            if y <= middle
            else 1.0 - (1.0 - y) ** power / (1.0 - middle) ** (power - 1.0)
        )
    return min(max(first + y * (last - first), _LEAST), 1.0 - _LEAST)
