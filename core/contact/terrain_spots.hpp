// Spheres and capsules on height fields and terrains of triangles, and convex hulls on half-spaces.
#pragma once
#include "contact/plane_spots.hpp"
#include "contact/segment_spots.hpp"

namespace torsor {

// A hull on a half-space: all its vertices.
template <class T>
struct HullPlaneSpots {
  const Solid<T>& a;
  const Plane<T>& b;
  Spot<T> place(int k) const {
    return knob_on_plane(Knob<T>{to_common(a.pose, lift<T>(a.surface->triangles->vertices()[k])), a.radius}, b);
  }
};

// A point, the end of a capsule or a sphere, on a terrain: at up to three features that are nearest among their
// neighbours. The first is the nearest of all. The others, as the second wall of a valley, carry at most four times
// what they are away from a concave edge, beyond which they are not local minima any more.
template <class T>
class KnobOnTerrain {
 public:
  static constexpr int count = 3;
  KnobOnTerrain(const Vec3<T>& x, const T& radius, const Triangles& terrain) : x_(x), radius_(radius) {
    const Vec3<P> at = plain(x);
    const P reach = P(2.0) * plain(radius);
    for (int l = 0; l < Lanes<P>::value; ++l) {
      Feature found[count];
      const int n = terrain.nearest(in_lane(at, l), in_lane(reach, l), found, count);
      for (int k = 0; k < count; ++k) features_[k].set(l, k < n ? &found[k] : nullptr);
    }
  }
  // In the frame of the terrain.
  Spot<T> place(int k) const {
    const Features<P>& f = features_[k];
    const Distance<T> d = distance_from_feature(f, x_);
    const T own = d.value - radius_;
    T gap = own;
    if (k > 0) {
      const Vec3<T> from = from_plain<T>(f.from_border);
      const T away = dot(from, x_ - from_plain<T>(f.border));
      const auto bordered = f.is_face & less(T(0.0), dot(from, from));
      gap = select(bordered, larger(own, T(-4.0) * away), own);
    }
    // No feature: as far as the radius from the first one.
    const T none = positive_part(distance_from_feature(features_[0], x_).value) + radius_;
    return {select(f.exists, gap, none), d.normal, mul_add(-mul_add(T(0.5), own, radius_), d.normal, x_)};
  }
  T carries() const {
    T most = positive_part(-place(0).gap);
    for (int k = 1; k < count; ++k) most = larger(most, -place(k).gap);
    return most;
  }

 private:
  using P = Plain<T>;
  Vec3<T> x_;
  T radius_;
  Features<P> features_[count];
};

template <class T>
class SphereTerrainSpots {
 public:
  static constexpr int count = KnobOnTerrain<T>::count;
  SphereTerrainSpots(const Solid<T>& a, const Solid<T>& b)
      : b_(b), knob_(to_local(b.pose, a.pose.p), a.radius, *b.surface->triangles) {}
  Spot<T> place(int k) const {
    const Spot<T> s = knob_.place(k);
    return {s.gap, b_.pose.R * s.normal, to_common(b_.pose, s.point)};
  }

 private:
  const Solid<T>& b_;
  KnobOnTerrain<T> knob_;
};

// Places 0 to 5: both ends; 6 and 7: edges and vertices of the terrain between them, less what the ends carry.
template <class T>
class CapsuleTerrainSpots {
 public:
  static constexpr int count = 8;
  CapsuleTerrainSpots(const Solid<T>& a, const Solid<T>& b)
      : b_(b),
        radius_(a.radius),
        segment_(segment_of(a, b.pose)),
        low_(segment_.at(T(-1.0)), a.radius, *b.surface->triangles),
        high_(segment_.at(T(1.0)), a.radius, *b.surface->triangles) {
    const Vec3<P> c = plain(segment_.centre), e = plain(segment_.half);
    const P reach = P(2.0) * plain(radius_);
    for (int l = 0; l < Lanes<P>::value; ++l) {
      Feature found[2];
      const int n = b.surface->triangles->nearest_to_segment(in_lane(c, l), in_lane(e, l), in_lane(reach, l), found, 2);
      for (int k = 0; k < 2; ++k) features_[k].set(l, k < n ? &found[k] : nullptr);
    }
  }
  Spot<T> place(int k) const {
    const Spot<T> s = k < 3 ? low_.place(k) : k < 6 ? high_.place(k - 3) : between(k - 6);
    return {s.gap, b_.pose.R * s.normal, to_common(b_.pose, s.point)};
  }

 private:
  using P = Plain<T>;
  Spot<T> between(int k) const {
    const Features<P>& f = features_[k];
    const Vec3<T> at = from_plain<T>(f.at), along = from_plain<T>(f.along), &e = segment_.half;
    // Where the segment is nearest to a vertex, or to the line of an edge.
    const Vec3<T> r = at - segment_.centre;
    const T one(1.0), square = dot(e, e), over = dot(along, e), d = dot(e, r);
    const T top = select(f.is_edge, mul_add(-over, dot(along, r), d), d);
    const T bottom = select(f.is_edge, mul_add(-over, over, square), square);
    const auto none = !less(T(kNoSquare), bottom);
    const Vec3<T> x = segment_.at(clamped(select(none, T(0.0), top / select(none, one, bottom)), one));
    const Distance<T> distance = distance_from_feature(f, x);
    const T own = distance.value - radius_, carried = larger(low_.carries(), high_.carries());
    const T far = radius_ + positive_part(low_.place(0).gap);
    return {select(f.exists, own + carried, far), distance.normal,
            mul_add(-mul_add(T(0.5), own, radius_), distance.normal, x)};
  }

  const Solid<T>& b_;
  T radius_;
  Segment<T> segment_;
  KnobOnTerrain<T> low_, high_;
  Features<P> features_[2];
};

// Between the ends of a segment, the nearest point to a surface of heights: the least of nine points, then the minimum
// between its neighbours.
template <class T>
inline T nearest_between(const Core<T>& core, const Segment<T>& a) {
  if constexpr (is_plain<T>) {
    T best(0.0), least(1e300);
    for (int i = -4; i <= 4; ++i) {
      const T s(0.25 * i), d = distance_from_core(core, a.at(s)).value;
      best = select(less(d, least), s, best);
      least = smaller(least, d);
    }
    T low = larger(best - T(0.25), T(-1.0)), high = smaller(best + T(0.25), T(1.0));
    for (int iteration = 0; iteration < 56; ++iteration) {
      const T middle = T(0.5) * (low + high), slope = dot(distance_from_core(core, a.at(middle)).normal, a.half);
      low = select(less(slope, T(0.0)), middle, low);
      high = select(less(slope, T(0.0)), high, middle);
    }
    return T(0.5) * (low + high);
  } else {
    using V = Value<T>;
    const V s = nearest_between(value(core), value(a));
    const Slope<V> slope = distance_slope(value(core), value(a), s);
    const V square = dot(value(a.half), value(a.half)), length = square_root(square);
    const auto moves = less(magnitude(s), V(1.0 - 1e-12)) & less(V(1e-9) * length, slope.second) &
                       less(magnitude(slope.first), V(1e-9) * length);
    const T first = dot(distance_from_core(core, a.at(raised<T>(s))).normal, a.half);
    const T step = derivatives_of(first) / raised<T>(select(moves, slope.second, V(1.0)));
    return raised<T>(s) - select(moves, step, T(0.0));
  }
}

// A capsule on heights: its ends, and the nearest point between them, less what the ends carry.
template <class T>
class CapsuleHeightsSpots {
 public:
  static constexpr int count = 3;
  CapsuleHeightsSpots(const Solid<T>& a, const Solid<T>& b) : a_(a), b_(b) {}
  Spot<T> place(int k) const {
    if (k < 2) return knob_on_solid(capsule_end(a_, k), b_);
    const Segment<T> segment = segment_of(a_, b_.pose);
    const Vec3<T> x = segment.at(nearest_between(b_.core(), segment));
    Spot<T> s = knob_on_solid(Knob<T>{to_common(b_.pose, x), a_.radius}, b_);
    const T first = knob_on_solid(capsule_end(a_, 0), b_).gap, second = knob_on_solid(capsule_end(a_, 1), b_).gap;
    s.gap += positive_part(-smaller(first, second));
    return s;
  }

 private:
  const Solid<T>&a_, &b_;
};

}  // namespace torsor
