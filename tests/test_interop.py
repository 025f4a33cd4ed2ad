"""States in the layouts of other libraries. That the layouts are theirs is tested in cross/."""

from types import SimpleNamespace

import numpy as np
import pytest

import torsor as ts
from torsor import interop


def mixed() -> ts.Model:
    b = ts.ModelBuilder()
    ball = ts.Inertia.sphere(radius=0.1, mass=1.0)
    b.add_body("base", "world", ts.Free(), inertia=ball)
    b.add_body("mount", "base", ts.Fixed(), inertia=ball)
    b.add_body("hip", "mount", ts.Spherical(), inertia=ball)
    b.add_body("knee", "hip", ts.Revolute((0, 1, 0)), inertia=ball)
    b.add_body("cart", "world", ts.Composite(ts.Planar(), ts.Revolute((0, 0, 1))), inertia=ball)
    b.add_body("odd", "cart", ts.Composite(ts.Prismatic((1, 0, 0)), ts.Spherical()), inertia=ball)
    return b.build()


MODEL = mixed()
SIZES = {"base": 7, "hip": 4, "knee": 1, "cart": 3, "odd": 5}


def pinocchio_model(order: list[str], **sizes: int) -> SimpleNamespace:
    """What is read of a Pinocchio model."""
    joints = [SimpleNamespace(nq=(SIZES | sizes)[name]) for name in order]
    return SimpleNamespace(names=["universe", *order], joints=[SimpleNamespace(nq=0), *joints])


def state(shape: tuple[int, ...], seed: int = 0) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(seed)
    q = MODEL.random(rng, size=shape)
    return (q, *(rng.standard_normal((*shape, MODEL.nv)) for _ in range(3)))


def test_layout_of_mujoco() -> None:
    q, v, a, tau = state(())
    qpos, qvel, qacc, qfrc = interop.to_mujoco(MODEL, q, v, a, tau)
    R = ts.SE3.from_quaternion(q[3:7]).R
    np.testing.assert_array_equal(qpos[:7], [*q[:3], q[6], *q[3:6]])
    np.testing.assert_array_equal(qpos[7:11], [q[10], *q[7:10]])
    np.testing.assert_array_equal(qpos[11:], [*q[11:16], q[19], *q[16:19]])
    np.testing.assert_allclose(qvel, [*(R @ v[3:6]), *v[:3], *v[6:]])
    np.testing.assert_allclose(qacc[:6], [*(R @ (a[3:6] + np.cross(v[:3], v[3:6]))), *a[:3]])
    np.testing.assert_allclose(qfrc[:6], [*(R @ tau[3:6]), *tau[:3]])


def test_layout_of_pinocchio() -> None:
    q, v = state(())[:2]
    order = ["knee", "cart", "base", "odd", "hip"]
    theirs_q, theirs_v = interop.to_pinocchio(MODEL, q, v, order=pinocchio_model(order, knee=2, cart=4))
    knee, (x, y, angle) = q[11], q[12:15]
    np.testing.assert_array_equal(theirs_q[:2], [np.cos(knee), np.sin(knee)])
    np.testing.assert_array_equal(theirs_q[2:6], [x, y, np.cos(angle), np.sin(angle)])
    np.testing.assert_array_equal(theirs_q[6:], [*q[:7], *q[15:20], *q[7:11]])
    np.testing.assert_allclose(theirs_v[1:3], ts.SE3.rotation((0, 0, 1), -angle).R[:2, :2] @ v[10:12])
    np.testing.assert_array_equal(theirs_v[3:10], [v[12], *v[3:6], *v[:3]])
    np.testing.assert_array_equal(interop.to_pinocchio(MODEL, q, order=order)[0], knee)
    np.testing.assert_array_equal(interop.to_pinocchio(MODEL, q), q)


@pytest.mark.parametrize("shape", [(), (3,), (2, 5), (0,)])
@pytest.mark.parametrize(
    ("to", "back", "order"),
    [
        (interop.to_mujoco, interop.from_mujoco, None),
        (interop.to_mujoco, interop.from_mujoco, ["odd", "hip", "base", "cart", "knee"]),
        (interop.to_pinocchio, interop.from_pinocchio, None),
        (
            interop.to_pinocchio,
            interop.from_pinocchio,
            pinocchio_model(["cart", "odd", "base", "hip", "knee"], knee=2, cart=4),
        ),
    ],
    ids=["mujoco", "mujoco reordered", "pinocchio", "pinocchio model"],
)
def test_there_and_back(to, back, order, shape) -> None:
    given = state(shape)
    theirs = to(MODEL, *given, order=order)
    for x, y in zip(back(MODEL, *theirs, order=order), given, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-14)
    np.testing.assert_array_equal(to(MODEL, given[0], order=order), theirs[0])
    # power is the same in every layout
    np.testing.assert_allclose((theirs[1] * theirs[3]).sum(-1), (given[1] * given[3]).sum(-1), atol=1e-13)


@pytest.mark.parametrize("name", ["mujoco", "pinocchio"])
def test_accelerations_are_derivatives_of_velocities(name: str) -> None:
    """Along q(t) with v(t) = v + a t, the derivative of their v is their a."""
    q, v, a, _ = state(())
    order = pinocchio_model(list(SIZES), cart=4) if name == "pinocchio" else None
    to = interop.to_pinocchio if name == "pinocchio" else interop.to_mujoco
    h = 1e-5
    ahead, behind = (to(MODEL, MODEL.plus(q, s * v + s**2 / 2 * a), v + s * a, order=order)[1] for s in (h, -h))
    np.testing.assert_allclose((ahead - behind) / (2 * h), to(MODEL, q, v, a, order=order)[2], atol=1e-8)


def test_batches_broadcast() -> None:
    q, v, a, tau = state((4,))
    wide = interop.to_mujoco(MODEL, q[0], v, a[:, None], tau)
    for x, shape in zip(wide, [(20,), (4, 17), (4, 4, 17), (4, 17)], strict=True):
        assert x.shape == shape
    np.testing.assert_allclose(wide[1][2], interop.to_mujoco(MODEL, q[0], v[2])[1])


def test_wrong_arguments() -> None:
    q, v, a, _ = state(())
    with pytest.raises(ValueError, match=r"q has shape \(3,\), expected \(\.\.\., 20\)"):
        interop.to_mujoco(MODEL, q[:3])
    with pytest.raises(ValueError, match=r"v has shape \(\), expected"):
        interop.to_pinocchio(MODEL, q, 1.0)
    with pytest.raises(ValueError, match="a cannot be converted without v"):
        interop.to_mujoco(MODEL, q, None, a)
    with pytest.raises(ValueError, match=r"missing: \['cart', 'odd'\], not joints that move: \['mount'\]"):
        interop.to_pinocchio(MODEL, q, v, order=["base", "hip", "knee", "mount"])
    with pytest.raises(ValueError, match="6 names for 5 joints"):
        interop.to_mujoco(MODEL, q, order=[*SIZES, "hip"])
    with pytest.raises(ValueError, match="joint 'hip' has nq = 4 here and 3 in Pinocchio"):
        interop.to_pinocchio(MODEL, q, order=pinocchio_model(list(SIZES), hip=3))
