"""SE(3) and se(3): closed forms against general matrix functions, identities, complex step."""

import copy
import pickle
from fractions import Fraction
from math import factorial

import numpy as np
import pytest
import scipy.linalg
from compare import close_each

import torsor as ts
from torsor import spatial

# angles at zero, around the switches of series, around pi and up to the pole of the inverse at 2 pi
ANGLES = [0, 1e-300, 1e-30, 1e-12, 1e-8, 1e-5, 1e-3, 0.1, 0.5, 0.56, 0.57, 1, 1.999999, 2, 2.000001, 2.5, 3]
NEAR_PI = [np.pi - d for d in (1e-2, 1e-4, 1e-6, 1e-8, 1e-10, 1e-12)]
BEYOND = [np.pi, np.pi + 1e-6, 3.999999, 4, 4.000001, 5, 6, 6.2]
H = 1e-30


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def unit(rng, n=3):
    w = rng.standard_normal(n)
    return w / np.linalg.norm(w)


def directions(rng):
    """Unit vectors: general, along the axes, in planes, and with one small component."""
    return [
        unit(rng),
        unit(rng),
        *np.eye(3),
        *-np.eye(3),
        np.array([0.6, 0, -0.8]),
        np.array([0.8, 0.6, 1e-9]),
    ]


def rotation_vectors(rng, angles):
    return np.array([a * u for a in angles for u in directions(rng)])


def twists(rng, angles):
    w = rotation_vectors(rng, angles)
    return np.concatenate((w, rng.standard_normal(w.shape)), -1)


def series(A, terms=60):
    """sum_k (-A)^k / (k+1)!: the right Jacobian from its definition, for matrices of moderate norm."""
    out = term = np.eye(A.shape[-1])
    for k in range(1, terms):
        term = term @ -A / (k + 1)
        out = out + term
    return out


# ---- vectors and matrices


def test_hat_is_the_cross_product_and_vee_its_inverse(rng):
    w, y = rng.standard_normal((2, 4, 5, 3))
    close_each((spatial.hat(w) @ y[..., None])[..., 0], np.cross(w, y))
    assert np.array_equal(spatial.vee(spatial.hat(w)), w)
    assert np.array_equal(spatial.hat(w), -np.swapaxes(spatial.hat(w), -1, -2))


def test_vee_takes_the_skew_part(rng):
    W = rng.standard_normal((3, 3))
    close_each(spatial.vee(W), spatial.vee((W - W.T) / 2))


def test_hat6_and_vee6_are_inverse(rng):
    V = rng.standard_normal((2, 6))
    X = spatial.hat6(V)
    assert X.shape == (2, 4, 4) and not X[:, 3].any()
    assert np.array_equal(spatial.vee6(X), V)


def test_Ad_is_conjugation(rng):
    T, V = spatial.exp6(rng.standard_normal(6)), rng.standard_normal(6)
    close_each(spatial.Ad(T) @ V, spatial.vee6(T @ spatial.hat6(V) @ np.linalg.inv(T)))


def test_Ad_is_a_homomorphism(rng):
    T1, T2 = spatial.exp6(rng.standard_normal((2, 5, 6)))
    close_each(spatial.Ad(T1 @ T2), spatial.Ad(T1) @ spatial.Ad(T2))


def test_ad_is_the_bracket_and_the_derivative_of_Ad(rng):
    V, U = rng.standard_normal((2, 6))
    X, Y = spatial.hat6(V), spatial.hat6(U)
    close_each(spatial.ad(V) @ U, spatial.vee6(X @ Y - Y @ X))
    close_each(spatial.Ad(spatial.exp6(1j * H * V)).imag / H, spatial.ad(V))
    close_each(spatial.Ad(spatial.exp6(V)), scipy.linalg.expm(spatial.ad(V)))


def test_power_does_not_depend_on_the_frame(rng):
    A = spatial.Ad(spatial.exp6(rng.standard_normal(6)))
    V_b, F_a = rng.standard_normal((2, 6))
    assert F_a @ (A @ V_b) == pytest.approx((A.T @ F_a) @ V_b, rel=1e-13)


# ---- exponentials


@pytest.mark.parametrize("t", [0, 1e-9, 1e-3, 0.3, 1, 1.7, 1.9999999, 2.0000001, 2.5, 3, np.pi, 3.9])
def test_stumpff_against_exact_rational_series(t):
    x = np.array(t * t)
    exact = [float(sum((-Fraction(float(x))) ** i / factorial(m + 2 * i) for i in range(40))) for m in range(6)]
    # relative: c_4, c_5 lose at most a factor of 20 to cancellation, where the recursion starts running up;
    # c_0, c_1 and their roots are as good as cos and sin of a rounded angle
    np.testing.assert_allclose(spatial.stumpff(x), exact, rtol=1e-14, atol=4e-16)


def test_exp3_against_expm(rng):
    for w in rotation_vectors(rng, ANGLES + NEAR_PI + BEYOND + [20.0]):
        close_each(spatial.exp3(w), scipy.linalg.expm(spatial.hat(w)))


def test_exp3_is_orthonormal_to_rounding(rng):
    R = spatial.exp3(rotation_vectors(rng, ANGLES + NEAR_PI + BEYOND))
    np.testing.assert_allclose(R @ np.swapaxes(R, -1, -2), np.broadcast_to(np.eye(3), R.shape), atol=3e-15)
    close_each(np.linalg.det(R), 1.0)


def test_exp6_against_expm(rng):
    for V in twists(rng, ANGLES + NEAR_PI + BEYOND):
        close_each(spatial.exp6(V), scipy.linalg.expm(spatial.hat6(V)))


def test_log3_against_logm(rng):
    for w in rotation_vectors(rng, [0.1, 0.5, 1, 2, 2.5]):
        close_each(
            spatial.hat(spatial.log3(spatial.exp3(w))),
            scipy.linalg.logm(scipy.linalg.expm(spatial.hat(w))).real,
        )


def test_log6_against_logm(rng):
    for V in twists(rng, [0.1, 0.5, 1, 2, 2.5]):
        close_each(spatial.hat6(spatial.log6(spatial.exp6(V))), scipy.linalg.logm(spatial.exp6(V)).real)


def test_log_undoes_exp_at_every_angle_below_pi(rng):
    w = rotation_vectors(rng, ANGLES + NEAR_PI[:-1])
    close_each(spatial.log3(spatial.exp3(w)), w)
    V = twists(rng, ANGLES + NEAR_PI[:-1])
    close_each(spatial.log6(spatial.exp6(V)), V)


@pytest.mark.parametrize("angle", [1e-300, 1e-100, 1e-20, 1e-10, 1e-4])
def test_log3_keeps_relative_accuracy_of_small_angles(angle, rng):
    w = angle * unit(rng)
    np.testing.assert_allclose(spatial.log3(spatial.exp3(w)), w, rtol=1e-14)


def test_exp_undoes_log_at_pi_and_beyond(rng):
    R = spatial.exp3(rotation_vectors(rng, NEAR_PI + BEYOND))
    w = spatial.log3(R)
    assert (np.linalg.norm(w, axis=-1) <= np.pi + 1e-15).all()
    close_each(spatial.exp3(w), R)
    T = spatial.exp6(twists(rng, NEAR_PI + BEYOND))
    close_each(spatial.exp6(spatial.log6(T)), T)


def test_log_of_half_turns_finds_the_axis():
    for R, axis in [(np.diag([1, -1, -1]), 0), (np.diag([-1, 1, -1]), 1), (np.diag([-1, -1, 1]), 2)]:
        close_each(np.abs(spatial.log3(R)), np.pi * np.eye(3)[axis])


# ---- derivatives of exponentials


def test_dexp3_from_the_definition(rng):
    for w in rotation_vectors(rng, ANGLES + NEAR_PI + BEYOND):
        close_each(spatial.dexp3(w), series(spatial.hat(w)))


def test_dexp6_from_the_definition(rng):
    for V in twists(rng, ANGLES + NEAR_PI + BEYOND):
        # past 4 the alternating series is the less accurate side: its terms reach 1e3 before they fall
        close_each(spatial.dexp6(V), series(spatial.ad(V)), 1e-11 if np.linalg.norm(V[:3]) > 4 else 1e-12)


def test_dexp3_by_complex_step(rng):
    for w in rotation_vectors(rng, ANGLES + NEAR_PI + BEYOND):
        dR = spatial.exp3(w + 1j * H * np.eye(3)).imag / H
        close_each(spatial.vee(spatial.exp3(w).T @ dR).T, spatial.dexp3(w))


def test_dexp6_by_complex_step(rng):
    for V in twists(rng, ANGLES + NEAR_PI + BEYOND):
        dT = spatial.exp6(V + 1j * H * np.eye(6)).imag / H
        close_each(spatial.vee6(np.linalg.inv(spatial.exp6(V)) @ dT).T, spatial.dexp6(V))


def test_inverses_of_dexp(rng):
    w, V = rotation_vectors(rng, ANGLES + NEAR_PI + BEYOND), twists(rng, ANGLES + NEAR_PI + BEYOND)
    for product, n in (
        (spatial.dexp3_inv(w) @ spatial.dexp3(w), 3),
        (spatial.dexp6_inv(V) @ spatial.dexp6(V), 6),
    ):
        # the inverse grows towards its pole at 2 pi: at angle 6.2 to some 1e2 (so(3)) and 1e4 (se(3))
        close_each(product, np.broadcast_to(np.eye(n), product.shape), 1e-11)


def test_log_by_complex_step(rng):
    for V in twists(rng, ANGLES + NEAR_PI):
        T = spatial.exp6(V)
        dV = spatial.log6(T @ spatial.exp6(1j * H * np.eye(6))).imag / H
        close_each(dV.T, spatial.dexp6_inv(V))
        dw = spatial.log3(T[:3, :3] @ spatial.exp3(1j * H * np.eye(3))).imag / H
        close_each(dw.T, spatial.dexp3_inv(V[:3]))


def test_dexp6_satisfies_maurer_cartan(rng):
    """D_u (J v) - D_v (J u) + [J u, J v] = 0: complex step through the Jacobian itself."""
    for V in twists(rng, ANGLES + NEAR_PI + BEYOND):
        u, v = rng.standard_normal((2, 6))
        D_u, D_v = (spatial.dexp6(V + 1j * H * d).imag / H for d in (u, v))
        J = spatial.dexp6(V)
        close_each(D_u @ v - D_v @ u + spatial.ad(J @ u) @ J @ v, np.zeros(6))


def test_dexp6_inv_by_complex_step(rng):
    for V in twists(rng, ANGLES + NEAR_PI):
        u = rng.standard_normal(6)
        D, D_inv = (f(V + 1j * H * u).imag / H for f in (spatial.dexp6, spatial.dexp6_inv))
        J_inv = spatial.dexp6_inv(V)
        close_each(D_inv, -J_inv @ D @ J_inv)


def test_left_and_right_jacobians_differ_by_Ad(rng):
    V = rng.standard_normal((7, 6))
    close_each(spatial.dexp6(-V), spatial.Ad(spatial.exp6(V)) @ spatial.dexp6(V))


@pytest.mark.parametrize("name", ["exp3", "exp6", "dexp3", "dexp3_inv", "dexp6", "dexp6_inv", "hat", "hat6", "ad"])
def test_batches_are_their_elements(name, rng):
    f = getattr(spatial, name)
    x = rng.standard_normal((2, 3, 6 if name[-1] == "6" or "6_" in name or name == "ad" else 3))
    x[0, 0] *= 1e-6
    batch = f(x)
    for i in np.ndindex(2, 3):
        close_each(batch[i], f(x[i]), 1e-15)
    assert f(x[:0]).shape == (0, *batch.shape[1:])


@pytest.mark.parametrize("name", ["log3", "log6", "Ad", "vee", "vee6", "matrix_to_quaternion"])
def test_batches_of_matrices_are_their_elements(name, rng):
    f = getattr(spatial, name)
    T = spatial.exp6(rng.standard_normal((2, 3, 6)) * [[[1e-6], [1], [2]]])
    x = T if name in ("log6", "Ad", "vee6") else T[..., :3, :3]
    for i in np.ndindex(2, 3):
        close_each(f(x)[i], f(x[i]), 1e-15)
    assert f(x[:0]).shape == (0, *f(x).shape[1:])


def test_integers_and_lists_are_taken():
    close_each(spatial.exp3([0, 0, 1]), scipy.linalg.expm(spatial.hat([0, 0, 1])))
    assert spatial.hat((1, 2, 3)).dtype == np.float64


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: spatial.hat([1, 2]), r"w has shape \(2,\), expected \(\.\.\., 3\)"),
        (lambda: spatial.exp6(np.zeros((4, 5))), r"V has shape \(4, 5\), expected \(\.\.\., 6\)"),
        (lambda: spatial.log3(np.eye(4)), r"R has shape \(4, 4\), expected \(\.\.\., 3, 3\)"),
        (lambda: spatial.Ad(np.zeros(4)), r"T has shape \(4,\), expected \(\.\.\., 4, 4\)"),
        (lambda: spatial.hat(1.0), r"w has shape \(\), expected \(\.\.\., 3\)"),
        (lambda: spatial.quaternion_to_matrix([[0, 0, 0, 1], [0, 0, 0, 0]]), "quaternion is zero"),
    ],
)
def test_functions_name_the_wrong_argument(call, message):
    with pytest.raises(ValueError, match=message):
        call()


# ---- quaternions


def test_quaternion_of_rotation_by_axis_and_angle(rng):
    for angle in ANGLES + NEAR_PI:
        u = unit(rng)
        q = np.append(np.sin(angle / 2) * u, np.cos(angle / 2))
        close_each(spatial.quaternion_to_matrix(q), spatial.exp3(angle * u))
        close_each(spatial.matrix_to_quaternion(spatial.exp3(angle * u)), q, 1e-14)


def test_quaternion_round_trip_at_every_largest_component(rng):
    q = rng.standard_normal((200, 4))
    q /= np.linalg.norm(q, axis=-1, keepdims=True)
    back = spatial.matrix_to_quaternion(spatial.quaternion_to_matrix(q))
    close_each(back, np.where(q[:, 3:] < 0, -q, q), 1e-14)
    assert (back[:, 3] >= 0).all()
    assert set(np.abs(q).argmax(-1)) == {0, 1, 2, 3}


@pytest.mark.parametrize("scale", [1e-200, 1e-3, 7.0, 1e200])
def test_quaternions_are_normalised(scale, rng):
    q = unit(rng, 4)
    close_each(spatial.quaternion_to_matrix(scale * q), spatial.quaternion_to_matrix(q), 1e-15)


def test_quaternions_multiply_as_matrices_do(rng):
    a, b = rng.standard_normal((2, 4))
    (u, s), (v, t) = (a[:3], a[3]), (b[:3], b[3])
    ab = np.append(s * v + t * u + np.cross(u, v), s * t - u @ v)
    product = spatial.quaternion_to_matrix(a) @ spatial.quaternion_to_matrix(b)
    close_each(spatial.quaternion_to_matrix(ab), product)


def test_quaternions_by_complex_step(rng):
    """qdot = q (omega, 0) / 2 with omega the body's angular velocity, through both conversions."""
    for angle in (0, 1e-6, 1, 3, np.pi - 1e-7):
        R, omega = spatial.exp3(angle * unit(rng)), rng.standard_normal(3)
        q = spatial.matrix_to_quaternion(R)
        qdot = np.append(q[3] * omega + np.cross(q[:3], omega), -q[:3] @ omega) / 2
        close_each(spatial.matrix_to_quaternion(R @ spatial.exp3(1j * H * omega)).imag / H, qdot)
        Rdot = spatial.quaternion_to_matrix(q + 1j * H * qdot).imag / H
        close_each(Rdot, R @ spatial.hat(omega))


# ---- SE3


@pytest.fixture
def pose(rng):
    return ts.SE3.exp(rng.standard_normal(6))


def test_se3_identity():
    T = ts.SE3()
    assert T == ts.SE3.identity() == ts.SE3.translation(0, 0, 0)
    assert np.array_equal(T.matrix, np.eye(4))


def test_se3_translation_takes_numbers_or_a_vector():
    T = ts.SE3.translation(1, 2, 3)
    assert T == ts.SE3.translation((1, 2, 3)) == ts.SE3(p=[1, 2, 3]) == ts.SE3.translation(np.arange(1.0, 4.0))
    assert T.p.tolist() == [1, 2, 3] and np.array_equal(T.R, np.eye(3))


def test_se3_rotation(rng):
    axis = rng.standard_normal(3)
    T = ts.SE3.rotation(axis, 0.7)
    close_each(T @ axis, axis)
    close_each(np.trace(T.R), 1 + 2 * np.cos(0.7))
    close_each(T.R, ts.SE3.rotation(1e-200 * axis, 0.7).R)
    close_each(ts.SE3.rotation((0, 0, 2), np.pi / 2) @ (1, 0, 0), (0, 1, 0))


def test_se3_rpy_turns_about_fixed_axes(rng):
    r, p, y = rng.standard_normal(3)
    turns = ts.SE3.rotation((0, 0, 1), y) @ ts.SE3.rotation((0, 1, 0), p) @ ts.SE3.rotation((1, 0, 0), r)
    close_each(ts.SE3.rpy(r, p, y).R, turns.R)
    # written out
    cr, sr, cp, sp, cy, sy = np.cos(r), np.sin(r), np.cos(p), np.sin(p), np.cos(y), np.sin(y)
    R = [
        [cy * cp, cy * sp * sr - sy * cr, cy * sp * cr + sy * sr],
        [sy * cp, sy * sp * sr + cy * cr, sy * sp * cr - cy * sr],
        [-sp, cp * sr, cp * cr],
    ]
    close_each(ts.SE3.rpy(r, p, y).R, R)


def test_se3_quaternion_is_xyzw(pose):
    close_each(ts.SE3.from_quaternion((0, 0, 1, 1)) @ (1, 0, 0), (0, 1, 0))
    close_each(ts.SE3.from_quaternion(-3 * pose.quaternion, pose.p).matrix, pose.matrix)
    assert pose.quaternion[3] >= 0 and np.linalg.norm(pose.quaternion) == pytest.approx(1, abs=1e-15)


def test_se3_group(pose, rng):
    other, points = ts.SE3.exp(rng.standard_normal(6)), rng.standard_normal((4, 5, 3))
    close_each((pose @ other).matrix, pose.matrix @ other.matrix)
    close_each((pose @ pose.inverse()).matrix, np.eye(4))
    close_each(pose.inverse().matrix, np.linalg.inv(pose.matrix))
    close_each((pose @ other) @ points, pose @ (other @ points))
    close_each(pose @ [1, 2, 3], pose.R @ [1, 2, 3] + pose.p)
    close_each((pose @ other).adjoint, pose.adjoint @ other.adjoint)
    close_each(pose.adjoint, spatial.Ad(pose.matrix))
    close_each(ts.SE3.exp(pose.log()).matrix, pose.matrix)
    close_each(ts.SE3.from_matrix(pose.matrix).matrix, pose.matrix)


def test_se3_maps_complex_points(pose):
    close_each((pose @ np.array([1j * H, 0, 0])).imag / H, pose.R[:, 0])


def test_se3_products_stay_rotations():
    T, step = ts.SE3(), ts.SE3.rpy(0.3, 0.2, 0.1)
    for _ in range(2000):
        T = T @ step
    assert np.abs(T.R.T @ T.R - np.eye(3)).max() < 2e-14
    close_each(T.R, np.linalg.matrix_power(step.R, 2000), 1e-11)  # 2000 roundings


def test_se3_rotation_matrices_are_repaired_to_rounding(pose, rng):
    rough = pose.R + 1e-10 * rng.standard_normal((3, 3))
    R = ts.SE3(rough).R
    assert np.abs(R.T @ R - np.eye(3)).max() < 1e-15 * 10
    close_each(R, scipy.linalg.polar(rough)[0], 1e-15 * 10)
    exact = ts.SE3(pose.R)
    assert np.array_equal(exact.R, pose.R)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ts.SE3(np.eye(3) * 1.1), "not a rotation: R\\^T R is 2.1e-01 off the identity"),
        (lambda: ts.SE3(np.diag([1, 1, -1])), "reflection: its determinant is -1, expected 1"),
        (lambda: ts.SE3(np.full((3, 3), np.nan)), "R is not finite"),
        (lambda: ts.SE3(np.eye(4)), r"R has shape \(4, 4\), expected \(3, 3\)"),
        (lambda: ts.SE3(np.eye(3) * 1j), "R has dtype complex128, expected real numbers"),
        (lambda: ts.SE3([[None] * 3] * 3), "R has dtype object"),
        (lambda: ts.SE3(p=(0, 0, np.inf)), "p is not finite: got"),
        (lambda: ts.SE3.translation(1, 2), r"p has shape \(2,\), expected \(3,\)"),
        (lambda: ts.SE3.rotation((0, 0, 0), 1), "axis is zero"),
        (lambda: ts.SE3.rotation((0, 0, 1), np.nan), "angle is not finite"),
        (lambda: ts.SE3.from_quaternion((0, 0, 0, 0)), "quaternion is zero"),
        (lambda: ts.SE3.from_quaternion((0, 0, 1)), r"quaternion has shape \(3,\), expected \(4,\)"),
        (lambda: ts.SE3.from_matrix(np.diag([1, 1, 1, 2])), "last row is"),
        (lambda: ts.SE3.exp(np.zeros(3)), r"twist has shape \(3,\), expected \(6,\)"),
        (lambda: ts.SE3() @ np.zeros(4), r"points has shape \(4,\), expected \(\.\.\., 3\)"),
    ],
)
def test_se3_refuses(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_se3_is_frozen(pose):
    with pytest.raises(AttributeError):
        pose.p = np.zeros(3)
    for a in (pose.R, pose.p):
        with pytest.raises(ValueError, match="read-only"):
            a[0] = 0


def test_se3_copies_its_arguments():
    R, p = np.eye(3), np.zeros(3)
    T = ts.SE3(R, p)
    R[:] = p[:] = 7
    assert np.array_equal(T.matrix, np.eye(4))


def test_se3_compares_and_hashes_by_value(pose):
    again = ts.SE3(pose.R, pose.p)
    assert again == pose and hash(again) == hash(pose) and {pose: 1}[again] == 1
    assert ts.SE3(p=(0.0, 0.0, -0.0)) == ts.SE3() and hash(ts.SE3(p=(0.0, 0.0, -0.0))) == hash(ts.SE3())
    assert pose != ts.SE3() and pose != "pose"


def test_se3_pickles_copies_and_prints(pose):
    for again in (pickle.loads(pickle.dumps(pose)), copy.deepcopy(pose), eval(repr(pose), {"SE3": ts.SE3})):
        assert again == pose and not again.R.flags.writeable
    assert repr(ts.SE3()) == "SE3()"
    assert repr(ts.SE3.translation(1, 0, 2)) == "SE3(p=[1.0, 0.0, 2.0])"


def test_arrays_do_not_multiply_poses():
    with pytest.raises(TypeError):
        np.eye(3) @ ts.SE3()
