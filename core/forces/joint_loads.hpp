// The wrenches that joints with bearings transmit, as part of the equations of motion, and friction that depends on
// them (forces/bearing_law.hpp).
//
// The wrench W through a joint, in its body's frame, is the generalised force of six more velocities of the joint that
// stay zero: twists of the body in its own frame. So derivatives of W, through inertias and through every law of forces
// on bodies, are rows of those of inverse dynamics for a tree in which these velocities stand behind the joint's own.
#pragma once
#include "forces/forces.hpp"

namespace torsor {

// The tree with these velocities. Of its model, links and the places of velocities are valid.
struct LoadedTree {
  Model m;
  std::vector<int> at;  // where each velocity of the model is
  LoadedTree(const Model& given, const std::vector<BearingLaw>& bearings) : m(given), at(given.nv) {
    std::vector<bool> loaded(m.n());
    for (const BearingLaw& law : bearings) loaded[law.body] = true;
    m.nv = m.depth = 0;
    for (int i = 0; i < m.n(); ++i) {
      Model::Link& link = m.links[i];
      for (int k = 0; k < link.nv; ++k) at[link.iv + k] = m.nv + k;
      m.bodies[i].iv = link.iv = m.nv;
      if (loaded[i]) link.nv += 6;
      link.above = link.parent >= 0 ? m.links[link.parent].above + m.links[link.parent].nv : 0;
      link.below = link.nv;
      m.nv += link.nv;
      m.depth = std::max(m.depth, link.above + link.nv);
    }
    for (int i = m.n() - 1; i >= 0; --i)
      if (m.links[i].parent >= 0) m.links[m.links[i].parent].below += m.links[i].below;
  }
  // The first of the six velocities of a body.
  int wrench(int body) const { return m.links[body].iv + m.bodies[body].nv; }
};

// The wrench through a joint, f being summed over subtrees.
template <class S>
Force<S> joint_wrench(const DerivativeBody<S>& b) {
  return SE3<S>{b.R, b.p}.act_inverse(b.f);
}
// each(law, its torques) for all bearings; v: velocities of the model.
template <class S, class F>
void for_each_bearing(const Model& m, const ForceSet& set, const Motions<S>& all, const S* v, const S* p, F&& each) {
  for (const BearingLaw& law : set.bearings)
    each(law, BearingTorque<S>(law, joint_wrench(all.bodies[law.body]), v + m.bodies[law.body].iv, p));
}
// r += the torques of friction.
template <class S>
void add_bearing_friction(const Model& m, const ForceSet& set, const Motions<S>& all, const S* v, const S* p, S* r) {
  for_each_bearing(m, set, all, v, p, [&](const BearingLaw& law, const BearingTorque<S>& x) {
    for (int k = 0; k < x.nv; ++k) r[m.bodies[law.body].iv + k] += x.friction * x.load * x.share[k];
  });
}
// For the search for a solution (forces/contact_problem.hpp): friction with the limits of now.
template <class S>
void add_bearing_places(const Model& m, const ForceSet& set, const Motions<S>& all, const S* v, const S* p,
                        StiffPlaces<S>& out) {
  for_each_bearing(m, set, all, v, p, [&](const BearingLaw& law, const BearingTorque<S>& x) {
    const int iv = m.bodies[law.body].iv;
    const S none(0.0), one(1.0);
    const Vec3<S> axes[3] = {{one, none, none}, {none, one, none}, {none, none, one}};
    Vec3<S> u = zero3<S>();
    for (int k = 0; k < x.nv; ++k) u = mul_add(v[iv + k], axes[k], u);
    const ContactNumbers<S> slides{none, none, none, p[law.offset + 3], none};
    out.add(every_lane<S>(), slides, x.friction * x.load, one, zero3<S>(), u);
    for (int k = 0; k < x.nv; ++k) out.add_column(iv + k, axes[k]);
  });
}

// Aq += dr/dq, Av += dr/dv, M += dr/da (nv x nv, zero before), r being inverse dynamics minus all forces, those of
// bearings included. Of the motions, sums are over subtrees; held: wrenches that are held in the world's axes, or null.
template <class S>
void add_loaded_derivatives(const Model& m, const LoadedTree& tree, const ForceSet& set, Arena& arena,
                            const Motions<S>& all, const WorldWrench<S>* held, const S* q, const S* v, double t,
                            const S* p, S* Aq, S* Av, S* M) {
  const int nv = m.nv, n = tree.m.nv;
  Motions<S> loaded = all;
  loaded.armature = nullptr;  // added below
  loaded.columns = arena.get<DerivativeColumn<S>>(n);
  for (int k = 0; k < nv; ++k) loaded.columns[tree.at[k]] = all.columns[k];
  for (const BearingLaw& law : set.bearings) {
    const auto& b = all.bodies[law.body];
    for (int k = 0; k < 6; ++k) {
      S unit[6] = {S(0.0), S(0.0), S(0.0), S(0.0), S(0.0), S(0.0)};
      unit[k] = S(1.0);
      const Motion<S> zero = zero_motion<S>();
      loaded.columns[tree.wrench(law.body) + k] = {SE3<S>{b.R, b.p}.act(read_motion(unit)), zero, zero, zero};
    }
  }
  S* wide[3];
  for (S*& matrix : wide) std::fill_n(matrix = arena.get<S>(std::size_t(n) * n), std::size_t(n) * n, S(0.0));
  pair_columns(tree.m, arena, loaded, held, 2, wide[0], wide[1], wide[2], n);
  const ForceState<S> on_bodies(tree.m, arena, loaded, q, v, t, p), on_joints(m, arena, all, q, v, t, p);
  set.for_each([&](const auto& law) {
    if (law.acts_on_bodies())
      law.linearise(on_bodies, ForceMatrices<S>{wide[0], wide[1], n});
    else
      law.linearise(on_joints, ForceMatrices<S>{Aq, Av, nv});
  });
  S* narrow[3] = {Aq, Av, M};
  for (int x = 0; x < 3; ++x)
    for (int i = 0; i < nv; ++i)
      for (int k = 0; k < nv; ++k) narrow[x][i * nv + k] += wide[x][tree.at[i] * n + tree.at[k]];
  for (int k = 0; all.armature != nullptr && k < nv; ++k) M[k * (nv + 1)] += all.armature[k];
  for_each_bearing(m, set, all, v, p, [&](const BearingLaw& law, const BearingTorque<S>& x) {
    const int iv = m.bodies[law.body].iv;
    for (int j = 0; j < x.nv; ++j) {
      for (int k = 0; k < x.nv; ++k) Av[(iv + j) * nv + iv + k] += x.friction * x.load * x.by_v[x.nv * j + k];
      for (int w = 0; w < 6; ++w) {
        const S by = x.friction * x.share[j] * x.by_wrench[w];
        for (int y = 0; y < 3; ++y) {
          const S* row = wide[y] + (tree.wrench(law.body) + w) * n;
          for (int k = 0; k < nv; ++k)
            narrow[y][(iv + j) * nv + k] = mul_add(by, row[tree.at[k]], narrow[y][(iv + j) * nv + k]);
        }
      }
    }
  });
}

// Twists (by body) with which bodies move, beyond their joints, in the virtual motion whose power is w.r: a wrench of
// which the torques depend moves its body by their derivative. gradient += that of w.r by the bearings' parameters.
template <class S>
void add_bearing_gradient(const Model& m, const ForceSet& set, const Motions<S>& all, const S* v, const S* p,
                          const S* w, Motion<S>* twists, S* gradient) {
  for_each_bearing(m, set, all, v, p, [&](const BearingLaw& law, const BearingTorque<S>& x) {
    S along(0.0), by_slip(0.0);
    for (int k = 0; k < x.nv; ++k) {
      along = mul_add(w[m.bodies[law.body].iv + k], x.share[k], along);
      by_slip = mul_add(w[m.bodies[law.body].iv + k], x.by_slip[k], by_slip);
    }
    S* g = gradient + law.offset;
    g[0] += along * x.load;
    g[1] += x.friction * along * x.by_shape[0];
    g[2] += x.friction * along * x.by_shape[1];
    g[3] += x.friction * x.load * by_slip;
    g[4] += x.friction * along * x.by_shape[2];
    S twist[6];
    for (int k = 0; k < 6; ++k) twist[k] = x.friction * along * x.by_wrench[k];
    const auto& b = all.bodies[law.body];
    twists[law.body] += SE3<S>{b.R, b.p}.act(read_motion(twist));
  });
}

}  // namespace torsor
