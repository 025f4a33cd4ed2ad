// Poses of all bodies. Where a recursion works with axes parallel to the world's, each body keeps its own origin: a wrench
// or an inertia moves between bodies by a shift alone, and nothing loses digits far from the world's origin.
#pragma once
#include "joints.hpp"

namespace torsor {

template <class S>
struct WorldBody {
  SE3<S> X;   // pose in the world
  Vec3<S> r;  // origin as seen from the parent's origin, in the world's axes
};

// Pose of body b and its origin seen from its parent's.
template <class S, class Joint>
TORSOR_INLINE WorldBody<S> place(const Joint& joint, const Model::Body& body, const WorldBody<S>* parent, const S* q) {
  if (parent == nullptr) {
    const SE3<S> X = joint.template transform<>(body.M, q + body.iq);
    return {X, X.p};
  }
  const Vec3<S> p0 = body.offset ? parent->X.R * body.M.p : zero3<S>();
  const SE3<S> M{parent->X.R * body.M.R, p0};  // translations relative to the parent's origin
  SE3<S> X = joint.template transform<>(M, q + body.iq);
  const Vec3<S> r = X.p;
  X.p += parent->X.p;
  return {X, r};
}

template <class S>
WorldBody<S>* world_bodies(const Model& m, Arena& arena, GeneralState<S>* general, const S* q) {
  auto* bodies = arena.get<WorldBody<S>>(m.n());
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    visit<S>(m, body, general,
             [&](auto joint) { bodies[i] = place<S>(joint, body, body.parent >= 0 ? bodies + body.parent : nullptr, q); });
  }
  return bodies;
}

// Columns of S of every velocity, in the world's axes, at the origin of the body that they move.
template <class S>
Motion<S>* world_columns(const Model& m, Arena& arena, GeneralState<S>* general, const WorldBody<S>* bodies) {
  auto* columns = arena.get<Motion<S>>(m.nv);
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    visit<S>(m, body, general, [&](auto joint) {
      for (int k = 0; k < joint.nv; ++k) columns[body.iv + k] = joint.column(bodies[i].X.R, k);
    });
  }
  return columns;
}

// Pose of a body of the user's.
template <class S>
TORSOR_INLINE SE3<S> frame_pose(const Model::Frame& frame, const WorldBody<S>* bodies) {
  if (frame.body < 0) return lift<S>(frame.C);
  return frame.same ? bodies[frame.body].X : bodies[frame.body].X * frame.C;
}

}  // namespace torsor
