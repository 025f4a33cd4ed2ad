// Solids on half-spaces.
#pragma once
#include "contact/solids.hpp"

namespace torsor {

inline int plane_spot_count(ShapeKind a) {
  switch (a) {
    case ShapeKind::capsule:
      return 2;  // its ends
    case ShapeKind::box:
      return 8;  // its corners
    case ShapeKind::cylinder:
      return 10;  // of each rim the deepest point, and four fixed ones
    default:
      return 1;
  }
}

template <class T>
TORSOR_INLINE T height_above(const Plane<T>& b, const Vec3<T>& x) {
  return dot(b.normal, x - b.origin) - b.offset;
}
template <class T>
inline Spot<T> knob_on_plane(const Knob<T>& a, const Plane<T>& b) {
  const T height = height_above(b, a.centre);
  return spot_above(mul_add(-height, b.normal, a.centre), height - a.radius, b.normal);
}

// The point of a rim that is deepest along -normal, for a cylinder around the axis; where it stands upright, along x.
template <class T>
inline Vec3<T> deepest_of_rim(const Vec3<T>& centre, const T& radius, const Mat3<T>& axes, const Vec3<T>& normal) {
  // (normal.z) z - normal would lose its component along z, which is the square of the tilt.
  const Vec3<T> across = cross(axes.z, normal), down = cross(axes.z, across);
  const T square = dot(across, across);
  const auto upright = less(square, T(1e-24));
  const T scale = radius / square_root(select(upright, T(1.0), square));
  return centre + select(upright, radius * axes.x, scale * down);
}

// Four fixed points of a rim.
template <class T>
inline Vec3<T> fixed_of_rim(const Vec3<T>& centre, const T& radius, const Mat3<T>& axes, int i) {
  const Vec3<T>& out = i < 2 ? axes.x : axes.y;
  return mul_add(i % 2 == 0 ? radius : -radius, out, centre);
}

// How far the fixed points of a rim stand back where the cylinder is tilted by an angle of this cosine: they carry what
// stands, and nothing that rolls.
template <class T>
TORSOR_INLINE T rim_relief(const T& radius, const T& cosine) {
  return T(2.0) * radius * positive_part(mul_add(-cosine, cosine, T(1.0)));
}

// What is taken from the depth of the deepest point of a rim, for the depths of its fixed points: all of it, and more,
// where the cylinder stands on these. The direction of the deepest point is undefined there.
template <class T, class F>
inline T taken_from_deepest(const T& deepest, F&& fixed_depth) {
  T sum(0.0);
  for (int i = 0; i < 4; ++i) {
    const T depth = positive_part(fixed_depth(i));
    sum = mul_add(depth, depth, sum);
  }
  const auto touches = less(T(0.0), deepest);
  return select(touches, T(0.5) * sum / select(touches, deepest, T(1.0)), T(0.0));
}

// Places 0-4 are of the rim at -z, 5-9 of that at z: the deepest point, and four fixed ones.
template <class T>
inline Spot<T> cylinder_on_plane(const Solid<T>& a, const Plane<T>& b, int k) {
  const int rim = k / 5, point = k % 5;
  const Mat3<T>& axes = a.pose.R;
  const T radius = a.size.x, relief = rim_relief(radius, dot(b.normal, axes.z));
  const Vec3<T> centre = mul_add(rim == 0 ? -a.size.z : a.size.z, axes.z, a.pose.p);
  const auto fixed_point = [&](int i) { return fixed_of_rim(centre, radius, axes, i); };
  if (point > 0) {
    Spot<T> s = knob_on_plane(Knob<T>{fixed_point(point - 1), T(0.0)}, b);
    s.gap += relief;
    return s;
  }
  Spot<T> s = knob_on_plane(Knob<T>{deepest_of_rim(centre, radius, axes, b.normal), T(0.0)}, b);
  s.gap += taken_from_deepest(T(-s.gap), [&](int i) { return T(-(height_above(b, fixed_point(i)) + relief)); });
  return s;
}

template <class T>
inline Spot<T> ellipsoid_on_plane(const Solid<T>& a, const Plane<T>& b) {
  const Vec3<T> n = transposed(a.pose.R, b.normal), extent{a.size.x * n.x, a.size.y * n.y, a.size.z * n.z};
  const T reach = square_root(dot(extent, extent)), scale = T(-1.0) / reach;
  const Vec3<T> lowest =
      to_common(a.pose, Vec3<T>{scale * a.size.x * extent.x, scale * a.size.y * extent.y, scale * a.size.z * extent.z});
  const T gap = height_above(b, a.pose.p) - reach;
  return {gap, b.normal, mul_add(T(-0.5) * gap, b.normal, lowest)};
}

template <class T>
class PlaneSpots {
 public:
  PlaneSpots(const Solid<T>& a, const Plane<T>& b) : a_(a), b_(b) {}
  Spot<T> place(int k) const {
    switch (a_.kind) {
      case ShapeKind::capsule:
        return knob_on_plane(capsule_end(a_, k), b_);
      case ShapeKind::box:
        return knob_on_plane(box_corner(a_, k), b_);
      case ShapeKind::cylinder:
        return cylinder_on_plane(a_, b_, k);
      case ShapeKind::ellipsoid:
        return ellipsoid_on_plane(a_, b_);
      default:
        return knob_on_plane(Knob<T>{a_.pose.p, a_.radius}, b_);
    }
  }

 private:
  const Solid<T>& a_;
  const Plane<T>& b_;
};

}  // namespace torsor
