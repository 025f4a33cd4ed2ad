// The gap of two convex cores, its normal and its point in any scalar, by the parts of them that were found to be
// nearest (contact/separation.hpp). The gap is the largest g(n) of
//   g(n) = n.(p_a - p_b) - h_a(-n) - h_b(n)      over directions n,
// with the support functions h of both parts. It is stationary, so that one Newton step in T gives the derivatives of
// n.
#pragma once
#include "contact/separation.hpp"
#include "contact/solids.hpp"

namespace torsor {

// A part in each lane.
template <class P>
struct PartLanes {
  Vec3<P> vertex, sign, round, along;
  Mask<P> is_edge, is_face;
  void set(int l, const Part& p) {
    set_lane(vertex, l, p.vertex);
    set_lane(sign, l, p.sign);
    set_lane(round, l, p.round);
    set_lane(along, l, p.along);
    set_lane(is_edge, l, p.kind == Part::edge);
    set_lane(is_face, l, p.kind == Part::face);
  }
};
template <class P>
struct SeparationLanes {
  PartLanes<P> a, b;
  Vec3<P> normal, at_a, at_b;
};

// Two cores in the frame of the second.
template <class T>
struct CorePair {
  Core<T> a, b;
  Mat3<T> R;
  Vec3<T> p;
};
template <class T>
inline CorePair<T> core_pair(const Solid<T>& a, const Solid<T>& b) {
  const Mat3<T>& R = b.pose.R;
  return {a.core(),
          b.core(),
          {transposed(R, a.pose.R.x), transposed(R, a.pose.R.y), transposed(R, a.pose.R.z)},
          to_local(b.pose, a.pose.p)};
}
template <class T>
inline CorePair<Value<T>> value(const CorePair<T>& x) {
  return {value(x.a), value(x.b), {value(x.R.x), value(x.R.y), value(x.R.z)}, value(x.p)};
}

inline const Polytope* polytope_of(ShapeKind kind, const Surface* surface) {
  return kind == ShapeKind::box ? &unit_box() : kind == ShapeKind::convex ? surface->polytope.get() : nullptr;
}
// The cores of one lane.
template <class T>
inline Convex convex_in_lane(const Core<T>& core, const Mat3<T>& R, const Vec3<T>& p, int l) {
  return {core.kind,
          in_lane(plain(core.size), l),
          polytope_of(core.kind, core.surface),
          {in_lane(plain(R.x), l), in_lane(plain(R.y), l), in_lane(plain(R.z), l)},
          in_lane(plain(p), l)};
}
template <class T>
inline SeparationLanes<Plain<T>> separation_lanes(const CorePair<T>& x) {
  using P = Plain<T>;
  SeparationLanes<P> out;
  for (int l = 0; l < Lanes<P>::value; ++l) {
    const Separation s =
        separation(convex_in_lane(x.a, x.R, x.p, l), convex_in_lane(x.b, identity3<T>(), zero3<T>(), l));
    out.a.set(l, s.a);
    out.b.set(l, s.b);
    set_lane(out.normal, l, s.normal);
    set_lane(out.at_a, l, s.at_a);
    set_lane(out.at_b, l, s.at_b);
  }
  return out;
}

template <class T>
TORSOR_INLINE Vec3<T> times(const Vec3<T>& a, const Vec3<T>& b) {
  return {a.x * b.x, a.y * b.y, a.z * b.z};
}
template <class T>
TORSOR_INLINE Vec3<T> normalised(const Vec3<T>& x) {
  return (T(1.0) / square_root(dot(x, x))) * x;
}

// A part along u, in its own frame: its furthest point, and the second derivatives of its support function.
template <class T>
struct PartAt {
  Vec3<T> m, w, furthest;
  T scale;  // 1 / |m u|, or 0
  PartAt(const PartLanes<Plain<T>>& part, const Vec3<T>& size, const Vec3<T>& u)
      : m(times(from_plain<T>(part.round), size)), w(times(m, u)) {
    const T square = dot(w, w);
    const auto none = !less(T(kNoSquare), square);
    scale = select(none, T(0.0), T(1.0) / square_root(select(none, T(1.0), square)));
    w = scale * w;
    furthest = from_plain<T>(part.vertex) + times(from_plain<T>(part.sign), size) + times(m, w);
  }
  T curvature(const Vec3<T>& s, const Vec3<T>& t) const {
    const Vec3<T> ms = times(m, s), mt = times(m, t);
    return scale * mul_add(-dot(w, ms), dot(w, mt), dot(ms, mt));
  }
};

template <class T>
inline Vec3<T> normal_of(const SeparationLanes<Plain<T>>& found, const CorePair<T>& x) {
  if constexpr (is_plain<T>) {
    return found.normal;
  } else {
    using V = Value<T>;
    const CorePair<V> plain_pair = value(x);
    const Vec3<V> at = normal_of<V>(found, plain_pair);
    const Vec3<T> n = raised<T>(at);
    const auto edge = found.a.is_edge | found.b.is_edge, both = found.a.is_edge & found.b.is_edge,
               faces = found.a.is_face | found.b.is_face;
    const Vec3<T> along_a = x.R * from_plain<T>(found.a.along), along_b = from_plain<T>(found.b.along);
    // A face has the normal; two edges have that of both.
    const Vec3<T> given = select(found.b.is_face, along_b, -along_a), product = cross(along_a, along_b);
    const T square = dot(product, product);
    const auto crossing = both & less(T(1e-14), square) & !faces;
    const T root = square_root(select(crossing, square, T(1.0)));
    const Vec3<T> across = (sign_of(dot(product, n)) / root) * product;
    // Else Newton's method, on the circle normal to an edge or on the sphere.
    const Vec3<T> along = select(found.a.is_edge, along_a, along_b);
    const Vec3<T> base = select(edge, normalised(mul_add(-dot(n, along), along, n)), n);
    const Vec3<V> other =
        select(less(magnitude(at.x), V(0.6)), Vec3<V>{V(1.0), V(0.0), V(0.0)}, Vec3<V>{V(0.0), V(1.0), V(0.0)});
    const Vec3<T> t1 = select(edge, cross(along, base), raised<T>(normalised(cross(other, at)))), t2 = cross(base, t1);
    const PartAt<T> a(found.a, x.a.size, -transposed(x.R, base)), b(found.b, x.b.size, base);
    const Vec3<T> apart = mul_add(x.R, a.furthest, x.p) - b.furthest;
    const T g1 = derivatives_of(dot(t1, apart)), g2 = select(edge, T(0.0), derivatives_of(dot(t2, apart)));
    const Vec3<V> v1 = value(t1), v2 = value(t2);
    const PartAt<V> a_v(found.a, value(x.a.size), -transposed(plain_pair.R, at)), b_v(found.b, value(x.b.size), at);
    const V gap = dot(at, value(apart));
    const auto bend = [&](const Vec3<V>& s, const Vec3<V>& t) {
      return a_v.curvature(transposed(plain_pair.R, s), transposed(plain_pair.R, t)) + b_v.curvature(s, t);
    };
    const V k11 = bend(v1, v1) + gap, k12 = select(edge, V(0.0), bend(v1, v2)),
            k22 = select(edge, V(1.0), bend(v2, v2) + gap);
    const V determinant = mul_add(k11, k22, -(k12 * k12));
    const auto none = !less(V(1e-300), magnitude(determinant));
    const V scale = select(none, V(0.0), V(1.0) / select(none, V(1.0), determinant));
    const T s1 = mul_add(raised<T>(V(scale * k22)), g1, -(raised<T>(V(scale * k12)) * g2)),
            s2 = mul_add(raised<T>(V(scale * k11)), g2, -(raised<T>(V(scale * k12)) * g1));
    const Vec3<T> moved = normalised(mul_add(s1, t1, mul_add(s2, t2, base)));
    return select(faces, given, select(crossing, across, moved));
  }
}

// In the frame of the second core. The point is in the middle between both.
template <class T>
inline Spot<T> nearest_parts(const SeparationLanes<Plain<T>>& found, const CorePair<T>& x) {
  const Vec3<T> n = normal_of(found, x);
  const PartAt<T> a(found.a, x.a.size, -transposed(x.R, n)), b(found.b, x.b.size, n);
  const Vec3<T> at_a = mul_add(x.R, a.furthest, x.p), at_b = b.furthest;
  const T gap = dot(n, at_a - at_b), half(0.5);
  // That of a single point; of two edges, where they cross; else those of the search.
  const auto flat_a = found.a.is_edge | found.a.is_face, flat_b = found.b.is_edge | found.b.is_face;
  Vec3<T> point = select(flat_a, mul_add(half * gap, n, at_b), mul_add(-(half * gap), n, at_a));
  const auto both = flat_a & flat_b;
  if (any(both)) {
    const Vec3<T> along_a = x.R * from_plain<T>(found.a.along), along_b = from_plain<T>(found.b.along);
    const T turn = dot(cross(along_a, along_b), n);
    const auto crossing = found.a.is_edge & found.b.is_edge & less(T(1e-14), turn * turn);
    const T s = dot(cross(at_b - at_a, along_b), n) / select(crossing, turn, T(1.0));
    const Vec3<T> on_edges = mul_add(-(half * gap), n, mul_add(s, along_a, at_a));
    const Vec3<T> middle = half * (mul_add(x.R, from_plain<T>(found.at_a), x.p) + from_plain<T>(found.at_b));
    point = select(both, select(crossing, on_edges, middle), point);
  }
  return {gap, n, point};
}

// The one place of two solids of which one is round everywhere: that of least distance, or of least overlap.
template <class T>
class NearestSpot {
 public:
  static constexpr int count = 1;
  NearestSpot(const Solid<T>& a, const Solid<T>& b) : a_(a), b_(b) {}
  Spot<T> place(int) const {
    const CorePair<T> pair = core_pair(a_, b_);
    const Spot<T> s = nearest_parts(separation_lanes(pair), pair);
    const Vec3<T> middle = mul_add(T(0.5) * (b_.radius - a_.radius), s.normal, s.point);
    return {s.gap - (a_.radius + b_.radius), b_.pose.R * s.normal, to_common(b_.pose, middle)};
  }

 private:
  const Solid<T>&a_, &b_;
};

}  // namespace torsor
