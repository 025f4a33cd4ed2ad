// Vectors and matrices of three on a scalar S; a model's constants enter as doubles.
#pragma once
#include "scalar/scalar.hpp"

namespace torsor {

template <class A, class B>
using Mul = decltype(A() * B());

// Copied number by number: a wider copy of what was just written would wait until the writes leave the store buffer.
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

}  // namespace torsor
