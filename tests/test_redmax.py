"""Scenes of Sueda's MATLAB code (data/reference/redmax): trajectories, energies, and an adjoint gradient."""

import numpy as np
import pytest
from compare import close
from reference import load
from scipy.optimize import minimize

import torsor as ts

SCENES = ("-2", "00", "01", "03", "04", "06", "07", "12")


def read_joint(j):
    return {
        "JointFixed": ts.Fixed,
        "JointRevolute": lambda: ts.Revolute(j["axis"]),
        "JointPrismatic": lambda: ts.Prismatic(j["axis"]),
        "JointPlanar": lambda: ts.Planar(np.transpose(j["plane_columns"])),
        "JointFree2D": ts.Free2D,
        "JointSpherical": lambda: ts.SphericalEuler(j["chart_initial"]),
    }[j["type"]]()


def read_scene(scene):
    """Model, initial state, the scene's index of each of our dofs, and forces. A body's frame here is its joint's."""
    builder = ts.ModelBuilder(gravity=scene["grav"])
    order, q, v, forces, poses = [], [], [], [], {"WORLD": ("world", ts.SE3())}
    names = {0: "world"}
    for j in scene["joints"]:
        body = j["body"]
        pose = ts.SE3.from_matrix(np.array(body["E0_ji_body_wrt_joint"], dtype=float))
        names[j["index"]] = body["name"]
        poses[body["name"]] = (body["name"], pose)
        inertia = ts.Inertia(body["mass"], np.zeros(3), np.diag(body["I_diag_body_rot_then_trans"][:3]))
        placement = ts.SE3.from_matrix(np.array(j["E0_pj"], dtype=float))
        builder.add_body(body["name"], names[j["parent"]], read_joint(j), placement, inertia.transformed(pose))
        order.extend(np.atleast_1d(j["idxR_1based"]).astype(int) - 1)
        q.extend(np.atleast_1d(j["qInit"]))
        v.extend(np.atleast_1d(j["qdotInit"]))
        if j["ndof"] and (j["stiffness"] or j["damping"]):
            forces.append(ts.JointSpring(body["name"], j["stiffness"], np.atleast_1d(j["qRest"]), j["damping"]))
    for f in scene["forces"]:
        assert f["type"] == "ForceSpringDamper"
        ends = []
        for k in "12":
            name, pose = poses[f["body" + k]]
            ends += [name, pose.R @ f[f"x{k}_local"] + pose.p]
        forces.append(ts.SpringDamper(*ends, f["stiffness"], f["damping"], f["restLength_L"]))
    return builder.build(), np.array(q, dtype=float), np.array(v, dtype=float), np.array(order), forces


@pytest.mark.parametrize("kind", [ts.BDF1, ts.BDF2])
@pytest.mark.parametrize("name", SCENES)
def test_trajectories_and_energies(name, kind):
    data = load(f"redmax/diff_scene{name}")
    scene = data["scene"]
    model, q, v, order, forces = read_scene(scene)
    (expected,) = (r for r in data["runs"] if r["integrator"].startswith(kind.__name__))
    run = ts.simulate(model, q, v, steps=scene["nsteps"], integrator=kind(scene["h"], tolerance=1e-12), forces=forces)
    # Their Newton's method leaves 1e-9, which these motions amplify: by a factor of 300 in scene -2, a chaotic one.
    q, v = (np.array(expected[name]).reshape(len(run.t), -1)[:, order] for name in ("traj_q", "traj_qdot"))
    close(run.q, q, 1e-6)
    close(run.v, v, 1e-6)
    assert (run.substeps == 1).all()
    energies = run.energies
    potential = energies.potential + energies.forces.sum(axis=-1)
    T, V = (np.array(expected[name]) for name in ("traj_T", "traj_V"))
    scale = max(np.abs(T).max(), np.abs(V - V[0]).max())
    close(energies.kinetic / scale, T / scale, 1e-6)
    close((potential - potential[0]) / scale, (V - V[0]) / scale, 1e-6)
    for chart in expected.get("charts_end") or []:
        assert run.charts[scene["joints"][chart["joint"] - 1]["body"]["name"]][-1] == chart["chart_end"]


@pytest.mark.parametrize("name", ["00", "01", "03"])
@pytest.mark.parametrize("kind", [ts.BDF1, ts.BDF2, ts.SDIRK2])
def test_convergence_to_the_exact_motion(name, kind):
    model, q, v, order, forces = read_scene(load(f"redmax/diff_scene{name}")["scene"])
    truth = load(f"redmax/truth_ode_diff_scene{name}")
    exact = np.array(truth["q"])[2, order]  # at t = 0.2
    errors = [
        np.abs(ts.simulate(model, q, v, T=0.2, integrator=kind(h), forces=forces).q[-1] - exact).max()
        for h in (1e-3, 5e-4)
    ]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(kind.order, abs=0.2)


def test_published_gradient():
    """Sueda's adjoint of BDF1 (data/reference/redmax): objective and gradient at three points."""
    data = load("redmax/adjoint_scene100")
    model, q, v, order, forces = read_scene(data["scene"])
    task = data["task"]
    (body,) = (j["body"] for j in data["scene"]["joints"] if j["body"]["name"] == task["body"])
    pose = np.array(body["E0_ji_body_wrt_joint"], dtype=float)
    point = pose[:3, :3] @ task["xlocal"] + pose[:3, 3]

    def objective(p):
        integrator, u = ts.BDF1(0.01, tolerance=1e-13), task["pscale"] * p[order]
        run = ts.simulate(model, q, v, steps=100, integrator=integrator, forces=forces, controls=u)
        loss = ts.loss(run, ts.PointTarget(task["body"], point, task["xtarget"], task["wpos"]))
        gradient = np.empty(2)
        gradient[order] = task["pscale"] * ts.adjoint(run, loss).controls.sum(axis=0)
        return loss.value + 0.5 * task["wreg"] * p @ p, gradient + task["wreg"] * p

    for expected in data["evaluations"]:
        value, gradient = objective(np.array(expected["p"]))
        assert value == pytest.approx(expected["P"], rel=1e-9)
        np.testing.assert_allclose(gradient, expected["dPdp"], rtol=1e-8)
    best = minimize(objective, np.zeros(2), jac=True, method="BFGS", options={"gtol": 1e-7, "maxiter": 200})
    np.testing.assert_allclose(best.x, data["octave_fminunc"]["p_opt"], rtol=1e-5)
    assert best.fun == pytest.approx(data["octave_fminunc"]["P_opt"], rel=1e-6)
