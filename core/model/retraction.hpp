// The chart in which a step is taken: q1 = q0 + xi for a vector joint, q0 exp(xi) for a rotation, and for a free joint
// the product of both, R1 = R0 exp(w), p1 = p0 + R0 y with xi = (w, y). With tangents delta of configurations (body
// twists),
//   delta1 = J(xi) dxi at fixed q0,   dxi = J^-1(xi) delta1 - B(xi) delta0,   T(xi, s) = d(J(xi) s)/dxi.
// J, B and T are block-diagonal: 1, 1 and 0 for a vector joint. docs/derivations/implicit_steps.md.
#pragma once
#include "model/configuration.hpp"

namespace torsor {

// A block-diagonal matrix: `scalar` times the unit for vector joints, a block for each joint with a quaternion.
template <class S>
struct BlockDiagonal {
  S scalar = S(0.0);
  std::vector<Block<S>> blocks;
};

// Restores D in the lanes `keep`.
template <class S>
void restore(const Mask<S>& keep, const BlockDiagonal<S>& saved, BlockDiagonal<S>& D) {
  D.scalar = select(keep, saved.scalar, D.scalar);
  for (std::size_t b = 0; b < D.blocks.size(); ++b)
    for (int k = 0; k < 36; ++k) D.blocks[b].x[k] = select(keep, saved.blocks[b].x[k], D.blocks[b].x[k]);
}

// The bodies whose joints have quaternions.
inline std::vector<int> quaternion_bodies(const Model& m) {
  std::vector<int> out;
  for (int i = 0; i < m.n(); ++i)
    if (is_on_group(m.bodies[i].kind)) out.push_back(i);
  return out;
}

// The blocks of a joint on a group at xi. T is for s, if that is not null.
template <class S>
ChartTerms<S> chart_terms(Kind kind, const S* xi, const S* s) {
  ChartTerms<S> terms;
  visit_group(kind, [&](auto group) { terms = group.terms(xi, s); });
  return terms;
}
template <class S>
void chart_columns(Kind kind, const S* xi, ChartColumns<S>& out) {
  visit_group(kind, [&](auto group) { group.columns(xi, out); });
}

// q1 from xi. False in lanes where a rotation is half a turn or more.
template <class S>
Mask<S> retract(const Model& m, const S* q0, const S* xi, S* q1) {
  Mask<S> good = every_lane<S>();
  for (const Model::Body& body : m.bodies) {
    const S *q = q0 + body.iq, *x = xi + body.iv;
    S* out = q1 + body.iq;
    if (visit_group(body.kind, [&](auto group) { good = good & group.retract(q, x, out); })) continue;
    for (int k = 0; k < body.nv; ++k) out[k] = q[k] + x[k];
  }
  return good;
}

// Whether an angle has lost its digits from q0 to q1: beyond a million radians the result of a step is meaningless.
template <class S>
Mask<S> turns_too_far(const Model& m, const S* q0, const S* q1) {
  Mask<S> near = every_lane<S>();
  for (int k : m.angles) near = near & less(absolute(q1[k] - q0[k]), S(1e6));
  return !near;
}

// xi with retract(q0, xi) = q1, the shorter way round.
template <class S>
void chart(const Model& m, const S* q0, const S* q1, S* xi) {
  for (const Model::Body& body : m.bodies) {
    const S *a = q0 + body.iq, *b = q1 + body.iq;
    S* x = xi + body.iv;
    if (visit_group(body.kind, [&](auto group) { group.chart(a, b, x); })) continue;
    for (int k = 0; k < body.nv; ++k) x[k] = b[k] - a[k];
  }
}

// C = s A B, or C += s A B.
template <class S>
void multiply(int n, const S& s, const Block<S>& A, const Block<S>& B, Block<S>& C, bool add) {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      S sum(0.0);
      for (int k = 0; k < n; ++k) sum = mul_add(A.x[n * i + k], B.x[n * k + j], sum);
      C.x[n * i + j] = add ? mul_add(s, sum, C.x[n * i + j]) : s * sum;
    }
}

// y = D x or, transposed, D^T x; with add, y += that. y is not x.
template <class S>
void apply(const Model& m, const std::vector<int>& quaternions, const BlockDiagonal<S>& D, bool transpose, const S* x,
           S* y, bool add = false) {
  if (!add)
    for (int k = 0; k < m.nv; ++k) y[k] = S(0.0);
  std::size_t b = 0;
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    const int n = body.nv;
    const S* from = x + body.iv;
    S* to = y + body.iv;
    if (b < quaternions.size() && quaternions[b] == i) {
      const S* d = D.blocks[b++].x;
      for (int r = 0; r < n; ++r)
        for (int k = 0; k < n; ++k) to[r] = mul_add(d[transpose ? n * k + r : n * r + k], from[k], to[r]);
    } else {
      for (int r = 0; r < n; ++r) to[r] = mul_add(D.scalar, from[r], to[r]);
    }
  }
}

// A += G D, both nv x nv.
template <class S>
void add_product(const Model& m, const std::vector<int>& quaternions, const S* G, const BlockDiagonal<S>& D, S* A) {
  const int nv = m.nv;
  add_scaled(nv * nv, D.scalar, G, A);
  for (std::size_t b = 0; b < quaternions.size(); ++b) {
    const Model::Body& body = m.bodies[quaternions[b]];
    Block<S> rest = D.blocks[b];
    for (int k = 0; k < body.nv; ++k) rest.x[k * (body.nv + 1)] -= D.scalar;
    for (int r = 0; r < nv; ++r) {
      const S* g = G + r * nv + body.iv;
      S* a = A + r * nv + body.iv;
      for (int k = 0; k < body.nv; ++k) add_scaled(body.nv, g[k], rest.x + k * body.nv, a);
    }
  }
}

}  // namespace torsor
