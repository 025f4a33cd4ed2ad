// Shapes where their bodies are: poses and parts in one common frame.
#pragma once
#include "contact/shapes.hpp"

namespace torsor {

// Where a shape other than a half-space or a sphere lies in its body.
template <class T>
TORSOR_INLINE SE3<T> placement(const T* numbers) {
  return {matrix(read_quaternion(numbers + 3)), read3(numbers)};
}
template <class T>
TORSOR_INLINE Vec3<T> to_common(const SE3<T>& X, const Vec3<T>& x) {
  return mul_add(X.R, x, X.p);
}

// The largest and the smallest of two, for complex numbers too; NaN if either is.
template <class T>
TORSOR_INLINE T largest(const T& a, const T& b) {
  return select(less(a, b) | is_nan(b), b, a);
}
template <class T>
TORSOR_INLINE T smallest(const T& a, const T& b) {
  return select(less(b, a) | is_nan(b), b, a);
}

// The plane of a half-space: the points x with normal.(x - origin) = offset.
template <class T>
struct Plane {
  Vec3<T> normal, origin;
  T offset;
};
template <class T>
TORSOR_INLINE Plane<T> placed_plane(const T* numbers, const SE3<T>& X) {
  const Vec3<T> given = read3(numbers);
  const Vec3<T> normal = X.R * ((T(1.0) / square_root(dot(given, given))) * given);
  return {normal, X.p, numbers[3]};
}

// A point and what lies within a radius of it: a sphere, the end of a capsule, the corner of a rounded box.
template <class T>
struct Knob {
  Vec3<T> centre;
  T radius;
};
template <class T>
TORSOR_INLINE Knob<T> placed_sphere(const T* numbers, const SE3<T>& X) {
  return {to_common(X, read3(numbers)), numbers[3]};
}
template <class T>
inline Knob<T> capsule_end(int k, const T* numbers, const SE3<T>& X) {
  const SE3<T> place = placement(numbers);
  const T along = k == 0 ? -numbers[8] : numbers[8];
  return {to_common(X, mul_add(along, place.R.z, place.p)), numbers[7]};
}
// Bits 0, 1, 2 of k: on the positive side of x, y, z.
template <class T>
inline Knob<T> box_corner(int k, const T* numbers, const SE3<T>& X) {
  const T radius = numbers[10];
  const auto side = [&](int axis) {
    const T half = numbers[7 + axis] - radius;
    return (k >> axis) & 1 ? half : -half;
  };
  const Vec3<T> corner{side(0), side(1), side(2)};
  return {to_common(X, to_common(placement(numbers), corner)), radius};
}

// The spot of which the gap, the normal and the nearest point of the second shape are known. Its point is the middle
// between the surfaces.
template <class T>
TORSOR_INLINE Spot<T> spot_above(const Vec3<T>& foot, const T& gap, const Vec3<T>& normal) {
  return {gap, normal, mul_add(T(0.5) * gap, normal, foot)};
}
template <class T>
TORSOR_INLINE Spot<T> flipped(const Spot<T>& s) {
  return {s.gap, -s.normal, s.point};
}

}  // namespace torsor
