// Rows between two markers: the motion of marker B as A sees it, and rows as wrenches (docs/derivations/constraints.md,
// 1 and 2).
//
// A row that is weighted by x in a sum has three wrenches on B, and their opposites on A, such that the sum changes by
//   along q_k: C0.S_k + C1.Psidot_k + C2.Psiddot_k,   along v_k: C1.S_k + C2.Vdot_k,   along a_k: C2.S_k,
// S_k, Psidot_k, Psiddot_k, Vdot_k being the columns of tree/motions.hpp.
#pragma once
#include <algorithm>

#include "constraints/constraint_set.hpp"

namespace torsor {

template <class S>
Motion<S> turned(const Mat3<S>& R, const Motion<S>& x) {
  return {R * x.w, R * x.v};
}
template <class S>
Motion<S> turned_back(const Mat3<S>& R, const Motion<S>& x) {
  return {transposed(R, x.w), transposed(R, x.v)};
}

// A marker in the world's axes, and the motion of its body about its origin. With gravity in the motions, all
// accelerations have the world's.
template <class S>
struct MarkerState {
  Mat3<S> R;
  Vec3<S> origin, x;  // the point of its tree, in the world, and the marker's origin as seen from there
  Motion<S> V, A;
};
template <class S>
MarkerState<S> marker_state(const Marker& marker, const Motions<S>& all) {
  SE3<S> X = marker.frame < 0 ? lift<S>(marker.pose) : lift<S>(all.pose(marker.frame) * marker.pose);
  if (marker.body < 0) return {X.R, zero3<S>(), X.p, zero_motion<S>(), all.bodies[-1].a};
  const auto& b = all.bodies[marker.body];
  X = SE3<S>{b.R, b.p} * X;
  return {X.R, b.origin, X.p, shift(b.v, X.p), shift(b.a, X.p)};
}
// A marker of the world that moves: `given` has its pose, its twist and the rate of that; `still`: without the latter
// two.
template <class S>
MarkerState<S> moving_marker(const double* given, const Motion<S>& world, bool still) {
  const auto vector = [&](int k) -> Vec3<S> { return {S(given[k]), S(given[k + 1]), S(given[k + 2])}; };
  const Vec3<S> r[3] = {vector(0), vector(3), vector(6)};
  const Mat3<S> R{{r[0].x, r[1].x, r[2].x}, {r[0].y, r[1].y, r[2].y}, {r[0].z, r[1].z, r[2].z}};
  if (still) return {R, zero3<S>(), vector(9), zero_motion<S>(), world};
  return {R, zero3<S>(), vector(9), turned(R, {vector(12), vector(15)}), turned(R, {vector(18), vector(21)}) + world};
}

// The motion of B as A sees it. All motions and wrenches are in A's axes, about A's origin.
template <class S>
struct PairState {
  Mat3<S> R;  // pose of B
  Vec3<S> p;
  Motion<S> V, Vdot;         // twist, and the rate of its components
  Motion<S> VA, VB, AA, AB;  // of the two bodies in the world
  SE3<S> to_A, to_B;         // from A's frame to the world's axes about the points of the two trees
};
template <class S>
PairState<S> pair_state(const MarkerState<S>& A, const MarkerState<S>& B) {
  const Vec3<S> d = (B.x - A.x) + (B.origin - A.origin);
  PairState<S> s;
  s.R = {transposed(A.R, B.R.x), transposed(A.R, B.R.y), transposed(A.R, B.R.z)};
  s.p = transposed(A.R, d);
  s.VA = turned_back(A.R, A.V);
  s.AA = turned_back(A.R, A.A);
  s.VB = turned_back(A.R, shift(B.V, -d));
  s.AB = turned_back(A.R, shift(B.A, -d));
  s.V = s.VB - s.VA;
  s.Vdot = s.AB - s.AA - cross(s.VA, s.V);
  s.to_A = {A.R, A.x};
  s.to_B = {A.R, B.x - d};
  return s;
}
template <class S>
PairState<S> pair_state(const PairPart& pair, const Motions<S>& all, const double* times, bool still = false) {
  const MarkerState<S> B = marker_state(pair.B, all);
  if (pair.motion.size > 0) return pair_state(moving_marker(times + pair.motion.at, all.bodies[-1].a, still), B);
  return pair_state(marker_state(pair.A, all), B);
}

// A point (s = 1) or a direction (s = 0) of B that A sees, with its first and second rate.
template <class S>
struct SeenPoint {
  Vec3<S> y, u, udot;
};
template <class S>
SeenPoint<S> seen_point(const PairState<S>& at, const Vec3<double>& b, double s) {
  SeenPoint<S> out;
  out.y = mul_add(S(s), at.p, at.R * b);
  out.u = cross_add(at.V.w, out.y, S(s) * at.V.v);
  out.udot = cross_add(at.Vdot.w, out.y, cross_add(at.V.w, out.u, S(s) * at.Vdot.v));
  return out;
}
// The distance between the markers, l = |p|, with n = p / l.
template <class S>
struct SeenDistance : SeenPoint<S> {
  S l, nu;                  // nu = n.u
  Vec3<S> n, across, bent;  // P u / l and P udot / l, P = 1 - n n^T
  S turning;                // u.u - (n.u)^2
};
template <class S>
SeenDistance<S> seen_distance(const PairState<S>& at) {
  SeenDistance<S> out;
  static_cast<SeenPoint<S>&>(out) = seen_point(at, {0.0, 0.0, 0.0}, 1.0);
  out.l = square_root(dot(out.y, out.y));
  const S inverse = S(1.0) / out.l;
  out.n = inverse * out.y;
  out.nu = dot(out.n, out.u);
  out.across = inverse * (out.u - out.nu * out.n);
  out.bent = inverse * (out.udot - dot(out.n, out.udot) * out.n);
  out.turning = dot(out.u, out.u) - out.nu * out.nu;
  return out;
}

// g, gdot and gamma of a row.
template <class S>
struct RowValue {
  S g, gdot, gamma;
};
template <class S>
RowValue<S> row_value(const PairState<S>& at, const PairRow& row) {
  if (row.is_distance) {
    const SeenDistance<S> d = seen_distance(at);
    return {d.l - S(row.offset), d.nu, dot(d.n, d.udot) + d.turning / d.l};
  }
  RowValue<S> out{S(-row.offset), S(0.0), S(0.0)};
  for (const RowTerm& term : row.terms) {
    const SeenPoint<S> x = seen_point(at, term.b, term.s);
    const Vec3<S> a = S(term.coefficient) * lift<S>(term.a);
    out.g = dot_add(a, x.y, out.g);
    out.gdot = dot_add(a, x.u, out.gdot);
    out.gamma = dot_add(a, x.udot, out.gamma);
  }
  return out;
}

// The force z at y, or the couple y x z if y is a direction.
template <class S>
Force<S> row_wrench(const Vec3<S>& y, double s, const Vec3<S>& z) {
  return {cross(y, z), S(s) * z};
}
// W of a row: gdot = W.V.
template <class S>
Force<S> row_wrench(const PairState<S>& at, const PairRow& row) {
  if (row.is_distance) {
    const S l = square_root(dot(at.p, at.p));
    return {zero3<S>(), (S(1.0) / l) * at.p};  // p x n = 0
  }
  Force<S> W = zero_force<S>();
  for (const RowTerm& term : row.terms) {
    const Vec3<S> y = mul_add(S(term.s), at.p, at.R * term.b);
    W += row_wrench(y, term.s, S(term.coefficient) * lift<S>(term.a));
  }
  return W;
}

// The rank of the derivative of the reactions of a pair beyond that of wrenches which move with their bodies, as seen
// from A: translations have no effect on linear rows if A does not move.
inline int border_of_pair(const PairPart& pair) {
  const bool linear = std::none_of(pair.each.begin(), pair.each.end(), [](auto& row) { return row.is_distance; });
  return pair.A.body < 0 && linear ? 3 : 6;
}
inline int border_of_pairs(const ConstraintSet& set) {
  int sum = 0;
  for (const PairPart& pair : set.pairs) sum += border_of_pair(pair);
  return sum;
}

// Of all rows, weighted by multipliers.
template <class S>
Force<S> pair_wrench(const PairState<S>& at, const PairPart& pair, const S* multipliers) {
  Force<S> W = zero_force<S>();
  for (int r = 0; r < pair.rows; ++r) W = mul_add(multipliers[pair.row + r], row_wrench(at, pair.each[r]), W);
  return W;
}

// The wrenches of a weighted sum of rows.
template <class S>
struct RowWrenches {
  Force<S> C0, C1, C2;
};
template <class S>
RowWrenches<S> zero_wrenches() {
  return {zero_force<S>(), zero_force<S>(), zero_force<S>()};
}
// Sums over rows of weights times W, and for the weights of gamma W1 and W0, and of gdot W1 without its last term, in
// the notation of the derivation.
template <class S>
class RowSum {
 public:
  explicit RowSum(const PairState<S>& at) : at_(at) {}
  // Weights of g, gdot and gamma.
  void add(const PairRow& row, const S& x0, const S& x1, const S& x2) {
    if (row.is_distance) {
      const SeenDistance<S> d = seen_distance(at_);
      const Vec3<S> bend = d.bent - (d.turning / (d.l * d.l)) * d.n - (S(2.0) * d.nu / d.l) * d.across;
      add(d, 1.0, d.n, d.across, bend, x0, x1, x2);
      return;
    }
    for (const RowTerm& term : row.terms)
      add(seen_point(at_, term.b, term.s), term.s, S(term.coefficient) * lift<S>(term.a), zero3<S>(), zero3<S>(), x0,
          x1, x2);
  }
  RowWrenches<S> wrenches() const {
    const Force<S> both = cross(at_.VA + at_.VB, W2_);
    const Force<S> bias = cross(at_.VB, W1_ + cross(at_.VA, W2_));
    return {W_ + half_ + cross(at_.VB, Wd_) + W0_ + bias + cross(at_.AB, W2_), Wd_ + W1_ + both, W2_};
  }

 private:
  // e: e1 / 2 of the derivation, bend: e0.
  void add(const SeenPoint<S>& x, double s, const Vec3<S>& a, const Vec3<S>& e, const Vec3<S>& bend, const S& x0,
           const S& x1, const S& x2) {
    const Vec3<S>&w = at_.V.w, &wdot = at_.Vdot.w;
    const Force<S> W = row_wrench(x.y, s, a);
    const Vec3<S> turned = cross(a, w), e1 = S(2.0) * e;
    W_ = mul_add(x0, W, W_);
    Wd_ = mul_add(x1, W, Wd_);
    W2_ = mul_add(x2, W, W2_);
    half_ = mul_add(x1, row_wrench(x.y, s, turned + e), half_);
    Force<S> W1 = row_wrench(x.y, s, turned + e1);
    W1.n += cross(x.u, a);
    W1_ = mul_add(x2, W1, W1_);
    W0_ = mul_add(x2, row_wrench(x.y, s, cross_add(a, wdot, cross_add(turned + e1, w, bend))), W0_);
  }
  const PairState<S>& at_;
  Force<S> W_ = zero_force<S>(), Wd_ = W_, W2_ = W_, half_ = W_, W1_ = W_, W0_ = W_;
};

// N of the derivation: how the wrench of rows weighted by multipliers, as A sees it, changes with a displacement eta of
// B.
template <class S>
Force<S> wrench_change(const PairState<S>& at, const PairRow& row, const S& multiplier, const Motion<S>& eta) {
  if (row.is_distance) {
    const S l = square_root(dot(at.p, at.p));
    const Vec3<S> n = (S(1.0) / l) * at.p, dy = cross_add(eta.w, at.p, eta.v);
    const Vec3<S> dn = (S(1.0) / l) * (dy - dot(n, dy) * n);
    const Vec3<S> turned = cross(dy, n);
    const Force<S> moved = row_wrench(at.p, 1.0, dn);
    return {multiplier * (turned + moved.n), multiplier * moved.f};
  }
  Vec3<S> sum = zero3<S>();
  for (const RowTerm& term : row.terms) {
    const Vec3<S> y = mul_add(S(term.s), at.p, at.R * term.b);
    const Vec3<S> dy = cross_add(eta.w, y, S(term.s) * eta.v);
    sum += S(term.coefficient) * cross(dy, lift<S>(term.a));
  }
  return {multiplier * sum, zero3<S>()};
}

}  // namespace torsor
