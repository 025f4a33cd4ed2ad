// Places where two shapes touch or will: gaps, normals and points, with T any scalar. Derivatives come from
// T = Jet<S, N>.
#pragma once
#include "contact/placed.hpp"

namespace torsor {

namespace detail {

template <class T>
inline Spot<T> knob_on_plane(const Knob<T>& a, const Plane<T>& b) {
  const T height = dot(b.normal, a.centre - b.origin) - b.offset;
  return spot_above(mul_add(-height, b.normal, a.centre), height - a.radius, b.normal);
}

// Between points: along x where they coincide.
template <class T>
inline Spot<T> knob_on_knob(const Knob<T>& a, const Knob<T>& b) {
  const Vec3<T> apart = a.centre - b.centre;
  const T square = dot(apart, apart);
  const auto coincident = less(square, T(1e-300));
  const T distance = square_root(select(coincident, T(1.0), square)), scale = T(1.0) / distance;
  const Vec3<T> normal{select(coincident, T(1.0), scale * apart.x), select(coincident, T(0.0), scale * apart.y),
                       select(coincident, T(0.0), scale * apart.z)};
  const T gap = select(coincident, apart.x, distance) - (a.radius + b.radius);
  return spot_above(mul_add(b.radius, normal, b.centre), gap, normal);
}

}  // namespace detail

// How many places a pair has, in either order; 0 if there are no formulas for it.
inline int spot_count(const Shape& a, const Shape& b) {
  if (static_cast<int>(a.kind) < static_cast<int>(b.kind)) return spot_count(b, a);
  switch (b.kind) {
    case ShapeKind::half_space:
      return a.kind == ShapeKind::sphere ? 1 : a.kind == ShapeKind::capsule ? 2 : a.kind == ShapeKind::box ? 8 : 0;
    case ShapeKind::sphere:
      return a.kind == ShapeKind::sphere ? 1 : 0;
    default:
      return 0;
  }
}

// Place k of a pair. pa, pb: the numbers of the shapes; Xa, Xb: poses of the bodies that carry them, in one frame.
template <class T>
inline Spot<T> spot(const Shape& a, const Shape& b, int k, const T* pa, const T* pb, const SE3<T>& Xa,
                    const SE3<T>& Xb) {
  using namespace detail;
  if (static_cast<int>(a.kind) < static_cast<int>(b.kind)) return flipped(spot(b, a, k, pb, pa, Xb, Xa));
  switch (b.kind) {
    case ShapeKind::half_space: {
      const Plane<T> plane = placed_plane(pb, Xb);
      if (a.kind == ShapeKind::sphere) return knob_on_plane(placed_sphere(pa, Xa), plane);
      if (a.kind == ShapeKind::capsule) return knob_on_plane(capsule_end(k, pa, Xa), plane);
      return knob_on_plane(box_corner(k, pa, Xa), plane);
    }
    default:
      return knob_on_knob(placed_sphere(pa, Xa), placed_sphere(pb, Xb));
  }
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
      return {centre, largest(p[7], largest(p[8], p[9]))};
  }
}

}  // namespace torsor
