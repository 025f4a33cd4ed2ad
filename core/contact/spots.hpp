// Places where two shapes touch or will: gaps, normals and points, with T any scalar. Derivatives come from
// T = Jet<S, N>.
#pragma once
#include "contact/box_spots.hpp"
#include "contact/cylinder_spots.hpp"
#include "contact/deep_spots.hpp"
#include "contact/ellipsoid_spots.hpp"
#include "contact/round_spots.hpp"
#include "contact/terrain_spots.hpp"

namespace torsor {

constexpr int kMostSpots = 2 * kMostVertices + 2 * kMostCrossings + 2;

namespace detail {

// Places of features, of the kinds a >= b; 0 if there are no formulas for the pair.
inline int feature_count(const Shape& a, const Shape& b) {
  switch (b.kind) {
    case ShapeKind::half_space:
      if (a.kind == ShapeKind::convex)  // without data: there are formulas
        return a.surface ? static_cast<int>(a.surface->triangles->vertices().size()) : 1;
      return a.kind == ShapeKind::half_space || a.kind > ShapeKind::convex ? 0 : plane_spot_count(a.kind);
    case ShapeKind::sphere:
      return a.kind == ShapeKind::terrain ? SphereTerrainSpots<double>::count : 1;
    case ShapeKind::capsule:
      return a.kind == ShapeKind::terrain        ? CapsuleTerrainSpots<double>::count
             : a.kind == ShapeKind::height_field ? CapsuleHeightsSpots<double>::count
                                                 : CapsuleSpots<double>::count;
    case ShapeKind::box:
      return a.kind == ShapeKind::box         ? BoxSpots<double>::count
             : a.kind == ShapeKind::cylinder  ? CylinderBoxSpots<double>::count
             : a.kind == ShapeKind::ellipsoid ? EllipsoidBoxSpots<double>::count
             : a.kind == ShapeKind::convex    ? hull_spot_count(a, b)
                                              : 0;
    case ShapeKind::convex:
      return a.kind == ShapeKind::convex ? hull_spot_count(a, b) : 0;
    case ShapeKind::cylinder:
      if (a.kind == ShapeKind::convex) return a.surface ? CylinderHullSpots<double>::fixed_count + vertex_count(a) : 1;
      return a.kind == ShapeKind::cylinder ? CylinderSpots<double>::count : a.kind == ShapeKind::ellipsoid ? 1 : 0;
    default:
      return a.kind > ShapeKind::convex ? 0 : 1;
  }
}

template <class T>
struct SphereSpots {
  const Solid<T>&a, &b;  // a sphere on a solid
  Spot<T> place(int) const { return knob_on_solid(Knob<T>{a.pose.p, a.radius}, b); }
};

// Calls use(spots, flip) with what computes the places of a pair, of the kinds a >= b, and whether normals must be
// turned to point to the first shape.
template <class T, class Use>
inline void with_spots(const Shape& a, const Shape& b, const T* pa, const T* pb, const SE3<T>& Xa, const SE3<T>& Xb,
                       const Use& use) {
  const Solid<T> first = placed(a, pa, Xa);
  if (b.kind == ShapeKind::half_space) {
    const Plane<T> plane = placed_plane(pb, Xb);
    if (a.kind == ShapeKind::convex) return use(HullPlaneSpots<T>{first, plane}, false);
    return use(PlaneSpots<T>(first, plane), false);
  }
  const Solid<T> second = placed(b, pb, Xb);
  const auto with_deep = [&](auto&& places, bool flip) {
    use(DeepSpots<T, std::decay_t<decltype(places)>>(places, feature_count(a, b), first, second, flip), flip);
  };
  if (b.kind == ShapeKind::sphere) {
    if (a.kind == ShapeKind::terrain) return use(SphereTerrainSpots<T>(second, first), true);
    return use(SphereSpots<T>{second, first}, true);
  }
  if (b.kind == ShapeKind::capsule) {
    if (a.kind == ShapeKind::terrain) return use(CapsuleTerrainSpots<T>(second, first), true);
    if (a.kind == ShapeKind::height_field) return use(CapsuleHeightsSpots<T>(second, first), true);
    if (a.kind == ShapeKind::capsule) return use(CapsuleSpots<T>(second, first), true);
    return with_deep(CapsuleSpots<T>(second, first), true);
  }
  if (!has_deep_place(a.kind, b.kind)) return use(NearestSpot<T>(first, second), false);
  if (a.kind == ShapeKind::convex && b.kind == ShapeKind::cylinder)
    return with_deep(CylinderHullSpots<T>(second, first, vertex_count(a)), true);
  if (a.kind == ShapeKind::convex)
    return with_deep(HullSpots<T>(first, second, vertex_count(a), vertex_count(b)), false);
  if (b.kind == ShapeKind::cylinder) return with_deep(CylinderSpots<T>(first, second), false);
  if (a.kind == ShapeKind::box) return with_deep(BoxSpots<T>(first, second), false);
  if (a.kind == ShapeKind::cylinder) return with_deep(CylinderBoxSpots<T>(first, second), false);
  return with_deep(EllipsoidBoxSpots<T>(first, second), false);
}

// Whether any number that a result may depend on is not a number.
template <class T>
inline auto any_nan(int count, const T* numbers, const SE3<T>& X) {
  if constexpr (is_plain<T>) {
    T sum = X.p.x + X.p.y + X.p.z;
    for (int k = 0; k < 3; ++k) sum += X.R.column(k).x + X.R.column(k).y + X.R.column(k).z;
    for (int i = 0; i < count; ++i) sum += numbers[i];
    return is_nan(sum);
  } else {
    Value<T> values[kMostNumbers];
    for (int i = 0; i < count; ++i) values[i] = value(numbers[i]);
    return any_nan(count, values, value(X));
  }
}

}  // namespace detail

// How many places a pair has, in either order; 0 if there are no formulas for it.
inline int spot_count(const Shape& a, const Shape& b) {
  return (a.kind < b.kind ? detail::feature_count(b, a) : detail::feature_count(a, b)) +
         (has_deep_place(a.kind, b.kind) ? 1 : 0);
}

// Those places k of a pair for which wanted(k) is true, by use(k, spot). pa, pb: the numbers of the shapes; Xa, Xb:
// poses of the bodies that carry them, in one frame. What places have in common is computed once.
template <class T, class Wanted, class Use>
inline void spots(const Shape& a, const Shape& b, const T* pa, const T* pb, const SE3<T>& Xa, const SE3<T>& Xb,
                  const Wanted& wanted, const Use& use) {
  const int count = spot_count(a, b);
  const bool swap = a.kind < b.kind;
  const auto none = detail::any_nan(number_count(a.kind), pa, Xa) | detail::any_nan(number_count(b.kind), pb, Xb);
  const auto each = [&](auto&& places, bool flip) {
    for (int k = 0; k < count; ++k)
      if (wanted(k)) {
        Spot<T> s = places.place(k);
        if (any(none)) s.gap = select(none, T(std::numeric_limits<double>::quiet_NaN()), s.gap);
        use(k, flip != swap ? flipped(s) : s);
      }
  };
  if (swap)
    detail::with_spots(b, a, pb, pa, Xb, Xa, each);
  else
    detail::with_spots(a, b, pa, pb, Xa, Xb, each);
}

// Place k of a pair.
template <class T>
inline Spot<T> spot(const Shape& a, const Shape& b, int k, const T* pa, const T* pb, const SE3<T>& Xa,
                    const SE3<T>& Xb) {
  Spot<T> out;
  spots(a, b, pa, pb, Xa, Xb, [&](int i) { return i == k; }, [&](int, const Spot<T>& s) { out = s; });
  return out;
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
    case ShapeKind::ellipsoid:
      return {centre, larger(p[7], larger(p[8], p[9]))};
    case ShapeKind::height_field:  // without end
      return {centre, S(std::numeric_limits<double>::infinity())};
    default: {
      const Triangles& all = *shape.surface->triangles;
      const S radius = S(all.radius());
      return {mul_add(matrix(read_quaternion(p + 3)), lift<S>(all.centre()), centre),
              shape.kind == ShapeKind::convex ? radius + p[7] : radius};
    }
  }
}

}  // namespace torsor
