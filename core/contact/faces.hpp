// What places on the faces of boxes have in common: axes in lanes, heights over faces, edges of faces.
#pragma once
#include "contact/solids.hpp"

namespace torsor {

// One of the axes x, y, z, in each lane.
template <class M>
struct Axis {
  M y, z;  // else x
  template <class T>
  TORSOR_INLINE T of(const T& a, const T& b, const T& c) const {
    return select(z, c, select(y, b, a));
  }
  template <class T>
  TORSOR_INLINE T of(const Vec3<T>& v) const {
    return of(v.x, v.y, v.z);
  }
  template <class T>
  TORSOR_INLINE Vec3<T> column(const Mat3<T>& m) const {
    return of(m.x, m.y, m.z);
  }
  template <class T>
  TORSOR_INLINE Vec3<T> unit() const {
    return of(Vec3<T>{T(1.0), T(0.0), T(0.0)}, Vec3<T>{T(0.0), T(1.0), T(0.0)}, Vec3<T>{T(0.0), T(0.0), T(1.0)});
  }
  TORSOR_INLINE Axis next() const { return {!(y | z), y}; }
};
template <class M>
inline void exchange(const M& lanes, Axis<M>& a, Axis<M>& b) {
  const Axis<M> was = a;
  a.y = (b.y & lanes) | (a.y & !lanes);
  a.z = (b.z & lanes) | (a.z & !lanes);
  b.y = (was.y & lanes) | (b.y & !lanes);
  b.z = (was.z & lanes) | (b.z & !lanes);
}
template <class V>
inline Axis<Mask<V>> largest_of(const Vec3<V>& v) {
  Axis<Mask<V>> axis{less(v.x, v.y), no_lane<V>()};
  axis.z = less(larger(v.x, v.y), v.z);
  axis.y = axis.y & !axis.z;
  return axis;
}

template <class V>
inline Axis<Mask<V>> axis_number(int k) {
  return {k == 1 ? every_lane<V>() : no_lane<V>(), k == 2 ? every_lane<V>() : no_lane<V>()};
}

// Of a point, over the face of a box on one side of the axis w: how far it is outside of the box, or, within it, its
// height over the face, or as far as it is within the sides if that is less. A point beside the face counts as on it up
// to twice `depth`, by which the shapes overlap, so that edges which lie on each other do not slip off.
template <class N>
struct FaceHeight {
  N distance, above, beside;
};
template <class N, class M>
inline FaceHeight<N> height_over_face(const Vec3<N>& half, const N& depth, const Vec3<N>& x, const Axis<M>& w,
                                      const N& side) {
  const Axis<M> v = w.next(), t = v.next();
  const N along = side * w.of(x), above = along - w.of(half), behind = positive_part(-along - w.of(half));
  const N by_v = magnitude(v.of(x)) - v.of(half), by_t = magnitude(t.of(x)) - t.of(half);
  const N out_v = positive_part(by_v), out_t = positive_part(by_t);
  const N square = mul_add(out_v, out_v, mul_add(out_t, out_t, behind * behind));
  const auto none = !less(N(kNoSquare), square);
  const N lateral = select(none, larger(by_v, by_t), square_root(select(none, N(1.0), square)));
  const N beside = lateral - N(2.0) * depth;
  const N up = positive_part(above), away = positive_part(beside), far = mul_add(up, up, away * away);
  const auto over = !less(N(kNoSquare), far);
  return {select(over, larger(above, beside), square_root(select(over, N(1.0), far))), above, beside};
}
// The same with the normal: that of the face, or, outside, away from the nearest point of the box.
template <class T, class M>
inline Distance<T> distance_over_face(const Vec3<T>& half, const T& depth, const Vec3<T>& x, const Axis<M>& w,
                                      const T& side) {
  const FaceHeight<T> h = height_over_face(half, depth, x, w, side);
  const Vec3<T> face = side * w.template unit<T>();
  const T up = positive_part(h.above), away = positive_part(h.beside), far = mul_add(up, up, away * away);
  const M inside = !less(T(kNoSquare), far);
  if (!any(!inside)) return {h.distance, face};
  const auto out = [&](const T& c, const T& most) { return sign_of(c) * positive_part(magnitude(c) - most); };
  const Vec3<T> wide{out(x.x, half.x), out(x.y, half.y), out(x.z, half.z)};
  const Vec3<T> towards = distance_from_point(mul_add(-up, face, wide), zero3<T>()).normal;
  const Vec3<T> outward = distance_from_point(mul_add(up, face, away * towards), face).normal;
  return {h.distance, select(inside, face, outward)};
}

// What is taken from all places along a normal where another axis separates the shapes by `more`, and points elsewhere:
// they are places beside the contact. At most four times the overlap.
template <class N>
inline N aside_loss(const Vec3<N>& normal, const Vec3<N>& axis, const N& more, const N& depth) {
  const N angle = positive_part(N(1.0) - magnitude(dot(normal, axis)));
  return smaller(positive_part(more), N(4.0) * depth * smaller(N(8.0) * angle, N(1.0)));
}

// Edges of a box by slots: each face has one in each slot, and two faces share an edge in the same slot. Faces are
// numbered x, -x, y, -y, z, -z; what is listed is the other face of the edge.
inline int edge_partner(int slot, int face) {
  constexpr int partners[4][6] = {{2, 4, 0, 5, 1, 3}, {3, 5, 4, 0, 2, 1}, {4, 3, 5, 1, 0, 2}, {5, 2, 1, 4, 3, 0}};
  return partners[slot][face];
}

// The edge in a slot of the face of a box that looks against a direction: that of which the axis is nearest to it.
// Given are the components `row` of the direction on the axes of the box, and a factor +-1 of it.
template <class V>
struct FacingEdge {
  Axis<Mask<V>> axis;
  V way;
  Vec3<V> middle, along;  // in half sizes of the box
};
template <class V>
inline FacingEdge<V> facing_edge(const Vec3<V>& row, const V& way, int slot) {
  FacingEdge<V> edge{largest_of(Vec3<V>{magnitude(row.x), magnitude(row.y), magnitude(row.z)}), way, zero3<V>(),
                     zero3<V>()};
  const Mask<V> negative = less(V(0.0), edge.axis.of(row) * way);
  for (int face = 0; face < 6; ++face) {
    const Mask<V> on = face / 2 == 0 ? !(edge.axis.y | edge.axis.z) : face / 2 == 1 ? edge.axis.y : edge.axis.z;
    const Mask<V> here = on & (face % 2 == 0 ? !negative : negative);
    double m[3] = {0.0, 0.0, 0.0}, e[3] = {1.0, 1.0, 1.0};
    for (const int f : {face, edge_partner(slot, face)}) {
      m[f / 2] = f % 2 == 0 ? 1.0 : -1.0;
      e[f / 2] = 0.0;
    }
    edge.middle = select(here, Vec3<V>{V(m[0]), V(m[1]), V(m[2])}, edge.middle);
    edge.along = select(here, Vec3<V>{V(e[0]), V(e[1]), V(e[2])}, edge.along);
  }
  return edge;
}
// Coefficients, known as values, times numbers.
template <class T, class V>
inline Vec3<T> scaled_by(const Vec3<V>& k, const Vec3<T>& x) {
  if constexpr (std::is_same_v<T, V>)
    return {k.x * x.x, k.y * x.y, k.z * x.z};
  else
    return {raised<T>(k.x) * x.x, raised<T>(k.y) * x.y, raised<T>(k.z) * x.z};
}
// By how much the face looks more against the direction than any other face that does not share the edge, as a length:
// where another face takes over, places on its other edges end.
template <class T, class V>
inline T facing_excess(const FacingEdge<V>& edge, const Vec3<T>& row, const Vec3<T>& half) {
  const auto sum = [](const Vec3<T>& v) { return v.x + v.y + v.z; };
  const T here = magnitude(edge.axis.of(row)), other = magnitude(sum(scaled_by<T>(edge.along, row)));
  const T opposite = sum(scaled_by<T>(edge.way * edge.middle, row)) + here;  // to the other face of the edge
  return (here - larger(other, opposite)) * sum(half);
}

}  // namespace torsor
