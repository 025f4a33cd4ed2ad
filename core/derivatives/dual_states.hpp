// Directional derivatives: inverse and hybrid dynamics over dual numbers. Kim 2012, Tables 5-7.
#pragma once
#include "dynamics/forward_dynamics.hpp"
#include "dynamics/inverse_dynamics.hpp"

namespace torsor {

// x with tangent dx, which may be null.
template <class S>
Dual<S>* with_tangent(Arena& arena, const S* x, const S* dx, int n) {
  auto* y = arena.get<Dual<S>>(n);
  for (int k = 0; k < n; ++k) y[k] = {x[k], dx != nullptr ? dx[k] : S(0.0)};
  return y;
}

// q moving with dq in its tangent space: the derivative of plus(q, t dq) at t = 0.
template <class S>
Dual<S>* moving(const Model& m, Arena& arena, const S* q, const S* dq) {
  auto* x = with_tangent<S>(arena, q, nullptr, m.nq);
  if (dq == nullptr) return x;
  for (const Model::Body& body : m.bodies) {
    const bool free = body.kind == Kind::free;
    if (free || body.kind == Kind::spherical) {
      const Quaternion<S> at = read_quaternion(q + body.iq + (free ? 3 : 0));
      const Quaternion<S> rate = at * Quaternion<S>{S(0.5) * read3(dq + body.iv), S(0.0)};
      Dual<S>* y = x + body.iq + (free ? 3 : 0);
      y[0].d = rate.v.x;
      y[1].d = rate.v.y;
      y[2].d = rate.v.z;
      y[3].d = rate.w;
      if (free) {
        const Vec3<S> p = matrix(at) * read3(dq + body.iv + 3);
        x[body.iq].d = p.x;
        x[body.iq + 1].d = p.y;
        x[body.iq + 2].d = p.z;
      }
    } else {
      for (int k = 0; k < body.nv; ++k) x[body.iq + k].d = dq[body.iv + k];
    }
  }
  return x;
}

template <class S>
void split(const Dual<S>* x, int n, S* value, S* tangent) {
  for (int k = 0; k < n; ++k) {
    if (value != nullptr) value[k] = x[k].v;
    if (tangent != nullptr) tangent[k] = x[k].d;
  }
}

}  // namespace torsor
