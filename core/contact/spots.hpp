// Places where two shapes touch or will: gaps, normals and points, with T any scalar. Derivatives come from
// T = Jet<S, N>.
#pragma once
#include "contact/box_spots.hpp"
#include "contact/cylinder_spots.hpp"
#include "contact/ellipsoid_spots.hpp"

namespace torsor {

// How many places a pair has, in either order; 0 if there are no formulas for it.
inline int spot_count(const Shape& a, const Shape& b) {
  if (a.kind < b.kind) return spot_count(b, a);
  switch (b.kind) {
    case ShapeKind::half_space:
      return a.kind == ShapeKind::half_space ? 0 : plane_spot_count(a.kind);
    case ShapeKind::sphere:
      return 1;
    case ShapeKind::capsule:
      return 3;
    default:
      if (b.kind != ShapeKind::box) return 0;
      if (a.kind == ShapeKind::box) return kBoxBoxSpots;
      return a.kind == ShapeKind::cylinder ? kCylinderBoxSpots : kEllipsoidBoxSpots;
  }
}

namespace detail {

template <class T>
inline Spot<T> solid_spot(const Solid<T>& a, const Solid<T>& b, int k) {
  switch (b.kind) {
    case ShapeKind::sphere:
      return flipped(knob_on_solid(Knob<T>{b.pose.p, b.radius}, a));
    case ShapeKind::capsule:
      return flipped(capsule_on_solid(b, a, k));
    default:
      if (a.kind == ShapeKind::box) return box_on_box(a, b, k);
      return a.kind == ShapeKind::cylinder ? cylinder_on_box(a, b, k) : ellipsoid_on_box(a, b, k);
  }
}

// Whether any number that a result may depend on is not a number.
template <class T>
inline auto any_nan(int count, const T* numbers, const SE3<T>& X) {
  if constexpr (is_plain<T>) {
    T sum = X.p.x + X.p.y + X.p.z;
    for (int column = 0; column < 3; ++column)
      sum += X.R.column(column).x + X.R.column(column).y + X.R.column(column).z;
    for (int i = 0; i < count; ++i) sum += numbers[i];
    return is_nan(sum);
  } else {
    Value<T> values[kMostNumbers];
    for (int i = 0; i < count; ++i) values[i] = value(numbers[i]);
    return any_nan(count, values, value(X));
  }
}

}  // namespace detail

// Place k of a pair. pa, pb: the numbers of the shapes; Xa, Xb: poses of the bodies that carry them, in one frame.
template <class T>
inline Spot<T> spot(const Shape& a, const Shape& b, int k, const T* pa, const T* pb, const SE3<T>& Xa,
                    const SE3<T>& Xb) {
  if (a.kind < b.kind) return flipped(spot(b, a, k, pb, pa, Xb, Xa));
  const Solid<T> solid = placed(a.kind, pa, Xa);
  Spot<T> s = b.kind == ShapeKind::half_space ? solid_on_plane(solid, placed_plane(pb, Xb), k)
                                              : detail::solid_spot(solid, placed(b.kind, pb, Xb), k);
  const auto none = detail::any_nan(number_count(a.kind), pa, Xa) | detail::any_nan(number_count(b.kind), pb, Xb);
  s.gap = select(none, T(std::numeric_limits<double>::quiet_NaN()), s.gap);
  return s;
}

// A ball around a shape other than a half-space, in its body.
template <class S>
inline Ball<S> bounds(const Shape& shape, const S* p) {
  const Vec3<S> centre = read3(p);
  switch (shape.kind) {
    case ShapeKind::sphere:
      return {centre, p[3]};
    case ShapeKind::capsule:
      return {centre, p[7] + p[8]};
    case ShapeKind::box: {
      const Vec3<S> core{p[7] - p[10], p[8] - p[10], p[9] - p[10]};
      return {centre, square_root(dot(core, core)) + p[10]};
    }
    case ShapeKind::cylinder:
      return {centre, square_root(mul_add(p[7], p[7], p[8] * p[8]))};
    default:
      return {centre, larger(p[7], larger(p[8], p[9]))};
  }
}

}  // namespace torsor
