"""What tests of derivatives run over: every joint there is, and trees of them."""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import pytest

import torsor as ts
from torsor import testing

FRAMES = ("body", "world", "local_world_aligned")


class BarrelCam(ts.CustomJoint):
    """Turns about z by q and slides along z by 0.4 sin(q). One state at a time."""

    dofs = 1

    def T(self, q):
        c, s = np.cos(q[0]), np.sin(q[0])
        return np.array([[c, -s, 0, 0], [s, c, 0, 0], [0, 0, 1, 0.4 * s], [0, 0, 0, 1]])

    def S(self, q):
        return np.array([0, 0, 1, 0, 0, 0.4 * np.cos(q[0])]).reshape(6, 1)

    def dS(self, q):
        return np.array([0, 0, 0, 0, 0, -0.4 * np.sin(q[0])]).reshape(6, 1, 1)

    def d2S(self, q):
        return np.array([0, 0, 0, 0, 0, -0.4 * np.cos(q[0])]).reshape(6, 1, 1, 1)


class Own(ts.CustomJoint):
    """A built-in joint behind the contract for joints of the user's own."""

    def __init__(self, inner: ts.Joint, batched: bool = True) -> None:
        self.inner, self.dofs, self.batched = inner, inner.nv, batched

    def T(self, q):
        return self.inner.T(q)

    def S(self, q):
        return self.inner.S(q)

    def dS(self, q):
        return self.inner.dS(q)

    def d2S(self, q):
        return self.inner.d2S(q)


JOINTS = (*testing.example_joints(), BarrelCam(), Own(ts.SphericalExp()), Own(ts.Universal(), batched=False))
CURVE, SURFACE = (next(j for j in JOINTS if isinstance(j, kind)) for kind in (ts.SplineCurve, ts.SplineSurface))


def state(
    model: ts.Model, rng: np.random.Generator | int = 0, batch: tuple[int, ...] = ()
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """q, v, a, another such vector, and external wrenches."""
    rng = np.random.default_rng(rng)
    q = model.random(rng, batch or None)
    v, a, x = (rng.standard_normal((*batch, model.nv)) for _ in range(3))
    return q, v, a, x, rng.standard_normal((*batch, model.nbodies, 6))


def wrenches(f: np.ndarray, frame: str | None) -> dict[str, Any]:
    """Arguments of external wrenches in a frame; of none."""
    return {} if frame is None else {"f_ext": f, "f_ext_frame": frame}


def sweep(items: Iterable[Any], every: int) -> list[Any]:
    """Parameters of a test, of which `make test-fast` takes one in so many, beginning with the first."""
    found = [item if hasattr(item, "values") and hasattr(item, "marks") else pytest.param(item) for item in items]
    return [
        item if k % every == 0 else pytest.param(*item.values, id=item.id, marks=[*item.marks, pytest.mark.slow])
        for k, item in enumerate(found)
    ]


@cache
def models(seed: int) -> list[Any]:
    """Two of every joint, in trees on the world and again in trees on a free base.

    In all of them bodies on fixed joints: on the world, between others, and at the tips.
    """
    rng = np.random.default_rng(seed)
    found = []
    for turn in range(2):
        for part, order in enumerate(np.array_split(rng.permutation(len(JOINTS)), len(JOINTS) // 7)):
            picked = [JOINTS[k] for k in order]
            joints = [ts.Fixed(), *[ts.Free()] * turn, *picked[:3], ts.Fixed(), *picked[3:], ts.Fixed()]
            tree = testing.random_tree(2 * part + turn, joints, branching=0.3)
            found.append(pytest.param(tree, id=f"{'free' if turn else 'fixed'}-{part}"))
    return found


def mixed_tree() -> ts.Model:
    """A floating tree with joints of constant S and of S(q), and bodies on fixed joints: between others and on the
    world, where one of them carries a joint."""
    rng, drives = np.random.default_rng(0), np.random.default_rng(1)
    builder = ts.ModelBuilder("tree", gravity=(1, 2, -9))
    for name, parent, joint in (
        ("base", "world", ts.Free()),
        ("arm", "base", ts.Revolute((1, 2, 3))),
        ("camera", "arm", ts.Fixed()),
        ("ball", "arm", ts.Spherical()),
        ("lens", "camera", ts.Fixed()),
        ("wrist", "ball", ts.SphericalExp()),
        ("slider", "base", ts.Composite(ts.Prismatic((0, 1, 0)), ts.Universal())),
        ("post", "world", ts.Fixed()),
        ("lamp", "post", ts.Fixed()),
        ("gate", "post", ts.Revolute((0, 1, 1))),
    ):
        pose, inertia = testing.random_pose(rng), testing.random_inertia(rng)
        builder.add_body(name, parent, joint, pose, inertia, armature=testing.random_armature(drives, joint))
    return builder.build()


class Order(NamedTuple):
    """Where each body, coordinate and velocity of a tree is in another, which has its bodies in another order."""

    bodies: np.ndarray
    q: np.ndarray
    v: np.ndarray


def shuffled(model: ts.Model, rng: np.random.Generator) -> tuple[ts.Model, Order]:
    """The same tree with its bodies added in another order."""
    builder, waiting, order = ts.ModelBuilder(model.name, model.gravity), list(model.bodies), []
    while waiting:
        ready = [b for b in waiting if b.parent == "world" or b.parent in order]
        b = ready[rng.integers(len(ready))]
        waiting.remove(b)
        order.append(b.name)
        builder.add_body(
            b.name, b.parent, b.joint, b.placement, b.inertia, joint_name=b.joint_name, armature=b.armature
        )
    joints = [model.joint(name) for name in order]
    numbers = {b.name: k for k, b in enumerate(model.bodies)}
    q, v = (np.arange(n) for n in (model.nq, model.nv))
    return builder.build(), Order(
        np.array([numbers[name] for name in order]),
        np.concatenate([q[j.q_slice] for j in joints]),
        np.concatenate([v[j.v_slice] for j in joints]),
    )


def reordered(x: np.ndarray, axes: str, order: Order) -> np.ndarray:
    """What `x` of a tree is in the other; axes as in `functions.Function`."""
    for k, axis in enumerate(axes.split()):
        if axis in ("q", "v", "b"):
            x = np.take(x, getattr(order, "bodies" if axis == "b" else axis), axis=k)
        elif axis[0] == "b":
            size = int(axis[1:])
            x = np.take(x, (size * order.bodies[:, None] + np.arange(size)).ravel(), axis=k)
    return x


def quaternions(model: ts.Model) -> Iterator[tuple[bool, int, int]]:
    """Joints with quaternions, those inside of composites too: whether it is free, and where its q and v begin. A free
    joint has its translation before the quaternion in q, and after the rotation in v."""

    def parts(joint: ts.Joint, iq: int, iv: int) -> Iterator[tuple[bool, int, int]]:
        if isinstance(joint, ts.Composite):
            for part in joint.joints:
                yield from parts(part, iq, iv)
                iq, iv = iq + part.nq, iv + part.nv
        elif isinstance(joint, (ts.Free, ts.Spherical)):
            yield isinstance(joint, ts.Free), iq, iv

    for j in model.joints:
        yield from parts(j.joint, j.q_slice.start, j.v_slice.start)


def longer(model: ts.Model, q: np.ndarray, length: float) -> np.ndarray:
    """q with its quaternions made longer, every second one by the inverse length."""
    out = q.copy()
    for count, (free, iq, _) in enumerate(quaternions(model)):
        at = iq + 3 * free
        out[..., at : at + 4] *= length if count % 2 == 0 else 1 / length
    return out


def moved_by(model: ts.Model) -> np.ndarray:
    """Which velocities move a body: (nbodies, nv)."""
    moves = np.zeros((model.nbodies, model.nv), bool)
    for i, body in enumerate(model.bodies):
        while True:
            moves[i, model.joint(body.name).v_slice] = True
            if body.parent == "world":
                break
            body = model.body(body.parent)
    return moves


@cache
def deep_tree() -> ts.Model:
    """Every joint on one path, and two branches. With more than 48 velocities on a path, forward dynamics' derivatives
    solve by articulated bodies."""
    model = testing.random_tree(5, [*JOINTS, ts.Fixed(), JOINTS[3], JOINTS[12]], branching=0.04)
    moves = moved_by(model)
    assert moves.sum(1).max() > 60 and not moves[-1].all()
    return model
