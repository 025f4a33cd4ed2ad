"""Rank, freedoms, redundant rows and singular points of mechanisms."""

import numpy as np
import pytest
from compare import close
from constraint_models import bennett, floating_loop, four_bar, ring, slider_crank, stewart
from linkages import errors, parallelogram

import torsor as ts


@pytest.mark.parametrize(
    ("closing", "redundant", "gruebler"),
    [("line", (), 1), ("point", ("position z",), 0), ("revolute", ("position z", "axis x", "axis y"), -2)],
)
def test_four_bar(closing, redundant, gruebler):
    case = four_bar(closing)
    found = ts.mobility(case.model, case.constraints, case.q)
    assert (found.rank, found.freedoms, found.rank_nearby, found.singular) == (2, 1, 2, False)
    assert found.gruebler == gruebler
    name = case.constraints[0].shown_name
    assert found.redundant == tuple(f"{name}: {row}" for row in redundant)
    assert found.singular_values.shape == (min(3, 3 - gruebler),)
    # the only motion: that of the case, whose kinetic energy is 1/2
    along = found.motions[:, 0]
    close(
        case.v / np.sqrt(case.v @ ts.mass_matrix(case.model, case.q) @ case.v) * np.sign(along @ case.v), along, 1e-12
    )
    assert np.abs(errors(case.model, case.constraints, case.q, along)[1]).max() < 1e-13


def test_parallelogram_flat_and_bent():
    model, constraints = parallelogram()
    flat = ts.mobility(model, constraints, np.zeros(3))
    assert (flat.rank, flat.freedoms, flat.rank_nearby, flat.singular, flat.gruebler) == (1, 2, 2, True, 1)
    assert len(flat.redundant) == 1
    bent = ts.mobility(model, constraints, [-0.5, 0.5, -0.5])
    assert (bent.rank, bent.freedoms, bent.rank_nearby, bent.singular, bent.gruebler) == (2, 1, 2, False, 1)
    assert bent.redundant == ()
    assert "singular: rank 2 nearby" in str(flat)
    assert "singular" not in str(bent)


def test_bennett_linkage_moves_against_gruebler():
    case = bennett()
    found = ts.mobility(case.model, case.constraints, case.q)
    assert (found.rank, found.freedoms, found.rank_nearby, found.gruebler) == (2, 1, 2, -2)
    assert len(found.redundant) == 3
    assert not found.singular


@pytest.mark.parametrize(
    ("case", "rank", "freedoms", "redundant"),
    [(stewart(), 18, 6, 0), (ring(8), 2, 6, 0), (ring(8, "revolute"), 2, 6, 3), (slider_crank(), 2, 1, 3)],
    ids=["stewart", "ring", "ring-hinge", "slider-crank"],
)
def test_other_mechanisms(case, rank, freedoms, redundant):
    found = ts.mobility(case.model, case.constraints, case.q)
    assert (found.rank, found.freedoms, len(found.redundant)) == (rank, freedoms, redundant)
    assert not found.singular
    M = ts.mass_matrix(case.model, case.q)
    close(found.motions.T @ M @ found.motions, np.eye(freedoms), 1e-11)
    for motion in found.motions.T:
        assert np.abs(errors(case.model, case.constraints, case.q, motion)[1]).max() < 1e-11 * np.abs(motion).max()


def test_singular_values_are_in_the_metric_of_mass():
    """Squares are eigenvalues of D = G M^-1 G^T, whatever the units of coordinates and the order of bodies."""
    from torsor import _core
    from torsor.constraints.constraint import compile_constraints

    case = floating_loop()
    found = ts.mobility(case.model, case.constraints, case.q)
    options = compile_constraints(case.model, case.constraints).options
    G = _core.constraint_jacobian(case.model, case.q, None, 0.0, None, options, None, 1)
    D = G @ ts.mass_matrix_inverse(case.model, case.q) @ G.T
    close(np.sort(found.singular_values**2), np.linalg.eigvalsh(D), 1e-12)


def test_couplings_and_rows_on_velocities_count():
    case = four_bar("line")
    geared = [*case.constraints, ts.TwistConstraint(joints={"crank": 1.0}, name="stop")]
    found = ts.mobility(case.model, geared, case.q)
    assert (found.rank, found.freedoms) == (3, 0)
    assert found.motions.shape == (3, 0)
    twice = [*geared, ts.PrescribedJoint("crank", case.q[0], name="held")]
    assert ts.mobility(case.model, twice, case.q).redundant == ("held",)


def test_no_constraints():
    model = ts.models.pendulum()
    found = ts.mobility(model, [], model.neutral)
    assert (found.rank, found.freedoms, found.gruebler, found.redundant) == (0, model.nv, model.nv, ())


def test_the_answer_does_not_depend_on_the_seed():
    model, constraints = parallelogram()
    for seed in (0, 1, np.random.default_rng(5)):
        assert ts.mobility(model, constraints, np.zeros(3), rng=seed).rank_nearby == 2


def test_structure_that_shakes():
    """Three points in line: a motion to first order, and none at all."""
    builder = ts.ModelBuilder()
    builder.add_body("point", "world", ts.Translational(), inertia=ts.Inertia(1.0, (0, 0, 0), np.eye(3)))
    model = builder.build()
    rods = [
        ts.Distance("world", (x, 0, 0), "point", (0, 0, 0), 1.0, name=name) for name, x in (("left", -1), ("right", 1))
    ]
    plane = ts.PointOnPlane("world", "point", name="plane")
    found = ts.mobility(model, [*rods, plane], np.zeros(3))
    assert (found.rank, found.freedoms, found.redundant) == (2, 1, ("right",))
    assert found.singular
    assert "to first order only" in str(found)


def test_wrong_inputs():
    case = four_bar()
    model, constraints = case.model, case.constraints
    with pytest.raises(ts.ConstraintError, match=r"stays open by .*; q = ts.project\(model, constraints, q\) does"):
        ts.mobility(model, constraints, case.q + 0.1)
    with pytest.raises(ValueError, match=r"q has shape \(2, 3\), expected \(3,\)"):
        ts.mobility(model, constraints, np.zeros((2, 3)))
    with pytest.raises(ValueError, match="q is not finite"):
        ts.mobility(model, constraints, [0, np.nan, 0])
    with pytest.raises(ValueError, match="tolerance is 2"):
        ts.mobility(model, constraints, case.q, tolerance=2)
    with pytest.raises(ValueError, match=r"q has shape \(2,\)"):
        ts.mobility(model, constraints, [0.0, 0.0])
    builder = ts.ModelBuilder().add_body("body", "world", ts.Free(), inertia=ts.Inertia.sphere(mass=1.0, radius=0.1))
    flipped = np.concatenate([np.zeros(3), ts.SE3.rotation((1, 0, 0), np.pi).quaternion])
    with pytest.raises(ts.ConstraintError, match="half a turn"):
        ts.mobility(builder.build(), [ts.Loop("world", "body", ts.Fixed())], flipped)
