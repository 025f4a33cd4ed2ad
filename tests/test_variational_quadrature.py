"""Quadrature rules of variational integrators: points, weights, names and orders."""

import numpy as np
import pytest
from variational_cases import (
    GAUSS,
    LOBATTO,
    chain,
    state,
)

import torsor as ts
from torsor.integrators.variational import quadrature

# ---- the rules


@pytest.mark.parametrize("s", [1, 2, 3])
def test_points_and_weights_are_those_of_the_tables(s):
    for rule, points, weights in (("gauss", *GAUSS[s]), ("lobatto", *LOBATTO[s + 1])):
        c, w = quadrature(ts.Variational(0.1, 2 * s, rule))
        np.testing.assert_allclose(c, points, atol=1e-15)
        np.testing.assert_allclose(w, weights, rtol=1e-14)
        np.testing.assert_allclose(ts.Variational(0.1, 2 * s, rule)._fractions, (1 + np.array(points)) / 2, atol=1e-15)


@pytest.mark.parametrize("order", range(2, 34, 2))
@pytest.mark.parametrize("rule", ["gauss", "lobatto"])
def test_quadrature_is_exact_to_the_degree_of_its_order(rule, order):
    """Polynomials of degree order - 1, and no further: the next is off by far more than rounding, as long as that can
    be told."""
    c, w = quadrature(ts.Variational(0.1, order, rule))
    assert len(c) == order // 2 + (rule == "lobatto")
    assert (np.diff(c) > 0).all() and (w > 0).all()
    for degree in range(order):
        exact = 0.0 if degree % 2 else 2 / (degree + 1)
        assert w @ c**degree == pytest.approx(exact, abs=1e-14)  # sums of 17 terms below 1
    if order <= 16:
        assert abs(w @ c**order - 2 / (order + 1)) > 1e-6


def test_names_of_rules():
    model, (q, p, _) = chain(), state(chain(), 0)
    assert ts.Variational(0.1).order == 2 and ts.Variational(0.1).rule == "gauss"
    for name, rule in (("midpoint", "gauss"), ("trapezoid", "lobatto")):
        a, b = (ts.step_derivatives(model, ts.Variational(0.01, rule=r), q, p=p) for r in (name, rule))
        for x, y in zip(a[:8], b[:8], strict=True):
            np.testing.assert_array_equal(x, y)
    # The two are different integrators, by O(h^3) in a step.
    a, b = (ts.step_derivatives(model, ts.Variational(0.01, rule=r), q, p=p).q1 for r in ("gauss", "lobatto"))
    assert np.abs(model.minus(a, b)).max() > 1e-8


# ---- options


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"order": 3}, r"order of Variational is 3, expected an even integer: 2, 4, 6"),
        ({"order": 0}, r"order of Variational is 0, expected an even integer"),
        ({"order": 2.0}, r"order of Variational is 2.0, expected an even integer"),
        ({"order": True}, r"order of Variational is True, expected an even integer"),
        ({"order": 34}, r"order of Variational is 34, expected at most 32"),
        ({"rule": "simpson"}, r"rule of Variational is 'simpson', expected 'gauss', 'lobatto', 'trapezoid' or 'midp"),
        ({"rule": None}, r"rule of Variational is None, expected"),
        ({"order": 4, "rule": "midpoint"}, r"the midpoint rule has order 2, got order 4; rule='gauss' has any order"),
        ({"order": 4, "rule": "trapezoid"}, r"trapezoid rule has order 2, got order 4; rule='lobatto' has any order"),
        ({"h": 0.0}, r"h of Variational is 0.0, expected a positive number"),
        ({"tolerance": np.nan}, r"tolerance of Variational is nan, expected a positive number"),
        ({"iterations": 0}, r"iterations of Variational is 0, expected an integer of at least 1"),
    ],
)
def test_options_are_checked(options, message):
    with pytest.raises(ValueError, match=message):
        ts.Variational(**{"h": 0.01, **options})
