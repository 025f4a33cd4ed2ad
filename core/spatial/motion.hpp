// Twists, wrenches and poses. Angular parts come first.
#pragma once
#include "spatial/vector.hpp"

namespace torsor {

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
template <class S>
TORSOR_INLINE Motion<S> operator-(const Motion<S>& a, const Motion<S>& b) {
  return {a.w - b.w, a.v - b.v};
}
template <class S>
TORSOR_INLINE Force<S> operator-(const Force<S>& a, const Force<S>& b) {
  return {a.n - b.n, a.f - b.f};
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

}  // namespace torsor
