// Ellipsoids on boxes, in twelve places: the ellipsoid on a face of each axis, the point of the box that is nearest to
// it or deepest within it, and the corners.
#pragma once
#include <optional>

#include "contact/solids.hpp"

namespace torsor {

// The points centre + x.x half.x + x.y half.y + x.z half.z, |x_i| <= 1, in the frame of the ellipsoid.
template <class T>
struct Block {
  Vec3<T> centre;
  Mat3<T> half;
  TORSOR_INLINE Vec3<T> at(const Vec3<T>& x) const { return mul_add(half, x, centre); }
};
template <class T>
inline Block<Value<T>> value(const Block<T>& a) {
  return {value(a.centre), {value(a.half.x), value(a.half.y), value(a.half.z)}};
}
template <class T>
inline Block<T> block_of(const Solid<T>& box, const SE3<T>& frame) {
  const Mat3<T>& R = box.pose.R;
  return {to_local(frame, box.pose.p),
          {transposed(frame.R, box.size.x * R.x), transposed(frame.R, box.size.y * R.y),
           transposed(frame.R, box.size.z * R.z)}};
}

// Of (d + a)^2 / 2 over a block, with d the distance from the ellipsoid and a its least semi-axis: convex where the
// distance is, and with curvature along the normal too. Slopes by x, without the factor d + a, and second derivatives.
template <class S>
struct BlockSlopes {
  S level;  // d + a
  Vec3<S> slope;
  Sym3<S> curvature;
};
template <class S>
inline BlockSlopes<S> block_slopes(const Vec3<S>& axes, const Block<S>& a, const Vec3<S>& x) {
  using J = Jet<S, 3>;
  const Vec3<S> y = a.at(x);
  Vec3<J> moving = constant<J>(y);
  for (int k = 0; k < 3; ++k) {
    moving.x.d[k] = a.half.column(k).x;
    moving.y.d[k] = a.half.column(k).y;
    moving.z.d[k] = a.half.column(k).z;
  }
  const Distance<J> d = distance_from_ellipsoid(moving, constant<J>(axes));
  const S level = d.value.v + smaller(axes.x, smaller(axes.y, axes.z));
  const Vec3<S> slope = transposed(a.half, Vec3<S>{d.normal.x.v, d.normal.y.v, d.normal.z.v});
  const auto second = [&](int i, int j) {
    const S bend = dot(a.half.column(i), Vec3<S>{d.normal.x.d[j], d.normal.y.d[j], d.normal.z.d[j]});
    const S* p = &slope.x;
    return mul_add(level, bend, p[i] * p[j]);
  };
  return {level, slope, {second(0, 0), second(1, 1), second(2, 2), second(0, 1), second(0, 2), second(1, 2)}};
}

// Which coordinates are free to move.
template <class M>
struct Free {
  M x, y, z;
};
// B^-1 g among those that are free, 0 for the others.
template <class T, class M>
inline Vec3<T> solve_free(const Sym3<T>& B, const Vec3<T>& g, const Free<M>& free) {
  const T zero(0.0), one(1.0);
  const T xx = select(free.x, B.xx, one), yy = select(free.y, B.yy, one), zz = select(free.z, B.zz, one);
  const T xy = select(free.x & free.y, B.xy, zero), xz = select(free.x & free.z, B.xz, zero),
          yz = select(free.y & free.z, B.yz, zero);
  const Vec3<T> r{select(free.x, g.x, zero), select(free.y, g.y, zero), select(free.z, g.z, zero)};
  const T l = xy / xx, m = xz / xx, d = mul_add(-l, xy, yy), n = mul_add(-l, xz, yz) / d;
  const T e = mul_add(-n, mul_add(-l, xz, yz), mul_add(-m, xz, zz));
  const T ry = mul_add(-l, r.x, r.y), rz = mul_add(-n, ry, mul_add(-m, r.x, r.z));
  const T z = rz / e, y = mul_add(-n, z, ry / d), x = mul_add(-m, z, mul_add(-l, y, r.x / xx));
  return {select(free.x, x, zero), select(free.y, y, zero), select(free.z, z, zero)};
}

// The nearest point of a block: Newton's method with projection on the bounds, halved until the distance falls.
template <class S>
inline Vec3<S> nearest_in_block(const Vec3<S>& axes, const Block<S>& a) {
  const S one(1.0), zero(0.0);
  const auto within = [&](const Vec3<S>& x) {
    return Vec3<S>{clamped(x.x, one), clamped(x.y, one), clamped(x.z, one)};
  };
  const auto start = [&](const Vec3<S>& half) {
    const S square = dot(half, half);
    const auto none = !less(S(kNoSquare), square);
    return select(none, zero, -dot(half, a.centre) / select(none, one, square));
  };
  Vec3<S> x = within({start(a.half.x), start(a.half.y), start(a.half.z)});
  Mask<S> open = every_lane<S>();
  for (int iteration = 0; iteration < 40 && any(open); ++iteration) {
    BlockSlopes<S> f = block_slopes(axes, a, x);
    const Vec3<S> g = f.level * f.slope;
    const auto free = [&](const S& at, const S& slope) {
      return !((less(slope, zero) & !less(at, one)) | (less(zero, slope) & !less(-one, at)));
    };
    const S ridge = S(1e-14) * (f.curvature.xx + f.curvature.yy + f.curvature.zz) + S(1e-300);
    f.curvature.xx += ridge;
    f.curvature.yy += ridge;
    f.curvature.zz += ridge;
    const Vec3<S> step = solve_free(f.curvature, g, Free<Mask<S>>{free(x.x, g.x), free(x.y, g.y), free(x.z, g.z)});
    Vec3<S> next = within(x - step);
    S part = one;
    for (int halving = 0; halving < 12; ++halving) {
      const S level = distance_from_ellipsoid(a.at(next), axes).value + smaller(axes.x, smaller(axes.y, axes.z));
      const Mask<S> worse = open & less(f.level * (one + S(1e-15)), level);
      if (!any(worse)) break;
      part = select(worse, S(0.5) * part, part);
      next = select(worse, within(x - part * step), next);
    }
    const Vec3<S> moved = next - x;
    x = select(open, next, x);
    open = open & less(S(1e-32), dot(moved, moved));
  }
  return x;
}
template <class T>
inline Vec3<T> nearest_of_block(const Vec3<T>& axes, const Block<T>& a) {
  if constexpr (is_plain<T>) {
    return nearest_in_block(axes, a);
  } else {
    using V = Value<T>;
    const Vec3<V> at = nearest_of_block(value(axes), value(a));
    const BlockSlopes<V> f = block_slopes(value(axes), value(a), at);
    const V one(1.0), least = V(1e-9) * square_root(dot(f.slope, f.slope));
    // None move where the slopes are not those of a minimum but of a kink.
    Free<Mask<V>> free{less(magnitude(at.x), one), less(magnitude(at.y), one), less(magnitude(at.z), one)};
    const Mask<V> kink = (free.x & less(least, magnitude(f.slope.x))) | (free.y & less(least, magnitude(f.slope.y))) |
                         (free.z & less(least, magnitude(f.slope.z)));
    free.x = free.x & !kink;
    free.y = free.y & !kink;
    free.z = free.z & !kink;
    const Vec3<T> x = raised<T>(at);
    const Vec3<T> slope = transposed(a.half, distance_from_ellipsoid(a.at(x), axes).normal);
    const T level = raised<T>(f.level);
    const Vec3<T> g{level * derivatives_of(slope.x), level * derivatives_of(slope.y), level * derivatives_of(slope.z)};
    const Sym3<T> B{raised<T>(f.curvature.xx), raised<T>(f.curvature.yy), raised<T>(f.curvature.zz),
                    raised<T>(f.curvature.xy), raised<T>(f.curvature.xz), raised<T>(f.curvature.yz)};
    return x - solve_free(B, g, free);
  }
}

// An ellipsoid on the face of axis i of a box, on the side of its centre, at any depth. The separation along this axis
// is the gap as long as no other axis separates more, and the deepest point lies over the face; beyond, this place
// gives way to that of the nearest point, of which the gap is `least`.
template <class T>
inline Spot<T> ellipsoid_on_face(const Solid<T>& a, const Solid<T>& b, int i, const T& least) {
  const Vec3<T> centre = to_local(b.pose, a.pose.p);
  const T c[3] = {centre.x, centre.y, centre.z}, half[3] = {b.size.x, b.size.y, b.size.z};
  T side[3], reach[3], apart[3];
  Vec3<T> extents[3];
  for (int j = 0; j < 3; ++j) {
    const Vec3<T> n = transposed(a.pose.R, b.pose.R.column(j));
    extents[j] = {a.size.x * n.x, a.size.y * n.y, a.size.z * n.z};
    reach[j] = square_root(dot(extents[j], extents[j]));
    side[j] = sign_of(c[j]);
    apart[j] = mul_add(side[j], c[j], -(half[j] + reach[j]));
  }
  const T scale = -side[i] / reach[i];
  const Vec3<T> deepest = mul_add(
      a.pose.R,
      Vec3<T>{scale * a.size.x * extents[i].x, scale * a.size.y * extents[i].y, scale * a.size.z * extents[i].z},
      a.pose.p);
  const Vec3<T> local = to_local(b.pose, deepest);
  const T x[3] = {local.x, local.y, local.z};
  T beside(0.0), best = apart[i];
  for (int j = 0; j < 3; ++j)
    if (j != i) {
      const T out = positive_part(magnitude(x[j]) - half[j]);
      beside += out;
      best = larger(best, apart[j]);
    }
  const T gap = apart[i] - b.radius;
  const Vec3<T> normal = side[i] * b.pose.R.column(i);
  const T behind = beside + (best - apart[i]);
  return {mul_add(T(4.0), behind, larger(gap, T(4.0) * least)), normal, mul_add(T(-0.5) * gap, normal, deepest)};
}

// Places 0 to 2: the faces; 3: the nearest point, less what the others carry; 4 to 11: the corners. The normal points
// to the ellipsoid.
template <class T>
class EllipsoidBoxSpots {
 public:
  static constexpr int count = 12;
  EllipsoidBoxSpots(const Solid<T>& a, const Solid<T>& b) : a_(a), b_(b) {}
  Spot<T> place(int k) {
    if (k > 3) return flipped(knob_on_solid(box_corner(b_, k - 4), a_));
    if (!nearest_) {
      const Block<T> block = block_of(b_, a_.pose);
      const Vec3<T> x = to_common(a_.pose, block.at(nearest_of_block(a_.size, block)));
      nearest_ = flipped(knob_on_solid(Knob<T>{x, b_.radius}, a_));
    }
    Spot<T> s = *nearest_;
    if (k < 3) return ellipsoid_on_face(a_, b_, k, s.gap);
    const auto carried = [](const auto& ellipsoid, const auto& box, const auto& gap) {
      auto least = ellipsoid_on_face(ellipsoid, box, 0, gap).gap;
      for (int i = 1; i < 3; ++i) least = smaller(least, ellipsoid_on_face(ellipsoid, box, i, gap).gap);
      for (int i = 0; i < 8; ++i) least = smaller(least, knob_on_solid(box_corner(box, i), ellipsoid).gap);
      return positive_part(-least);
    };
    if (any(less(Value<T>(0.0), carried(value(a_), value(b_), value(s.gap))))) s.gap += carried(a_, b_, T(s.gap));
    return s;
  }

 private:
  const Solid<T>&a_, &b_;
  std::optional<Spot<T>> nearest_;
};

}  // namespace torsor
