// Boxes on boxes, in 33 places: the corners of each on the other, the points where edges of a face of each cross edges
// of the other, and one place of two edges. Which face a point is pushed out of depends on how the boxes lie, not on
// the point: it is that of the axis which separates them most.
#pragma once
#include <optional>

#include "contact/faces.hpp"

namespace torsor {

// Two boxes without their radii, in the frame of the second.
template <class T>
struct BoxPair {
  Mat3<T> axes;  // of the first
  Vec3<T> centre;
  Vec3<T> a, b;  // half sizes
  T radius_a, radius_b;

  // How far apart they are along n, of length 1, given in the frame of the second.
  TORSOR_INLINE T apart(const Vec3<T>& n) const {
    const Vec3<T> m = transposed(axes, n);
    return magnitude(dot(n, centre)) - reach(a, m) - reach(b, n);
  }
  static TORSOR_INLINE T reach(const Vec3<T>& half, const Vec3<T>& n) {
    return mul_add(half.z, magnitude(n.z), mul_add(half.y, magnitude(n.y), half.x * magnitude(n.x)));
  }
};
template <class T>
inline BoxPair<T> box_pair(const Solid<T>& a, const Solid<T>& b) {
  const Mat3<T>& R = b.pose.R;
  return {{transposed(R, a.pose.R.x), transposed(R, a.pose.R.y), transposed(R, a.pose.R.z)},
          to_local(b.pose, a.pose.p),
          a.size,
          b.size,
          a.radius,
          b.radius};
}
template <class T>
inline BoxPair<Value<T>> value(const BoxPair<T>& p) {
  return {{value(p.axes.x), value(p.axes.y), value(p.axes.z)},
          value(p.centre),
          value(p.a),
          value(p.b),
          value(p.radius_a),
          value(p.radius_b)};
}

// Separations along the fifteen axes: faces of both, and cross products of edges. Those of nearly parallel edges count
// less, so that they are never the best when their direction is undefined.
template <class V>
struct Separations {
  Vec3<V> of_a, of_b;            // along the axes of each
  V faces, edges;                // the largest of both kinds
  Axis<Mask<V>> edge_a, edge_b;  // of the latter
};
template <class T>
TORSOR_INLINE T parallel_loss(const BoxPair<T>& p, const T& square) {
  const T size = p.a.x + p.a.y + p.a.z + p.b.x + p.b.y + p.b.z, ratio = T(1e-6) / square;
  return size * ratio * ratio;
}
template <class V>
inline Separations<V> separations(const BoxPair<V>& p) {
  Separations<V> s;
  const auto size = [](const Vec3<V>& v) { return Vec3<V>{magnitude(v.x), magnitude(v.y), magnitude(v.z)}; };
  const Mat3<V> m{size(p.axes.x), size(p.axes.y), size(p.axes.z)};
  const Vec3<V> c = size(p.centre), seen = size(transposed(p.axes, p.centre));
  s.of_b = c - p.b - m * p.a;
  s.of_a = seen - p.a - transposed(m, p.b);
  const auto most = [](const Vec3<V>& v) { return larger(v.x, larger(v.y, v.z)); };
  s.faces = larger(most(s.of_a), most(s.of_b));
  s.edges = V(-1e300);
  s.edge_a = s.edge_b = {no_lane<V>(), no_lane<V>()};
  for (int i = 0; i < 3; ++i)
    for (int j = 0; j < 3; ++j) {
      const Vec3<V> unit{V(j == 0 ? 1.0 : 0.0), V(j == 1 ? 1.0 : 0.0), V(j == 2 ? 1.0 : 0.0)};
      const Vec3<V> n = cross(p.axes.column(i), unit);
      const V square = larger(dot(n, n), V(1e-24));
      const V apart = p.apart(n) / square_root(square) - parallel_loss(p, square);
      const Mask<V> better = less(s.edges, apart);
      s.edges = select(better, apart, s.edges);
      const auto set = [&](Axis<Mask<V>>& axis, int k) {
        axis.y = (better & (k == 1 ? every_lane<V>() : no_lane<V>())) | (axis.y & !better);
        axis.z = (better & (k == 2 ? every_lane<V>() : no_lane<V>())) | (axis.z & !better);
      };
      set(s.edge_a, i);
      set(s.edge_b, j);
    }
  return s;
}

// What of the separations a place depends on beside their choice, evaluated in T where a lane needs it.
template <class T>
struct BoxTerms {
  BoxPair<T> pair;
  Separations<Value<T>> found;
  Axis<Mask<Value<T>>> best_a, best_b;
  T depth;   // by which the cores overlap, or 0
  T beside;  // what is taken from all points of the first box on the second

  explicit BoxTerms(const BoxPair<T>& p)
      : pair(p), found(separations(value(p))), best_a(largest_of(found.of_a)), best_b(largest_of(found.of_b)) {
    using V = Value<T>;
    depth = T(0.0);
    if (any(less(larger(found.faces, found.edges), V(0.0)))) depth = positive_part(-larger(faces(), edges()));
    beside = any(less(V(0.0), value(depth))) ? aside() : T(0.0);
  }
  TORSOR_INLINE T along_b(const Axis<Mask<Value<T>>>& axis) const { return pair.apart(axis.template unit<T>()); }
  TORSOR_INLINE T along_a(const Axis<Mask<Value<T>>>& axis) const { return pair.apart(axis.column(pair.axes)); }
  T faces() const { return larger(along_a(best_a), along_b(best_b)); }
  Vec3<T> edge_normal(T& square) const {
    const Vec3<T> n = cross(found.edge_a.column(pair.axes), found.edge_b.template unit<T>());
    square = larger(dot(n, n), T(1e-24));
    const T scale = sign_of(dot(n, pair.centre)) / square_root(square);
    return scale * n;
  }
  T edges() const {
    T square;
    const Vec3<T> n = edge_normal(square);
    return pair.apart(n) - parallel_loss(pair, square);
  }
  // The largest loss by an axis of the first box.
  T aside() const {
    using V = Value<T>;
    const BoxPair<V> plain = value(pair);
    const V best = best_b.of(found.of_b), overlap = value(depth);
    const Vec3<V> normal = best_b.template unit<V>();
    const Vec3<V> losses{aside_loss(normal, plain.axes.x, V(found.of_a.x - best), overlap),
                         aside_loss(normal, plain.axes.y, V(found.of_a.y - best), overlap),
                         aside_loss(normal, plain.axes.z, V(found.of_a.z - best), overlap)};
    const auto most = largest_of(losses);
    if (!any(less(V(0.0), most.of(losses)))) return T(0.0);
    return aside_loss(best_b.template unit<T>(), most.column(pair.axes), T(along_a(most) - along_b(best_b)), depth);
  }
};

// How far a point of the first box, without radius, is from the core of the second. It is pushed out along the
// direction w, of six, for which its height less (separation along the best - separation along w) is largest.
template <class T>
inline Distance<T> distance_in_pair(const BoxTerms<T>& terms, const Vec3<T>& x) {
  using V = Value<T>;
  using One = Axis<Mask<V>>;
  const BoxPair<V> plain = value(terms.pair);
  const Vec3<V> at = value(x);
  const V depth = value(terms.depth), best = terms.best_b.of(terms.found.of_b);
  const auto level = [&](const One& w, V& side) {
    const V toward = sign_of(w.of(plain.centre));
    const V apart = w.of(terms.found.of_b), loss = best - apart, from = magnitude(w.of(plain.centre));
    const V near = height_over_face(plain.b, depth, at, w, toward).distance - loss;
    side = toward;
    if (!any(less(w.of(plain.b) + from, -apart))) return near;  // no point is nearer to the other side
    const V far = height_over_face(plain.b, depth, at, w, V(-toward)).distance - loss - V(2.0) * from;
    side = select(less(near, far), -toward, toward);
    return larger(near, far);
  };
  Vec3<V> sides;
  const V level_x = level(axis_number<V>(0), sides.x), level_y = level(axis_number<V>(1), sides.y);
  const One w = largest_of(Vec3<V>{level_x, level_y, level(axis_number<V>(2), sides.z)});
  const T side = raised<T>(w.of(sides));
  Distance<T> d = distance_over_face(terms.pair.b, terms.depth, x, w, side);
  if (any(less(w.of(terms.found.of_b), best))) d.value += terms.along_b(w) - terms.along_b(terms.best_b);
  if (any(less(w.of(sides) * w.of(plain.centre), V(0.0))))
    d.value += T(2.0) * smaller(side * w.of(terms.pair.centre), T(0.0));
  return d;
}

// In the frame of the second box: a point of the core of the first and its spot.
template <class T>
inline Spot<T> point_in_pair(const BoxTerms<T>& terms, const Vec3<T>& x) {
  const Distance<T> d = distance_in_pair(terms, x);
  const T gap = d.value - (terms.pair.radius_a + terms.pair.radius_b);
  return {gap + terms.beside, d.normal, mul_add(-mul_add(T(0.5), gap, terms.pair.radius_a), d.normal, x)};
}

// The place of two edges: the pair of edges that support both boxes along the best of the nine cross products. It acts
// as far as this separates more than all faces.
template <class T>
inline Spot<T> edges_in_pair(const BoxTerms<T>& terms) {
  using V = Value<T>;
  const BoxPair<T>& p = terms.pair;
  const auto &i = terms.found.edge_a, &j = terms.found.edge_b;
  const T one(1.0), zero(0.0), reach = p.radius_a + p.radius_b;
  T square;
  const Vec3<T> n = terms.edge_normal(square), m = transposed(p.axes, n);
  const Vec3<T> along_a = i.template unit<T>(), along_b = j.template unit<T>();
  const auto lowest = [&](const Vec3<T>& half, const Vec3<T>& normal, const Vec3<T>& along) {
    return Vec3<T>{(along.x - one) * sign_of(normal.x) * half.x, (along.y - one) * sign_of(normal.y) * half.y,
                   (along.z - one) * sign_of(normal.z) * half.z};
  };
  const Vec3<T> from_a = mul_add(p.axes, lowest(p.a, m, along_a), p.centre), from_b = -lowest(p.b, n, along_b);
  const Vec3<T> edge_a = i.of(p.a) * i.column(p.axes), edge_b = j.of(p.b) * along_b;
  const T length_a = i.of(p.a), length_b = j.of(p.b);
  // Nearest points of the lines, on the edges.
  const Vec3<T> w = from_a - from_b, direction_a = i.column(p.axes);
  const T cosine = dot(direction_a, along_b), d = dot(direction_a, w), e = dot(along_b, w);
  const T s = clamped((cosine * e - d) / square, length_a);
  const T t = clamped(mul_add(cosine, s, e), length_b);
  const T s_again = clamped(mul_add(cosine, t, -d), length_a);
  const Vec3<T> x = mul_add(s_again, direction_a, from_a), y = mul_add(t, along_b, from_b), apart = x - y;
  const T height = dot(apart, n);
  const Distance<T> free = distance_from_point(apart, n);
  const T miss = distance_from_point(apart - height * n, n).value;
  const Mask<V> above = less(zero, height);
  const T distance = select(above, free.value, height + positive_part(miss));
  T gap = distance - reach;
  // Less what the corners of the edges carry, where they are rounded.
  const auto end = [&](const Vec3<T>& point, const Vec3<T>& middle, const Vec3<T>& along, const T& half) {
    const Vec3<T> r = point - middle;
    return reach - distance_from_point(r - clamped(dot(along, r), half) * along, n).value;
  };
  T carried = larger(end(from_a - edge_a, from_b, along_b, length_b), end(from_a + edge_a, from_b, along_b, length_b));
  carried = larger(carried, end(from_b - edge_b, from_a, direction_a, length_a));
  carried = larger(carried, end(from_b + edge_b, from_a, direction_a, length_a));
  gap += positive_part(carried);
  if (any(less(value(gap), terms.found.faces - terms.found.edges))) gap = larger(gap, terms.faces() - terms.edges());
  const Vec3<T> normal = select(above, free.normal, n);
  const T half = T(0.5);
  return {gap, normal, mul_add(half, mul_add(-p.radius_a, normal, x), half * mul_add(p.radius_b, normal, y))};
}

// Where an edge of the first box, of its face that looks at the second, crosses an edge of that: its points on both
// sides of the crossing, and those of the other edge, must lie further out and in than the boxes overlap. Slot and
// direction number the crossings: 0 where the edge enters what lies over the face, 1 where it leaves. What two edges
// carry, as `edges_in_pair`, is not carried here.
template <class T>
inline Spot<T> crossing_in_pair(const BoxTerms<T>& terms, int slot, int leaves, const T& carried) {
  using V = Value<T>;
  using One = Axis<Mask<V>>;
  const BoxPair<T>& p = terms.pair;
  const BoxPair<V> plain = value(p);
  const One w = terms.best_b, v = w.next(), t = v.next();
  const Vec3<V> row{w.of(plain.axes.x), w.of(plain.axes.y), w.of(plain.axes.z)};
  const FacingEdge<V> edge = facing_edge(row, sign_of(w.of(plain.centre)), slot);
  const Vec3<T> c = mul_add(p.axes, scaled_by<T>(edge.middle, p.a), p.centre);
  const Vec3<T> e = p.axes * scaled_by<T>(edge.along, p.a);
  // Across the plane of one lateral axis, at a point of the other: how far all ends are out and in, and the parameter.
  const auto cross_at = [&](const auto& centre, const auto& half, const auto& size, const One& over, const One& beside,
                            auto& parameter) {
    const auto step = over.of(half), bound = over.of(size), other = beside.of(half);
    using N = std::decay_t<decltype(step)>;
    const N way = N(leaves ? -1.0 : 1.0) * sign_of(step), from = way * over.of(centre), length = magnitude(step);
    const N out = length - from - bound, in = from + length + bound;  // of the ends before and after
    const N both = select(less(N(1e-300), length), length, N(1.0));
    parameter = N(leaves ? -1.0 : 1.0) * clamped((-bound - from) / both, N(1.0));
    const N at = mul_add(parameter, other, beside.of(centre));
    const N square = mul_add(length, length, other * other);
    const auto none = !less(N(kNoSquare), square);
    const N sine = length / square_root(select(none, N(1.0), square));
    return smaller(smaller(out, in), (beside.of(size) - magnitude(at)) * sine);
  };
  V s_v, s_t;
  const V over_v = cross_at(value(c), value(e), plain.b, v, t, s_v),
          over_t = cross_at(value(c), value(e), plain.b, t, v, s_t);
  const Mask<V> by_t = less(over_v, over_t);
  One first = v, second = t;
  exchange(by_t, first, second);
  T s;
  const T clear = cross_at(c, e, p.b, first, second, s);
  const Vec3<T> x = mul_add(s, e, c);
  const Distance<T> outside = distance_from_box(x, p.b);
  const Spot<T> none{larger(-clear, positive_part(outside.value) - (p.radius_a + p.radius_b)), outside.normal, x};
  const Mask<V> crosses = less(V(0.0), value(clear));
  if (!any(crosses)) return none;
  Spot<T> spot = point_in_pair(terms, x);
  spot.gap = larger(spot.gap, -clear);
  if (any(less(value(spot.gap), -facing_excess(edge, row, plain.a)))) {
    const Vec3<T> row_t{w.of(p.axes.x), w.of(p.axes.y), w.of(p.axes.z)};
    spot.gap = larger(spot.gap, -facing_excess(edge, row_t, p.a));
  }
  // Nothing where another direction of the second box takes over.
  spot.gap = larger(spot.gap, T(-2.0) * magnitude(w.of(p.centre)));
  One other = v, last = t;
  exchange(Mask<V>(less(v.of(terms.found.of_b), t.of(terms.found.of_b))), other, last);
  if (any(less(value(spot.gap), other.of(terms.found.of_b) - w.of(terms.found.of_b))))
    spot.gap = larger(spot.gap, terms.along_b(other) - terms.along_b(w));
  spot.gap += T(2.0) * carried;
  return {select(crosses, spot.gap, none.gap), select(crosses, spot.normal, none.normal),
          select(crosses, spot.point, none.point)};
}

// Places 0 to 7: corners of the first; 8 to 15: crossings of its edges; 16 to 31: the same of the second; 32: edges.
template <class T>
class BoxSpots {
 public:
  static constexpr int count = 33;
  BoxSpots(const Solid<T>& a, const Solid<T>& b) : a_(a), b_(b) {}
  Spot<T> place(int k) {
    if (k >= 16 && k < 32) return flipped(on(b_, a_, second_, k - 16));
    return on(a_, b_, first_, k);
  }

 private:
  using Terms = std::optional<BoxTerms<T>>;
  Spot<T> on(const Solid<T>& a, const Solid<T>& b, Terms& terms, int k) {
    const BoxTerms<T>& t = made(a, b, terms);
    const auto corner = [&] { return mul_add(t.pair.axes, corner_of(t.pair.a, k), t.pair.centre); };
    const Spot<T> s = k == 32 ? edges_in_pair(t)
                      : k < 8 ? point_in_pair(t, corner())
                              : crossing_in_pair(t, (k - 8) / 2, k % 2, edges_carry());
    return {s.gap, b.pose.R * s.normal, to_common(b.pose, s.point)};
  }
  static const BoxTerms<T>& made(const Solid<T>& a, const Solid<T>& b, Terms& terms) {
    if (!terms) terms.emplace(box_pair(a, b));
    return *terms;
  }
  const T& edges_carry() {
    if (!carried_) {
      const BoxTerms<T>& t = made(a_, b_, first_);
      const bool none = !any(less(t.found.faces, t.found.edges) & less(t.found.edges, value(a_.radius + b_.radius)));
      carried_ = none ? T(0.0) : positive_part(-edges_in_pair(t).gap);
    }
    return *carried_;
  }

  const Solid<T>&a_, &b_;
  Terms first_, second_;
  std::optional<T> carried_;
};

}  // namespace torsor
