// Shapes where their bodies are. A solid is a core and the radius by which it is thickened: a sphere is a point, a
// capsule a segment, a rounded box a smaller box, each with a radius.
#pragma once
#include "contact/surface_distances.hpp"

namespace torsor {

template <class T>
TORSOR_INLINE Vec3<T> to_common(const SE3<T>& X, const Vec3<T>& x) {
  return mul_add(X.R, x, X.p);
}
template <class T>
TORSOR_INLINE Vec3<T> to_local(const SE3<T>& X, const Vec3<T>& x) {
  return transposed(X.R, x - X.p);
}

// The plane of a half-space: the points x with normal.(x - origin) = offset.
template <class T>
struct Plane {
  Vec3<T> normal, origin;
  T offset;
};
template <class T>
inline Plane<T> placed_plane(const T* numbers, const SE3<T>& X) {
  const Vec3<T> given = read3(numbers);
  const Vec3<T> normal = X.R * ((T(1.0) / square_root(dot(given, given))) * given);
  return {normal, X.p, numbers[3]};
}

// What is thickened, in its own frame. Sizes: half sizes of a box, semi-axes of an ellipsoid, (radius, radius, half
// length) of a cylinder, (0, 0, half length) of a segment.
template <class T>
struct Core {
  ShapeKind kind;
  Vec3<T> size;
  const Surface* surface = nullptr;
};
template <class T>
inline Core<Value<T>> value(const Core<T>& a) {
  return {a.kind, value(a.size), a.surface};
}
// All shapes but half-spaces.
template <class T>
struct Solid {
  ShapeKind kind;
  SE3<T> pose;  // of the shape
  Vec3<T> size;
  T radius;
  const Surface* surface = nullptr;
  TORSOR_INLINE Core<T> core() const { return {kind, size, surface}; }
};
template <class T>
inline Solid<T> placed(const Shape& shape, const T* numbers, const SE3<T>& X) {
  const ShapeKind kind = shape.kind;
  const T zero(0.0);
  if (kind == ShapeKind::sphere) return {kind, {X.R, to_common(X, read3(numbers))}, {zero, zero, zero}, numbers[3]};
  const SE3<T> pose = X * SE3<T>{matrix(read_quaternion(numbers + 3)), read3(numbers)};
  switch (kind) {
    case ShapeKind::capsule:
      return {kind, pose, {zero, zero, numbers[8]}, numbers[7]};
    case ShapeKind::box: {
      const T radius = numbers[10];
      return {kind, pose, {numbers[7] - radius, numbers[8] - radius, numbers[9] - radius}, radius};
    }
    case ShapeKind::cylinder:
      return {kind, pose, {numbers[7], numbers[7], numbers[8]}, zero};
    case ShapeKind::ellipsoid:
      return {kind, pose, read3(numbers + 7), zero};
    case ShapeKind::convex:
      return {kind, pose, zero3<T>(), numbers[7], shape.surface.get()};
    default:
      return {kind, pose, zero3<T>(), zero, shape.surface.get()};
  }
}
template <class T>
inline SE3<Value<T>> value(const SE3<T>& X) {
  return {{value(X.R.x), value(X.R.y), value(X.R.z)}, value(X.p)};
}
template <class T>
inline Solid<Value<T>> value(const Solid<T>& a) {
  return {a.kind, value(a.pose), value(a.size), value(a.radius), a.surface};
}
// Constants of another solid as those of derivatives along one parameter.
template <class J, class S>
inline Vec3<J> constant(const Vec3<S>& x) {
  return {J(x.x), J(x.y), J(x.z)};
}

template <class J, class S>
inline Core<J> constant(const Core<S>& a) {
  return {a.kind, constant<J>(a.size), a.surface};
}

// From the core of a solid, in its own frame.
template <class T>
inline Distance<T> distance_from_core(const Core<T>& core, const Vec3<T>& x) {
  const Vec3<T>& size = core.size;
  switch (core.kind) {
    case ShapeKind::sphere:
      return distance_from_point(x);
    case ShapeKind::capsule:
      return distance_from_segment(x, size.z);
    case ShapeKind::box:
      return distance_from_box(x, size);
    case ShapeKind::cylinder:
      return distance_from_cylinder(x, size.x, size.z);
    case ShapeKind::ellipsoid:
      return distance_from_ellipsoid(x, size);
    case ShapeKind::height_field:
      return distance_from_heights(*core.surface->heights, x);
    default:
      return distance_from_hull(*core.surface->triangles, x);
  }
}

// Bits 0, 1, 2 of k: on the positive side of x, y, z. In the frame of the box.
template <class T>
TORSOR_INLINE Vec3<T> corner_of(const Vec3<T>& half, int k) {
  return {k & 1 ? half.x : -half.x, k & 2 ? half.y : -half.y, k & 4 ? half.z : -half.z};
}

// A point and what lies within a radius of it: a sphere, the end of a capsule, the corner of a rounded box.
template <class T>
struct Knob {
  Vec3<T> centre;
  T radius;
};
template <class T>
TORSOR_INLINE Knob<T> capsule_end(const Solid<T>& a, int k) {
  return {mul_add(k == 0 ? -a.size.z : a.size.z, a.pose.R.z, a.pose.p), a.radius};
}
template <class T>
TORSOR_INLINE Knob<T> box_corner(const Solid<T>& a, int k) {
  return {to_common(a.pose, corner_of(a.size, k)), a.radius};
}

// The spot of which the gap, the normal and the nearest point of the second shape are known. Its point is the middle
// between the surfaces.
template <class T>
TORSOR_INLINE Spot<T> spot_above(const Vec3<T>& foot, const T& gap, const Vec3<T>& normal) {
  return {gap, normal, mul_add(T(0.5) * gap, normal, foot)};
}
template <class Mask, class T>
TORSOR_INLINE Spot<T> select(const Mask& mask, const Spot<T>& a, const Spot<T>& b) {
  return {select(mask, a.gap, b.gap), select(mask, a.normal, b.normal), select(mask, a.point, b.point)};
}
template <class T>
TORSOR_INLINE Spot<T> flipped(const Spot<T>& s) {
  return {s.gap, -s.normal, s.point};
}

// A knob on a solid.
template <class T>
inline Spot<T> knob_on_solid(const Knob<T>& a, const Solid<T>& b) {
  const Distance<T> d = distance_from_core(b.core(), to_local(b.pose, a.centre));
  const T height = d.value - b.radius;
  const Vec3<T> normal = b.pose.R * d.normal;
  return spot_above(mul_add(-height, normal, a.centre), height - a.radius, normal);
}

}  // namespace torsor
