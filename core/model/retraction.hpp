// The chart in which a step is taken: q1 = q0 + xi for a vector joint, q0 exp(xi) for a rotation, and for a free joint the
// product of both, R1 = R0 exp(w), p1 = p0 + R0 y with xi = (w, y). With tangents delta of configurations (body twists),
//   delta1 = J(xi) dxi at fixed q0,   dxi = J^-1(xi) delta1 - B(xi) delta0,   T(xi, s) = d(J(xi) s)/dxi.
// J, B and T are block-diagonal: 1, 1 and 0 for a vector joint. docs/derivations/implicit_steps.md.
#pragma once
#include "model/configuration.hpp"

namespace torsor {

// One joint's block, row-major, n x n with n = 3 or 6.
struct Block {
  double x[36];
};

// A block-diagonal matrix: `scalar` times the unit for vector joints, a block for each joint with a quaternion.
struct BlockDiagonal {
  double scalar = 0.0;
  std::vector<Block> blocks;
};

// The bodies whose joints have quaternions.
inline std::vector<int> quaternion_bodies(const Model& m) {
  std::vector<int> out;
  for (int i = 0; i < m.n(); ++i)
    if (m.bodies[i].kind == Kind::spherical || m.bodies[i].kind == Kind::free) out.push_back(i);
  return out;
}

// J, J^-1 and B of one rotation, and T for s.
struct RotationTerms {
  Mat3<double> R, J, inverse, T;
};
inline RotationTerms rotation_terms(const double* x, const double* s) {
  RotationTerms r;
  SE3<double> E;
  Motion<double> columns[3], derivatives[9];
  evaluate_exponential(x, s == nullptr ? 1 : 2, GeneralTerms<double>{E, columns, derivatives, nullptr});
  r.R = E.R;
  r.J = {columns[0].w, columns[1].w, columns[2].w};
  const Vec3<double> a = cross(r.J.y, r.J.z), b = cross(r.J.z, r.J.x), c = cross(r.J.x, r.J.y);
  const double d = 1.0 / dot(r.J.x, a);
  r.inverse = {{d * a.x, d * b.x, d * c.x}, {d * a.y, d * b.y, d * c.y}, {d * a.z, d * b.z, d * c.z}};
  Vec3<double> t[3] = {zero3<double>(), zero3<double>(), zero3<double>()};
  for (int k = 0; s != nullptr && k < 3; ++k)
    for (int j = 0; j < 3; ++j) t[k] = mul_add(s[j], derivatives[3 * j + k].w, t[k]);
  r.T = {t[0], t[1], t[2]};
  return r;
}

inline void put(const Mat3<double>& A, bool transposed, int n, double* out) {
  for (int j = 0; j < 3; ++j) {
    const Vec3<double>& c = A.column(j);
    const double v[3] = {c.x, c.y, c.z};
    for (int i = 0; i < 3; ++i) out[transposed ? n * j + i : n * i + j] = v[i];
  }
}
inline Mat3<double> skew(const Vec3<double>& v) { return {{0.0, v.z, -v.y}, {-v.z, 0.0, v.x}, {v.y, -v.x, 0.0}}; }

// The blocks of a joint with a quaternion at xi. T is for s, if that is not null.
struct ChartTerms {
  Block J, inverse, B, T;
};
inline ChartTerms chart_terms(Kind kind, const double* xi, const double* s) {
  const int n = kind == Kind::free ? 6 : 3;
  ChartTerms t{};
  const RotationTerms r = rotation_terms(xi, s);
  put(r.J, false, n, t.J.x);
  put(r.inverse, false, n, t.inverse.x);
  put(r.inverse, true, n, t.B.x);  // J_l = J_r^T on SO(3)
  put(r.T, false, n, t.T.x);
  if (kind == Kind::free) {
    put(r.R, true, n, t.J.x + 21);
    put(r.R, false, n, t.inverse.x + 21);
    put(skew(-read3(xi + 3)), false, n, t.B.x + 18);
    put(identity3<double>(), false, n, t.B.x + 21);
    if (s != nullptr) put(skew(transposed(r.R, read3(s + 3))) * r.J, false, n, t.T.x + 18);
  }
  return t;
}

// q1 from xi. False if a rotation is half a turn or more.
template <class S>
bool retract(const Model& m, const S* q0, const S* xi, S* q1) {
  bool good = true;
  for (const Model::Body& body : m.bodies) {
    const S *q = q0 + body.iq, *x = xi + body.iv;
    S* out = q1 + body.iq;
    if (body.kind == Kind::spherical || body.kind == Kind::free) {
      const int at = body.kind == Kind::free ? 3 : 0;
      const Quaternion<S> from = normalized(read_quaternion(q + at));
      good = good && less(dot(read3(x), read3(x)), S(M_PI * M_PI));
      if (at != 0) write3(mul_add(matrix(from), read3(x + 3), read3(q)), out);
      write_quaternion(normalized(from * quaternion_exponential(read3(x))), out + at);
    } else {
      for (int k = 0; k < body.nv; ++k) out[k] = q[k] + x[k];
    }
  }
  return good;
}

// Whether an angle has lost its digits from q0 to q1: beyond a million radians a step says nothing about where it leads.
inline bool turns_too_far(const Model& m, const double* q0, const double* q1) {
  for (int k : m.angles)
    if (!(std::fabs(q1[k] - q0[k]) < 1e6)) return true;
  return false;
}

// xi with retract(q0, xi) = q1, the shorter way round.
template <class S>
void chart(const Model& m, const S* q0, const S* q1, S* xi) {
  for (const Model::Body& body : m.bodies) {
    const S *a = q0 + body.iq, *b = q1 + body.iq;
    S* x = xi + body.iv;
    if (body.kind == Kind::spherical || body.kind == Kind::free) {
      const int at = body.kind == Kind::free ? 3 : 0;
      const Quaternion<S> from = normalized(read_quaternion(a + at));
      write3(quaternion_logarithm(normalized(Quaternion<S>{-from.v, from.w} * read_quaternion(b + at))), x);
      if (at != 0) write3(transposed(matrix(from), read3(b) - read3(a)), x + 3);
    } else {
      for (int k = 0; k < body.nv; ++k) x[k] = b[k] - a[k];
    }
  }
}

// C = s A B, or C += s A B.
inline void multiply(int n, double s, const Block& A, const Block& B, Block& C, bool add) {
  for (int i = 0; i < n; ++i)
    for (int j = 0; j < n; ++j) {
      double sum = 0.0;
      for (int k = 0; k < n; ++k) sum = mul_add(A.x[n * i + k], B.x[n * k + j], sum);
      C.x[n * i + j] = add ? mul_add(s, sum, C.x[n * i + j]) : s * sum;
    }
}

// y = D x or, transposed, D^T x; with add, y += that. y is not x.
inline void apply(const Model& m, const std::vector<int>& quaternions, const BlockDiagonal& D, bool transpose,
                  const double* x, double* y, bool add = false) {
  if (!add)
    for (int k = 0; k < m.nv; ++k) y[k] = 0.0;
  std::size_t b = 0;
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    const int n = body.nv;
    const double* from = x + body.iv;
    double* to = y + body.iv;
    if (b < quaternions.size() && quaternions[b] == i) {
      const double* d = D.blocks[b++].x;
      for (int r = 0; r < n; ++r)
        for (int k = 0; k < n; ++k) to[r] = mul_add(d[transpose ? n * k + r : n * r + k], from[k], to[r]);
    } else {
      for (int r = 0; r < n; ++r) to[r] = mul_add(D.scalar, from[r], to[r]);
    }
  }
}

// A += G D, both nv x nv.
inline void add_product(const Model& m, const std::vector<int>& quaternions, const double* G, const BlockDiagonal& D,
                        double* A) {
  const int nv = m.nv;
  add_scaled(nv * nv, D.scalar, G, A);
  for (std::size_t b = 0; b < quaternions.size(); ++b) {
    const Model::Body& body = m.bodies[quaternions[b]];
    Block rest = D.blocks[b];
    for (int k = 0; k < body.nv; ++k) rest.x[k * (body.nv + 1)] -= D.scalar;
    for (int r = 0; r < nv; ++r) {
      const double* g = G + r * nv + body.iv;
      double* a = A + r * nv + body.iv;
      for (int k = 0; k < body.nv; ++k) add_scaled(body.nv, g[k], rest.x + k * body.nv, a);
    }
  }
}

// The columns s of J in the chart of a joint with a quaternion, v = sum of s_k xidot_k, with their derivatives by xi; the step X
// itself, and what becomes of a displacement before it: Ad of X^-1. Of a rotation, the linear parts are zero.
template <class S>
struct ChartColumns {
  int n;
  SE3<S> X;
  Motion<S> s[6], ds[36], d2s[216], Ad[6];
  Mat3<S> inverse;  // of the angular part of J

  // Of all below: covectors and vectors of n numbers, as wrenches and twists.
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
void chart_columns(Kind kind, const S* xi, ChartColumns<S>& out) {
  SE3<S> E;
  Motion<S> s[3], ds[9], d2s[27];
  evaluate_exponential(xi, 3, GeneralTerms<S>{E, s, ds, d2s});
  const int n = out.n = kind == Kind::free ? 6 : 3;
  out.X = {E.R, n == 6 ? read3(xi + 3) : zero3<S>()};
  for (int k = 0; k < n * n; ++k) out.ds[k] = zero_motion<S>();
  for (int k = 0; k < n * n * n; ++k) out.d2s[k] = zero_motion<S>();
  for (int j = 0; j < 3; ++j) {
    out.s[j] = s[j];
    for (int k = 0; k < 3; ++k) {
      out.ds[n * j + k] = ds[3 * j + k];
      for (int l = 0; l < 3; ++l) out.d2s[n * (n * j + k) + l] = d2s[9 * j + 3 * k + l];
    }
  }
  const Mat3<S> unit = identity3<S>();
  for (int j = 0; n == 6 && j < 3; ++j) {  // R^T e_j, which turns with -J dxi
    const Vec3<S> e = transposed(E.R, unit.column(j));
    out.s[3 + j] = {zero3<S>(), e};
    for (int k = 0; k < 3; ++k) {
      out.ds[n * (3 + j) + k].v = cross(e, s[k].w);
      for (int l = 0; l < 3; ++l)
        out.d2s[n * (n * (3 + j) + k) + l].v = cross(cross(e, s[l].w), s[k].w) + cross(e, ds[3 * k + l].w);
    }
  }
  for (int j = 0; j < n; ++j) {
    const Motion<S> e = j < 3 ? Motion<S>{unit.column(j), zero3<S>()} : Motion<S>{zero3<S>(), unit.column(j - 3)};
    out.Ad[j] = out.X.act_inverse(e);
  }
  const Vec3<S> a = cross(s[1].w, s[2].w), b = cross(s[2].w, s[0].w), c = cross(s[0].w, s[1].w);
  const S d = S(1.0) / dot(s[0].w, a);
  out.inverse = {{d * a.x, d * b.x, d * c.x}, {d * a.y, d * b.y, d * c.y}, {d * a.z, d * b.z, d * c.z}};
}

}  // namespace torsor
