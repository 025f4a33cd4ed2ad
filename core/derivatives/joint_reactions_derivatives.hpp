// First derivatives of joint reactions, in the bodies' frames. docs/derivations/reverse.md; columns and
// motions: tree/motions.hpp.
//
// A reaction is the sum f of forces over the subtree of one of the user's bodies, seen from the body. A column S that
// moves the body turns its frame together with the subtree, and of the change of f what is left is
//   by q: 2 B Psidot + I Psiddot + lag(S),   by v: 2 B S + I Vdot,   by a: I S,
// I, 2 B and lag of the body's subtree. A column of a joint beyond the body leaves its frame and changes the forces of
// what the joint moves by the same with I, 2 B, f and lag of the joint's subtree, and by S x* f.
#pragma once
#include "derivatives/kinematics_derivatives.hpp"

namespace torsor {

// Sums over the subtree of one of the user's bodies, about the point of the tree.
template <class S>
struct ReactionSums {
  RigidInertia<S> I;
  CoriolisInertia<S> B;
  Force<S> f;
  WorldWrench<S> held;  // wrenches that do not rotate with the bodies
  ReactionSums& operator+=(const ReactionSums& b) {
    I += b.I;
    B += b.B;
    f += b.f;
    held += b.held;
    return *this;
  }
};

// Of all the user's bodies; those of bodies that are fixed to the world are not set.
template <class S>
ReactionSums<S>* reaction_sums(const Model& m, Arena& arena, const DerivativeBody<S>* bodies, const S* f_ext,
                               int axes) {
  auto* sums = arena.get<ReactionSums<S>>(m.nframes());
  for (int f = 0; f < m.nframes(); ++f) {
    const Model::Frame& frame = m.frames[f];
    if (frame.body < 0) continue;
    const auto& b = bodies[frame.body];
    const SE3<S> X = frame_pose(frame, b);
    ReactionSums<S>& sum = sums[f];
    sum.I = frame.massless ? zero_inertia<S>() : shift_back(rotate(X.R, frame.I), X.p);
    sum.B = coriolis_inertia(sum.I, b.v);
    sum.f = sum.I * b.a + cross(b.v, Force<S>{sum.B.n, sum.B.f});
    sum.held = world_wrench(zero3<S>(), zero3<S>(), zero3<S>());
    if (f_ext == nullptr) continue;
    Force<S> F = read_force(f_ext + 6 * f);
    if (axes == 0) {
      F = X.act(F);
    } else {
      sum.held = world_wrench(F.n, F.f, axes == 1 ? -b.origin : X.p);
      F = sum.held.F;
    }
    sum.f.n -= F.n;
    sum.f.f -= F.f;
  }
  for (auto at = m.order.rbegin(); at != m.order.rend(); ++at) {  // children before parents
    const int p = m.frames[*at].parent;
    if (p >= 0 && m.frames[p].body >= 0) sums[p] += sums[*at];
  }
  return sums;
}

// dq, dv, da: nframes x 6 x nv; any may be null.
template <class S>
void joint_reactions_derivatives(const Model& m, Arena& arena, const S* q, const S* v, const S* a, const S* f_ext,
                                 int axes, S* dq, S* dv, S* da) {
  const int nv = m.nv;
  const Motions<S> all = motions(m, arena, q, v, a);
  const ReactionSums<S>* sums = reaction_sums(m, arena, all.bodies, f_ext, axes);
  const bool held = f_ext != nullptr && axes != 0;
  for (S* out : {dq, dv, da}) fill_zero(out, int64_t(6) * nv * m.nframes());
  struct Change {
    Force<S> by_q, by_v, by_a;
  };
  const auto change = [&](const ReactionSums<S>& sum, const DerivativeColumn<S>& c) {
    Change x{sum.B * c.Psidot + sum.I * c.Psiddot, sum.B * c.S_ + sum.I * c.Vdot, sum.I * c.S_};
    if (held) x.by_q += sum.held.lag(axes, c.S_);
    return x;
  };
  const auto put_seen_from = [&](const SE3<S>& X, const Change& x, int f, int k) {
    const int64_t rows = int64_t(6) * nv * f;
    put(X.act_inverse(x.by_q), at(dq, rows), nv, k);
    put(X.act_inverse(x.by_v), at(dv, rows), nv, k);
    put(X.act_inverse(x.by_a), at(da, rows), nv, k);
  };
  for (int f = 0; f < m.nframes(); ++f) {
    const int i = m.frames[f].body;
    if (i < 0) continue;
    const SE3<S> X = frame_pose(m.frames[f], all.bodies[i]);
    for_each_velocity_above(m, i, [&](int k, int) { put_seen_from(X, change(sums[f], all.columns[k]), f, k); });
  }
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    for (int k = body.iv; k < body.iv + body.nv; ++k) {
      const auto& c = all.columns[k];
      Change x = change(sums[body.joint], c);
      x.by_q += cross(c.S_, sums[body.joint].f);
      for (int f = m.frames[body.joint].parent; f >= 0; f = m.frames[f].parent) {
        const Model::Frame& frame = m.frames[f];
        SE3<S> X = lift<S>(frame.pose);
        if (frame.body >= 0)
          X = frame_pose(frame, all.bodies[frame.body]);
        else
          X.p -= all.bodies[i].origin;
        put_seen_from(X, x, f, k);
      }
    }
  }
}

}  // namespace torsor
