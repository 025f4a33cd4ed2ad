"""Closed forms of textbooks, and numbers of codes that share nothing with this one."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import torsor as ts
from torsor import spatial

REFERENCE = Path(__file__).resolve().parents[2] / "shared" / "reference"
g = 9.81


def close(x, y, tol=1e-14):
    """Agreement to a few roundings of the largest entry."""
    np.testing.assert_allclose(x, y, rtol=0, atol=tol * max(1.0, np.abs(y).max()))


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_pendulum(rng):
    m, l, I = 1.3, 0.7, 0.02
    builder = ts.ModelBuilder(gravity=(0, 0, -g))
    inertia = ts.Inertia(m, (0, 0, -l), np.diag([0.5, I, 0.5]), allow_unphysical=True)
    model = builder.add_body("bob", "world", ts.Revolute((0, 1, 0)), inertia=inertia).build()
    for q, v, a in rng.uniform(-4, 4, (20, 3, 1)):
        tau = (m * l**2 + I) * a + m * g * l * np.sin(q)
        close(ts.inverse_dynamics(model, q, v, a), tau)
        close(ts.forward_dynamics(model, q, v, tau), a, 1e-13)
        close(ts.mass_matrix(model, q), [[m * l**2 + I]])
        close(ts.coriolis_matrix(model, q, v), [[0]])
        close(ts.potential_energy(model, q), -m * g * l * np.cos(q[0]))
        close(ts.kinetic_energy(model, q, v), (m * l**2 + I) * v[0] ** 2 / 2)
        # the pivot carries the weight and the centripetal force, along the rod and across it
        along, across = m * (g * np.cos(q) + l * v**2), m * (g * np.sin(q) + l * a)
        close(ts.joint_reactions(model, q, v, a)[0, 3:], [-across[0], 0, along[0]], 1e-13)


def test_pendulum_period():
    # of the mathematical pendulum from 90 degrees: 2 pi sqrt(l/g) / agm(1, cos 45), arithmetic-geometric mean
    l = 0.7
    model = ts.ModelBuilder(gravity=(0, 0, -g)).add_body(
        "bob", "world", ts.Revolute((0, 1, 0)), inertia=ts.Inertia.point(2.0, (0, 0, -l))
    ).build()  # fmt: skip
    a, b = 1.0, np.cos(np.pi / 4)
    for _ in range(6):
        a, b = (a + b) / 2, np.sqrt(a * b)
    period = 2 * np.pi / a * np.sqrt(l / g)

    def rate(_, y):
        return [y[1], ts.forward_dynamics(model, y[:1], y[1:], np.zeros(1))[0]]

    end = solve_ivp(rate, (0, period), [np.pi / 2, 0.0], method="DOP853", rtol=1e-12, atol=1e-12).y[:, -1]
    close(end, [np.pi / 2, 0], 1e-9)  # the integrator's tolerance, added up over a period


def test_free_body_obeys_euler_and_newton(rng):
    m, I = 2.5, np.array([0.3, 0.5, 0.7])
    builder = ts.ModelBuilder(gravity=(0, 0, -g))
    model = builder.add_body("body", "world", ts.Free(), inertia=ts.Inertia(m, (0, 0, 0), np.diag(I))).build()
    for _ in range(20):
        q, (v, tau) = model.random(rng), rng.standard_normal((2, 6))
        R, w = spatial.quaternion_to_matrix(q[3:]), v[:3]
        wdot = (tau[:3] - np.cross(w, I * w)) / I  # Euler
        force = R @ tau[3:] + m * np.array([0, 0, -g])  # Newton, in the world
        vdot = R.T @ (force / m) - np.cross(w, v[3:])  # of the velocity's components in the body
        a = ts.forward_dynamics(model, q, v, tau)
        close(a, [*wdot, *vdot], 1e-13)
        close(ts.inverse_dynamics(model, q, v, a), tau, 1e-13)
        close(ts.mass_matrix(model, q), np.diag([*I, m, m, m]), 1e-13)
        close(ts.momentum(model, q, v), [*(R @ (I * w)), *(m * R @ v[3:])], 1e-13)


def test_cart_pole(rng):
    M, m, l = 1.5, 0.4, 0.6
    builder = ts.ModelBuilder(gravity=(0, 0, -g))
    builder.add_body("cart", "world", ts.Prismatic((1, 0, 0)), inertia=ts.Inertia.point(M, (0, 0, 0)))
    builder.add_body("pole", "cart", ts.Revolute((0, 1, 0)), inertia=ts.Inertia.point(m, (0, 0, -l)))
    model = builder.build()
    # the pole hangs at 0 and its tip is at x - l sin(theta)
    for q, v, tau in rng.uniform(-3, 3, (20, 3, 2)):
        s, c, w = np.sin(q[1]), np.cos(q[1]), v[1]
        H = np.array([[M + m, -m * l * c], [-m * l * c, m * l**2]])
        bias = np.array([m * l * s * w**2, m * g * l * s])
        close(ts.mass_matrix(model, q), H)
        close(ts.bias_forces(model, q, v), bias)
        close(ts.forward_dynamics(model, q, v, tau), np.linalg.solve(H, tau - bias), 1e-12)
        # the cart's track carries both weights, less what swings up
        a = np.linalg.solve(H, tau - bias)
        up = l * (s * a[1] + c * w**2)  # acceleration of the bob
        close(ts.joint_reactions(model, q, v, a)[0, 5], (M + m) * g + m * up, 1e-13)


def test_double_pendulum(rng):
    m1, m2, l1, c1, c2, I1, I2 = 1.2, 0.8, 0.5, 0.3, 0.2, 0.04, 0.03
    rod = lambda m, c, I: ts.Inertia(m, (0, 0, -c), np.diag([1.0, I, 1.0]), allow_unphysical=True)  # noqa: E731
    builder = ts.ModelBuilder(gravity=(0, 0, -g))
    builder.add_body("one", "world", ts.Revolute((0, 1, 0)), inertia=rod(m1, c1, I1))
    builder.add_body("two", "one", ts.Revolute((0, 1, 0)), ts.SE3.translation(0, 0, -l1), rod(m2, c2, I2))
    model = builder.build()
    for q, v, tau in rng.uniform(-3, 3, (20, 3, 2)):
        # Spong, Hutchinson and Vidyasagar, two-link arm with relative angles
        c, s = np.cos(q[1]), np.sin(q[1])
        h12 = I2 + m2 * (c2**2 + l1 * c2 * c)
        H = np.array([[I1 + I2 + m1 * c1**2 + m2 * (l1**2 + c2**2 + 2 * l1 * c2 * c), h12], [h12, I2 + m2 * c2**2]])
        h = -m2 * l1 * c2 * s
        C = np.array([[h * v[1], h * (v[0] + v[1])], [-h * v[0], 0]])
        low = m2 * g * c2 * np.sin(q[0] + q[1])
        gravity = np.array([(m1 * c1 + m2 * l1) * g * np.sin(q[0]) + low, low])
        close(ts.mass_matrix(model, q), H)
        close(ts.coriolis_matrix(model, q, v), C)  # theirs is that of Christoffel's symbols
        close(ts.gravity_forces(model, q), gravity)
        close(ts.bias_forces(model, q, v), C @ v + gravity)
        close(ts.forward_dynamics(model, q, v, tau), np.linalg.solve(H, tau - C @ v - gravity), 1e-12)
        power = ts.hybrid_dynamics(model, q, v, a=[0.7, 0], tau=tau, prescribed=["one"])
        a2 = (tau[1] - (C @ v + gravity)[1] - h12 * 0.7) / H[1, 1]
        close(power[0], [0.7, a2], 1e-12)
        close(power[1], [H[0] @ [0.7, a2] + (C @ v + gravity)[0], tau[1]], 1e-12)


def test_top_precesses():
    # A heavy symmetric top in steady precession: I3 w3 - I1 Omega cos(theta) = m g l / Omega (Goldstein 5.7)
    m, l, I1, I3, theta, w3 = 0.8, 0.3, 0.09, 0.02, 0.4, 80.0
    inertia = ts.Inertia(m, (0, 0, l), np.diag([I1 - m * l**2, I1 - m * l**2, I3]), allow_unphysical=True)
    model = (
        ts.ModelBuilder(gravity=(0, 0, -g)).add_body("top", "world", ts.SphericalEuler("ZXZ"), inertia=inertia).build()
    )
    c = np.cos(theta)
    for precession in np.roots([I1 * c, -I3 * w3, m * g * l]).real:  # slow and fast
        spin = w3 - precession * c
        a = ts.forward_dynamics(model, [0.3, theta, 0.7], [precession, 0, spin], np.zeros(3))
        close(a / precession**2, np.zeros(3), 1e-12)


def test_nut_on_a_screw():
    # A nut of mass m and inertia I on a vertical screw of pitch p turns faster by m g p / (I + m p^2).
    m, I, p = 0.4, 0.003, 0.02
    nut = ts.Inertia(m, (0, 0, 0), np.diag([1.0, 1.0, I]), allow_unphysical=True)
    model = ts.ModelBuilder(gravity=(0, 0, -g)).add_body("nut", "world", ts.Screw((0, 0, 1), p), inertia=nut).build()
    close(ts.forward_dynamics(model, [0.3], [5.0], [0.0]), [-m * g * p / (I + m * p**2)])


# ---- spatial_v2_extended in Octave

FILES = ["serial5_revolute", "floating_base_2legs"]


def read(name):
    """The file, its model, and q, v, a in our order: there the quaternion is wxyz and before the position."""
    path = REFERENCE / "second_order" / f"{name}.json"
    if not path.exists():
        pytest.skip("the reference data is not beside this repository")
    data = json.loads(path.read_text())
    axes = {"Rx": (1, 0, 0), "Ry": (0, 1, 0), "Rz": (0, 0, 1)}
    builder = ts.ModelBuilder(name, data["gravity"])
    for i, (parent, kind, X) in enumerate(zip(data["parent"], data["jtype"], np.array(data["Xtree"]), strict=True)):
        # X takes motion from the parent's coordinates to the joint's: [[E, 0], [-E [r], E]]
        E = X[:3, :3]
        r = spatial.vee(-E.T @ X[3:, :3])
        I = np.array(data["I"][i])
        m, h = I[5, 5], spatial.vee(I[:3, 3:])
        inertia = ts.Inertia.from_parameters(
            [m, *h, I[0, 0], I[0, 1], I[1, 1], I[0, 2], I[1, 2], I[2, 2]], allow_unphysical=True
        )
        joint = ts.Free() if kind == "Fb" else ts.Revolute(axes[kind])
        builder.add_body(f"body{i}", "world" if parent == 0 else f"body{parent - 1}", joint, ts.SE3(E.T, r), inertia)
    model = builder.build()
    q = np.array(data["q"])
    if "Fb" in data["jtype"]:
        w, x, y, z = q[:4] / np.linalg.norm(q[:4])
        q = np.concatenate([q[4:7], [x, y, z, w], q[7:]])
    return data, model, q, np.array(data["qd"]), np.array(data["qdd"])


@pytest.mark.parametrize("name", FILES)
def test_reference_values(name):
    data, model, q, v, a = read(name)
    tol = 1e-11  # the file's own checks are good to a few 1e-13
    close(ts.inverse_dynamics(model, q, v, a), data["tau"], tol)
    close(ts.forward_dynamics(model, q, v, data["tau"]), a, tol)
    close(ts.mass_matrix(model, q), data["H"], tol)
    close(ts.bias_forces(model, q, v), data["bias_C"], tol)
    close(ts.coriolis_matrix(model, q, v), data["CoriolisMatrix"], tol)
    close(ts.mass_matrix_inverse(model, q), data["dqdd_dtau"], tol)
    C = ts.coriolis_matrix(model, q, v)
    close(C + C.T, data["Hdot"], tol)


@pytest.mark.parametrize("name", FILES)
def test_reference_derivatives(name):
    data, model, q, v, a = read(name)
    tol = 1e-11  # as above
    d = ts.inverse_dynamics_derivatives(model, q, v, a)
    close(d.dtau_dq, data["dtau_dq"], tol)
    close(d.dtau_dv, data["dtau_dqd"], tol)
    close(d.dtau_da, data["H"], tol)
    d = ts.forward_dynamics_derivatives(model, q, v, data["tau"])
    close(d.da_dq, data["dqdd_dq"], tol)
    close(d.da_dv, data["dqdd_dqd"], tol)
    close(d.da_dtau, data["dqdd_dtau"], tol)
    # a gradient in reverse and a direction, from the same numbers
    w, dq, dv = np.random.default_rng(0).standard_normal((3, model.nv))
    g = ts.forward_dynamics_vjp(model, q, v, data["tau"], w)
    close(g.q, w @ data["dqdd_dq"], tol)
    close(g.v, w @ data["dqdd_dqd"], tol)
    t = ts.inverse_dynamics_jvp(model, q, v, a, dq=dq, dv=dv)
    close(t.dtau, data["dtau_dq"] @ dq + data["dtau_dqd"] @ dv, tol)


@pytest.mark.parametrize("name", FILES)
def test_reference_second_derivatives(name):
    data, model, q, v, a = read(name)
    tol = 1e-11  # as above
    H = ts.inverse_dynamics_hessians(model, q, v, a)
    close(H.d2tau_dqdq, data["d2tau_dq"], tol)
    close(H.d2tau_dqdv, data["d2tau_cross"], tol)
    close(H.d2tau_dvdv, data["d2tau_dqd"], tol)
    close(H.d2tau_dadq, data["dM_dq"], tol)
    H = ts.forward_dynamics_hessians(model, q, v, data["tau"])
    close(H.d2a_dqdq, data["d2qdd_dqdq"], tol)
    close(H.d2a_dqdv, data["d2qdd_dqdqd"], tol)
    close(H.d2a_dvdv, data["d2qdd_dqddqd"], tol)
    close(H.d2a_dtaudq, data["d2qdd_dtaudq"], tol)
    w = np.random.default_rng(0).standard_normal(model.nv)
    H = ts.forward_dynamics_hessians(model, q, v, data["tau"], contract=w)
    close(H.d2a_dqdq, np.einsum("i,ijk->jk", w, data["d2qdd_dqdq"]), tol)
    close(H.da_dq, w @ data["dqdd_dq"], tol)
