// Distances from surfaces (contact/surfaces.hpp) in any scalar: by features that were found for the values.
#pragma once
#include "contact/distances.hpp"
#include "contact/surfaces.hpp"

namespace torsor {

// A scalar without any derivatives: double, or lanes of it.
template <class T, bool = is_plain<T>>
struct PlainOf {
  using Type = typename PlainOf<Value<T>>::Type;
  static TORSOR_INLINE Type lower(const T& x) { return PlainOf<Value<T>>::lower(value(x)); }
  static TORSOR_INLINE T raise(const Type& x) { return raised<T>(PlainOf<Value<T>>::raise(x)); }
};
template <class T>
struct PlainOf<T, true> {
  using Type = T;
  static TORSOR_INLINE const T& lower(const T& x) { return x; }
  static TORSOR_INLINE const T& raise(const T& x) { return x; }
};
template <class T>
using Plain = typename PlainOf<T>::Type;
template <class T>
TORSOR_INLINE Plain<T> plain(const T& x) {
  return PlainOf<T>::lower(x);
}
template <class T>
TORSOR_INLINE Vec3<Plain<T>> plain(const Vec3<T>& x) {
  return {plain(x.x), plain(x.y), plain(x.z)};
}
template <class T>
TORSOR_INLINE T from_plain(const Plain<T>& x) {
  return PlainOf<T>::raise(x);
}
template <class T>
TORSOR_INLINE Vec3<T> from_plain(const Vec3<Plain<T>>& x) {
  return {from_plain<T>(x.x), from_plain<T>(x.y), from_plain<T>(x.z)};
}
TORSOR_INLINE double in_lane(double x, int) { return x; }
template <int N>
TORSOR_INLINE double in_lane(const Pack<N>& x, int l) {
  return x.lane(l);
}
template <class P>
inline Point in_lane(const Vec3<P>& x, int l) {
  return {in_lane(x.x, l), in_lane(x.y, l), in_lane(x.z, l)};
}
template <class P>
inline void set_lane(Vec3<P>& x, int l, const Point& value) {
  set_lane(x.x, l, value.x);
  set_lane(x.y, l, value.y);
  set_lane(x.z, l, value.z);
}

// A feature in each lane.
template <class P>
struct Features {
  Vec3<P> at, along, border, from_border;
  P side;
  Mask<P> is_face, is_edge, exists;
  void set(int l, const Feature* f) {
    const Feature none, &from = f == nullptr ? none : *f;
    set_lane(at, l, from.at);
    set_lane(along, l, from.along);
    set_lane(border, l, from.border);
    set_lane(from_border, l, from.from_border);
    set_lane(side, l, from.side);
    set_lane(is_face, l, from.kind == Feature::face);
    set_lane(is_edge, l, from.kind == Feature::edge);
    set_lane(exists, l, f != nullptr);
  }
};

// From the plane of a face, the line of an edge, or a vertex.
template <class T>
inline Distance<T> distance_from_feature(const Features<Plain<T>>& f, const Vec3<T>& x) {
  const Vec3<T> along = from_plain<T>(f.along), out = x - from_plain<T>(f.at);
  const T height = dot(along, out), side = from_plain<T>(f.side);
  const Vec3<T> across = select(f.is_edge, mul_add(-height, along, out), out);
  const Distance<T> d = distance_from_point(select(f.is_face, along, across), along);
  return {select(f.is_face, height, side * d.value), select(f.is_face, along, side * d.normal)};
}

// From a convex hull.
template <class T>
inline Distance<T> distance_from_hull(const Triangles& hull, const Vec3<T>& x) {
  using P = Plain<T>;
  const Vec3<P> at = plain(x);
  Features<P> found;
  for (int l = 0; l < Lanes<P>::value; ++l) {
    const Feature f = hull.nearest_of_hull(in_lane(at, l));
    found.set(l, &f);
  }
  return distance_from_feature(found, x);
}

// The nine heights around a point, in each lane.
template <class P>
struct Patches {
  P c[9], x, y;
};
template <class P>
inline Patches<P> patches(const Heights& h, const P& x, const P& y) {
  Patches<P> out;
  for (int l = 0; l < Lanes<P>::value; ++l) {
    const Heights::Patch patch = h.patch(in_lane(x, l), in_lane(y, l));
    for (int k = 0; k < 9; ++k) set_lane(out.c[k], l, patch.c[k]);
    set_lane(out.x, l, patch.x);
    set_lane(out.y, l, patch.y);
  }
  return out;
}
// The height at (x, y), its slopes and curvatures.
template <class T>
struct HeightAt {
  T z, z_x, z_y, z_xx, z_xy, z_yy;
};
template <class T>
inline HeightAt<T> height_at(const Heights& h, const T& x, const T& y) {
  const Patches<Plain<T>> p = patches(h, plain(x), plain(y));
  const double a = 1.0 / h.spacing_x(), b = 1.0 / h.spacing_y();
  const T t = a * (x - from_plain<T>(p.x)), u = b * (y - from_plain<T>(p.y)), half(0.5), one(1.0);
  const auto weights = [&](const T& s, T* w, T* slope) {
    const T before = half - s, after = half + s;
    w[0] = half * before * before;
    w[1] = T(0.75) - s * s;
    w[2] = half * after * after;
    slope[0] = -before;
    slope[1] = T(-2.0) * s;
    slope[2] = after;
  };
  T wx[3], sx[3], wy[3], sy[3];
  const T bend[3] = {one, T(-2.0), one};
  weights(t, wx, sx);
  weights(u, wy, sy);
  HeightAt<T> out{T(0.0), T(0.0), T(0.0), T(0.0), T(0.0), T(0.0)};
  for (int r = 0; r < 3; ++r) {
    T w(0.0), s(0.0), k(0.0);
    for (int c = 0; c < 3; ++c) {
      const T height = from_plain<T>(p.c[3 * r + c]);
      w = mul_add(wx[c], height, w);
      s = mul_add(sx[c], height, s);
      k = mul_add(bend[c], height, k);
    }
    out.z = mul_add(wy[r], w, out.z);
    out.z_x = mul_add(wy[r], s, out.z_x);
    out.z_xx = mul_add(wy[r], k, out.z_xx);
    out.z_y = mul_add(sy[r], w, out.z_y);
    out.z_xy = mul_add(sy[r], s, out.z_xy);
    out.z_yy = mul_add(bend[r], w, out.z_yy);
  }
  out.z_x = a * out.z_x;
  out.z_y = b * out.z_y;
  out.z_xx = (a * a) * out.z_xx;
  out.z_xy = (a * b) * out.z_xy;
  out.z_yy = (b * b) * out.z_yy;
  return out;
}

// The foot (x, y) of a point: of |point - surface|^2 / 2 the gradient g and the matrix H, without its part by curvature
// where that leaves it indefinite.
template <class T>
struct FootStep {
  T g_x, g_y, h_xx, h_xy, h_yy;
};
template <class T>
inline FootStep<T> foot_step(const Heights& h, const Vec3<T>& c, const T& x, const T& y) {
  const HeightAt<T> z = height_at(h, x, y);
  const T up = z.z - c.z, one(1.0);
  const T xx = mul_add(z.z_x, z.z_x, one), xy = z.z_x * z.z_y, yy = mul_add(z.z_y, z.z_y, one);
  const T full_xx = mul_add(up, z.z_xx, xx), full_xy = mul_add(up, z.z_xy, xy), full_yy = mul_add(up, z.z_yy, yy);
  const auto convex = less(T(0.1) * xx * yy, mul_add(full_xx, full_yy, -(full_xy * full_xy))) & less(T(0.0), full_xx);
  return {mul_add(up, z.z_x, x - c.x), mul_add(up, z.z_y, y - c.y), select(convex, full_xx, xx),
          select(convex, full_xy, xy), select(convex, full_yy, yy)};
}
template <class T>
inline void foot_of(const Heights& h, const Vec3<T>& c, T& x, T& y) {
  if constexpr (is_plain<T>) {
    const auto square = [&](const T& at_x, const T& at_y) {
      const T up = height_at(h, at_x, at_y).z - c.z, dx = at_x - c.x, dy = at_y - c.y;
      return mul_add(dx, dx, mul_add(dy, dy, up * up));
    };
    x = c.x;
    y = c.y;
    T best = square(x, y);
    Mask<T> open = every_lane<T>();
    for (int iteration = 0; iteration < 40 && any(open); ++iteration) {
      const FootStep<T> f = foot_step(h, c, x, y);
      const T scale = T(1.0) / mul_add(f.h_xx, f.h_yy, -(f.h_xy * f.h_xy));
      const T dx = scale * mul_add(f.h_xy, f.g_y, -(f.h_yy * f.g_x)),
              dy = scale * mul_add(f.h_xy, f.g_x, -(f.h_xx * f.g_y));
      T part(1.0), next = square(x + dx, y + dy);
      for (int halving = 0; halving < 8; ++halving) {
        const Mask<T> worse = open & less(best * T(1.0 + 1e-15), next);
        if (!any(worse)) break;
        part = select(worse, T(0.5) * part, part);
        next = square(mul_add(part, dx, x), mul_add(part, dy, y));
      }
      x = select(open, mul_add(part, dx, x), x);
      y = select(open, mul_add(part, dy, y), y);
      best = select(open, next, best);
      open = open & less(T(1e-30) * (best + T(h.spacing_x() * h.spacing_y())), mul_add(dx, dx, dy * dy));
    }
  } else {
    using V = Value<T>;
    V at_x, at_y;
    foot_of(h, value(c), at_x, at_y);
    const FootStep<V> f = foot_step(h, value(c), at_x, at_y);
    x = raised<T>(at_x);
    y = raised<T>(at_y);
    const FootStep<T> g = foot_step(h, c, x, y);
    const V scale = V(1.0) / mul_add(f.h_xx, f.h_yy, -(f.h_xy * f.h_xy));
    const T gx = derivatives_of(g.g_x), gy = derivatives_of(g.g_y);
    const T xx = raised<T>(V(scale * f.h_xx)), xy = raised<T>(V(scale * f.h_xy)), yy = raised<T>(V(scale * f.h_yy));
    x += mul_add(xy, gy, -(yy * gx));
    y += mul_add(xy, gx, -(xx * gy));
  }
}

// From a surface of heights, negative below it: n.(x - foot), which is stationary in the foot.
template <class T>
inline Distance<T> distance_from_heights(const Heights& h, const Vec3<T>& c) {
  T x, y;
  foot_of(h, c, x, y);
  const HeightAt<T> z = height_at(h, x, y);
  const T scale = T(1.0) / square_root(mul_add(z.z_x, z.z_x, mul_add(z.z_y, z.z_y, T(1.0))));
  const Vec3<T> n{-(scale * z.z_x), -(scale * z.z_y), scale};
  return {dot(n, c - Vec3<T>{x, y, z.z}), n};
}

}  // namespace torsor
