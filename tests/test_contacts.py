"""contacts: which pairs of collision shapes touch and how softly, against MuJoCo; and the states of contacts."""

from dataclasses import replace

import numpy as np
import pytest

import torsor as ts
from torsor import shapes

BALL = ts.Inertia.sphere(0.1, mass=1.0)
PLANE = shapes.HalfSpace()


@pytest.fixture(scope="module")
def mujoco():
    return pytest.importorskip("mujoco")


def pairs(made: list[ts.Contact], model: ts.Model) -> set[frozenset[str]]:
    """Names of the shapes of contacts, which must differ in their numbers."""
    named = {c.shape: c.name for c in model.world_collisions} | {
        c.shape: c.name for b in model.bodies for c in b.collisions
    }
    return {frozenset((named[c.shape], named[c.other_shape])) for c in made}


def bodies(made: list[ts.Contact]) -> set[tuple[str, str]]:
    return {(c.body, c.other) for c in made}


# ---- filters


class Scene:
    """Random MJCF: trees whose geoms, large balls and a plane, all overlap, with bits, excluded bodies and pairs."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng, self.bodies, self.geoms = rng, ["world"], []
        inner = '<geom name="floor" type="plane" size="1 1 1" friction="0.5"/>' + self.geom()
        inner += "".join(self.body(0) for _ in range(rng.integers(1, 4)))
        rules = {}
        for _ in range(rng.integers(0, 4)):
            a, b = sorted(rng.choice(self.bodies, 2, replace=False))
            rules[a, b] = f'<exclude body1="{a}" body2="{b}"/>'
        for _ in range(rng.integers(0, 3)):
            a, b = sorted(rng.choice(self.geoms, 2, replace=False))
            rules[a, b] = f'<pair geom1="{a}" geom2="{b}" friction="0.77 0.7 0.1 0.1 0.1"/>'
        flag = '<option><flag filterparent="disable"/></option>' if rng.random() < 0.3 else ""
        contact = "".join(rules.values())
        self.text = f"<mujoco>{flag}<worldbody>{inner}</worldbody><contact>{contact}</contact></mujoco>"

    def geom(self) -> str:
        rng, number = self.rng, len(self.geoms)
        self.geoms.append(f"g{number}")
        contype, conaffinity = rng.choice(4, 2, p=[0.15, 0.45, 0.2, 0.2])
        return (
            f'<geom name="g{number}" size="{10 + 0.01 * number}" pos="{rng.random()} {rng.random()} 0" mass="1" '
            f'contype="{contype}" conaffinity="{conaffinity}" friction="{0.1 + rng.random()}" '
            f'priority="{rng.integers(2)}" condim="{rng.choice([1, 3])}"/>'
        )

    def body(self, depth: int) -> str:
        rng, name = self.rng, f"b{len(self.bodies)}"
        self.bodies.append(name)
        kinds = [
            "",
            '<joint axis="0 1 0"/>',
            '<joint type="ball" pos="0.1 0 0"/>',
            '<joint axis="1 0 0" pos="0 0 0.1"/><joint axis="0 1 0" pos="0 0.2 0"/><joint type="slide"/>',
            '<joint type="slide" axis="1 1 0"/>' if depth else "<freejoint/>",
        ]
        joints = kinds[rng.integers(len(kinds))]
        inner = "".join(self.geom() for _ in range(rng.integers(1 if joints else 0, 3)))
        inner += "".join(self.body(depth + 1) for _ in range(rng.integers(0, 3 if depth < 3 else 1)))
        return f'<body name="{name}" pos="{rng.random()} 0.1 0.2">{joints}{inner}</body>'


def test_pairs_and_friction_are_those_of_mujoco(mujoco) -> None:
    """All geoms overlap, so that MuJoCo's contacts are all pairs that its filters allow."""
    rng, count = np.random.default_rng(0), 0
    for _ in range(60):
        mj = mujoco.MjModel.from_xml_string(Scene(rng).text)
        data = mujoco.MjData(mj)
        mujoco.mj_forward(mj, data)
        seen = {}
        for contact in data.contact:
            first, second = mj.body_weldid[mj.geom_bodyid[contact.geom]]
            if first != second:  # an explicit pair of bodies fixed to each other has no effect
                names = frozenset(mj.geom(int(geom)).name for geom in contact.geom)
                seen[names] = float(contact.friction[0]) if contact.dim > 1 else 0.0
        model = ts.load_mjcf(mj)
        made = ts.contacts(model)
        assert pairs(made, model) == seen.keys()
        assert len(made) == len(seen)
        for contact in made:
            (names,) = pairs([contact], model)
            assert contact.friction == pytest.approx(seen[names], rel=1e-12)
        count += len(made)
    assert count > 2000


def robot(root: ts.Joint | None) -> ts.Model:
    """base - (fixed) plate - arm - (massless) - hand, and a table beside the base."""
    ball = [ts.Collision(shapes.Sphere(1.0))]
    b = ts.ModelBuilder()
    b.add_body("table", inertia=BALL, collisions=ball)
    b.add_body("base", joint=root, inertia=BALL, collisions=ball)
    b.add_body("plate", "base", inertia=BALL, collisions=ball)
    b.add_body("arm", "plate", ts.Revolute((0, 0, 1)), inertia=BALL, collisions=ball)
    b.add_body("cross", "arm", ts.Revolute((0, 1, 0)))
    b.add_body("hand", "cross", ts.Revolute((1, 0, 0)), inertia=BALL, collisions=ball)
    return b.add_world_collision(ts.Collision(PLANE)).build()


def test_neighbours_do_not_touch() -> None:
    free = robot(ts.Free())
    assert bodies(ts.contacts(free)) == {
        ("base", "world"), ("plate", "world"), ("arm", "world"), ("hand", "world"),
        ("base", "table"), ("plate", "table"), ("arm", "table"), ("hand", "table"),
        ("hand", "base"), ("hand", "plate"),
    }  # fmt: skip
    fixed = robot(None)
    assert bodies(ts.contacts(fixed)) == {
        ("arm", "world"), ("hand", "world"), ("arm", "table"), ("hand", "table"), ("hand", "base"), ("hand", "plate"),
    }  # fmt: skip
    moving = replace(fixed, collision_rules=ts.CollisionRules("filter_moving"))
    assert bodies(ts.contacts(moving)) - bodies(ts.contacts(fixed)) == {("arm", "base"), ("arm", "plate")}
    allowed = replace(fixed, collision_rules=ts.CollisionRules("allow"))
    assert bodies(ts.contacts(allowed)) - bodies(ts.contacts(moving)) == {("hand", "arm")}


def test_pairs_of_maximal_coordinates_are_the_same() -> None:
    for model in (robot(ts.Free()).lock({"cross": 0.1}), robot(None).lock({"cross": 0.1}), chain()):
        bare = replace(model, world_collisions=())
        assert bodies(ts.contacts(model.maximal()[0])) == bodies(ts.contacts(model))
        assert bodies(ts.contacts(bare.maximal()[0], ground=PLANE)) == bodies(ts.contacts(model))


def chain() -> ts.Model:
    """Four balls in a row on joints, each with a shape of its own size."""
    b = ts.ModelBuilder().add_world_collision(ts.Collision(PLANE, "floor"))
    parent = "world"
    for k, name in enumerate("abcd"):
        joint = ts.Free() if k == 0 else ts.Revolute((0, 1, 0))
        shape = shapes.Sphere(0.3 + 0.01 * k, (0.1 * k, 0, 0))
        b.add_body(
            name, parent, joint, ts.SE3.translation(0.4, 0, 0), BALL, collisions=[ts.Collision(shape, f"g{name}")]
        )
        parent = name
    return b.build()


def test_locked_bodies_keep_their_rules() -> None:
    """Locking removes pairs within a body, and what is excluded stays excluded for the shapes that were meant."""
    model = chain()
    rules = ts.CollisionRules(exclude=[("a", "d")], pairs=[ts.CollisionPair("ga", "gb", friction=0.3)])
    model = replace(model, collision_rules=rules)
    assert pairs(ts.contacts(model), model) == {
        *(frozenset((f"g{x}", "floor")) for x in "abcd"),
        *(frozenset((f"g{x}", f"g{y}")) for x, y in ("ac", "bd", "ab")),
    }
    locked = model.lock({"b": 0.2})  # a and b are one, so that c is a neighbour of both
    assert pairs(ts.contacts(locked), locked) == {
        *(frozenset((f"g{x}", "floor")) for x in "abcd"),
        frozenset(("gb", "gd")),  # but not "ga" and "gd"
    }
    assert {c.body for c in ts.contacts(locked, bodies=["b"], world_only=True)} == {"a"}
    bare = tuple(replace(b, collisions=()) for b in locked.bodies)
    with pytest.raises(KeyError, match="no body named 'b' to exclude"):
        ts.contacts(replace(locked, bodies=bare, frames=()), exclude=[("b", "c")])


def test_options() -> None:
    model = chain()
    all_pairs = bodies(ts.contacts(model))
    assert bodies(ts.contacts(model, world_only=True)) == {(x, "world") for x in "abcd"}
    assert bodies(ts.contacts(model, bodies=["d"])) == {pair for pair in all_pairs if "d" in pair}
    assert bodies(ts.contacts(model, exclude=[("world", "a"), ("d", "a")])) == all_pairs - {("a", "world"), ("d", "a")}
    bare = replace(model, world_collisions=())
    wall = shapes.HalfSpace((1, 0, 0))
    assert bodies(ts.contacts(bare)) == all_pairs - {(x, "world") for x in "abcd"}
    assert bodies(ts.contacts(bare, ground=wall)) == all_pairs
    assert {c.other_shape for c in ts.contacts(bare, ground=wall, world_only=True)} == {wall}
    hidden = ts.Collision(wall, contype=2, conaffinity=2)
    assert bodies(ts.contacts(bare, ground=hidden)) == bodies(ts.contacts(bare))
    rigid = ts.contacts(model, friction=0.4, **ts.Contact.rigid(1e-2, model.mass))
    assert {(c.stiffness, c.friction, c.slip) for c in rigid} == {(2500 * model.mass / 1e-4, 0.4, 1e-6)}


def test_overlapping_pairs_can_be_left_out() -> None:
    model = chain()
    q = model.neutral
    q[2] = 0.3  # all balls but the first overlap with the plane
    q[7:] = 2.9  # and with those after the next
    gap = ts.contact_states(model, ts.contacts(model), q, np.zeros(model.nv))
    expected = {pair for pair, x in zip(gap.bodies, gap.gap, strict=True) if x >= 0 or "world" in pair}
    assert 0 < len(expected) < len(gap.bodies)
    assert bodies(ts.contacts(model, skip_overlapping_at=q)) == expected
    high = q.copy()
    high[2] = 10.0
    high[7:] = 1.5
    both = bodies(ts.contacts(model, skip_overlapping_at=[q, high]))
    assert both == expected & bodies(ts.contacts(model, skip_overlapping_at=high))


# ---- friction and softness


def test_numbers_where_files_say_nothing() -> None:
    model = chain()
    for contact in ts.contacts(model):
        assert (contact.friction, contact.dissipation, contact.slip, contact.onset) == (0.8, 0.5, 1e-3, 0.0)
        assert contact.stiffness == pytest.approx(model.mass * 9.81 / 1e-3, rel=1e-12)  # sinks in by 1 mm
    two = ts.ModelBuilder()
    for name, mass in (("light", 1.0), ("heavy", 5.0)):
        ball = [ts.Collision(shapes.Sphere(0.1), friction=0.1 * mass)]
        two.add_body(name, joint=ts.Free(), inertia=ts.Inertia.sphere(0.1, mass=mass), collisions=ball)
    made = {c.other if c.other != "world" else c.body: c for c in ts.contacts(two.build(), ground=PLANE)}
    (between,) = (c for c in ts.contacts(two.build()))
    assert between.stiffness == pytest.approx(9810.0) and between.friction == 0.5
    assert made["heavy"].stiffness == pytest.approx(5 * 9810.0) and made["heavy"].friction == 0.5
    weightless = two.build().with_gravity((0, 0, 0))
    assert ts.contacts(weightless)[0].stiffness == pytest.approx(9810.0)


SOFT = {
    "mixed by weights": ('solref="0.02 1"', 'solref="0.05 0.7" solmix="3"'),
    "stiffness and damping": ('solref="-3000 -80"', 'solref="-2000 -90"'),
    "of both forms": ('solref="0.02 1"', 'solref="-2000 -90"'),
    "priority": ('priority="1" solref="0.1 0.4" solimp="0.5 0.8 0.01 0.3 4"', ""),
    "constant impedance": ('solimp="0.9 0.9 0.001"', 'solimp="0.7 0.7 0 0.5 1"'),
    "no width": ('priority="1" solimp="0.8 0.9 0 0.5 2"', ""),
}


@pytest.mark.parametrize(("floor", "ball"), SOFT.values(), ids=SOFT)
def test_a_body_rests_as_deep_as_in_mujoco(mujoco, floor: str, ball: str) -> None:
    mj = mujoco.MjModel.from_xml_string(
        f'<mujoco><option timestep="0.002"/><worldbody><geom type="plane" size="1 1 1" {floor}/>'
        f'<body pos="0 0 0.1"><freejoint/><geom size="0.1" mass="2" {ball}/></body></worldbody></mujoco>'
    )
    data = mujoco.MjData(mj)
    for _ in range(4000):
        mujoco.mj_step(mj, data)
    (contact,) = ts.contacts(ts.load_mjcf(mj))
    depth = 0.1 - data.qpos[2]
    assert 2 * 9.81 / contact.stiffness == pytest.approx(depth, rel=1e-5)  # what is left of the settling
    # the damping ratio of small motions there: c = weight x dissipation, k = stiffness
    time, ratio = data.contact.solref[0]
    ratio = ratio if time > 0 else -ratio / (2 * np.sqrt(-time))
    assert 2 * 9.81 * contact.dissipation / (2 * np.sqrt(2 * contact.stiffness)) == pytest.approx(ratio, rel=1e-12)


def test_effective_masses_are_those_of_mujoco(mujoco) -> None:
    text = """<mujoco><worldbody><geom type="plane" size="1 1 1"/>
      <body pos="0 0 1"><freejoint/><geom size="0.1" pos="0.1 0 0"/>
        <body pos="0.3 0 0"><joint axis="0 1 0"/><geom size="0.05" pos="0.1 0.2 0"/>
          <body pos="0.2 0 0"><joint type="ball"/><geom size="0.07" pos="0 0 0.3"/></body></body></body>
      <body pos="1 0 0"><joint type="slide" axis="1 0 1"/><geom size="0.1"/></body>
      <body pos="2 0 0"><joint axis="0 0 1"/><geom size="0.1"/></body></worldbody></mujoco>"""
    mj = mujoco.MjModel.from_xml_string(text)
    made = ts.contacts(ts.load_mjcf(mj), world_only=True)
    free = made[0].stiffness * mj.body_invweight0[1, 0]  # times mass: the same for all
    for i in range(1, 5):
        assert made[i - 1].stiffness * mj.body_invweight0[i, 0] == pytest.approx(free, rel=1e-9)
    # the last one turns about its centre of mass, which no force moves: its own mass
    assert made[4].stiffness == pytest.approx(free * mj.body_mass[5], rel=1e-9)


# ---- states


# Pairs that MuJoCo has formulas for too. It lists at most four corners of a box and two ends of a capsule: each gap is
# one of those here, and the smallest is the smallest. Formulas agree to rounding.
GEOMS = {
    "ball": 'size="0.3" pos="0.1 0 0.2"',
    "rod": 'type="capsule" size="0.1 0.4" pos="0 0.1 0" euler="10 20 30"',
    "pole": 'type="capsule" size="0.15 0.2" euler="30 10 0"',
    "box": 'type="box" size="0.1 0.2 0.3" pos="0 0 0.1" euler="40 0 20"',
    "second": 'size="0.4"',
}
EXACT = [
    *({"world", name} for name in GEOMS),
    *({"ball", name} for name in ("rod", "pole", "box", "second")),
    *({"second", name} for name in ("rod", "pole", "box")),
]


def test_gaps_are_those_of_mujoco(mujoco) -> None:
    floor = '<geom name="world" type="plane" size="1 1 1" euler="20 10 0" pos="0.1 0.2 0.05"/>'
    inner = (f'<body name="{x}"><freejoint/><geom name="{x}" {geom}/></body>' for x, geom in GEOMS.items())
    mj = mujoco.MjModel.from_xml_string(f"<mujoco><worldbody>{floor}{''.join(inner)}</worldbody></mujoco>")
    data, model = mujoco.MjData(mj), ts.load_mjcf(mj)
    made = [c for c in ts.contacts(model, unsupported="skip") if {c.body, c.other} in EXACT]
    rng, count, kinds = np.random.default_rng(1), 0, set()
    for _ in range(100):
        q = model.random(rng)
        for body in model.bodies:
            q[model.joint(body.name).q_slice.start :][:3] = rng.uniform(-0.5, 0.5, 3)
        data.qpos[:] = ts.interop.to_mujoco(model, q)
        mujoco.mj_forward(mj, data)
        states = ts.contact_states(model, made, q, np.zeros(model.nv))
        seen: dict[frozenset[str], list] = {}
        for contact in data.contact:
            seen.setdefault(frozenset(mj.geom(int(geom)).name for geom in contact.geom), []).append(contact)
        for pair, listed in seen.items():
            mine = [k for k, names in enumerate(states.bodies) if {*names} == pair]
            if not mine or inside(model, q, pair):
                continue
            kinds.add(pair)
            assert states.gap[mine].min() == pytest.approx(min(contact.dist for contact in listed), abs=1e-9)
            for contact in listed:
                k = mine[int(np.argmin(np.abs(states.gap[mine] - contact.dist)))]
                assert states.gap[k] == pytest.approx(contact.dist, abs=1e-9)
                second = mj.geom(int(contact.geom[1])).name  # towards which MuJoCo's normal is
                sign = 1.0 if states.bodies[k][0] == second else -1.0
                np.testing.assert_allclose(states.normal[k], sign * contact.frame[:3], atol=1e-9)
                count += 1
        assert not states.force[states.gap >= 0].any()
        assert {frozenset(states.bodies[k]) for k in np.flatnonzero(states.gap < 0)} <= seen.keys()
    assert count > 500
    assert len(kinds) == len({frozenset((c.body, c.other)) for c in made})


def inside(model: ts.Model, q: np.ndarray, pair: frozenset[str]) -> bool:
    """Whether the centre of a ball is in a box, where the nearest face decides, to which there are several rules."""
    if pair not in ({"ball", "box"}, {"second", "box"}):
        return False
    T = dict(zip((body.name for body in model.bodies), ts.body_poses(model, q), strict=True))
    shape = {name: model.body(name).collisions[0].shape for name in pair}
    (ball,) = pair - {"box"}
    centre = T[ball] @ (*shape[ball].position, 1.0)
    box = T["box"] @ shape["box"].placement.matrix
    return bool((np.abs(np.linalg.solve(box, centre)[:3]) < np.array(shape["box"].size) / 2).all())


def scene() -> tuple[ts.Model, list[ts.Force]]:
    """A box, a rod and two balls on the ground, with another force among the contacts."""
    b = ts.ModelBuilder()
    for name, shape in (
        ("box", shapes.Box((0.2, 0.3, 0.4), ts.SE3.rotation((1, 2, 3), 0.4))),
        ("rod", shapes.Capsule(0.1, 0.5, ts.SE3.rotation((1, 0, 0), 1.3))),
        ("ball", shapes.Sphere(0.2, (0.05, 0, 0))),
        ("other", shapes.Sphere(0.3)),
    ):
        b.add_body(name, joint=ts.Free(), inertia=BALL, collisions=[ts.Collision(shape)])
    made = ts.contacts(b.build(), ground=shapes.HalfSpace((0.1, 0, 1), 0.1), stiffness=1e3, unsupported="skip")
    return b.build(), [made[0], ts.JointDamping(None, 0.1), *made[1:]]


def states_of(model: ts.Model, n: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    q = model.random(rng, n)
    for body in model.bodies:
        q[:, model.joint(body.name).q_slice.start :][:, :3] = rng.uniform(-0.2, 0.2, (n, 3))
    return q, rng.standard_normal((n, model.nv))


def test_forces_and_slip_are_those_of_the_motion() -> None:
    """Generalized forces are those of the forces at the points; slip is the relative velocity of points there."""
    model, forces = scene()
    q, v = states_of(model, 20, np.random.default_rng(2))
    at = ts.contact_states(model, forces, q, v)
    only = [force for force in forces if isinstance(force, ts.Contact)]
    T = np.linalg.inv(ts.body_poses(model, q))
    names = [body.name for body in model.bodies]
    tau, touched = np.zeros_like(v), 0
    for k, (first, second) in enumerate(at.bodies):
        u = np.zeros((20, 3))
        for sign, name in ((1.0, first), (-1.0, second)):
            if name == "world":
                continue
            pose = T[:, names.index(name)]
            local = np.einsum("nij,nj->ni", pose[:, :3, :3], at.point[:, k]) + pose[:, :3, 3]
            J = ts.point_jacobian(model, q, [name], local[:, None])[:, 0]
            tau += sign * np.einsum("nij,ni->nj", J, at.force[:, k])
            u += sign * np.einsum("nij,nj->ni", J, v)
        slip = u - np.einsum("ni,ni->n", u, at.normal[:, k])[:, None] * at.normal[:, k]
        np.testing.assert_allclose(at.slip[:, k], slip, atol=1e-12)
        touched += int((at.gap[:, k] < 0).sum())
    assert touched > 50
    np.testing.assert_allclose(ts.generalized_forces(model, only, q, v), tau, atol=1e-9)  # of forces up to 1e3 N
    # friction opposes slip and stays in the cone
    mu = np.array([forces[k].friction for k in at.force_index])
    assert (np.einsum("...i,...i->...", at.friction_force, at.slip) <= 1e-12).all()
    assert (np.linalg.norm(at.friction_force, axis=-1) <= mu * at.normal_force + 1e-9).all()
    assert (at.normal_force >= -1e-12).all()


def test_batches_of_states() -> None:
    model, forces = scene()
    q, v = states_of(model, 6, np.random.default_rng(3))
    whole = ts.contact_states(model, forces, q.reshape(2, 3, -1), v.reshape(2, 3, -1), t=[0.0, 1.0, 2.0])
    assert whole.gap.shape == (2, 3, len(whole.bodies))
    for name in ("gap", "point", "normal", "force", "slip"):
        parts = [getattr(ts.contact_states(model, forces, q[i], v[i]), name) for i in range(6)]
        np.testing.assert_array_equal(getattr(whole, name).reshape(6, *parts[0].shape), parts)
    assert {*whole.force_index.tolist()} == {0, *range(2, len(forces))}
    none = ts.contact_states(model, forces[1:2], q, v)
    assert none.gap.shape == (6, 0) and none.force.shape == (6, 0, 3) and none.bodies == ()
    with pytest.raises(ValueError, match="q has shape"):
        ts.contact_states(model, forces, q[:, :3], v)


def sliding(n: int = 1) -> ts.Trajectory:
    """A box that slides to a stop on an incline."""
    box = ts.Collision(shapes.Box((0.4, 0.4, 0.2)))
    model = (
        ts.ModelBuilder()
        .add_body("box", joint=ts.Free(), inertia=ts.Inertia.box((0.4, 0.4, 0.2), mass=2.0), collisions=[box])
        .build()
    )
    tilt = ts.SE3.rotation((0, 1, 0), 0.2)
    ground = shapes.HalfSpace(tilt.R[:, 2])
    forces = ts.contacts(model, ground=ground, stiffness=1e5, friction=0.5, slip=1e-4)
    depth = 2.0 * 9.81 * np.cos(0.2) / 4 / 1e5
    q0 = np.concatenate([tilt.R[:, 2] * (0.1 - depth), tilt.quaternion])
    v0 = np.array([0, 0, 0, 2.0, 0, 0])
    return ts.simulate(
        model, q0, v0 if n == 1 else np.tile(v0, (n, 1)), T=1.0, integrator=ts.BDF2(h=2e-3), forces=forces
    )


def test_trajectories_list_their_contacts() -> None:
    motion = sliding()
    states = ts.contact_states(motion.model, motion.forces, motion.q, motion.v)
    for name in ("gap", "point", "normal", "force", "slip"):
        np.testing.assert_array_equal(getattr(motion.contacts, name), getattr(states, name))
    assert motion.contacts.gap.shape == (len(motion.t), 8)
    # while it slides and when it rests, the ground carries the weight
    load = motion.contacts.force.sum(axis=-2)
    np.testing.assert_allclose(load[-1], (0, 0, 2 * 9.81), atol=1e-3)
    np.testing.assert_allclose(motion.contacts.normal_force.sum(axis=-1)[50:], 2 * 9.81 * np.cos(0.2), rtol=1e-3)
    friction = np.linalg.norm(motion.contacts.friction_force.sum(axis=-2), axis=-1)
    np.testing.assert_allclose(friction[50:300], 0.5 * 2 * 9.81 * np.cos(0.2), rtol=1e-3)


def test_dissipated_work_is_the_energy_that_is_lost() -> None:
    motion = sliding()
    lost = motion.energies.total[0] - motion.energies.total
    assert (np.diff(motion.dissipated) >= 0).all()
    # friction stops it after 0.7 m: exact work is 0.5 m g cos(0.2) times the way
    way = np.linalg.norm(motion.q[-1, :3] - motion.q[0, :3])
    np.testing.assert_allclose(motion.dissipated[-1], 0.5 * 2 * 9.81 * np.cos(0.2) * way, rtol=1e-4)
    np.testing.assert_allclose(lost[-1], motion.dissipated[-1], rtol=1e-4)
    damped = ts.simulate(
        ts.models.pendulum(), [1.0], [0.0], T=1.0, integrator=ts.BDF2(h=1e-3), forces=[ts.JointDamping(None, 0.3)]
    )
    lost = damped.energies.total[0] - damped.energies.total[-1]
    np.testing.assert_allclose(damped.dissipated[-1], lost, rtol=2e-5)  # second order in h: 1.2e-5
    free = ts.simulate(ts.models.pendulum(), [1.0], [0.0], steps=3, integrator=ts.BDF2(h=1e-3))
    assert free.dissipated.tolist() == [0.0] * 4 and free.contacts.gap.shape == (4, 0)


def test_batches_of_trajectories() -> None:
    batch, one = sliding(2), sliding()
    assert batch.contacts.gap.shape == (2, len(one.t), 8) and batch.dissipated.shape == (2, len(one.t))
    np.testing.assert_array_equal(batch.contacts.force[1], one.contacts.force)
    np.testing.assert_array_equal(batch.dissipated[1], one.dissipated)
    model, heavy = one.model, one.model.with_inertia("box", ts.Inertia.box((0.4, 0.4, 0.2), mass=4.0))
    given = {"steps": 5, "integrator": one.integrator, "forces": one.forces}
    several = ts.simulate([model, heavy], one.q[0], one.v[0], **given)
    single = ts.simulate(heavy, one.q[0], one.v[0], **given)
    np.testing.assert_array_equal(several.contacts.force[1], single.contacts.force)
    np.testing.assert_array_equal(several.dissipated[1], single.dissipated)
    smooth = ts.simulate(model, one.q[0], one.v[0], **given, parameters=[{"friction": [0.1, 0.5]}])
    np.testing.assert_array_equal(smooth.contacts.force[1], one.contacts.force[:6])
    friction = np.linalg.norm(smooth.contacts.friction_force[0], axis=-1)
    np.testing.assert_allclose(friction, 0.1 * smooth.contacts.normal_force[0], rtol=1e-9, atol=1e-12)
    assert len(smooth.plot_contacts(index=1).axes[1].lines) == 1  # the limit differs between trajectories


def test_saved_motions_know_their_contacts(tmp_path) -> None:
    motion = sliding()
    motion.save(tmp_path / "motion.npz")
    back = ts.Trajectory.load(tmp_path / "motion.npz", motion.model, motion.forces)
    np.testing.assert_array_equal(back.contacts.force, motion.contacts.force)
    (contact,) = motion.forces
    other = [replace_shape(contact, shapes.Box((0.4, 0.4, 0.3)))]
    with pytest.raises(ValueError, match="half_size of force 0"):
        ts.Trajectory.load(tmp_path / "motion.npz", motion.model, other)


def replace_shape(contact: ts.Contact, shape: shapes.Shape) -> ts.Contact:
    law = {name: getattr(contact, name) for name in ("stiffness", "dissipation", "friction", "slip", "onset")}
    return ts.Contact(contact.body, shape, contact.other, contact.other_shape, **law)


def test_plots() -> None:
    pytest.importorskip("matplotlib")
    motion = sliding()
    axes = motion.plot_contacts().axes
    assert [axis.get_ylabel() for axis in axes] == ["normal force", "friction force"]
    (line,) = axes[0].lines
    np.testing.assert_allclose(line.get_ydata(), motion.contacts.normal_force.sum(axis=-1))
    assert line.get_label() == "box - world"
    rub, largest = (line.get_ydata() for line in axes[1].lines)
    assert (rub <= largest + 1e-9).all()
    assert (
        not ts.simulate(ts.models.pendulum(), [1.0], [0.0], steps=3, integrator=ts.BDF2(h=1e-3))
        .plot_contacts()
        .axes[0]
        .lines
    )
    with pytest.raises(ValueError, match="index is"):
        motion.plot_contacts(index=(0,))


# ---- bad input


def test_shapes_without_a_formula() -> None:
    mesh = ts.Collision(shapes.Mesh("a.stl"), "hull")
    model = ts.ModelBuilder().add_body("a", joint=ts.Free(), inertia=BALL, collisions=[mesh]).build()
    with pytest.raises(
        ValueError, match=r"no formula for the contact of Mesh 'hull' of 'a' with HalfSpace of 'world'.*skip"
    ):
        ts.contacts(model, ground=PLANE)
    assert ts.contacts(model, ground=PLANE, unsupported="skip") == []
    hills = shapes.HeightField(np.zeros((2, 2)), (1, 1))
    flat = ts.ModelBuilder().add_body("a", joint=ts.Free(), inertia=BALL, collisions=[ts.Collision(PLANE)]).build()
    assert ts.contacts(flat, ground=hills) == ts.contacts(flat, ground=PLANE) == []  # as in MuJoCo, these never touch


def test_wrong_arguments() -> None:
    model = chain()
    with pytest.raises(TypeError, match=r"model must be a torsor\.Model"):
        ts.contacts(3)
    with pytest.raises(ValueError, match="unsupported is 'no', expected 'raise' or 'skip'"):
        ts.contacts(model, unsupported="no")
    with pytest.raises(TypeError, match=r"ground must be one of torsor\.shapes or a Collision, got 3"):
        ts.contacts(model, ground=3)
    with pytest.raises(KeyError, match="no body named 'e' for contacts; bodies are 'a', 'b', 'c', 'd', 'world'"):
        ts.contacts(model, bodies=["e"])
    with pytest.raises(KeyError, match="no body named 'e' to exclude from contact"):
        ts.contacts(model, exclude=[("a", "e")])
    with pytest.raises(TypeError, match="exclude must be a sequence of pairs of names"):
        ts.contacts(model, exclude=["ab"])
    with pytest.raises(
        KeyError, match="no collision shape named 'gx' for a CollisionPair, expected one; names are 'floor'"
    ):
        ts.contacts(replace(model, collision_rules=ts.CollisionRules(pairs=[ts.CollisionPair("ga", "gx")])))
    with pytest.raises(ValueError, match="stiffness is -1, expected 0 at least"):
        ts.contacts(model, stiffness=-1.0)
    massless = ts.ModelBuilder().add_body("a", joint=ts.Free(), collisions=[ts.Collision(shapes.Sphere(1.0))]).build()
    with pytest.raises(
        ValueError, match="bodies 'a' and 'world' have no mass to choose a stiffness by; give stiffness="
    ):
        ts.contacts(massless, ground=PLANE)
    assert len(ts.contacts(massless, ground=PLANE, stiffness=1.0)) == 1
