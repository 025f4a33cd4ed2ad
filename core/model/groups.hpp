// Joints whose coordinates are points of a group: rotations, and poses. Kernels use them only through this file and the
// struct of the joint in model/joints.hpp. A group has, q being coordinates and d, x, xi tangents (twists in the
// child's frame),
//   nq, nv
//   plus(q, d, out), minus(q1, q0, d), normalize(q, out)
//   rate(q, d, out)           dq/dt where q moves with d
//   bracket(x, y, out)        [x, y]
//   retract(q0, xi, q1)       the chart in which steps are taken; false in lanes that turn by half a turn or more
//   chart(q0, q1, xi)         its inverse, the shorter way round
//   terms(xi, s), columns(xi, out)   derivatives of the chart, model/retraction.hpp
// Coordinates of all other joints are vectors.
#pragma once
#include "model/joints.hpp"

namespace torsor {

template <class S>
void write_quaternion(const Quaternion<S>& q, S* out) {
  write3(q.v, out);
  out[3] = q.w;
}

// One joint's block, row-major, nv x nv with nv = 3 or 6.
template <class S>
struct Block {
  S x[36];
};
// J, J^-1, B and T of a chart at xi.
template <class S>
struct ChartTerms {
  Block<S> J, inverse, B, T;
};

// The columns s of J in the chart of a joint on a group, v = sum of s_k xidot_k, with their derivatives by xi; the step
// X itself; and Ad of X^-1, which maps a displacement before the step to one after it. The linear parts are zero for a
// rotation.
template <class S>
struct ChartColumns {
  int n;
  SE3<S> X;
  Motion<S> s[6], ds[36], d2s[216], Ad[6];
  Mat3<S> inverse;  // of the angular part of J

  // Covectors and vectors of n numbers as wrenches and twists, for the functions below.
  Force<S> covector(const S* y) const { return {read3(y), n == 6 ? read3(y + 3) : zero3<S>()}; }
  void apply(const Motion<S>* columns, const S* x, S* out) const {  // sum of columns_k x_k
    Motion<S> sum = zero_motion<S>();
    for (int k = 0; k < n; ++k) sum = mul_add(x[k], columns[k], sum);
    write3(sum.w, out);
    if (n == 6) write3(sum.v, out + 3);
  }
  void apply_transposed(const Motion<S>* columns, const S* y, S* out) const {
    const Force<S> f = covector(y);
    for (int k = 0; k < n; ++k) out[k] = dot(columns[k], f);
  }
  void solve(S* x) const {  // x <- J^-1 x
    write3(inverse * read3(x), x);
    if (n == 6) write3(X.R * read3(x + 3), x + 3);
  }
  void solve_transposed(S* y) const {  // y <- J^-T y
    write3(transposed(inverse, read3(y)), y);
    if (n == 6) write3(transposed(X.R, read3(y + 3)), y + 3);
  }
};

template <class S>
void put(const Mat3<S>& A, bool transposed, int n, S* out) {
  for (int j = 0; j < 3; ++j) {
    const Vec3<S>& c = A.column(j);
    const S v[3] = {c.x, c.y, c.z};
    for (int i = 0; i < 3; ++i) out[transposed ? n * j + i : n * i + j] = v[i];
  }
}
template <class S>
Mat3<S> skew(const Vec3<S>& v) {
  return {{S(0.0), v.z, -v.y}, {-v.z, S(0.0), v.x}, {v.y, -v.x, S(0.0)}};
}
template <class S>
Mat3<S> inverse_of(const Mat3<S>& J) {
  const Vec3<S> a = cross(J.y, J.z), b = cross(J.z, J.x), c = cross(J.x, J.y);
  const S d = S(1.0) / dot(J.x, a);
  return {{d * a.x, d * b.x, d * c.x}, {d * a.y, d * b.y, d * c.y}, {d * a.z, d * b.z, d * c.z}};
}

struct Rotations {  // q: a quaternion xyzw
  static constexpr int nq = 4, nv = 3;

  template <class S>
  static void plus(const S* q, const S* d, S* out) {
    write_quaternion(normalized(read_quaternion(q) * quaternion_exponential(read3(d))), out);
  }
  template <class S>
  static void minus(const S* q1, const S* q0, S* d) {
    const Quaternion<S> inverse{-read3(q0), q0[3]};
    write3(quaternion_logarithm(normalized(inverse * read_quaternion(q1))), d);
  }
  template <class S>
  static void normalize(const S* q, S* out) {
    write_quaternion(normalized(read_quaternion(q)), out);
  }
  template <class S>
  static void rate(const S* q, const S* d, S* out) {
    write_quaternion(read_quaternion(q) * Quaternion<S>{S(0.5) * read3(d), S(0.0)}, out);
  }
  template <class S>
  static void bracket(const S* x, const S* y, S* out) {
    write3(cross(read3(x), read3(y)), out);
  }
  template <class S>
  static Mask<S> retract(const S* q0, const S* xi, S* q1) {
    const Quaternion<S> from = normalized(read_quaternion(q0));
    write_quaternion(normalized(from * quaternion_exponential(read3(xi))), q1);
    return less(dot(read3(xi), read3(xi)), S(kPi * kPi));
  }
  template <class S>
  static void chart(const S* q0, const S* q1, S* xi) {
    const Quaternion<S> from = normalized(read_quaternion(q0));
    write3(quaternion_logarithm(normalized(Quaternion<S>{-from.v, from.w} * read_quaternion(q1))), xi);
  }
  template <class S>
  static ChartTerms<S> terms(const S* xi, const S* s) {
    ChartTerms<S> t{};
    put_terms(xi, s, nv, t);
    return t;
  }
  template <class S>
  static void columns(const S* xi, ChartColumns<S>& out) {
    put_columns(xi, nv, out);
    put_displacements(out);
  }

  // The part of `terms` for a rotation in a chart of n velocities; returns the rotation.
  template <class S>
  static Mat3<S> put_terms(const S* xi, const S* s, int n, ChartTerms<S>& t) {
    SE3<S> E;
    Motion<S> column[3], derivatives[9];
    evaluate_exponential(xi, s == nullptr ? 1 : 2, GeneralTerms<S>{E, column, derivatives, nullptr});
    const Mat3<S> J{column[0].w, column[1].w, column[2].w}, inverse = inverse_of(J);
    Vec3<S> T[3] = {zero3<S>(), zero3<S>(), zero3<S>()};
    for (int k = 0; s != nullptr && k < 3; ++k)
      for (int j = 0; j < 3; ++j) T[k] = mul_add(s[j], derivatives[3 * j + k].w, T[k]);
    put(J, false, n, t.J.x);
    put(inverse, false, n, t.inverse.x);
    put(inverse, true, n, t.B.x);  // J_l = J_r^T on SO(3)
    put(Mat3<S>{T[0], T[1], T[2]}, false, n, t.T.x);
    return E.R;
  }
  // The part of `columns` for a rotation: everything but Ad.
  template <class S>
  static void put_columns(const S* xi, int n, ChartColumns<S>& out) {
    SE3<S> E;
    Motion<S> s[3], ds[9], d2s[27];
    evaluate_exponential(xi, 3, GeneralTerms<S>{E, s, ds, d2s});
    out.n = n;
    out.X = {E.R, zero3<S>()};
    for (int k = 0; k < n * n; ++k) out.ds[k] = zero_motion<S>();
    for (int k = 0; k < n * n * n; ++k) out.d2s[k] = zero_motion<S>();
    for (int j = 0; j < 3; ++j) {
      out.s[j] = s[j];
      for (int k = 0; k < 3; ++k) {
        out.ds[n * j + k] = ds[3 * j + k];
        for (int l = 0; l < 3; ++l) out.d2s[n * (n * j + k) + l] = d2s[9 * j + 3 * k + l];
      }
    }
    out.inverse = inverse_of(Mat3<S>{s[0].w, s[1].w, s[2].w});
  }
  // Ad, from the step X.
  template <class S>
  static void put_displacements(ChartColumns<S>& out) {
    const Mat3<S> unit = identity3<S>();
    for (int j = 0; j < out.n; ++j) {
      const Motion<S> e = j < 3 ? Motion<S>{unit.column(j), zero3<S>()} : Motion<S>{zero3<S>(), unit.column(j - 3)};
      out.Ad[j] = out.X.act_inverse(e);
    }
  }
};

struct Poses {  // q: a position and a quaternion
  static constexpr int nq = 7, nv = 6;

  template <class S>
  static void plus(const S* q, const S* d, S* out) {
    const Quaternion<S> at = normalized(read_quaternion(q + 3));
    const SE3<S> step = exponential(read_motion(d));
    write3(mul_add(matrix(at), step.p, read3(q)), out);
    write_quaternion(normalized(at * quaternion_exponential(read3(d))), out + 3);
  }
  template <class S>
  static void minus(const S* q1, const S* q0, S* d) {
    Rotations::minus(q1 + 3, q0 + 3, d);
    const Vec3<S> p = transposed(matrix(read_quaternion(q0 + 3)), read3(q1) - read3(q0));
    write3(translation_logarithm(read3(d), p), d + 3);
  }
  template <class S>
  static void normalize(const S* q, S* out) {
    write3(read3(q), out);
    Rotations::normalize(q + 3, out + 3);
  }
  template <class S>
  static void rate(const S* q, const S* d, S* out) {
    write3(matrix(read_quaternion(q + 3)) * read3(d + 3), out);
    Rotations::rate(q + 3, d, out + 3);
  }
  template <class S>
  static void bracket(const S* x, const S* y, S* out) {
    write(cross(read_motion(x), read_motion(y)), out);
  }
  template <class S>
  static Mask<S> retract(const S* q0, const S* xi, S* q1) {
    write3(mul_add(matrix(normalized(read_quaternion(q0 + 3))), read3(xi + 3), read3(q0)), q1);
    return Rotations::retract(q0 + 3, xi, q1 + 3);
  }
  template <class S>
  static void chart(const S* q0, const S* q1, S* xi) {
    Rotations::chart(q0 + 3, q1 + 3, xi);
    write3(transposed(matrix(normalized(read_quaternion(q0 + 3))), read3(q1) - read3(q0)), xi + 3);
  }
  template <class S>
  static ChartTerms<S> terms(const S* xi, const S* s) {
    ChartTerms<S> t{};
    const Mat3<S> R = Rotations::put_terms(xi, s, nv, t);
    put(R, true, nv, t.J.x + 21);
    put(R, false, nv, t.inverse.x + 21);
    put(skew(-read3(xi + 3)), false, nv, t.B.x + 18);
    put(identity3<S>(), false, nv, t.B.x + 21);
    if (s == nullptr) return t;
    const S* J = t.J.x;
    const Mat3<S> angular{{J[0], J[6], J[12]}, {J[1], J[7], J[13]}, {J[2], J[8], J[14]}};
    put(skew(transposed(R, read3(s + 3))) * angular, false, nv, t.T.x + 18);
    return t;
  }
  template <class S>
  static void columns(const S* xi, ChartColumns<S>& out) {
    Rotations::put_columns(xi, nv, out);
    out.X.p = read3(xi + 3);
    const Mat3<S> unit = identity3<S>();
    for (int j = 0; j < 3; ++j) {  // R^T e_j, which turns with -J dxi
      const Vec3<S> e = transposed(out.X.R, unit.column(j));
      out.s[3 + j] = {zero3<S>(), e};
      for (int k = 0; k < 3; ++k) {
        out.ds[nv * (3 + j) + k].v = cross(e, out.s[k].w);
        for (int l = 0; l < 3; ++l)
          out.d2s[nv * (nv * (3 + j) + k) + l].v =
              cross(cross(e, out.s[l].w), out.s[k].w) + cross(e, out.ds[nv * k + l].w);
      }
    }
    Rotations::put_displacements(out);
  }
};

// Calls f with the group of a joint; false if its coordinates are a vector.
template <class F>
TORSOR_INLINE bool visit_group(Kind kind, F&& f) {
  if (kind == Kind::spherical)
    f(Rotations{});
  else if (kind == Kind::free)
    f(Poses{});
  else
    return false;
  return true;
}
inline bool is_on_group(Kind kind) {
  return visit_group(kind, [](auto) {});
}

}  // namespace torsor
