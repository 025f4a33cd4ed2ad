// Poses of all bodies. Where a recursion works with axes parallel to the world's, each body keeps its own origin: a
// wrench or an inertia is transferred between bodies by a shift alone, and no digits are lost far from the world's
// origin.
#pragma once
#include "model/joints.hpp"

namespace torsor {

template <class S>
struct WorldBody {
  SE3<S> X;   // pose in the world
  Vec3<S> r;  // origin as seen from the parent's origin, in the world's axes
};

// Axes of a body, and its origin as seen from its parent's origin, in the world's axes.
template <class S, class Joint, class Body>
TORSOR_INLINE SE3<S> place(const Joint& joint, const Body& body, const Mat3<S>* parent, const Coordinates<S>& x) {
  if (parent == nullptr) return joint.transform(body.M, x + body.iq);
  const SE3<S> M{*parent * body.M.R, body.offset ? *parent * body.M.p : zero3<S>()};
  return joint.transform(M, x + body.iq);
}

template <class S, class C>
WorldBody<S>* world_bodies(const ModelT<C>& m, Arena& arena, GeneralState<S>* general, const S* q) {
  auto* bodies = arena.get<WorldBody<S>>(m.n());
  const auto x = coordinates(m, arena, q);
  for (int i = 0; i < m.n(); ++i) {
    const auto& body = m.bodies[i];
    const WorldBody<S>* parent = body.parent >= 0 ? bodies + body.parent : nullptr;
    visit<S>(m, body, general, [&](auto joint) {
      const SE3<S> X = place<S>(joint, body, parent ? &parent->X.R : nullptr, x);
      bodies[i] = {{X.R, parent ? parent->X.p + X.p : X.p}, X.p};
    });
  }
  return bodies;
}

// Columns of S of every velocity, in the world's axes, at the origin of the body that they move.
template <class S, class C>
Motion<S>* world_columns(const ModelT<C>& m, Arena& arena, GeneralState<S>* general, const WorldBody<S>* bodies) {
  auto* columns = arena.get<Motion<S>>(m.nv);
  for (int i = 0; i < m.n(); ++i) {
    const auto& body = m.bodies[i];
    visit<S>(m, body, general, [&](auto joint) {
      for (int k = 0; k < joint.nv; ++k) columns[body.iv + k] = joint.column(bodies[i].X.R, k);
    });
  }
  return columns;
}

// Pose of one of the user's bodies.
template <class S, class Frame>
TORSOR_INLINE SE3<S> frame_pose(const Frame& frame, const WorldBody<S>* bodies) {
  if (frame.body < 0) return lift<S>(frame.pose);
  return frame.same ? bodies[frame.body].X : bodies[frame.body].X * frame.pose;
}

// f_ext in the bodies' frames, if it is given in the world's frame (axes 1) or in the world's axes at the bodies'
// origins (2).
template <class S, class C>
const S* body_wrenches(const ModelT<C>& m, Arena& arena, const S* q, int axes, const S* f_ext) {
  if (f_ext == nullptr || axes == 0) return f_ext;
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto* bodies = world_bodies(m, arena, general, q);
  S* wrenches = arena.get<S>(6 * m.nframes());
  for (int b = 0; b < m.nframes(); ++b) {
    SE3<S> X = frame_pose(m.frames[b], bodies);
    if (axes == 2) X.p = zero3<S>();
    write(X.act_inverse(read_force(f_ext + 6 * b)), wrenches + 6 * b);
  }
  return wrenches;
}

}  // namespace torsor
