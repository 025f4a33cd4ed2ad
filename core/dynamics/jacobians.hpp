// Jacobians as matrices. Sueda 2021, Alg. 2, with columns carried in the world's axes instead of from body to body.
#pragma once
#include "tree/poses.hpp"

namespace torsor {

// Calls f(k, i) for every velocity k that moves body i's descendant `body`: those of the body and of its ancestors.
template <class F>
TORSOR_INLINE void for_each_velocity_above(const Model& m, int body, F&& f) {
  for (int i = body; i >= 0; i = m.links[i].parent)
    for (int k = m.links[i].iv; k < m.links[i].iv + m.links[i].nv; ++k) f(k, i);
}

// J (6 x nv) of one of the user's bodies. Axes 0: the body's; 1: the world's frame; 2: the world's axes at the body's
// origin.
template <class S>
void body_jacobian(const Model& m, Arena& arena, const S* q, int frame, int axes, S* J) {
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto* bodies = world_bodies(m, arena, general, q);
  const auto* columns = world_columns(m, arena, general, bodies);
  const SE3<S> X = frame_pose(m.frames[frame], bodies);
  for (int k = 0; k < 6 * m.nv; ++k) J[k] = S(0.0);
  for_each_velocity_above(m, m.frames[frame].body, [&](int k, int i) {
    const Vec3<S> to = axes == 1 ? -bodies[i].X.p : X.p - bodies[i].X.p;
    Motion<S> c = shift(columns[k], to);
    if (axes == 0) c = {transposed(X.R, c.w), transposed(X.R, c.v)};
    S column[6];
    write(c, column);
    for (int r = 0; r < 6; ++r) J[r * m.nv + k] = column[r];
  });
}

// J (3 x nv) of the world velocity of points fixed in the user's bodies `frames`, in turn.
template <class S>
void point_jacobians(const Model& m, Arena& arena, const S* q, const std::vector<int>& frames, const S* points, S* J) {
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto* bodies = world_bodies(m, arena, general, q);
  const auto* columns = world_columns(m, arena, general, bodies);
  for (std::size_t p = 0; p < frames.size(); ++p) {
    const SE3<S> X = frame_pose(m.frames[frames[p]], bodies);
    const Vec3<S> point = mul_add(X.R, read3(points + 3 * p), X.p);
    S* rows = J + 3 * p * m.nv;
    for (int k = 0; k < 3 * m.nv; ++k) rows[k] = S(0.0);
    for_each_velocity_above(m, m.frames[frames[p]].body, [&](int k, int i) {
      const Vec3<S> v = shift(columns[k], point - bodies[i].X.p).v;
      rows[k] = v.x;
      rows[m.nv + k] = v.y;
      rows[2 * m.nv + k] = v.z;
    });
  }
}

// Velocities of all bodies and rates of their columns, in the world's axes at each body's origin: spatial quantities of
// a fixed frame that stands there now.
template <class S>
struct Rates {
  Motion<S>* V;     // by body
  Motion<S>* Sdot;  // by velocity: V x S + the joint's own rate
};
template <class S>
Rates<S> world_rates(const Model& m, Arena& arena, GeneralState<S>* general, const WorldBody<S>* bodies,
                     const Motion<S>* columns, const S* v) {
  Rates<S> r{arena.get<Motion<S>>(m.n()), arena.get<Motion<S>>(m.nv)};
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    Motion<S> V = body.parent >= 0 ? shift(r.V[body.parent], bodies[i].r) : zero_motion<S>();
    for (int k = body.iv; k < body.iv + body.nv; ++k) V = mul_add(v[k], columns[k], V);
    r.V[i] = V;
    visit<S>(m, body, general, [&](auto joint) {
      for (int k = 0; k < joint.nv; ++k) {
        Motion<S>& Sdot = r.Sdot[body.iv + k];
        Sdot = cross(V, columns[body.iv + k]);
        if constexpr (!decltype(joint)::constant) {
          const Motion<S> own = joint.column_rate(k, v + body.iv);
          Sdot += Motion<S>{bodies[i].X.R * own.w, bodies[i].X.R * own.v};
        }
      }
    });
  }
  return r;
}

// The maximal-reduced Jacobian J (6 nbodies x nv) in the bodies' frames and, unless v is null, its time derivative.
template <class S>
void maximal_jacobian(const Model& m, Arena& arena, const S* q, const S* v, S* J, S* Jdot) {
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  const auto* bodies = world_bodies(m, arena, general, q);
  const auto* columns = world_columns(m, arena, general, bodies);
  Rates<S> rates{};
  if (v != nullptr) rates = world_rates(m, arena, general, bodies, columns, v);
  const int nv = m.nv;
  const auto put = [&](const Mat3<S>& R, const Motion<S>& c, int frame, int k, S* out) {
    S column[6];
    write(Motion<S>{transposed(R, c.w), transposed(R, c.v)}, column);
    for (int r = 0; r < 6; ++r) out[(6 * frame + r) * nv + k] = column[r];
  };
  for (int f = 0; f < m.nframes(); ++f) {
    for (int k = 0; J != nullptr && k < 6 * nv; ++k) J[6 * f * nv + k] = S(0.0);
    for (int k = 0; Jdot != nullptr && k < 6 * nv; ++k) Jdot[6 * f * nv + k] = S(0.0);
    const int body = m.frames[f].body;
    if (body < 0) continue;
    const SE3<S> X = frame_pose(m.frames[f], bodies);
    const Motion<S> V = v != nullptr ? shift(rates.V[body], X.p - bodies[body].X.p) : zero_motion<S>();
    for_each_velocity_above(m, body, [&](int k, int i) {
      const Vec3<S> to = X.p - bodies[i].X.p;
      const Motion<S> c = shift(columns[k], to);
      if (J != nullptr) put(X.R, c, f, k, J);
      if (Jdot != nullptr) {
        const Motion<S> turn = cross(V, c), rate = shift(rates.Sdot[k], to);
        put(X.R, {rate.w - turn.w, rate.v - turn.v}, f, k, Jdot);
      }
    });
  }
}

}  // namespace torsor
