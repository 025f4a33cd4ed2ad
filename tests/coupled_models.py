"""Models with couplings q = phi(z) of every kind, and derivatives by complex step."""

from itertools import islice

import numpy as np
from population import JOINTS

import torsor as ts
from torsor.testing import complex_inputs, random_tree


class Bend(ts.CustomCoupling):
    """y = A z + b + e sin(B z) with parameters e."""

    batched = True

    def __init__(self, joints, of=(), names=(), seed=0):
        rng = np.random.default_rng(seed)
        self.joints, self.of, self.names = tuple(joints), tuple(of), tuple(names)
        k, m = len(self.joints), len(self.of) + len(self.names)
        self.A, self.b, self.B = rng.standard_normal((k, m)), rng.standard_normal(k), rng.standard_normal((k, m))
        self.p = 0.3 + 0.2 * rng.standard_normal(k)

    def __eq__(self, other):
        mine, its = vars(self), vars(other) if isinstance(other, Bend) else {}
        return mine.keys() == its.keys() and all(np.array_equal(np.array(x, object), np.array(its[k], object))
                                                 for k, x in mine.items())  # fmt: skip

    def _angle(self, z):
        return np.einsum("ij,...j->...i", self.B, z)

    def phi(self, z, p):
        return np.einsum("ij,...j->...i", self.A, z) + self.b + p * np.sin(self._angle(z))

    def dphi(self, z, p):
        return self.A + (p * np.cos(self._angle(z)))[..., None] * self.B

    def d2phi(self, z, p):
        return np.einsum("...i,ij,ik->...ijk", -p * np.sin(self._angle(z)), self.B, self.B)

    def d3phi(self, z, p):
        return np.einsum("...i,ij,ik,il->...ijkl", -p * np.cos(self._angle(z)), self.B, self.B, self.B)


def tree(seed=0):
    """A tree with joints of all kinds, among them several of vectors."""
    rng = np.random.default_rng(seed)

    def inertia():
        return ts.Inertia.box(
            mass=rng.uniform(0.5, 2.0), size=rng.uniform(0.1, 0.5, 3), com=0.2 * rng.standard_normal(3)
        )

    def placement():
        return ts.SE3.exp(0.5 * rng.standard_normal(6))

    joints = [
        ("base", "world", ts.Free()),
        ("hip", "base", ts.Revolute((0, 1, 0))),
        ("knee", "hip", ts.Revolute((1, 1, 0))),
        ("ball", "knee", ts.Spherical()),
        ("slide", "base", ts.Prismatic((0, 0, 1))),
        ("wrist", "slide", ts.Universal()),
        ("screw", "wrist", ts.Screw((1, 0, 0), 0.2)),
        ("exp", "slide", ts.SphericalExp()),
        ("tip", "exp", ts.Revolute((0, 0, 1))),
        ("toe", "ball", ts.Prismatic((1, 0, 0))),
    ]
    b = ts.ModelBuilder()
    for name, parent, joint in joints:
        b.add_body(name, parent, joint, placement(), inertia())
    return b.build()


MAPS = {
    "mimic": (ts.Mimic("tip", of="hip", ratio=-0.7, offset=0.2), ts.Mimic("slide", of="tip", ratio=1.5)),
    "subspace": (
        ts.Subspace(
            ["hip", "knee", "wrist", "toe"],
            np.random.default_rng(5).standard_normal((5, 2)),
            np.linspace(-0.3, 0.3, 5),
            ["bend", "twist"],
        ),
        ts.Mimic("tip", of="bend", ratio=0.4),
    ),
    "polynomial": (
        ts.Polynomial("knee", of="hip", coefficients=(0.1, 0.8, -0.4, 0.3, 0.1), center=0.3),
        ts.Mimic("tip", of="knee", ratio=-0.6, offset=0.1),
        ts.Polynomial("toe", of="knee", coefficients=(0.0, 0.5, 0.4)),
    ),
    "custom": (
        Bend(["knee", ("wrist", 1), ("exp", 0), ("exp", 1), ("exp", 2)], of=["hip", "slide"]),
        ts.Mimic("tip", of="knee", ratio=-1.3),
        ts.Mimic("slide", of="toe", ratio=0.5),
    ),
    "modes": (Bend(["hip", "knee", "slide", "tip"], names=["x", "y"], seed=2),),
}


def random_couplings(model, seed):
    """Couplings of every kind among vector coordinates of a tree, in any order: chains of leaders, several followers of
    one leader, followers of new coordinates."""
    rng = np.random.default_rng(seed)
    places = [(j.name, k) if j.nq > 1 else j.name for j in model.joints if j.nq == j.nv for k in range(j.nq)]
    places = [places[k] for k in rng.permutation(len(places))]
    free, count = places[: len(places) // 2], iter(places[len(places) // 2 :])
    linear, bent = list(free), []  # leaders of any coupling, and those that only polynomials and mimics take

    def take(n):
        return [*islice(count, n)]

    def draw(pool, n):
        return [pool[k] for k in rng.choice(len(pool), min(n, len(pool)), replace=False)]

    def polynomial(joint, of):
        powers = np.arange(rng.integers(2, 5))
        return ts.Polynomial(joint, of, 0.5**powers * rng.standard_normal(len(powers)), 0.3 * rng.standard_normal())

    made = []
    if modes := take(3):
        names = [f"mode{k}" for k in range(min(2, len(modes)))]
        made.append(ts.Subspace(modes, 0.7 * rng.standard_normal((len(modes), len(names))), names=names))
        linear += [*names, *modes]
    if bends := take(2):
        made.append(Bend(bends, of=draw(linear, 2), seed=seed))
    if bends := take(2):
        made.append(Bend(bends, names=["bend"], seed=seed + 1))
        (last,) = take(1) or [None]
        made += [] if last is None else [ts.Mimic(last, bends[0], 0.8, 0.1)]
    for k, joint in enumerate(count):
        if k % 2 == 0:
            made.append(polynomial(joint, draw(linear + bent, 1)[0]))
            bent.append(joint)
        else:
            (of,) = draw(linear + bent, 1)
            made.append(ts.Mimic(joint, of, rng.uniform(-1.5, 1.5), 0.2 * rng.standard_normal()))
            (bent if of in bent else linear).append(joint)
    return [made[k] for k in rng.permutation(len(made))]


def random_coupled(seed):
    """A random tree of a third of all joint kinds, bodies on fixed joints among them, with random couplings."""
    picked = [JOINTS[k] for k in np.random.default_rng(seed // 3).permutation(len(JOINTS))[seed % 3 :: 3]]
    model = random_tree(seed, [*picked[:2], ts.Fixed(), *picked[2:], ts.Fixed()], branching=0.4)
    return model.couple(*random_couplings(model, seed))


RANDOM = [f"random-{seed}" for seed in range(6)]


def coupled_model(name):
    """The tree with one of `MAPS`, or one of `RANDOM`."""
    return tree().couple(*MAPS[name]) if name in MAPS else random_coupled(int(name.split("-")[1]))


def state(model, seed=3, size=None):
    rng = np.random.default_rng(seed)
    shape = (model.nv,) if size is None else (size, model.nv)
    return (model.random(rng, size), *(rng.standard_normal(shape) for _ in range(4)))


def close(a, b, tolerance=1e-11):
    scale = max(1.0, np.abs(b).max(initial=0.0))
    np.testing.assert_allclose(a, b, atol=tolerance * scale, rtol=0)


def along(model, f, q, d, step=1e-30):
    """The derivative of f along d in the tangent space, by complex step."""
    with complex_inputs():
        return np.imag(f(model.plus(q, 1j * step * d))) / step


def columns(model, f, q):
    """The derivative of f in the tangent space at q, by complex step; the last axis are directions."""
    return np.stack([along(model, f, q, e) for e in np.eye(model.nv)], axis=-1)


def directional(f, x, step=1e-30):
    with complex_inputs():
        return np.stack([np.imag(f(x + 1j * step * e)) / step for e in np.eye(len(x))], axis=-1)
