// Cylinders on boxes, in 34 places: rims on faces, the side on edges and corners, corners on the cylinder, edges across
// an end of it, and an edge against a rim.
#pragma once
#include "contact/faces.hpp"
#include "contact/plane_spots.hpp"
#include "contact/segment_spots.hpp"

namespace torsor {

// A cylinder and the core of a box, in the frame of the box.
template <class T>
struct CylinderTerms {
  using V = Value<T>;
  Mat3<T> axes;
  Vec3<T> centre;
  T radius, length;  // half the length
  Vec3<T> half;      // of the box
  Segment<T> axis;
  Nearest<T> nearest;         // of the axis to the box
  Vec3<T> faces;              // separations along the axes of the box
  T end, tube, side;          // along the axis, by a capsule around it, and of the point that is nearest to the axis
  Axis<Mask<V>> best, along;  // of the faces, and that which is nearest to the axis of the cylinder
  T deep, depth;              // by which they overlap, or 0; at most half of what may lie beside a face

  CylinderTerms(const Solid<T>& a, const Solid<T>& b)
      : axes{transposed(b.pose.R, a.pose.R.x), transposed(b.pose.R, a.pose.R.y), transposed(b.pose.R, a.pose.R.z)},
        centre(to_local(b.pose, a.pose.p)),
        radius(a.size.x),
        length(a.size.z),
        half(b.size),
        axis{centre, length * axes.z},
        nearest(nearest_of(ShapeKind::box, half, axis)) {
    const T c[3] = {centre.x, centre.y, centre.z}, h[3] = {half.x, half.y, half.z};
    const T x[3] = {axes.x.x, axes.x.y, axes.x.z}, y[3] = {axes.y.x, axes.y.y, axes.y.z};
    const T z[3] = {axes.z.x, axes.z.y, axes.z.z};
    T apart[3];
    for (int i = 0; i < 3; ++i) {
      const T sine = distance_from_point(Vec3<T>{x[i], y[i], T(0.0)}).value;
      apart[i] = magnitude(c[i]) - h[i] - mul_add(length, magnitude(z[i]), radius * sine);
    }
    faces = {apart[0], apart[1], apart[2]};
    const T reach = mul_add(half.z, magnitude(z[2]), mul_add(half.y, magnitude(z[1]), half.x * magnitude(z[0])));
    end = magnitude(dot(axes.z, centre)) - length - reach;
    side = side_distance(nearest.at, nearest.distance);
    best = largest_of(value(faces));
    along = largest_of(Vec3<V>{magnitude(value(z[0])), magnitude(value(z[1])), magnitude(value(z[2]))});
    tube = nearest.distance.value - radius;
    deep = positive_part(-larger(best.of(faces), larger(end, tube)));
    const T least = smaller(smaller(radius, length), smaller(half.x, smaller(half.y, half.z)));
    depth = smaller(deep, T(0.005) * least);
  }
  // Of the angle between the axis and a normal.
  T sine_to(const Vec3<T>& normal) const {
    return distance_from_point(Vec3<T>{dot(normal, axes.x), dot(normal, axes.y), T(0.0)}).value;
  }
  // Distance from the cylinder of the point of the box that is nearest to the axis at s, from where it is d.
  T side_distance(const T& s, const Distance<T>& d) const {
    const T out = positive_part(d.value), inside = d.value - out;
    const T q = mul_add(out, sine_to(d.normal), inside - radius);
    const T h = magnitude(mul_add(s, length, -out * dot(d.normal, axes.z))) - length;
    const T out_q = positive_part(q), out_h = positive_part(h), square = mul_add(out_q, out_q, out_h * out_h);
    const auto none = !less(T(kNoSquare), square);
    return select(none, larger(q, h), square_root(select(none, T(1.0), square)));
  }
  Vec3<T> rim_centre(int rim) const { return mul_add(rim == 0 ? -length : length, axes.z, centre); }
  // What is taken from points of rims on faces, where the cylinder separates more.
  T aside() const {
    const Vec3<T> normal = best.template unit<T>();
    const T by_end = aside_loss(normal, axes.z, T(end - best.of(faces)), deep);
    return larger(by_end, aside_loss(normal, nearest.distance.normal, T(tube - best.of(faces)), deep));
  }

  // A point of a rim on the face of an axis, which must be the best. Its normal points to the cylinder.
  Spot<T> on_face(const Vec3<T>& x, const Axis<Mask<V>>& w, const T& box_radius) const {
    const Distance<T> d = distance_over_face(half, depth, x, w, T(sign_of(w.of(centre))));
    const T gap = d.value - box_radius, within = larger(gap, T(-2.0) * magnitude(w.of(centre)));
    return {mul_add(T(4.0), best.of(faces) - w.of(faces), within) + aside(), d.normal,
            mul_add(T(-0.5) * gap, d.normal, x)};
  }
  Spot<T> fixed_on_face(int rim, int i, const T& box_radius) const {
    Spot<T> s = on_face(fixed_of_rim(rim_centre(rim), radius, axes, i), along, box_radius);
    s.gap += rim_relief(radius, along.of(axes.z));
    return s;
  }
  Spot<T> deepest_on_face(int rim, int k, const T& box_radius) {
    const Axis<Mask<V>> w = axis_number<V>(k);
    const Vec3<T> normal = sign_of(w.of(centre)) * w.template unit<T>();
    Spot<T> s = on_face(deepest_of_rim(rim_centre(rim), radius, axes, normal), w, box_radius);
    std::optional<T>& carried = fixed_carry_[rim];
    if (!carried) {
      T least = fixed_on_face(rim, 0, box_radius).gap;
      for (int i = 1; i < 4; ++i) least = smaller(least, fixed_on_face(rim, i, box_radius).gap);
      carried = positive_part(-least);
    }
    s.gap = larger(s.gap, T(-4.0) * radius * sine_to(normal)) + *carried;
    return s;
  }

  // The side: place 0 where the axis is nearest, as far as this separates more than faces and ends; 1 and 2 at the
  // limits of what lies over a face, where these are not rims.
  Spot<T> on_side(int k, const T& box_radius) {
    const auto depth_at = [&](const T& s) {
      return box_radius - side_distance(s, distance_from_core(ShapeKind::box, half, axis.at(s)));
    };
    const auto both = supports(ShapeKind::box, half, axis, T(box_radius - side), depth_at);
    const auto carries = [&](int i) {
      return smaller(both.depth[i], T(4.0) * length * (T(1.0) - magnitude(both.at[i])));
    };
    const T s = k == 0 ? nearest.at : both.at[k - 1];
    const Distance<T> d = k == 0 ? nearest.distance : distance_from_core(ShapeKind::box, half, axis.at(s));
    const T own = side_distance(s, d) - box_radius;
    T gap = own;
    if (k == 0)
      gap = larger(own + positive_part(larger(larger(carries(0), carries(1)), corners_carry(box_radius))),
                   larger(best.of(faces), end) - tube);
    else
      gap = -carries(k - 1);
    const T to_point = d.value - box_radius - T(0.5) * own;
    return {gap, d.normal, mul_add(-to_point, d.normal, axis.at(s))};
  }

  // Corner k of the box on the cylinder: on that of its end and its side which separates more. The normal points to the
  // box, in the frame of the cylinder.
  Spot<T> corner(int k, const T& box_radius) const {
    const Vec3<T> x = transposed(axes, corner_of(half, k) - centre);
    const Distance<T> outside = distance_from_cylinder(x, radius, length);
    const Distance<T> radial = distance_from_point(Vec3<T>{x.x, x.y, T(0.0)});
    const T way = sign_of(x.z), by_side = radial.value - radius, by_end = mul_add(way, x.z, -length);
    const T most = larger(end, tube), lose_side = most - tube, lose_end = most - end, four(4.0);
    const T on_side = larger(by_side, four * by_end) - lose_side, on_end = larger(by_end, four * by_side) - lose_end;
    const auto inside = less(outside.value, T(0.0)), ends = less(on_side, on_end);
    const Vec3<T> normal = select(inside, select(ends, Vec3<T>{T(0.0), T(0.0), way}, radial.normal), outside.normal);
    const T gap = select(inside, larger(on_side, on_end), outside.value) - box_radius;
    return {gap, normal, mul_add(-mul_add(T(0.5), gap, box_radius), normal, x)};
  }

  const T& corners_carry(const T& box_radius) {
    if (!corners_carry_) {
      T least = corner(0, box_radius).gap;
      for (int k = 1; k < 8; ++k) least = smaller(least, corner(k, box_radius).gap);
      corners_carry_ = positive_part(-least);
    }
    return *corners_carry_;
  }

  // Where an edge of the face of the box that looks at an end of the cylinder enters or leaves this end. The same.
  Spot<T> edge_on_end(int slot, int leaves, const T& box_radius) const {
    const T height = -dot(axes.z, centre), way = sign_of(height), one(1.0);
    const FacingEdge<V> edge = facing_edge(value(axes.z), value(way), slot);
    Segment<T> on{transposed(axes, scaled_by<T>(edge.middle, half) - centre),
                  transposed(axes, scaled_by<T>(edge.along, half))};
    if (leaves) on.half = -on.half;
    const auto distance = [&](const T& s) {
      const Vec3<T> x = on.at(s);
      return distance_from_point(Vec3<T>{x.x, x.y, T(0.0)}).value;
    };
    const T square = mul_add(on.half.x, on.half.x, on.half.y * on.half.y);
    const auto none = !less(T(kNoSquare), square);
    const T scale = one / select(none, one, square);
    const T middle = select(none, T(0.0), -mul_add(on.half.x, on.centre.x, on.half.y * on.centre.y) * scale);
    const T nearest_of_line = distance(middle),
            inside = scale * (radius - nearest_of_line) * (radius + nearest_of_line);
    const auto misses = !less(T(1e-30), inside);
    const T s = clamped(middle - select(misses, T(0.0), square_root(select(misses, one, inside))), one);
    const T clear = smaller(distance(T(-1.0)) - radius, radius - distance(clamped(middle, one)));
    const Vec3<T> x = on.at(s), normal{T(0.0), T(0.0), way};
    const T own = mul_add(way, x.z, -length) - box_radius;
    T gap = larger(own, -clear);
    gap = larger(gap, positive_part(distance_from_cylinder(x, radius, length).value) - box_radius);
    gap = larger(gap, -facing_excess(edge, axes.z, half));
    gap = larger(gap, larger(T(-2.0) * magnitude(height), tube - end));
    const T c[3] = {faces.x - end, faces.y - end, faces.z - end};
    T loss(0.0);
    for (int i = 0; i < 3; ++i)
      loss = larger(loss, aside_loss(axes.z, axis_number<V>(i).template unit<T>(), c[i], deep));
    return {gap + loss, normal, mul_add(-mul_add(T(0.5), own, box_radius), normal, x)};
  }

  // The edge of the box that is nearest to the cylinder, as far as it separates more than faces and ends, less
  // what the side and corners carry. The same.
  Spot<T> nearest_edge(const T& box_radius) {
    const Vec3<T> size{radius, radius, length};
    const Mat3<V> plain{value(axes.x), value(axes.y), value(axes.z)};
    struct Edge {
      Vec3<V> middle, along;
      Segment<V> on;
      Slope<V> slope;
    } edges[12];
    V most(1e300), least(1e300);
    for (int k = 0; k < 12; ++k) {
      const int i = k / 4, j = (i + 1) % 3, l = (i + 2) % 3;
      double m[3] = {0.0, 0.0, 0.0}, e[3] = {0.0, 0.0, 0.0};
      e[i] = 1.0;
      m[j] = k & 1 ? 1.0 : -1.0;
      m[l] = k & 2 ? 1.0 : -1.0;
      Edge& edge = edges[k];
      edge.middle = {V(m[0]), V(m[1]), V(m[2])};
      edge.along = {V(e[0]), V(e[1]), V(e[2])};
      edge.on = {transposed(plain, scaled_by<V>(edge.middle, value(half)) - value(centre)),
                 transposed(plain, scaled_by<V>(edge.along, value(half)))};
      edge.slope = distance_slope(ShapeKind::cylinder, value(size), edge.on, V(0.0));
      most = smaller(most, edge.slope.value);
    }
    Vec3<V> middle = zero3<V>(), along = middle;
    for (const Edge& edge : edges) {
      // The tangent bounds a convex function.
      if (!any(less(edge.slope.value - magnitude(edge.slope.first), most))) continue;
      const V s = nearest_parameter(ShapeKind::cylinder, value(size), edge.on);
      const V distance = distance_from_core(ShapeKind::cylinder, value(size), edge.on.at(s)).value;
      const Mask<V> nearer = less(distance, least);
      least = select(nearer, distance, least);
      middle = select(nearer, edge.middle, middle);
      along = select(nearer, edge.along, along);
    }
    const Segment<T> on{transposed(axes, scaled_by<T>(middle, half) - centre),
                        transposed(axes, scaled_by<T>(along, half))};
    const Nearest<T> place = nearest_of(ShapeKind::cylinder, size, on);
    const T own = place.distance.value - box_radius, others = larger(best.of(faces), end) - place.distance.value;
    const T carried = positive_part(larger(-on_side(0, box_radius).gap, corners_carry(box_radius)));
    return {larger(own, others) + carried, place.distance.normal,
            mul_add(-mul_add(T(0.5), own, box_radius), place.distance.normal, on.at(place.at))};
  }

 private:
  std::optional<T> fixed_carry_[2], corners_carry_;
};

// Places 0 to 13: of each rim the deepest points along the axes of the box, and four fixed ones; 14 to 16: the side;
// 17 to 24: corners of the box; 25 to 33: its edges. The normal points to the cylinder.
template <class T>
class CylinderBoxSpots {
 public:
  static constexpr int count = 34;
  CylinderBoxSpots(const Solid<T>& a, const Solid<T>& b) : a_(a), b_(b), terms_(a, b) {}
  Spot<T> place(int k) {
    if (k < 17) {
      const int rim = k / 7, i = k % 7;
      const Spot<T> s = k >= 14 ? terms_.on_side(k - 14, b_.radius)
                        : i < 3 ? terms_.deepest_on_face(rim, i, b_.radius)
                                : terms_.fixed_on_face(rim, i - 3, b_.radius);
      return {s.gap, b_.pose.R * s.normal, to_common(b_.pose, s.point)};
    }
    const Spot<T> s = k < 25   ? terms_.corner(k - 17, b_.radius)
                      : k < 33 ? terms_.edge_on_end((k - 25) / 2, k % 2, b_.radius)
                               : terms_.nearest_edge(b_.radius);
    return {s.gap, -(a_.pose.R * s.normal), to_common(a_.pose, s.point)};
  }

 private:
  const Solid<T>&a_, &b_;
  CylinderTerms<T> terms_;
};

}  // namespace torsor
