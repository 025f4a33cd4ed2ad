// The places where two shapes touch or will.
#pragma once
#include "contact/shapes.hpp"

namespace torsor {

constexpr int kMostNumbers = 11;
inline int number_count(const Shape& shape) {
  constexpr int count[] = {4, 4, 9, 11, 9, 10};
  return count[static_cast<int>(shape.kind)];
}
inline int spot_count(const Shape& a, const Shape& b) {
  return a.kind == ShapeKind::sphere && (b.kind == ShapeKind::half_space || b.kind == ShapeKind::sphere) ? 1 : 0;
}
template <class T>
Spot<T> spot(const Shape&, const Shape& b, int, const T* pa, const T* pb, const SE3<T>& Xa, const SE3<T>& Xb) {
  const Vec3<T> c = mul_add(Xa.R, read3(pa), Xa.p);
  if (b.kind == ShapeKind::half_space) {
    const Vec3<T> given = read3(pb);
    const Vec3<T> n = Xb.R * ((T(1.0) / square_root(dot(given, given))) * given);
    return {dot(n, c - Xb.p) - pb[3] - pa[3], n, mul_add(-pa[3], n, c)};
  }
  const Vec3<T> o = mul_add(Xb.R, read3(pb), Xb.p), r = c - o;
  const T l = square_root(dot(r, r));
  const Vec3<T> n = (T(1.0) / l) * r;
  return {l - pa[3] - pb[3], n, mul_add(pb[3], n, o)};
}
template <class S>
Mask<S> near(const Shape&, const Shape&, const S*, const S*, const SE3<S>&, const SE3<S>&) {
  return every_lane<S>();
}

}  // namespace torsor
