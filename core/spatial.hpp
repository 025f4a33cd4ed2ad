// Fixed-size spatial algebra on a scalar S; a model's constants enter as doubles. Angular parts come first.
#pragma once
#include "scalar.hpp"

namespace torsor {

template <class A, class B>
using Mul = decltype(A() * B());

// Copied number by number: what the compiler copies as a block, wider than it was written, waits for the writes to leave
// the pipeline.
template <class S>
struct Vec3 {
  S x, y, z;
  Vec3() = default;
  TORSOR_INLINE Vec3(const S& x, const S& y, const S& z) : x(x), y(y), z(z) {}
  TORSOR_INLINE Vec3(const Vec3& b) : x(b.x), y(b.y), z(b.z) {}
  TORSOR_INLINE Vec3& operator=(const Vec3& b) {
    x = b.x;
    y = b.y;
    z = b.z;
    return *this;
  }
  TORSOR_INLINE Vec3& operator+=(const Vec3& b) {
    x += b.x;
    y += b.y;
    z += b.z;
    return *this;
  }
  TORSOR_INLINE Vec3& operator-=(const Vec3& b) {
    x -= b.x;
    y -= b.y;
    z -= b.z;
    return *this;
  }
  TORSOR_INLINE Vec3 operator-() const { return {-x, -y, -z}; }
};
template <class S>
TORSOR_INLINE Vec3<S> zero3() {
  return {S(0.0), S(0.0), S(0.0)};
}
template <class S>
TORSOR_INLINE Vec3<S> read3(const S* p) {
  return {p[0], p[1], p[2]};
}
template <class S>
TORSOR_INLINE void write3(const Vec3<S>& v, S* p) {
  p[0] = v.x;
  p[1] = v.y;
  p[2] = v.z;
}
template <class S, class C>
TORSOR_INLINE Vec3<S> lift(const Vec3<C>& v) {
  return {S(v.x), S(v.y), S(v.z)};
}
template <class A, class B>
TORSOR_INLINE Vec3<Mul<A, B>> operator+(const Vec3<A>& a, const Vec3<B>& b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z};
}
template <class A, class B>
TORSOR_INLINE Vec3<Mul<A, B>> operator-(const Vec3<A>& a, const Vec3<B>& b) {
  return {a.x - b.x, a.y - b.y, a.z - b.z};
}
template <class A, class B>
TORSOR_INLINE Vec3<Mul<A, B>> operator*(const A& s, const Vec3<B>& b) {
  return {s * b.x, s * b.y, s * b.z};
}
// s b + c
template <class A, class B, class C>
TORSOR_INLINE Vec3<C> mul_add(const A& s, const Vec3<B>& b, const Vec3<C>& c) {
  return {mul_add(s, b.x, c.x), mul_add(s, b.y, c.y), mul_add(s, b.z, c.z)};
}
template <class A, class B>
TORSOR_INLINE Mul<A, B> dot(const Vec3<A>& a, const Vec3<B>& b) {
  return mul_add(a.z, b.z, mul_add(a.y, b.y, a.x * b.x));
}
// a.b + c
template <class A, class B, class C>
TORSOR_INLINE C dot_add(const Vec3<A>& a, const Vec3<B>& b, const C& c) {
  return mul_add(a.z, b.z, mul_add(a.y, b.y, mul_add(a.x, b.x, c)));
}
template <class A, class B>
TORSOR_INLINE Vec3<Mul<A, B>> cross(const Vec3<A>& a, const Vec3<B>& b) {
  return {mul_add(a.y, b.z, -(a.z * b.y)), mul_add(a.z, b.x, -(a.x * b.z)), mul_add(a.x, b.y, -(a.y * b.x))};
}
// a x b + c
template <class A, class B, class C>
TORSOR_INLINE Vec3<C> cross_add(const Vec3<A>& a, const Vec3<B>& b, const Vec3<C>& c) {
  return {mul_add(a.y, b.z, mul_add(-a.z, b.y, c.x)), mul_add(a.z, b.x, mul_add(-a.x, b.z, c.y)),
          mul_add(a.x, b.y, mul_add(-a.y, b.x, c.z))};
}

template <class S>
struct Mat3 {  // by columns
  Vec3<S> x, y, z;
  TORSOR_INLINE const Vec3<S>& column(int k) const { return k == 0 ? x : k == 1 ? y : z; }
  TORSOR_INLINE Vec3<S> row_x() const { return {x.x, y.x, z.x}; }
  TORSOR_INLINE Vec3<S> row_y() const { return {x.y, y.y, z.y}; }
  TORSOR_INLINE Vec3<S> row_z() const { return {x.z, y.z, z.z}; }
};
template <class S>
TORSOR_INLINE Mat3<S> identity3() {
  const S o(0.0), e(1.0);
  return {{e, o, o}, {o, e, o}, {o, o, e}};
}
template <class S, class C>
TORSOR_INLINE Mat3<S> lift(const Mat3<C>& m) {
  return {lift<S>(m.x), lift<S>(m.y), lift<S>(m.z)};
}
template <class A, class B>
TORSOR_INLINE Vec3<Mul<A, B>> operator*(const Mat3<A>& m, const Vec3<B>& v) {
  return mul_add(v.z, m.z, mul_add(v.y, m.y, v.x * m.x));
}
// m v + c
template <class A, class B, class C>
TORSOR_INLINE Vec3<C> mul_add(const Mat3<A>& m, const Vec3<B>& v, const Vec3<C>& c) {
  return mul_add(v.z, m.z, mul_add(v.y, m.y, mul_add(v.x, m.x, c)));
}
// m^T v
template <class A, class B>
TORSOR_INLINE Vec3<Mul<A, B>> transposed(const Mat3<A>& m, const Vec3<B>& v) {
  return {dot(m.x, v), dot(m.y, v), dot(m.z, v)};
}
template <class A, class B>
TORSOR_INLINE Mat3<Mul<A, B>> operator*(const Mat3<A>& a, const Mat3<B>& b) {
  return {a * b.x, a * b.y, a * b.z};
}

template <class S>
struct Sym3 {
  S xx, yy, zz, xy, xz, yz;
  Sym3() = default;
  TORSOR_INLINE Sym3(const S& xx, const S& yy, const S& zz, const S& xy, const S& xz, const S& yz)
      : xx(xx), yy(yy), zz(zz), xy(xy), xz(xz), yz(yz) {}
  TORSOR_INLINE Sym3(const Sym3& b) : xx(b.xx), yy(b.yy), zz(b.zz), xy(b.xy), xz(b.xz), yz(b.yz) {}
  TORSOR_INLINE Sym3& operator=(const Sym3& b) {
    xx = b.xx;
    yy = b.yy;
    zz = b.zz;
    xy = b.xy;
    xz = b.xz;
    yz = b.yz;
    return *this;
  }
  TORSOR_INLINE Sym3& operator+=(const Sym3& b) {
    xx += b.xx;
    yy += b.yy;
    zz += b.zz;
    xy += b.xy;
    xz += b.xz;
    yz += b.yz;
    return *this;
  }
  TORSOR_INLINE Vec3<S> column_x() const { return {xx, xy, xz}; }
  TORSOR_INLINE Vec3<S> column_y() const { return {xy, yy, yz}; }
  TORSOR_INLINE Vec3<S> column_z() const { return {xz, yz, zz}; }
};
template <class A, class B>
TORSOR_INLINE Vec3<Mul<A, B>> operator*(const Sym3<A>& m, const Vec3<B>& v) {
  return {mul_add(m.xz, v.z, mul_add(m.xy, v.y, m.xx * v.x)), mul_add(m.yz, v.z, mul_add(m.yy, v.y, m.xy * v.x)),
          mul_add(m.zz, v.z, mul_add(m.yz, v.y, m.xz * v.x))};
}
// R J R^T
template <class S, class A>
TORSOR_INLINE Sym3<S> rotate(const Mat3<S>& R, const Sym3<A>& J) {
  const Vec3<S> a = R * J.column_x(), b = R * J.column_y(), c = R * J.column_z();
  return {mul_add(c.x, R.z.x, mul_add(b.x, R.y.x, a.x * R.x.x)), mul_add(c.y, R.z.y, mul_add(b.y, R.y.y, a.y * R.x.y)),
          mul_add(c.z, R.z.z, mul_add(b.z, R.y.z, a.z * R.x.z)), mul_add(c.x, R.z.y, mul_add(b.x, R.y.y, a.x * R.x.y)),
          mul_add(c.x, R.z.z, mul_add(b.x, R.y.z, a.x * R.x.z)), mul_add(c.y, R.z.z, mul_add(b.y, R.y.z, a.y * R.x.z))};
}

// A twist or a spatial acceleration: w angular, v linear.
template <class S>
struct Motion {
  Vec3<S> w, v;
  TORSOR_INLINE Motion& operator+=(const Motion& b) {
    w += b.w;
    v += b.v;
    return *this;
  }
};
template <class S, class C>
TORSOR_INLINE Motion<S> lift(const Motion<C>& a) {
  return {lift<S>(a.w), lift<S>(a.v)};
}
// A wrench or a momentum: n moment, f force.
template <class S>
struct Force {
  Vec3<S> n, f;
  TORSOR_INLINE Force& operator+=(const Force& b) {
    n += b.n;
    f += b.f;
    return *this;
  }
};
template <class S, class C>
TORSOR_INLINE Force<S> lift(const Force<C>& a) {
  return {lift<S>(a.n), lift<S>(a.f)};
}
template <class S>
TORSOR_INLINE Motion<S> zero_motion() {
  return {zero3<S>(), zero3<S>()};
}
template <class S>
TORSOR_INLINE Force<S> zero_force() {
  return {zero3<S>(), zero3<S>()};
}
template <class S>
TORSOR_INLINE Motion<S> read_motion(const S* p) {
  return {read3(p), read3(p + 3)};
}
template <class S>
TORSOR_INLINE Force<S> read_force(const S* p) {
  return {read3(p), read3(p + 3)};
}
template <class S>
TORSOR_INLINE void write(const Motion<S>& m, S* p) {
  write3(m.w, p);
  write3(m.v, p + 3);
}
template <class S>
TORSOR_INLINE void write(const Force<S>& g, S* p) {
  write3(g.n, p);
  write3(g.f, p + 3);
}
template <class A, class B>
TORSOR_INLINE Motion<Mul<A, B>> operator+(const Motion<A>& a, const Motion<B>& b) {
  return {a.w + b.w, a.v + b.v};
}
template <class A, class B>
TORSOR_INLINE Motion<Mul<A, B>> operator*(const A& s, const Motion<B>& b) {
  return {s * b.w, s * b.v};
}
template <class A, class B, class C>
TORSOR_INLINE Motion<C> mul_add(const A& s, const Motion<B>& b, const Motion<C>& c) {
  return {mul_add(s, b.w, c.w), mul_add(s, b.v, c.v)};
}
template <class A, class B, class C>
TORSOR_INLINE Force<C> mul_add(const A& s, const Force<B>& b, const Force<C>& c) {
  return {mul_add(s, b.n, c.n), mul_add(s, b.f, c.f)};
}
template <class S>
TORSOR_INLINE Force<S> operator+(const Force<S>& a, const Force<S>& b) {
  return {a.n + b.n, a.f + b.f};
}
template <class A, class B>
TORSOR_INLINE Mul<A, B> dot(const Motion<A>& m, const Force<B>& g) {
  return dot_add(m.v, g.f, dot(m.w, g.n));
}
// ad_a b
template <class A, class B>
TORSOR_INLINE Motion<Mul<A, B>> cross(const Motion<A>& a, const Motion<B>& b) {
  return {cross(a.w, b.w), cross_add(a.w, b.v, cross(a.v, b.w))};
}
// -ad_a^T b
template <class A, class B>
TORSOR_INLINE Force<Mul<A, B>> cross(const Motion<A>& a, const Force<B>& b) {
  return {cross_add(a.w, b.n, cross(a.v, b.f)), cross(a.w, b.f)};
}
// Between parallel frames: `shift` takes a motion to the point at r, `shift_back` takes a wrench or an inertia from the
// point at r to the origin. Each is the transpose of the other.
template <class S>
TORSOR_INLINE Motion<S> shift(const Motion<S>& m, const Vec3<S>& r) {
  return {m.w, cross_add(m.w, r, m.v)};
}
template <class S>
TORSOR_INLINE Force<S> shift_back(const Force<S>& g, const Vec3<S>& r) {
  return {cross_add(r, g.f, g.n), g.f};
}

template <class S>
struct SE3 {
  Mat3<S> R;
  Vec3<S> p;
  template <class B>
  TORSOR_INLINE Motion<Mul<S, B>> act(const Motion<B>& m) const {
    const auto w = R * m.w;
    return {w, cross_add(p, w, R * m.v)};
  }
  template <class B>
  TORSOR_INLINE Motion<Mul<S, B>> act_inverse(const Motion<B>& m) const {
    return {transposed(R, m.w), transposed(R, cross_add(m.w, p, m.v))};
  }
  template <class B>
  TORSOR_INLINE Force<Mul<S, B>> act(const Force<B>& g) const {
    const auto f = R * g.f;
    return {cross_add(p, f, R * g.n), f};
  }
  template <class B>
  TORSOR_INLINE Force<Mul<S, B>> act_inverse(const Force<B>& g) const {
    return {transposed(R, cross_add(g.f, p, g.n)), transposed(R, g.f)};
  }
};
template <class A, class B>
TORSOR_INLINE SE3<Mul<A, B>> operator*(const SE3<A>& a, const SE3<B>& b) {
  using C = Mul<A, B>;
  return {a.R * b.R, mul_add(a.R, b.p, Vec3<C>{C(a.p.x), C(a.p.y), C(a.p.z)})};
}
template <class S, class C>
TORSOR_INLINE SE3<S> lift(const SE3<C>& T) {
  return {lift<S>(T.R), lift<S>(T.p)};
}

// As a homogeneous matrix, 4 x 4, row-major.
template <class S>
TORSOR_INLINE void write_pose(const SE3<S>& X, S* T) {
  const Vec3<S> rows[3] = {X.R.row_x(), X.R.row_y(), X.R.row_z()};
  const S p[3] = {X.p.x, X.p.y, X.p.z};
  for (int r = 0; r < 3; ++r) {
    write3(rows[r], T + 4 * r);
    T[4 * r + 3] = p[r];
    T[12 + r] = S(0.0);
  }
  T[15] = S(1.0);
}

// Rigid-body inertia about the origin of its frame: mass m, first moment h = m c, second moment J.
template <class S>
struct RigidInertia {
  S m;
  Vec3<S> h;
  Sym3<S> J;
  TORSOR_INLINE RigidInertia& operator+=(const RigidInertia& b) {
    m += b.m;
    h += b.h;
    J += b.J;
    return *this;
  }
};
template <class A, class B>
TORSOR_INLINE Force<Mul<A, B>> operator*(const RigidInertia<A>& I, const Motion<B>& a) {
  return {cross_add(I.h, a.v, I.J * a.w), cross_add(a.w, I.h, I.m * a.v)};
}
template <class S>
TORSOR_INLINE RigidInertia<S> zero_inertia() {
  const S o(0.0);
  return {o, {o, o, o}, {o, o, o, o, o, o}};
}
template <class S, class C>
TORSOR_INLINE RigidInertia<S> lift(const RigidInertia<C>& I) {
  const Sym3<C>& J = I.J;
  return {S(I.m), lift<S>(I.h), {S(J.xx), S(J.yy), S(J.zz), S(J.xy), S(J.xz), S(J.yz)}};
}
template <class S, class C>
TORSOR_INLINE RigidInertia<S> rotate(const Mat3<S>& R, const RigidInertia<C>& I) {
  return {S(I.m), R * I.h, rotate(R, I.J)};
}
// With g = h + m r:  J' = J + (r.h + r.g) 1 - (r h^T + h r^T + m r r^T), the last bracket written as r h^T + g r^T.
template <class S>
TORSOR_INLINE RigidInertia<S> shift_back(const RigidInertia<S>& I, const Vec3<S>& r) {
  const Vec3<S> g = mul_add(I.m, r, I.h);
  const Vec3<S>& h = I.h;
  const S xx = mul_add(r.x, h.x, g.x * r.x), yy = mul_add(r.y, h.y, g.y * r.y), zz = mul_add(r.z, h.z, g.z * r.z);
  const Sym3<S>& J = I.J;
  return {I.m,
          g,
          {J.xx + (yy + zz), J.yy + (xx + zz), J.zz + (xx + yy), J.xy - mul_add(r.x, h.y, g.x * r.y),
           J.xz - mul_add(r.x, h.z, g.x * r.z), J.yz - mul_add(r.y, h.z, g.y * r.z)}};
}

// Articulated-body inertia: the symmetric 6 x 6 matrix [[A, H], [H^T, M]] on (w, v).
template <class S>
struct ArticulatedInertia {
  Sym3<S> A, M;
  Mat3<S> H;
  TORSOR_INLINE Force<S> operator*(const Motion<S>& a) const {
    return {mul_add(H, a.v, A * a.w),
            {dot_add(H.x, a.w, dot(M.column_x(), a.v)), dot_add(H.y, a.w, dot(M.column_y(), a.v)),
             dot_add(H.z, a.w, dot(M.column_z(), a.v))}};
  }
  TORSOR_INLINE Force<S> times_angular(const Vec3<S>& w) const { return {A * w, transposed(H, w)}; }
  TORSOR_INLINE Force<S> times_linear(const Vec3<S>& v) const { return {H * v, M * v}; }
  TORSOR_INLINE ArticulatedInertia& operator+=(const ArticulatedInertia& b) {
    A += b.A;
    M += b.M;
    H.x += b.H.x;
    H.y += b.H.y;
    H.z += b.H.z;
    return *this;
  }
  TORSOR_INLINE ArticulatedInertia& operator+=(const RigidInertia<S>& b) {
    A += b.J;
    M.xx += b.m;
    M.yy += b.m;
    M.zz += b.m;
    H.x.y += b.h.z;
    H.x.z -= b.h.y;
    H.y.x -= b.h.z;
    H.y.z += b.h.x;
    H.z.x += b.h.y;
    H.z.y -= b.h.x;
    return *this;
  }
  // this -= s U U^T
  TORSOR_INLINE void subtract(const S& s, const Force<S>& U) {
    const Vec3<S> n = (-s) * U.n, f = (-s) * U.f;
    A = {mul_add(n.x, U.n.x, A.xx), mul_add(n.y, U.n.y, A.yy), mul_add(n.z, U.n.z, A.zz),
         mul_add(n.x, U.n.y, A.xy), mul_add(n.x, U.n.z, A.xz), mul_add(n.y, U.n.z, A.yz)};
    M = {mul_add(f.x, U.f.x, M.xx), mul_add(f.y, U.f.y, M.yy), mul_add(f.z, U.f.z, M.zz),
         mul_add(f.x, U.f.y, M.xy), mul_add(f.x, U.f.z, M.xz), mul_add(f.y, U.f.z, M.yz)};
    H = {mul_add(f.x, U.n, H.x), mul_add(f.y, U.n, H.y), mul_add(f.z, U.n, H.z)};
  }
};
template <class S>
TORSOR_INLINE ArticulatedInertia<S> articulated(const RigidInertia<S>& I) {
  const S o(0.0);
  const Vec3<S>& h = I.h;
  return {I.J, {I.m, I.m, I.m, o, o, o}, {{o, h.z, -h.y}, {-h.z, o, h.x}, {h.y, -h.x, o}}};
}
template <class S>
TORSOR_INLINE ArticulatedInertia<S> zero_articulated() {
  const S o(0.0);
  return {{o, o, o, o, o, o}, {o, o, o, o, o, o}, {{o, o, o}, {o, o, o}, {o, o, o}}};
}
//   H' = H + [r] M,   A' = A - H [r] + [r] H'^T,   M' = M.
template <class S>
TORSOR_INLINE ArticulatedInertia<S> shift_back(const ArticulatedInertia<S>& I, const Vec3<S>& r) {
  const Mat3<S> H{cross_add(r, I.M.column_x(), I.H.x), cross_add(r, I.M.column_y(), I.H.y),
                  cross_add(r, I.M.column_z(), I.H.z)};
  // (-H [r])_ij = (r x row_i(H))_j,  ([r] H'^T)_ij = (r x row_j(H'))_i
  const Vec3<S> hx = I.H.row_x(), hy = I.H.row_y(), hz = I.H.row_z();
  const Vec3<S> gx = H.row_x(), gy = H.row_y(), gz = H.row_z();
  const auto cx = [&](const Vec3<S>& a, const S& c) { return mul_add(r.y, a.z, mul_add(-r.z, a.y, c)); };
  const auto cy = [&](const Vec3<S>& a, const S& c) { return mul_add(r.z, a.x, mul_add(-r.x, a.z, c)); };
  const auto cz = [&](const Vec3<S>& a, const S& c) { return mul_add(r.x, a.y, mul_add(-r.y, a.x, c)); };
  const Sym3<S> A{cx(hx, cx(gx, I.A.xx)), cy(hy, cy(gy, I.A.yy)), cz(hz, cz(gz, I.A.zz)),
                  cy(hx, cx(gy, I.A.xy)), cz(hx, cx(gz, I.A.xz)), cz(hy, cy(gz, I.A.yz))};
  return {A, I.M, H};
}

// Exponentials ------------------------------------------------------------------------------------------------------

// Stumpff functions c_m(x) = sum_i (-x)^i / (m + 2i)!, m = 0..N-1 (N >= 4, even): c_0 = cos, c_1 = sin(t)/t, ... of
// t = sqrt(x). Below x = 4 by the series of the last two and c_m = 1/m! - x c_{m+2}; above from sine and cosine.
template <int N, class S>
inline void stumpff(const S& x, S* c) {
  constexpr double limit = 4.0;
  double inverse_factorial[N + 34];
  inverse_factorial[0] = 1.0;
  for (int m = 1; m < N + 34; ++m) inverse_factorial[m] = inverse_factorial[m - 1] / m;
  const auto large = less(S(limit), x);
  S a = S(0.0), b = S(0.0);
  for (int i = 15; i >= 0; --i) {
    a = mul_add(-x, a, S(inverse_factorial[N - 2 + 2 * i]));
    b = mul_add(-x, b, S(inverse_factorial[N - 1 + 2 * i]));
  }
  c[N - 2] = a;
  c[N - 1] = b;
  for (int m = N - 3; m >= 0; --m) c[m] = mul_add(-x, c[m + 2], S(inverse_factorial[m]));
  if (any(large)) {
    const S y = select(large, x, S(limit)), t = square_root(y);
    S s, k;
    sincos(t, s, k);
    S up[N];
    up[0] = k;
    up[1] = s / t;
    for (int m = 2; m < N; ++m) up[m] = (S(inverse_factorial[m - 2]) - up[m - 2]) / y;
    for (int m = 0; m < N; ++m) c[m] = select(large, up[m], c[m]);
  }
}

// 1 + c1 [w] + c2 [w]^2
template <class S>
inline Mat3<S> rotation_from(const Vec3<S>& w, const S& c1, const S& c2) {
  const Vec3<S> u = c1 * w, t = c2 * w;
  const S xx = t.x * w.x, yy = t.y * w.y, zz = t.z * w.z, xy = t.x * w.y, xz = t.x * w.z, yz = t.y * w.z;
  const S one(1.0);
  return {{one - (yy + zz), xy + u.z, xz - u.y},
          {xy - u.z, one - (xx + zz), yz + u.x},
          {xz + u.y, yz - u.x, one - (xx + yy)}};
}
template <class S>
inline SE3<S> exponential(const Motion<S>& m) {
  S c[4];
  stumpff<4>(dot(m.w, m.w), c);
  const Vec3<S> wv = cross(m.w, m.v);
  return {rotation_from(m.w, c[1], c[2]), mul_add(c[3], cross(m.w, wv), mul_add(c[2], wv, m.v))};
}

// Unit quaternions, xyzw.
template <class S>
struct Quaternion {
  Vec3<S> v;
  S w;
};
template <class S>
TORSOR_INLINE Quaternion<S> read_quaternion(const S* q) {
  return {read3(q), q[3]};
}
// q scaled so that its square is a number, where it is so long or short that it would not be.
template <class S>
TORSOR_INLINE Quaternion<S> tamed(const Quaternion<S>& q) {
  const S square = dot_add(q.v, q.v, q.w * q.w), least(1e-200), most(1e200);
  const auto tiny = less(square, least), huge = less(most, square);
  if (__builtin_expect(any(tiny) || any(huge), 0)) {
    const S k = select(tiny, S(1e150), select(huge, S(1e-150), S(1.0)));
    const Quaternion<S> once{k * q.v, k * q.w};
    const S again = dot_add(once.v, once.v, once.w * once.w);  // once more brings in all numbers there are
    const S l = select(less(again, least), S(1e150), select(less(most, again), S(1e-150), S(1.0)));
    return {l * once.v, l * once.w};
  }
  return q;
}
template <class S>
TORSOR_INLINE Quaternion<S> normalized(const Quaternion<S>& given) {
  const Quaternion<S> q = tamed(given);
  const S s = S(1.0) / square_root(dot_add(q.v, q.v, q.w * q.w));
  return {s * q.v, s * q.w};
}
template <class S>
TORSOR_INLINE Quaternion<S> operator*(const Quaternion<S>& a, const Quaternion<S>& b) {
  return {cross_add(a.v, b.v, mul_add(a.w, b.v, b.w * a.v)), mul_add(a.w, b.w, -dot(a.v, b.v))};
}
// The rotation matrix of a quaternion of any length but 0.
template <class S>
TORSOR_INLINE Mat3<S> matrix(const Quaternion<S>& given) {
  const Quaternion<S> q = tamed(given);
  const S s = S(2.0) / dot_add(q.v, q.v, q.w * q.w);
  const Vec3<S> d = s * q.v;
  const S xx = q.v.x * d.x, yy = q.v.y * d.y, zz = q.v.z * d.z, xy = q.v.x * d.y, xz = q.v.x * d.z, yz = q.v.y * d.z;
  const S wx = q.w * d.x, wy = q.w * d.y, wz = q.w * d.z, one(1.0);
  return {
      {one - (yy + zz), xy + wz, xz - wy}, {xy - wz, one - (xx + zz), yz + wx}, {xz + wy, yz - wx, one - (xx + yy)}};
}
template <class S>
inline Quaternion<S> quaternion_exponential(const Vec3<S>& w) {
  const Vec3<S> half = S(0.5) * w;
  S c[4];
  stumpff<4>(dot(half, half), c);
  return {c[1] * half, c[0]};
}
// The shorter rotation vector of a unit quaternion: angle at most pi.
template <class S>
inline Vec3<S> quaternion_logarithm(const Quaternion<S>& q) {
  const auto flip = less(q.w, S(0.0));
  const Vec3<S> v{select(flip, -q.v.x, q.v.x), select(flip, -q.v.y, q.v.y), select(flip, -q.v.z, q.v.z)};
  const S w = select(flip, -q.w, q.w), x = dot(v, v);
  // asin(s)/s by its series where the square root would lose the derivative; 2 atan2(s, w)/s elsewhere.
  const auto tiny = less(x, S(1e-6));
  const S series = S(2.0) * mul_add(x, mul_add(x, mul_add(x, S(15.0 / 336.0), S(3.0 / 40.0)), S(1.0 / 6.0)), S(1.0));
  const S y = select(tiny, S(1.0), x), s = square_root(y);
  const S factor = select(tiny, series, S(2.0) * arc_tangent(s, w) / s);
  return factor * v;
}
// v with exponential((w, v)) = (exp w, p).
template <class S>
inline Vec3<S> translation_logarithm(const Vec3<S>& w, const Vec3<S>& p) {
  // V^-1 = 1 - [w]/2 + e [w]^2 with e = (2 c2 - c1) / (2 x c2), where 2 c2 - c1 = x (c3 - 2 c4) without cancellation,
  // because c1 = 1 - x c3 and 2 c2 = 1 - 2 x c4.
  S c[6];
  stumpff<6>(dot(w, w), c);
  const S e = (c[3] - S(2.0) * c[4]) / (S(2.0) * c[2]);
  const Vec3<S> wp = cross(w, p);
  return mul_add(e, cross(w, wp), mul_add(S(-0.5), wp, p));
}

}  // namespace torsor
