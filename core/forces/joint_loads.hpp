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
// For the search for a solution (forces/contact_problem.hpp): friction whose limits follow the accelerations, c times
// the change of velocities. Of the motions, sums are over subtrees.
template <class S>
void add_bearing_places(const Model& m, const ForceSet& set, Arena& arena, const Motions<S>& all, const S* v,
                        const S* p, double c, StiffPlaces<S>& out) {
  const S none(0.0), one(1.0);
  const Vec3<S> axes[3] = {{one, none, none}, {none, one, none}, {none, none, one}};
  S *offset = arena.get<S>(6), *map = arena.get<S>(std::size_t(6) * m.nv);
  for (const BearingLaw& law : set.bearings) {
    const auto& b = all.bodies[law.body];
    const Model::Link& link = m.links[law.body];
    Vec3<S> u = zero3<S>();
    for (int k = 0; k < link.nv; ++k) u = mul_add(v[link.iv + k], axes[k], u);
    const ContactNumbers<S> slides{none, none, p[law.offset], p[law.offset + 3], none};
    out.add(every_lane<S>(), slides, S(-1.0), one, zero3<S>(), u);
    for (int k = 0; k < link.nv; ++k) out.add_column(link.iv + k, axes[k]);
    // dW/da is I S of the subtree that both the wrench and the velocity have.
    write(joint_wrench(b), offset);
    std::fill_n(map, std::size_t(6) * m.nv, none);
    const auto put = [&](int k, const RigidInertia<S>& I) {
      S column[6];
      write(SE3<S>{b.R, b.p}.act_inverse(I * all.columns[k].S_), column);
      for (int i = 0; i < 6; ++i) map[i * m.nv + k] = S(c) * column[i];
    };
    for_each_velocity(m, law.body, [&](int k) { put(k, b.I); });
    for (int i = law.body + 1; i < m.n(); ++i) {  // beyond it: parents come first
      int j = i;
      while (j > law.body) j = m.links[j].parent;
      for (int k = m.links[i].iv; j == law.body && k < m.links[i].iv + m.links[i].nv; ++k) put(k, all.bodies[i].I);
    }
    out.add_load(m.nv, offset, map, [&](int l) {
      const auto at = [&](int k) { return StiffPlaces<S>::lane_of(p[law.offset + k], l); };
      return [kind = law.kind, radius = at(1), length = at(2), smoothing = at(4)](const double* W, double* by_W) {
        double by_shape[3];
        return bearing_load(kind, W, radius, length, smoothing, by_W, by_shape);
      };
    });
  }
}

// Derivatives by q, v and a, over the loaded tree, of inverse dynamics minus forces on bodies and, in its six rows, of
// the wrench through each bearing. Of the motions, sums are over subtrees; held: wrenches that are held in the world's
// axes, or null; set: may be null.
template <class S>
struct LoadedDerivatives {
  S* by[3];
};
template <class S>
LoadedDerivatives<S> loaded_derivatives(const Model& m, const LoadedTree& tree, const std::vector<BearingLaw>& bearings,
                                        const ForceSet* set, Arena& arena, const Motions<S>& all,
                                        const WorldWrench<S>* held, const S* q, const S* v, double t, const S* p) {
  const int nv = m.nv, n = tree.m.nv;
  Motions<S> loaded = all;
  loaded.armature = nullptr;  // added below
  loaded.columns = arena.get<DerivativeColumn<S>>(n);
  for (int k = 0; k < nv; ++k) loaded.columns[tree.at[k]] = all.columns[k];
  for (const BearingLaw& law : bearings) {
    const auto& b = all.bodies[law.body];
    for (int k = 0; k < 6; ++k) {
      S unit[6] = {S(0.0), S(0.0), S(0.0), S(0.0), S(0.0), S(0.0)};
      unit[k] = S(1.0);
      const Motion<S> zero = zero_motion<S>();
      loaded.columns[tree.wrench(law.body) + k] = {SE3<S>{b.R, b.p}.act(read_motion(unit)), zero, zero, zero};
    }
  }
  LoadedDerivatives<S> out;
  for (S*& matrix : out.by) std::fill_n(matrix = arena.get<S>(std::size_t(n) * n), std::size_t(n) * n, S(0.0));
  pair_columns(tree.m, arena, loaded, held, 2, out.by[0], out.by[1], out.by[2], n);
  const ForceState<S> at(tree.m, arena, loaded, q, v, t, p);
  if (set != nullptr)
    set->for_each([&](const auto& law) {
      if (law.acts_on_bodies()) law.linearise(at, ForceMatrices<S>{out.by[0], out.by[1], n});
    });
  return out;
}
// Aq += dr/dq, Av += dr/dv, M += dr/da (nv x nv, zero before), r being inverse dynamics minus all forces, those of
// bearings included.
template <class S>
void add_loaded_derivatives(const Model& m, const LoadedTree& tree, const ForceSet& set, Arena& arena,
                            const Motions<S>& all, const WorldWrench<S>* held, const S* q, const S* v, double t,
                            const S* p, S* Aq, S* Av, S* M) {
  const int nv = m.nv, n = tree.m.nv;
  const LoadedDerivatives<S> wide = loaded_derivatives(m, tree, set.bearings, &set, arena, all, held, q, v, t, p);
  const ForceState<S> at(m, arena, all, q, v, t, p);
  set.for_each([&](const auto& law) {
    if (!law.acts_on_bodies()) law.linearise(at, ForceMatrices<S>{Aq, Av, nv});
  });
  S* narrow[3] = {Aq, Av, M};
  for (int x = 0; x < 3; ++x)
    for (int i = 0; i < nv; ++i)
      for (int k = 0; k < nv; ++k) narrow[x][i * nv + k] += wide.by[x][tree.at[i] * n + tree.at[k]];
  for (int k = 0; all.armature != nullptr && k < nv; ++k) M[k * (nv + 1)] += all.armature[k];
  for_each_bearing(m, set, all, v, p, [&](const BearingLaw& law, const BearingTorque<S>& x) {
    const int iv = m.bodies[law.body].iv;
    for (int j = 0; j < x.nv; ++j) {
      for (int k = 0; k < x.nv; ++k) Av[(iv + j) * nv + iv + k] += x.friction * x.load * x.by_v[x.nv * j + k];
      for (int w = 0; w < 6; ++w) {
        const S by = x.friction * x.share[j] * x.by_wrench[w];
        for (int y = 0; y < 3; ++y) {
          const S* row = wide.by[y] + (tree.wrench(law.body) + w) * n;
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
