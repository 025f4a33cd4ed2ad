// Deep overlap of two solids. Places of several features push in several directions there, and may hold each other.
// From an overlap of 0.3 times the thinner half of both on, but not before their cores overlap, they give way to one
// place. It has the normal of ellipsoids in the place of the solids, because that of least overlap jumps from face to
// face.
#pragma once
#include "contact/nearest_parts.hpp"

namespace torsor {

constexpr double kDeep = 0.3;

inline bool has_deep_place(ShapeKind a, ShapeKind b) {
  const ShapeKind low = a < b ? a : b, high = a < b ? b : a;
  if (low < ShapeKind::capsule || high > ShapeKind::convex || high == ShapeKind::capsule) return false;
  return high != ShapeKind::ellipsoid && low != ShapeKind::ellipsoid ? true : low <= ShapeKind::box;
}

// Whether two cores overlap by more than `limit` along all of their axes and along the line between their centres.
bool overlap_deeply(const Convex& a, const Convex& b, double limit);

// Places of a pair, and one more.
template <class T, class Places>
class DeepSpots {
  using P = Plain<T>;

 public:
  // flip: whether the places have normals from the first to the second.
  DeepSpots(Places& places, int count, const Solid<T>& a, const Solid<T>& b, bool flip)
      : places_(places), count_(count), flip_(flip), a_(a), b_(b), pair_(core_pair(a, b)), begin_(limit()) {
    const P limit = plain(begin_), reach = plain(a.radius + b.radius);
    for (int l = 0; l < Lanes<P>::value; ++l)
      set_lane(deep_, l,
               overlap_deeply(convex_in_lane(pair_.a, pair_.R, pair_.p, l),
                              convex_in_lane(pair_.b, identity3<T>(), zero3<T>(), l),
                              in_lane(limit, l) - in_lane(reach, l)));
    if (!any(deep_)) return;
    gap_ = nearest_parts(separation_lanes(pair_), pair_).gap - a.radius - b.radius;
    beyond_ = select(deep_, positive_part(-gap_ - begin_), T(0.0));
    const Vec3<T> middle_b = middle(b);
    const CorePair<T> round{ellipsoid(a), ellipsoid(b), pair_.R, mul_add(pair_.R, middle(a), pair_.p) - middle_b};
    way_ = nearest_parts(separation_lanes(round), round);
    way_.point += middle_b;
  }
  Spot<T> place(int k) {
    if (k < count_) {
      Spot<T> s = places_.place(k);
      if (any(deep_)) s.gap += T(2.0) * beyond_;
      return s;
    }
    const T most = square_root(mul_add(begin_, begin_, dot(pair_.p, pair_.p)));
    Spot<T> s{most, b_.pose.R * distance_from_point(pair_.p).normal, T(0.5) * (a_.pose.p + b_.pose.p)};  // unused
    if (any(deep_))
      s = select(deep_,
                 {-smaller(-larger(gap_, T(1.001) * gap_), T(8.0) * beyond_), b_.pose.R * way_.normal,
                  to_common(b_.pose, way_.point)},
                 s);
    return flip_ ? flipped(s) : s;
  }

 private:
  static T thickness(const Solid<T>& x) {
    if (x.kind == ShapeKind::convex) return T(x.surface->polytope->thickness) + x.radius;
    return smaller(x.size.x, smaller(x.size.y, x.size.z)) + x.radius;
  }
  T limit() const {
    const T reach = a_.radius + b_.radius;
    if (a_.kind == ShapeKind::capsule) return mul_add(T(kDeep), thickness(b_), reach);
    if (b_.kind == ShapeKind::capsule) return mul_add(T(kDeep), thickness(a_), reach);
    return larger(T(kDeep) * smaller(thickness(a_), thickness(b_)), reach);
  }
  static Vec3<T> middle(const Solid<T>& x) {
    return x.kind == ShapeKind::convex ? lift<T>(x.surface->polytope->middle) : zero3<T>();
  }
  static Core<T> ellipsoid(const Solid<T>& x) {
    const Vec3<T> size = x.kind == ShapeKind::convex ? lift<T>(x.surface->polytope->extent) : x.size;
    return {ShapeKind::ellipsoid, {size.x + x.radius, size.y + x.radius, size.z + x.radius}};
  }

  Places& places_;
  int count_;
  bool flip_;
  Mask<P> deep_ = no_lane<P>();
  const Solid<T>&a_, &b_;
  CorePair<T> pair_;
  T begin_, beyond_, gap_;
  Spot<T> way_;
};

}  // namespace torsor
