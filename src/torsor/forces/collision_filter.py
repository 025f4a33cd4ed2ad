"""Which collision shapes of a model may touch: the rules of MJCF, and of links that a joint connects in URDF."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

from torsor._check import listed, unknown
from torsor.model import WORLD
from torsor.shapes import HalfSpace, HeightField, Terrain

if TYPE_CHECKING:
    from torsor.collision import Collision, CollisionPair
    from torsor.model import Model

_GROUND = (HalfSpace, HeightField, Terrain)


class Carried(NamedTuple):
    """A collision shape, and the body that carries it."""

    body: str
    collision: Collision

    @property
    def source(self) -> str:
        """The body that rules name."""
        return self.collision.source or self.body

    def __str__(self) -> str:
        return f"{self.collision} of {self.body!r}"


class Clusters:
    """Bodies that are fixed to each other, and the joints between such clusters.

    Parameters
    ----------
    model : Model
    """

    def __init__(self, model: Model) -> None:
        self.of: dict[str, int] = {}  # body -> cluster; bodies fixed to the world are clusters of their own
        self.fixed: list[bool] = []  # to the world
        above: list[int | None] = []
        empty: list[bool] = []  # without mass and shapes: a part of a joint
        for b in model.bodies:
            parent = self.of.get(b.parent)
            if b.joint.nv == 0 and parent is not None:
                self.of[b.name] = parent
            else:
                self.of[b.name] = len(above)
                above.append(parent)
                self.fixed.append(b.joint.nv == 0)
                empty.append(True)
            empty[self.of[b.name]] &= b.inertia.mass == 0 and not b.collisions
        self.parent = above
        for i, parent in enumerate(above):
            while parent is not None and empty[parent] and not self.fixed[parent]:
                parent = above[parent]
            self.parent[i] = parent

    def filtered(self, a: str, b: str, parents: str) -> bool:
        """Whether shapes of two bodies never touch, by the rule for parents."""
        i, j = self.of.get(a), self.of.get(b)
        ground = [k is None or self.fixed[k] for k in (i, j)]
        if i == j or all(ground):
            return True
        if i is None or j is None or parents == "allow" or (parents == "filter_moving" and any(ground)):
            return False
        return self.parent[i] == j or self.parent[j] == i


def carried_shapes(model: Model) -> list[Carried]:
    """All collision shapes of a model, those of the world first."""
    out = [Carried(WORLD, c) for c in model.world_collisions]
    return out + [Carried(b.name, c) for b in model.bodies for c in b.collisions]


def allowed_pairs(
    model: Model, shapes: list[Carried], exclude: tuple[tuple[str, str], ...]
) -> Iterator[tuple[Carried, Carried, CollisionPair | None]]:
    """Pairs of shapes that the rules allow, the later body first, with their numbers where a rule gives some."""
    rules, clusters = model.collision_rules, Clusters(model)
    known = {name: name for name in (WORLD, *clusters.of, *(s.source for s in shapes))}
    known = {f.name: f.body for f in model.frames} | known
    for name in (name for pair in (*rules.exclude, *exclude) for name in pair):
        if name not in known:
            raise unknown("body", name, sorted(known), " to exclude from contact")
    excluded = {frozenset(known[name] for name in pair) for pair in (*rules.exclude, *exclude)}
    given = set()
    for pair in rules.pairs:
        i, j = sorted(_named(shapes, name) for name in (pair.first, pair.second))
        given.add((i, j))
        if not clusters.filtered(shapes[i].body, shapes[j].body, "allow"):
            yield shapes[j], shapes[i], pair
    for (i, b), (j, a) in combinations(enumerate(shapes), 2):
        x, y = a.collision, b.collision
        if (
            (x.contype & y.conaffinity or y.contype & x.conaffinity)
            and not clusters.filtered(a.body, b.body, rules.parents)
            and frozenset((a.source, b.source)) not in excluded
            and not (isinstance(x.shape, _GROUND) and isinstance(y.shape, _GROUND))
            and (i, j) not in given
        ):
            yield a, b, None


def filtered_bodies(model: Model) -> tuple[tuple[str, str], ...]:
    """Pairs of bodies with shapes that never touch because of the joints of the tree."""
    clusters, parents = Clusters(model), model.collision_rules.parents
    carriers = [WORLD, *(b.name for b in model.bodies if b.collisions)]
    return tuple(pair for pair in combinations(carriers, 2) if clusters.filtered(*pair, parents))


def _named(shapes: list[Carried], name: str) -> int:
    found = [k for k, shape in enumerate(shapes) if shape.collision.name == name]
    if len(found) != 1:
        names = listed([s.collision.name for s in shapes if s.collision.name is not None], name)
        what = "no collision shape" if not found else f"{len(found)} collision shapes"
        raise KeyError(f"{what} named {name!r} for a CollisionPair, expected one; names are {names}")
    return found[0]
