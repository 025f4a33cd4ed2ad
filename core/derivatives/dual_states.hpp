// Directional derivatives: inverse and hybrid dynamics over dual numbers. Kim 2012, Tables 5-7.
#pragma once
#include "dynamics/forward_dynamics.hpp"
#include "dynamics/inverse_dynamics.hpp"
#include "model/groups.hpp"

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
    S rate[7];
    const bool on_group = visit_group(body.kind, [&](auto group) {
      group.rate(q + body.iq, dq + body.iv, rate);
      for (int k = 0; k < group.nq; ++k) x[body.iq + k].d = rate[k];
    });
    if (!on_group)
      for (int k = 0; k < body.nv; ++k) x[body.iq + k].d = dq[body.iv + k];
  }
  return x;
}

// External wrenches over dual numbers, or null.
template <class S>
Dual<S>* dual_wrenches(const Model& m, Arena& arena, const S* f_ext, const S* df_ext) {
  if (f_ext == nullptr && df_ext == nullptr) return nullptr;
  const int size = 6 * m.nframes();
  if (f_ext != nullptr) return with_tangent(arena, f_ext, df_ext, size);
  S* zeros = arena.get<S>(size);
  for (int k = 0; k < size; ++k) zeros[k] = S(0.0);
  return with_tangent(arena, zeros, df_ext, size);
}

template <class S>
void split(const Dual<S>* x, int n, S* value, S* tangent) {
  for (int k = 0; k < n; ++k) {
    if (value != nullptr) value[k] = x[k].v;
    if (tangent != nullptr) tangent[k] = x[k].d;
  }
}

}  // namespace torsor
