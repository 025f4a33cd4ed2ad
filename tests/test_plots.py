"""Plots of motions: all lines are there once, with their units and names, whatever the number of joints."""

import numpy as np
import pytest
from test_pictures import four_bar, hand

import torsor as ts

pytest.importorskip("matplotlib")

from matplotlib.backends.backend_agg import FigureCanvasAgg

RNG = np.random.default_rng(5)


def humanoid_run():
    model = ts.models.humanoid()
    return ts.simulate(model, model.random(0), 0.2 * RNG.standard_normal(model.nv), steps=4, integrator=ts.BDF1(0.01))


def texts(figure):
    """Boxes of all texts that are drawn, and what they say."""
    FigureCanvasAgg(figure).draw()
    out = []
    for ax in figure.axes:
        found = [ax.yaxis.label, ax.xaxis.label, *ax.texts, ax._left_title, ax.title]
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            found += [tick.label1 for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
        found += ax.get_legend().get_texts() if ax.get_legend() else []
        out += [text for text in found if text.get_visible() and text.get_text()]
    return [(text.get_window_extent().extents, text.get_text()) for text in out]


def assert_readable(figure):
    """No text overlaps another one, and all are within the figure."""
    found = texts(figure)
    width, height = figure.bbox.width, figure.bbox.height
    for i, (a, what) in enumerate(found):
        assert a[0] >= -1 and a[1] >= -1 and a[2] <= width + 1 and a[3] <= height + 1, what
        for b, other in found[:i]:
            apart = a[2] <= b[0] or b[2] <= a[0] or a[3] <= b[1] or b[3] <= a[1]
            assert apart, (what, other)


def forty():
    """A trunk with four limbs of ten joints each."""
    b = ts.ModelBuilder()
    b.add_body("trunk", joint=ts.Free(), inertia=ts.Inertia.box(mass=5, size=(0.5, 0.3, 0.2)))
    for limb in ("front_left", "front_right", "rear_left", "rear_right"):
        parent = "trunk"
        for k in range(10):
            joint = ts.Revolute((0, 1, 0)) if k % 5 else ts.Prismatic((1, 0, 0))
            inertia = ts.Inertia.box(mass=0.2, size=(0.05, 0.05, 0.1))
            b.add_body(f"{limb}_{k}", parent, joint, ts.SE3.translation(0, 0, -0.1), inertia)
            parent = f"{limb}_{k}"
    return b.build()


def test_forty_joints_are_readable_and_complete():
    model = forty()
    run = ts.simulate(model, model.neutral, 0.1 * RNG.standard_normal(model.nv), steps=3, integrator=ts.BDF1(0.01))
    figure = run.plot(quantities=["q", "v", "tau", "energies"])
    assert_readable(figure)
    assert max(len(ax.lines) for ax in figure.axes) <= 8
    drawn = {name: [] for name in ("q", "v", "tau")}
    for ax in figure.axes:
        name = ax.get_ylabel().split("\n")[-1].split(" ")[0]
        if name in drawn:
            drawn[name] += [line.get_ydata() for line in ax.lines]
    tau = ts.inverse_dynamics(model, run.q, run.v, run.a)
    for name, values in (("q", run.q), ("v", run.v), ("tau", tau)):
        key = lambda row: tuple(row.round(12))  # noqa: E731
        np.testing.assert_allclose(sorted(drawn[name], key=key), sorted(values.T, key=key), atol=1e-12)
    legends = [text.get_text() for ax in figure.axes if ax.get_legend() for text in ax.get_legend().get_texts()]
    names = {joint.name for joint in model.joints if joint.nv == 1}
    assert names <= {*legends} and len(legends) == len({*legends}) + 3  # x, y and z of position and quaternion


def test_lines_have_the_colours_and_names_of_the_legend():
    run = humanoid_run()
    figure = run.plot()
    assert_readable(figure)
    at = {joint.name: joint.q_slice.start for joint in run.model.joints}
    columns = 2
    panels = [figure.axes[k : k + columns] for k in range(0, len(figure.axes) - 1, columns)]
    seen = 0
    for left, right in panels:
        entries = right.get_legend()
        for handle, text in zip(entries.legend_handles, entries.get_texts(), strict=True):
            (line,) = (x for x in left.lines if x.get_color() == handle.get_color())
            if text.get_text() in at:
                np.testing.assert_array_equal(line.get_ydata(), run.q[:, at[text.get_text()]])
                seen += 1
    assert seen == 31


def test_units():
    b = ts.ModelBuilder()
    for k, joint in enumerate([ts.Revolute(), ts.Prismatic(), ts.Free(), ts.Spherical(), ts.SphericalExp()]):
        b.add_body(f"b{k}", joint=joint, inertia=ts.Inertia.box(mass=1, size=(1, 2, 3), com=(0.1, 0.2, 0.3)))
    model = b.build()
    run = ts.simulate(model, model.random(0), steps=2, integrator=ts.BDF1(0.01))
    figure = run.plot(quantities=["q", "v", "a", "tau"])
    labels = [ax.get_ylabel().split("\n")[-1] for ax in figure.axes]
    angle = ["q [rad]", "v [rad/s]", "a [rad/s²]", "tau [N m]"]
    assert labels == [*angle, "q [m]", "v [m/s]", "a [m/s²]", "tau [N]", "q [quaternion]", *angle[1:]]
    counts = [len(ax.lines) for ax in figure.axes]
    assert counts == [4, 4, 4, 4, 4, 4, 4, 4, 8, 6, 6, 6]
    assert_readable(figure)


def test_selection():
    run = humanoid_run()
    figure = run.plot(joints=["left_knee", "right_knee"], quantities="v")
    (ax,) = figure.axes
    for line, name in zip(ax.lines, ("left_knee", "right_knee"), strict=True):
        np.testing.assert_array_equal(line.get_ydata(), run.v[:, run.model.joint(name).v_slice.start])
        np.testing.assert_array_equal(line.get_xdata(), run.t)
    energies = run.plot(quantities=["energies"])
    (ax,) = energies.axes
    assert [line.get_label() for line in ax.lines] == ["kinetic", "potential", "total"]
    np.testing.assert_array_equal(ax.lines[2].get_ydata(), run.energies.total)
    with pytest.raises(ValueError, match=r"no quantity 'energy'; quantities are .*did you mean 'energies'\?"):
        run.plot(quantities="energy")
    with pytest.raises(KeyError, match="no joint named 'knee'"):
        run.plot(joints=["knee"])
    with pytest.raises(ValueError, match="the trajectory has no controls to plot"):
        run.plot(quantities=["controls"])


def test_controls():
    model = ts.models.acrobot()
    u = RNG.standard_normal((5, 1))
    run = ts.simulate(model, [1.0, 0.5], steps=5, integrator=ts.BDF2(0.01), controls=u, actuation=["elbow"])
    (ax,) = run.plot(quantities="controls").axes
    (line,) = ax.lines
    assert line.get_label() == "elbow" and line.get_drawstyle() == "steps-post"
    np.testing.assert_allclose(line.get_xdata(), run.t)
    np.testing.assert_array_equal(line.get_ydata()[:-1], u[:, 0])
    of_time = ts.simulate(model, [1.0, 0.5], steps=5, integrator=ts.BDF2(0.01), controls=lambda t: np.array([t, 2 * t]))
    (ax,) = of_time.plot(quantities="controls").axes
    assert [line.get_label() for line in ax.lines] == ["shoulder", "elbow"]
    np.testing.assert_allclose(ax.lines[1].get_ydata()[:-1], 2 * of_time.t[1:])  # at the ends of steps


def test_batches():
    model = ts.models.acrobot()
    q0 = RNG.standard_normal((2, 3, 2))
    run = ts.simulate(model, q0, steps=4, integrator=ts.BDF2(0.01))
    figure = run.plot(index=[0, (1, 2)])
    q = [line.get_ydata() for line in figure.axes[0].lines]
    np.testing.assert_array_equal(q, [run.q[0, 0, :, 0], run.q[0, 0, :, 1], run.q[1, 2, :, 0], run.q[1, 2, :, 1]])
    assert figure.axes[0].lines[0].get_alpha() > figure.axes[0].lines[2].get_alpha()
    assert len(figure.axes[0].get_legend().get_texts()) == 2
    np.testing.assert_array_equal(figure.axes[2].lines[-1].get_ydata(), run.energies.total[1, 2])
    for wrong in (6, -7):
        with pytest.raises(IndexError, match="but the batch has 6 trajectories"):
            run.plot(index=wrong)
    with pytest.raises(ValueError, match="index is an empty list"):
        run.plot(index=[])


def test_joints_that_follow_others():
    model = hand()
    run = ts.simulate(model, [0.4], [0.3], steps=5, integrator=ts.BDF2(0.01))
    (ax, _, _) = run.plot().axes
    assert [line.get_label() for line in ax.lines] == ["link0"]
    figure = run.plot(joints=["link0", "link2"], quantities=["q", "v", "a", "tau"])
    for ax, values in zip(figure.axes[:2], (run.tree_q, run.tree_v), strict=True):
        np.testing.assert_array_equal(ax.lines[0].get_ydata(), values[:, 0])
        np.testing.assert_allclose(ax.lines[1].get_ydata(), values[:, 2], atol=1e-14)
        assert ax.lines[1].get_linestyle() == "--"
    assert len(figure.axes[3].lines) == 1  # a follower has no force of its own


def test_motions_with_constraints_and_without_joints():
    model, q = four_bar()
    run = ts.simulate(model, q, steps=3, integrator=ts.BDF2(0.01))
    assert_readable(run.plot())
    still = ts.simulate(ts.ModelBuilder().build(), np.zeros(0), steps=2, integrator=ts.BDF1(0.01))
    assert [ax.get_ylabel() for ax in still.plot().axes] == ["energy [J]"]
