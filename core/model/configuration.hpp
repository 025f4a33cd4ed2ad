// Coordinates as points of a manifold: q + dv, q1 - q0, and the normalised representative of q.
#pragma once
#include "model/groups.hpp"

namespace torsor {

template <class S>
void plus(const Model& m, const S* q, const S* dv, S* out) {
  for (const Model::Body& body : m.bodies) {
    const S *x = q + body.iq, *d = dv + body.iv;
    S* y = out + body.iq;
    if (visit_group(body.kind, [&](auto group) { group.plus(x, d, y); })) continue;
    for (int k = 0; k < body.nv; ++k) y[k] = x[k] + d[k];
  }
}

// dv with q1 = q0 + dv.
template <class S>
void minus(const Model& m, const S* q1, const S* q0, S* dv) {
  for (const Model::Body& body : m.bodies) {
    const S *a = q1 + body.iq, *b = q0 + body.iq;
    S* d = dv + body.iv;
    if (visit_group(body.kind, [&](auto group) { group.minus(a, b, d); })) continue;
    for (int k = 0; k < body.nv; ++k) d[k] = a[k] - b[k];
  }
}

template <class S>
void normalize(const Model& m, const S* q, S* out) {
  for (const Model::Body& body : m.bodies) {
    const S* x = q + body.iq;
    S* y = out + body.iq;
    if (visit_group(body.kind, [&](auto group) { group.normalize(x, y); })) continue;
    if (body.kind == Kind::exponential) {  // x (1 - 2 pi k / |x|), k whole turns
      const Vec3<S> w = read3(x);
      const S square = dot(w, w);
      const auto beyond = less(S(kPi * kPi), square);
      const S length = square_root(select(beyond, square, S(1.0)));
      const S turns = per_lane<S>([&](int l) { return std::round(lane_of(length, l) / (2 * kPi)); });
      write3(select(beyond, S(1.0) - S(2 * kPi) * turns / length, S(1.0)) * w, y);
    } else {
      for (int k = 0; k < body.nv; ++k) y[k] = x[k];
    }
  }
}

}  // namespace torsor
