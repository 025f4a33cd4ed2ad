"""Energy and momentum along motions, integrated far more accurately than they are compared."""

import numpy as np
import pytest
from compare import close
from scipy.integrate import solve_ivp

import torsor as ts
from torsor import spatial, testing

TOLERANCE = 1e-12  # of each step of the integrator; some hundred steps leave 1e-10
END = 0.6


def motion(model, q0, v0, force=None):
    """q and v at times from 0 to END.

    The integrator moves a displacement x from q0, q = plus(q0, x). Its rate is v but for quaternion joints,
    where v is the right Jacobian of the exponential times the rate.
    """

    def split(y):
        return model.plus(q0, y[: model.nv]), y[model.nv :]

    def xdot(x, v):
        rate = v.copy()
        for j in model.joints:
            at = j.v_slice
            if isinstance(j.joint, ts.Free):
                rate[at] = spatial.dexp6_inv(x[at]) @ v[at]
            elif isinstance(j.joint, ts.Spherical):
                rate[at] = spatial.dexp3_inv(x[at]) @ v[at]
        return rate

    def rate(t, y):
        q, v = split(y)
        tau = np.zeros(model.nv) if force is None else force(t, q, v)
        return np.concatenate([xdot(y[: model.nv], v), ts.forward_dynamics(model, q, v, tau)])

    start = np.concatenate([np.zeros(model.nv), v0])
    times = np.linspace(0, END, 7)
    result = solve_ivp(rate, (0, END), start, "DOP853", times, rtol=TOLERANCE, atol=TOLERANCE)
    assert result.success
    q, v = zip(*(split(y) for y in result.y.T), strict=True)
    return times, np.array(q), np.array(v)


FIXED = [
    ts.Revolute((1, 2, 3)),
    ts.Universal(),
    ts.Prismatic((1, 0, 1)),
    ts.SphericalExp(),
    ts.Screw((0, 1, 1), 0.2),
]
OTHERS = [j for j in testing.example_joints() if isinstance(j, (ts.SplineCurve, ts.SplineSurface))]
CASES = {
    "floating": [
        ts.Free(),
        ts.Revolute((1, 2, 3)),
        ts.Spherical(),
        ts.Cylindrical((0, 1, 1)),
        ts.SphericalEuler("ZYX"),
    ],
    "on the ground": FIXED,
    "on splines": [*OTHERS, ts.Revolute((1, 2, 3))],
}


def start(joints, seed=0):
    model = testing.random_tree(seed, joints, branching=0.0)
    rng = np.random.default_rng(seed)
    return model, model.random(rng), rng.standard_normal(model.nv)


def constant(values, tol):
    """All rows are the first."""
    close(values, np.broadcast_to(values[0], values.shape), tol)


@pytest.mark.parametrize("joints", CASES.values(), ids=CASES)
def test_energy(joints):
    model, q0, v0 = start(joints)
    _, q, v = motion(model, q0, v0)
    kinetic, potential = ts.kinetic_energy(model, q, v), ts.potential_energy(model, q)
    constant(kinetic + potential, 1e-9)
    assert np.ptp(kinetic) > 0.1  # it went back and forth between the two


def test_momentum():
    model, q0, v0 = start(CASES["floating"], 1)
    t, q, v = motion(model, q0, v0)
    h, com = ts.momentum(model, q, v), ts.center_of_mass(model, q)
    # free fall: the centre of mass on a parabola, the angular momentum about it constant
    constant(h[:, :3], 1e-9)
    constant(h[:, 3:] - model.mass * t[:, None] * np.array(model.gravity), 1e-9)
    fall = h[0, 3:] / model.mass * t[:, None] + np.array(model.gravity) * t[:, None] ** 2 / 2
    constant(com - fall, 1e-9)
    # without gravity momentum about the world's origin is constant too, whatever torques the joints exert
    still = model.with_gravity((0, 0, 0))
    torque = np.random.default_rng(1).standard_normal(model.nv)
    torque[:6] = 0
    _, q, v = motion(still, q0, v0, lambda t, q, v: torque * np.cos(9 * t))
    constant(ts.momentum(still, q, v, about="world"), 1e-9)
    assert np.ptp(ts.kinetic_energy(still, q, v)) > 1e-2


def test_work():
    # A torque changes the energy by its power, which is less than nothing for damping.
    model, q0, v0 = start(CASES["on the ground"], 2)
    damping = np.linspace(0.5, 1.5, model.nv)
    _, q, v = motion(model, q0, v0, lambda t, q, v: -damping * v)
    energy = ts.kinetic_energy(model, q, v) + ts.potential_energy(model, q)
    assert (np.diff(energy) < 0).all()
    # its rate at the ends of the motion, against the power there
    for k in (0, -1):
        a = ts.forward_dynamics(model, q[k], v[k], -damping * v[k])
        with testing.complex_inputs():
            moved = model.plus(q[k], 1j * testing.STEP * v[k])
            total = ts.kinetic_energy(model, moved, v[k] + 1j * testing.STEP * a) + ts.potential_energy(model, moved)
        np.testing.assert_allclose(total.imag / testing.STEP, -damping @ v[k] ** 2, rtol=1e-11)
