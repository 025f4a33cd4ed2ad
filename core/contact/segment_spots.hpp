// Capsules on capsules, boxes, cylinders and ellipsoids, in three places: where the segment of the capsule is nearest,
// and at both limits of the part of it that lies over the other solid, so that what lies is supported at two points.
#pragma once
#include <optional>

#include "contact/solids.hpp"

namespace torsor {

// The points centre + s half, |s| <= 1, in the frame of the solid that they are compared with.
template <class T>
struct Segment {
  Vec3<T> centre, half;
  TORSOR_INLINE Vec3<T> at(const T& s) const { return mul_add(s, half, centre); }
};
template <class T>
inline Segment<Value<T>> value(const Segment<T>& a) {
  return {value(a.centre), value(a.half)};
}
template <class T>
inline Segment<T> segment_of(const Solid<T>& capsule, const SE3<T>& frame) {
  return {to_local(frame, capsule.pose.p), transposed(frame.R, capsule.size.z * capsule.pose.R.z)};
}

// The distance from a core along a segment, its slope, and the slope of that.
template <class S>
struct Slope {
  S value, first, second;
};
template <class S>
inline Slope<S> distance_slope(const Core<S>& core, const Segment<S>& a, const S& s) {
  using J = Jet<S, 1>;
  const Vec3<S> x = a.at(s);
  Vec3<J> moving = constant<J>(x);
  moving.x.d[0] = a.half.x;
  moving.y.d[0] = a.half.y;
  moving.z.d[0] = a.half.z;
  const Distance<J> d = distance_from_core(constant<J>(core), moving);
  const Vec3<J>& n = d.normal;
  return {d.value.v, dot(Vec3<S>{n.x.v, n.y.v, n.z.v}, a.half), dot(Vec3<S>{n.x.d[0], n.y.d[0], n.z.d[0]}, a.half)};
}

// Where the distance from a convex core is least along a segment: its slope rises. Newton's method within a bracket,
// halved every third time; where there is no curvature, the point where the tangents at both ends of the bracket meet.
// At a kink that is the minimum, when the distance there is not above the tangents.
template <class S>
inline S nearest_by_iteration(const Core<S>& core, const Segment<S>& a) {
  const S one(1.0), zero(0.0), length = square_root(dot(a.half, a.half)), rounding = S(1e-16) * length;
  S low(-1.0), high = one, s = zero;
  Slope<S> at_low = distance_slope(core, a, low), at_high = distance_slope(core, a, high);
  const Mask<S> lower = less(-rounding, at_low.first), upper = less(at_high.first, rounding) & !lower;
  const auto keep = [](const Mask<S>& mask, const Slope<S>& from, Slope<S>& to) {
    to.value = select(mask, from.value, to.value);
    to.first = select(mask, from.first, to.first);
  };
  Mask<S> open = less(zero, length) & !(lower | upper);
  for (int iteration = 0; iteration < 150 && any(open); ++iteration) {
    const Slope<S> slope = distance_slope(core, a, s);
    const Mask<S> falls = less(slope.first, zero), rises = less(zero, slope.first);
    low = select(falls, s, low);
    high = select(rises, s, high);
    keep(falls, slope, at_low);
    keep(rises, slope, at_high);
    const S turn = at_high.first - at_low.first, middle = S(0.5) * (low + high);
    const Mask<S> turns = less(zero, turn), curved = less(zero, slope.second);
    const S past = (at_low.value - at_high.value) + at_high.first * (high - low);
    // Within the bracket: its difference of values is rounding where that is narrow.
    const S meet = larger(low, smaller(high, select(turns, low + past / select(turns, turn, one), middle)));
    const S next = s - slope.first / select(curved, slope.second, one);
    const Mask<S> newton = curved & less(low, next) & less(next, high);
    const S to = iteration % 3 == 2 ? middle : select(newton, next, meet);
    const S floor = mul_add(at_low.first, meet - low, at_low.value), steep = S(1e-6) * length;
    const Mask<S> kink = less(slope.value, floor + S(4e-16) * (magnitude(floor) + length)) &
                         less(at_low.first, -steep) & less(steep, at_high.first);
    const Mask<S> still = less(magnitude(slope.first), S(4e-16) * (length + slope.second));
    open = open & less(S(1e-16), high - low) & !(kink | still);
    s = select(open, to, s);
  }
  return select(lower, S(-1.0), select(upper, one, s));
}

template <class T>
inline T nearest_parameter(const Core<T>& core, const Segment<T>& a) {
  const T one(1.0);
  if (core.kind == ShapeKind::capsule) {
    // Nearest in the projection along the other segment, then on that segment, then on this one.
    const Vec3<T>&c = a.centre, &e = a.half;
    const T across = mul_add(e.x, e.x, e.y * e.y), square = mul_add(e.z, e.z, across);
    const auto parallel = !less(T(1e-14) * square, across), none = !less(T(kNoSquare), square);
    const T first = select(parallel, T(0.0), -mul_add(e.x, c.x, e.y * c.y) / select(parallel, one, across));
    const T z = clamped(mul_add(clamped(first, one), e.z, c.z), core.size.z);
    return clamped(select(none, T(0.0), mul_add(e.z, z, -dot(e, c)) / select(none, one, square)), one);
  }
  if constexpr (is_plain<T>) {
    return nearest_by_iteration(core, a);
  } else {
    // ds by the derivatives of the slope; none at an end, where the distance is flat, or has a kink (inside).
    using V = Value<T>;
    const V s = nearest_parameter(value(core), value(a));
    const Slope<V> slope = distance_slope(value(core), value(a), s);
    const V square = dot(value(a).half, value(a).half), length = square_root(square);
    const auto moves =
        less(magnitude(s), V(1.0)) & less(magnitude(slope.first), V(1e-9) * length) &
        less(V(1e-12) * square, slope.second * (length + square_root(dot(value(a).centre, value(a).centre))));
    const T first = dot(distance_from_core(core, a.at(raised<T>(s))).normal, a.half);
    const T step = derivatives_of(first) / raised<T>(select(moves, slope.second, V(1.0)));
    return raised<T>(s) - select(moves, step, T(0.0));
  }
}

// The parameters of a segment from lower to upper.
template <class T>
struct Range {
  T lower, upper;
  TORSOR_INLINE void cut(const T& low, const T& high) {
    lower = larger(lower, low);
    upper = smaller(upper, high);
  }
};
// Where |c + s e| <= half, or at most `more` larger than the least.
template <class T>
inline void cut_by_slab(const T& c, const T& e, const T& half, const T& more, Range<T>& range) {
  const T along = sign_of(e) * c, size = magnitude(e), most = larger(half, magnitude(c) - size + more);
  const auto across = less(size, T(1e-12) * most);
  const T scale = T(1.0) / select(across, T(1.0), size);
  range.cut(select(across, T(-1.0), -(most + along) * scale), select(across, T(1.0), (most - along) * scale));
}
// The same by the distance from the axis z.
template <class T>
inline void cut_by_tube(const Segment<T>& a, const T& radius, const T& more, Range<T>& range) {
  const Vec3<T>&c = a.centre, &e = a.half;
  const T square = mul_add(e.x, e.x, e.y * e.y), size = mul_add(e.z, e.z, square), one(1.0);
  const auto along = !less(T(1e-24) * size, square);
  const T scale = one / select(along, one, square), middle = -mul_add(e.x, c.x, e.y * c.y) * scale;
  const auto distance = [&](const T& s) {
    const Vec3<T> x = a.at(s);
    return distance_from_point(Vec3<T>{x.x, x.y, T(0.0)}).value;
  };
  const T most = larger(radius, distance(clamped(middle, one)) + more), least = distance(middle);
  const T inside = scale * (most - least) * (most + least);
  const auto none = !less(T(1e-30), inside);
  const T reach = select(none, T(0.0), square_root(select(none, one, inside)));
  range.cut(select(along, -one, middle - reach), select(along, one, middle + reach));
}

// The same by the height over each face of a hull.
template <class T>
inline void cut_by_faces(const Triangles& hull, const Segment<T>& a, const T& more, Range<T>& range) {
  for (int f = 0; f < static_cast<int>(hull.faces().size()); ++f) {
    const Vec3<T> n = lift<T>(hull.normal(f)), from = lift<T>(hull.vertices()[hull.faces()[f][0]]);
    const T c = dot(n, a.centre - from), e = dot(n, a.half), size = magnitude(e), most = positive_part(c - size + more);
    const auto across = less(size, T(1e-12) * (magnitude(c) + size) + T(1e-300));
    const T limit = (most - c) / select(across, T(1.0), e);
    range.cut(select(across | less(T(0.0), e), T(-1.0), limit), select(across | less(e, T(0.0)), T(1.0), limit));
  }
}

// The nearest point of a segment: its parameter, and there the distance from the core.
template <class T>
struct Nearest {
  T at;
  Distance<T> distance;
};
template <class T>
inline Nearest<Value<T>> value(const Nearest<T>& a) {
  return {value(a.at), {value(a.distance.value), value(a.distance.normal)}};
}
// Within a core the least distance may lie at a kink, where the nearest face changes. There it is l d1 + (1 - l) d2, of
// the distances d1, d2 on both sides, with the l by which this does not change along the segment; the kink moves so
// that they stay equal.
template <class T>
inline Nearest<T> nearest_of(const Core<T>& core, const Segment<T>& a) {
  using V = Value<T>;
  const T s = nearest_parameter(core, a);
  Nearest<T> out{s, distance_from_core(core, a.at(s))};
  if (core.kind == ShapeKind::capsule) {
    // Segments that cross are pushed apart along the normal of both.
    const T square = mul_add(a.half.x, a.half.x, a.half.y * a.half.y), whole = mul_add(a.half.z, a.half.z, square);
    const T near = T(1e-9) * core.size.z;
    const auto cross_each_other = less(out.distance.value, near) & less(T(1e-12) * whole, square);
    if (!any(cross_each_other)) return out;
    const Vec3<T> x = a.at(s), between{x.x, x.y, x.z - clamped(x.z, core.size.z)};
    const T scale = T(1.0) / square_root(select(cross_each_other, square, T(1.0)));
    const Vec3<T> across = scale * Vec3<T>{a.half.y, -a.half.x, T(0.0)};
    const T way = sign_of(dot(across, between));
    out.distance = {select(cross_each_other, way * dot(across, between), out.distance.value),
                    select(cross_each_other, way * across, out.distance.normal)};
    return out;
  }
  const Segment<V> on = value(a);
  const V step(1e-10), limit = V(1e-6) * square_root(dot(on.half, on.half)), at = value(s);
  const V before = distance_slope(value(core), on, V(at - step)).first;
  const V after = distance_slope(value(core), on, V(at + step)).first;
  const auto kink = less(magnitude(at), V(1.0)) & less(before, -limit) & less(limit, after);
  if (!any(kink)) return out;
  const T shift = raised<T>(step), turn = raised<T>(select(kink, after - before, V(1.0)));
  T moved = s;
  Distance<T> d1, d2;
  for (int order = 0; order < 3; ++order) {  // one for each level of derivatives, and a last evaluation
    d1 = distance_from_core(core, a.at(moved - shift));
    d2 = distance_from_core(core, a.at(moved + shift));
    if (order < 2) moved += select(kink, without_constant(T(d1.value - d2.value)) / turn, T(0.0));
  }
  const T f1 = dot(d1.normal, a.half), f2 = dot(d2.normal, a.half);
  const T l = select(kink, f2 / select(kink, f2 - f1, T(1.0)), T(0.5)), m = T(1.0) - l;
  Vec3<T> mean = mul_add(l, d1.normal, m * d2.normal);
  // Between both sides of an ellipsoid normals turn by half a circle: their derivatives have no meaning.
  if (core.kind == ShapeKind::ellipsoid) mean = raised<T>(value(mean));
  const Vec3<T> normal = distance_from_point(mean, raised<T>(value(d1.normal))).normal;
  out.at = select(kink, moved, out.at);
  out.distance = {select(kink, mul_add(l, d1.value, m * d2.value), out.distance.value),
                  select(kink, normal, out.distance.normal)};
  return out;
}

// Parameters of the limits of what lies over a solid, and how deep it is there; at most as deep as four times at the
// other limit, and only if they are further apart than ten times the depth, so that one alone carries nothing. `most`:
// how deep it is at most.
template <class T>
struct Supports {
  T at[2], depth[2];
};
template <class T, class Depth>
inline Supports<T> supports(const Core<T>& core, const Segment<T>& a, const T& most, const Depth& depth) {
  const T one(1.0), more = positive_part(most);
  Range<T> range{T(-1.0), one};
  const Vec3<T>& size = core.size;
  switch (core.kind) {
    case ShapeKind::box:
      cut_by_slab(a.centre.x, a.half.x, size.x, more, range);
      cut_by_slab(a.centre.y, a.half.y, size.y, more, range);
      cut_by_slab(a.centre.z, a.half.z, size.z, more, range);
      break;
    case ShapeKind::cylinder:
      cut_by_tube(a, size.x, more, range);
      cut_by_slab(a.centre.z, a.half.z, size.z, more, range);
      break;
    case ShapeKind::capsule:
      cut_by_slab(a.centre.z, a.half.z, size.z, more, range);
      break;
    case ShapeKind::convex:
      cut_by_faces(*core.surface->triangles, a, more, range);
      break;
    default:
      break;
  }
  const T square = dot(a.half, a.half);
  const auto none = !less(T(kNoSquare), square);
  const T length = select(none, T(0.0), square_root(select(none, one, square)));
  const T distance = mul_add(T(0.1) * length, range.upper - range.lower, -more);
  const T at[2] = {clamped(range.lower, one), clamped(range.upper, one)}, deep[2] = {depth(at[0]), depth(at[1])};
  return {
      {at[0], at[1]},
      {smaller(distance, smaller(deep[0], T(4.0) * deep[1])), smaller(distance, smaller(deep[1], T(4.0) * deep[0]))}};
}

// Place 0: where the capsule is nearest, less what the supports 1 and 2 carry. The normal points to the capsule.
template <class T>
class CapsuleSpots {
 public:
  static constexpr int count = 3;
  CapsuleSpots(const Solid<T>& a, const Solid<T>& b)
      : b_(b),
        radius_(a.radius),
        reach_(a.radius + b.radius),
        core_(b.core()),
        segment_(segment_of(a, b.pose)),
        nearest_(nearest_of(core_, segment_)) {}
  Spot<T> place(int k) {
    if (!supports_) {
      const auto depth = [&](const T& s) { return reach_ - distance_from_core(core_, segment_.at(s)).value; };
      supports_ = supports(core_, segment_, T(reach_ - nearest_.distance.value), depth);
    }
    const T s = k == 0 ? nearest_.at : supports_->at[k - 1];
    const Vec3<T> x = segment_.at(s);
    const Distance<T> d = k == 0 ? nearest_.distance : distance_from_core(core_, x);
    const T own = d.value - reach_, to_point = mul_add(T(0.5), own, radius_);
    const T gap =
        k == 0 ? own + positive_part(larger(supports_->depth[0], supports_->depth[1])) : -supports_->depth[k - 1];
    return {gap, b_.pose.R * d.normal, to_common(b_.pose, mul_add(-to_point, d.normal, x))};
  }

 private:
  const Solid<T>& b_;
  T radius_, reach_;
  Core<T> core_;
  Segment<T> segment_;
  Nearest<T> nearest_;
  std::optional<Supports<T>> supports_;
};

}  // namespace torsor
