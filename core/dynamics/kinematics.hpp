// Poses, and the products of the maximal-reduced Jacobian with vectors in O(n). Sueda 2021, Algs. 5 and 6.
#pragma once
#include "tree/poses.hpp"

namespace torsor {

// Poses (4 x 4, row-major) of the user's bodies.
template <class S>
void body_poses(const Model& m, Arena& arena, const S* q, S* poses) {
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto* bodies = world_bodies(m, arena, general, q);
  for (int b = 0; b < m.nframes(); ++b) {
    const SE3<S> X = frame_pose(m.frames[b], bodies);
    write_pose(X, poses + 16 * b);
  }
}

// World positions of points (3 each, in the frames of the user's bodies `frames`).
template <class S>
void point_positions(const Model& m, Arena& arena, const S* q, const std::vector<int>& frames, const S* points,
                     S* positions) {
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto* bodies = world_bodies(m, arena, general, q);
  for (std::size_t k = 0; k < frames.size(); ++k) {
    const SE3<S> X = frame_pose(m.frames[frames[k]], bodies);
    write3(mul_add(X.R, read3(points + 3 * k), X.p), positions + 3 * k);
  }
}

template <class S>
struct ProductBody {
  SE3<S> T;  // pose in the parent's frame
  Motion<S> y, z;
};

// y = J x and z = Jdot x + J b, by body (6 each, in the bodies' frames), when the model moves with v. Alg. 5.
// v and b may be null (v: no z; b: zero), z may be null.
template <class S>
void jacobian_products(const Model& m, Arena& arena, const S* q, const S* v, const S* x, const S* b, S* y, S* z) {
  auto* bodies = arena.get<ProductBody<S>>(m.n());
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto at = coordinates(m, arena, q);
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    auto& c = bodies[i];
    visit<S>(m, body, general, [&](auto joint) {
      using Joint = decltype(joint);
      c.T = joint.transform(body.M, at + body.iq);
      c.y = c.z = zero_motion<S>();
      if (body.parent >= 0) {
        c.y = c.T.act_inverse(bodies[body.parent].y);
        if (z != nullptr) c.z = c.T.act_inverse(bodies[body.parent].z);
      }
      if (z != nullptr) {
        c.z += cross(c.y, joint.apply(v + body.iv));  // the derivative of Ad(T^-1) along the joint's motion
        if constexpr (!Joint::constant) c.z += joint.rate(x + body.iv, v + body.iv);
        if (b != nullptr) c.z += joint.apply(b + body.iv);
      }
      c.y += joint.apply(x + body.iv);
    });
  }
  for (int f = 0; f < m.nframes(); ++f) {
    const Model::Frame& frame = m.frames[f];
    const auto at_frame = [&](const Motion<S>& V) { return frame.same ? V : lift<S>(frame.pose).act_inverse(V); };
    write(frame.body < 0 ? zero_motion<S>() : at_frame(bodies[frame.body].y), y + 6 * f);
    if (z != nullptr) write(frame.body < 0 ? zero_motion<S>() : at_frame(bodies[frame.body].z), z + 6 * f);
  }
}

// x = J^T y. Alg. 6.
template <class S>
void jacobian_transpose_product(const Model& m, Arena& arena, const S* q, const S* y, S* x) {
  auto* T = arena.get<SE3<S>>(m.n());
  auto* F = arena.get<Force<S>>(m.n());
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto at = coordinates(m, arena, q);
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    visit<S>(m, body, general, [&](auto joint) { T[i] = joint.transform(body.M, at + body.iq); });
    F[i] = zero_force<S>();
  }
  for_each_wrench(m, y, [&](int i, const Force<S>& G) { F[i] += G; });
  for (int i = m.n() - 1; i >= 0; --i) {
    const Model::Body& body = m.bodies[i];
    visit<S>(m, body, general, [&](auto joint) { joint.project(F[i], x + body.iv); });
    if (body.parent >= 0) F[body.parent] += T[i].act(F[i]);
  }
}

// Converts twists y and, unless null, accelerations z of the user's bodies from body axes to others, in place.
//   axes 1: spatial quantities in the world's frame;
//        2: velocity and acceleration of the body's origin, in the world's axes.
template <class S>
void change_axes(const Model& m, Arena& arena, const S* q, int axes, S* y, S* z) {
  if (axes == 0) return;
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto* bodies = world_bodies(m, arena, general, q);
  for (int f = 0; f < m.nframes(); ++f) {
    const SE3<S> X = frame_pose(m.frames[f], bodies);
    const Motion<S> V = read_motion(y + 6 * f);
    if (z != nullptr) {
      Motion<S> A = read_motion(z + 6 * f);
      if (axes == 2) A.v = cross_add(V.w, V.v, A.v);
      write(axes == 1 ? X.act(A) : Motion<S>{X.R * A.w, X.R * A.v}, z + 6 * f);
    }
    write(axes == 1 ? X.act(V) : Motion<S>{X.R * V.w, X.R * V.v}, y + 6 * f);
  }
}

}  // namespace torsor
