// The wrench that each joint transmits to its body from its parent, in the body's frame: F of Kim 2012, (41), for every
// one of the user's bodies, those on fixed joints included.
#pragma once
#include "dynamics/inverse_dynamics.hpp"
#include "tree/poses.hpp"

namespace torsor {

template <class S>
struct ReactionBody : WorldBody<S> {
  Vec3<S> w, wdot, acc;  // in the body's axes, acc minus gravity
};

template <class S, class C>
void joint_reactions(const ModelT<C>& m, Arena& arena, const S* q, const S* v, const S* a, const S* f_ext,
                     S* reactions) {
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto* world = world_bodies(m, arena, general, q);
  auto* bodies = arena.get<ReactionBody<S>>(m.n());
  const Vec3<S> lift_off{S(-m.gravity.x), S(-m.gravity.y), S(-m.gravity.z)};
  for (int i = 0; i < m.n(); ++i) {
    const auto& body = m.bodies[i];
    auto& b = bodies[i];
    static_cast<WorldBody<S>&>(b) = world[i];
    Vec3<S> wp = zero3<S>();
    b.wdot = zero3<S>();
    b.acc = transposed(b.X.R, lift_off);
    if (body.parent >= 0) {
      const auto& p = bodies[body.parent];
      const auto here = [&](const Vec3<S>& x) { return transposed(b.X.R, p.X.R * x); };
      const Vec3<S> r = transposed(p.X.R, b.r);
      wp = here(p.w);
      b.wdot = here(p.wdot);
      b.acc = here(mul_add(acceleration_matrix(p.w, p.wdot), r, p.acc));
    }
    b.w = wp;
    visit<S>(m, body, general, [&](auto joint) { joint.move(wp, v + body.iv, a + body.iv, b.w, b.wdot, b.acc); });
  }
  auto* F = arena.get<Force<S>>(m.nframes());  // in the world's axes, about the frame's origin
  auto* X = arena.get<SE3<S>>(m.nframes());
  for (int f = 0; f < m.nframes(); ++f) {
    const auto& frame = m.frames[f];
    X[f] = frame_pose(frame, world);
    Vec3<S> w = zero3<S>(), wdot = zero3<S>(), acc = transposed(X[f].R, lift_off);
    if (frame.body >= 0) {
      const auto& b = bodies[frame.body];
      const Mat3<S> R = lift<S>(frame.pose.R);
      w = transposed(R, b.w);
      wdot = transposed(R, b.wdot);
      acc = transposed(R, mul_add(acceleration_matrix(b.w, b.wdot), frame.pose.p, b.acc));
    }
    const Sym3<C> Sigma = pseudo_inertia(frame.I.J);
    Force<S> own = inertial_force(frame.I, Sigma, acceleration_matrix(w, wdot), acc);
    if (f_ext != nullptr) {
      own.n -= read3(f_ext + 6 * f);
      own.f -= read3(f_ext + 6 * f + 3);
    }
    F[f] = {X[f].R * own.n, X[f].R * own.f};
  }
  for (auto at = m.order.rbegin(); at != m.order.rend(); ++at) {  // children before parents
    const int f = *at;
    const int p = m.frames[f].parent;
    if (p >= 0) F[p] += shift_back(F[f], X[f].p - X[p].p);
    write(Force<S>{transposed(X[f].R, F[f].n), transposed(X[f].R, F[f].f)}, reactions + 6 * f);
  }
}

}  // namespace torsor
