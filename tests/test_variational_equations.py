"""The discrete Euler-Lagrange equations, against complex steps of the action."""

import numpy as np
import pytest
from population import models
from variational_cases import (
    EPS,
    GAUSS,
    LOBATTO,
    RULES,
    chain,
    chart,
    control_points,
    mixed_forces,
    retract,
    state,
)

import torsor as ts
from torsor import testing
from torsor.testing import random_inertia


def discrete_derivatives(model, integrator, points, u, forces, t):
    """Derivatives (order / 2 + 1, nv) of the action by the control points, with the virtual work of forces.

    Written down from its definition: the Lagrangian of the polynomial through the control points, by quadrature.
    """
    s, h, nv = integrator.order // 2, integrator.h, model.nv
    c, w = (np.array(x) for x in (GAUSS[s] if integrator.rule == "gauss" else LOBATTO[s + 1]))
    nodes = np.array(LOBATTO[s + 1][0])
    powers = np.arange(s + 1)
    basis = np.linalg.inv(nodes[:, None] ** powers)  # columns: coefficients of the Lagrange polynomials
    phi = c[:, None] ** powers @ basis
    b = powers[1:] * c[:, None] ** powers[:-1] @ basis[1:] * 2 / h

    def motion(points):
        xi = np.stack([chart(model, points[0], x) for x in points])
        return [retract(model, points[0], phi[a] @ xi, b[a] @ xi) for a in range(len(c))]

    base = motion(points)
    tau = [
        u + ts.generalized_forces(model, forces, *at, t=t + (1 + c[a]) / 2 * h) if forces else u
        for a, at in enumerate(base)
    ]
    out = np.zeros((s + 1, nv))
    with testing.complex_inputs():
        for k in range(s + 1):
            for j in range(nv):
                d = np.zeros(nv, complex)
                d[j] = 1j * EPS
                moved = motion([model.plus(x, d if i == k else 0 * d) for i, x in enumerate(points)])
                for a, (q, v) in enumerate(moved):
                    L = ts.kinetic_energy(model, q, v) - ts.potential_energy(model, q)
                    work = tau[a] @ model.minus(q, base[a][0])
                    out[k, j] += h * w[a] / 2 * np.imag(L + work) / EPS
    return out


@pytest.mark.parametrize(("rule", "order"), RULES)
def test_equations_are_derivatives_of_the_action(rule, order):
    model = chain()
    q, _, v = state(model, 1)
    integrator = ts.Variational(0.2, order, rule)  # large, so that no term hides
    points = control_points(model, integrator, q, v, 2)
    u, forces = np.random.default_rng(3).standard_normal(model.nv), mixed_forces(model)
    for given in ((), forces[:1], forces):
        D = discrete_derivatives(model, integrator, points, u, given, 0.3)
        r = ts.variational.discrete_euler_lagrange(model, integrator, points, u, forces=given, t=0.3)
        assert r.residual.shape == (order // 2 - 1, model.nv)
        # Sums of terms p / h, with quotients of phi and b: 1e-13 of the largest.
        np.testing.assert_allclose(np.stack([-r.p0, *r.residual, r.p1]), D, atol=1e-12 * np.abs(D).max())


@pytest.mark.parametrize("model", models(5))
def test_equations_for_every_joint(model):
    q, _, v = state(model, 1)
    integrator = ts.Variational(0.1, 2, "gauss")
    points = control_points(model, integrator, q, v, 2)
    D = discrete_derivatives(model, integrator, points, np.zeros(model.nv), (), 0.0)
    r = ts.variational.discrete_euler_lagrange(model, integrator, points)
    np.testing.assert_allclose(np.stack([-r.p0, r.p1]), D, atol=1e-12 * np.abs(D).max())


@pytest.mark.parametrize("length", [3.1, 3.3])
def test_exponential_coordinates_keep_their_chart_within_a_step(length):
    """Momenta and velocities belong to the coordinates that are given, beyond half a turn too."""
    builder = ts.ModelBuilder(gravity=(0, 0, -9.81))
    builder.add_body("a", "world", ts.SphericalExp(), inertia=random_inertia(np.random.default_rng(0)))
    model = builder.build()
    q, v = length * np.array([1, 2, 2]) / 3, np.array([5.0, 3.0, 4.0])
    integrator = ts.Variational(0.02)
    p = ts.generalized_momenta(model, q, v)
    d = ts.step_derivatives(model, integrator, q, p=p)
    assert np.abs(d.q1 - q).max() < 0.2  # and half a turn lies between, for the first
    r = ts.variational.discrete_euler_lagrange(model, integrator, np.stack([q, d.q1]))
    np.testing.assert_allclose(r.p0, p, atol=1e-12)
    np.testing.assert_allclose(r.p1, d.p1, atol=1e-12)
    by_v = ts.step_derivatives(model, integrator, q, v)
    np.testing.assert_allclose(by_v.q1, d.q1, atol=1e-13)
    np.testing.assert_allclose(ts.generalized_momenta(model, by_v.q1, by_v.v1), d.p1, atol=1e-12)
