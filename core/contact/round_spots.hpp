// Cylinders on cylinders and on convex hulls: fixed points of rims on faces, the side on what it lies on, vertices and
// edges of a hull on the cylinder, and the place of least distance or overlap, less what the others carry.
#pragma once
#include "contact/hull_spots.hpp"
#include "contact/plane_spots.hpp"
#include "contact/segment_spots.hpp"

namespace torsor {

constexpr int kBestFaces = 3;  // of a hull, on which rims may lie

// The first core, a cylinder, on the second, in the frame of that.
template <class T>
class CylinderSide {
  using P = Plain<T>;
  static constexpr int kLanesOfP = Lanes<P>::value;

 public:
  // Places: eight fixed points of rims, the deepest ones on some faces, and two supports.
  static constexpr int count_on(int faces) { return 10 + 2 * faces; }
  CylinderSide(const CorePair<T>& pair, const T& reach)
      : pair_(pair),
        reach_(reach),
        radius_(pair.a.size.x),
        length_(pair.a.size.z),
        axis_{pair.p, length_ * pair.R.z},
        nearest_(nearest_of(pair.b, axis_)),
        tube_(nearest_.distance.value - radius_) {
    if (pair.b.kind == ShapeKind::cylinder) {
      const T half = pair.b.size.z, cosine = pair.R.z.z;
      normal_ = {T(0.0), T(0.0), sign_of(pair.p.z)};
      separates_ = magnitude(pair.p.z) - half - furthest(normal_);
      along_ = magnitude(dot(pair.R.z, pair.p)) - length_ -
               mul_add(half, magnitude(cosine), pair.b.size.x * sine(Vec3<T>{T(0.0), T(0.0), T(1.0)}));
    } else {
      const Polytope& hull = *pair.b.surface->polytope;
      VertexLanes<P> lowest;
      const Core<double> core{pair.b.kind, zero3<double>(), pair.b.surface};
      way_ = sign_of(-dot(pair.R.z, pair.p - lift<T>(pair.b.surface->triangles->centre())));  // from the cylinder
      for (int l = 0; l < kLanesOfP; ++l) {
        const Convex a = convex_in_lane(pair.a, pair.R, pair.p, l);
        const Point u = (-in_lane(plain(way_), l)) * a.R.z;
        for (int w = 0; w < static_cast<int>(hull.faces.size()); ++w) {
          const Point& n = hull.faces[w].normal;
          over_[l].apart[w] = dot(n, a.at(a.furthest(-transposed(a.R, n))) - hull.vertices[hull.faces[w].vertex]);
        }
        over_[l].choose(static_cast<int>(hull.faces.size()));
        int furthest = 0;
        for (int k = 0; k < static_cast<int>(hull.vertices.size()); ++k)
          if (dot(u, hull.vertices[k]) > dot(u, hull.vertices[furthest])) furthest = k;
        lowest.set(l, core, furthest);
        put_face(best_, l, over_[l].best[0]);
      }
      normal_ = from_plain<T>(best_.normal);
      separates_ = apart(best_);
      along_ = way_ * dot(pair.R.z, lowest.at(pair.b.size) - pair.p) - length_;
    }
  }
  // Separations by faces of the second core, by the ends of this one, and by its side.
  const T& separates() const { return separates_; }
  const T& along() const { return along_; }
  const T& tube() const { return tube_; }
  Spot<T> place(int k) { return k < 8 ? fixed(k) : k < 10 ? support(k - 8) : deepest(k % 2, (k - 10) / 2); }
  // The gap of the cores and its normal, and, for a cylinder, what its side separates. Points on faces and ends lose
  // where other directions separate more.
  void know(const T& gap, const Vec3<T>& nearest_normal, const T& other_tube) {
    gap_ = gap;
    nearest_normal_ = nearest_normal;
    depth_ = positive_part(-gap);
    loss_ = larger(aside_loss(normal_, pair_.R.z, T(along_ - separates_), depth_),
                   aside_loss(normal_, nearest_normal, T(gap - separates_), depth_)) +
            T(4.0) * positive_part(other_tube - separates_);
    end_loss_ = aside_loss(pair_.R.z, nearest_normal, T(gap - along_), depth_);
  }

  // A fixed point of a rim, on a face.
  Spot<T> fixed(int k) const {
    Spot<T> s = on_face(fixed_of_rim(rim_centre(k / 4), radius_, pair_.R, k % 4));
    s.gap += rim_relief(radius_, dot(normal_, pair_.R.z));
    return s;
  }
  // The point of a rim that is deepest below one of the faces that separate most, less what the fixed points carry. It
  // ends where this face separates less than the best.
  Spot<T> deepest(int rim, int slot) const {
    FaceLanes<P> face;
    Vec3<T> normal = normal_;
    T offset = face_offset(), loss = loss_;
    if (slot > 0) {
      for (int l = 0; l < kLanesOfP; ++l) put_face(face, l, over_[l].best[slot]);
      normal = from_plain<T>(face.normal);
      offset = dot(normal, face.vertex.at(pair_.b.size));
      loss = mul_add(T(4.0), separates_ - apart(face), loss);
    }
    const Vec3<T> x = deepest_of_rim(rim_centre(rim), radius_, pair_.R, normal);
    const T above = dot(normal, x) - offset;
    const auto far_off = !less(plain(above), plain(reach_));
    const Spot<T> apart_from{larger(above, T(1.001) * gap_) - reach_, normal, x};
    if (!any(!far_off)) return apart_from;
    const Distance<T> d = distance_from_core(pair_.b, x);
    const T far = mul_add(T(-2.0), depth_, d.value), level = larger(above, far);
    const Vec3<T> n = select(less(above, far) & less(T(0.0), far), d.normal, normal);
    Spot<T> s{level - reach_ + loss, n, mul_add(T(-0.5) * level, n, x)};
    if (any(less(plain(s.gap), P(0.0))))
      s.gap += taken_from_deepest(T(-s.gap), [&](int i) { return T(-fixed(4 * rim + i).gap); });
    return select(far_off, apart_from, s);
  }

  // The side at both limits of what lies over the second core.
  Spot<T> support(int k) {
    if (!supports_) {
      const auto depth_at = [&](const T& s) {
        return reach_ - side_distance(s, distance_from_core(pair_.b, axis_.at(s)));
      };
      supports_ = supports(pair_.b, axis_, T(reach_ - side_distance(nearest_.at, nearest_.distance)), depth_at);
    }
    const T s = supports_->at[k];
    const Distance<T> d = distance_from_core(pair_.b, axis_.at(s));
    const T own = side_distance(s, d);
    // Not where the cylinder stands, nor where it touches elsewhere.
    const T most = T(4.0) * radius_ * sine(d.normal) * sine(d.normal);
    const T aside = smaller(T(8.0) * positive_part(T(1.0) - dot(d.normal, nearest_normal_)), T(1.0));
    const T least = larger(gap_, T(1.001) * gap_) - reach_;
    return {mul_add(T(4.0) * positive_part(reach_ - gap_), aside, larger(-smaller(supports_->depth[k], most), least)),
            d.normal, mul_add(T(0.5) * own - d.value, d.normal, axis_.at(s))};
  }

  // A vertex of the hull on the cylinder: on its end or its side, whichever separates more. In the frame of the
  // cylinder, with the normal to the hull.
  Spot<T> vertex(int k) const {
    VertexLanes<P> v;
    for (int l = 0; l < kLanesOfP; ++l) v.set(l, {pair_.b.kind, zero3<double>(), pair_.b.surface}, k);
    return on_cylinder(transposed(pair_.R, v.at(pair_.b.size) - pair_.p));
  }
  // Where an edge of the hull enters or leaves an end of the cylinder. The same.
  Spot<T> edge(int k) {
    if (!found_) find_edges();
    const Spot<T> none{larger(gap_, T(0.0)) + T(1.0), {T(0.0), T(0.0), T(1.0)}, zero3<T>()};
    VertexLanes<P> v[2];
    Mask<P> exists = no_lane<P>();
    bool some = false;
    for (int l = 0; l < kLanesOfP; ++l) {
      const bool here = k < count_[l];
      some = some || here;
      const auto& e = pair_.b.surface->polytope->edges[here ? edges_[l][k] / 2 : 0];
      const int from = here ? edges_[l][k] % 2 : 0;
      const Core<double> core{pair_.b.kind, zero3<double>(), pair_.b.surface};
      v[0].set(l, core, e.vertex[from]);
      v[1].set(l, core, e.vertex[1 - from]);
      set_lane(exists, l, here);
    }
    if (!some) return none;
    const Vec3<T> p = transposed(pair_.R, v[0].at(pair_.b.size) - pair_.p);
    const Vec3<T> d = transposed(pair_.R, v[1].at(pair_.b.size) - pair_.p) - p;
    // From outside into the circle.
    const T one(1.0), square = mul_add(d.x, d.x, d.y * d.y), safe = select(exists, square, one);
    const T middle = -mul_add(d.x, p.x, d.y * p.y) / safe;
    const auto distance = [&](const T& s) {
      const Vec3<T> x = mul_add(s, d, p);
      return distance_from_point(Vec3<T>{x.x, x.y, T(0.0)}).value;
    };
    const T least = distance(middle), inside = select(exists, (radius_ - least) * (radius_ + least) / safe, one);
    const T s = middle - square_root(inside);
    const T clear = smaller(distance(T(0.0)) - radius_, radius_ - distance(smaller(larger(middle, T(0.0)), one)));
    const Vec3<T> x = mul_add(s, d, p), normal{T(0.0), T(0.0), way_};
    const T height = mul_add(way_, x.z, -length_);
    const T gap = larger(height - reach_, -smaller(clear, positive_part(along_ - tube_))) + end_loss_;
    return select(exists, {gap, normal, mul_add(T(-0.5) * height, normal, x)}, none);
  }

 private:
  Vec3<T> rim_centre(int rim) const { return mul_add(rim == 0 ? -length_ : length_, pair_.R.z, pair_.p); }
  // A point of the cylinder on the faces of the second core.
  Spot<T> on_face(const Vec3<T>& x) const {
    const T above = dot(normal_, x) - face_offset();
    const auto far_off = !less(plain(above), plain(reach_));
    const Spot<T> apart_from{larger(above, T(1.001) * gap_) - reach_, normal_, x};
    if (!any(!far_off)) return apart_from;
    T level = above;
    Vec3<T> n = normal_;
    if (pair_.b.kind == ShapeKind::cylinder) {
      const T beside = distance_from_point(Vec3<T>{x.x, x.y, T(0.0)}).value - pair_.b.size.x;
      level = larger(above, mul_add(T(-2.0), depth_, beside));
    } else {
      FaceLanes<P> face;
      const Vec3<P> at = plain(x);
      for (int l = 0; l < kLanesOfP; ++l) put_face(face, l, face_of(l, in_lane(at, l)));
      level = height(face, x) + (apart(face) - separates_);
      n = from_plain<T>(face.normal);
      const Distance<T> d = distance_from_core(pair_.b, x);
      const T far = mul_add(T(-2.0), depth_, d.value);
      const auto outside = less(level, far);
      level = select(outside, far, level);
      n = select(outside & less(T(0.0), far), d.normal, n);
    }
    return select(far_off, apart_from, {level - reach_ + loss_, n, mul_add(T(-0.5) * level, n, x)});
  }
  T sine(const Vec3<T>& normal) const {
    return distance_from_point(Vec3<T>{dot(normal, pair_.R.x), dot(normal, pair_.R.y), T(0.0)}).value;
  }
  T furthest(const Vec3<T>& n) const {  // of the cylinder
    return mul_add(length_, magnitude(dot(n, pair_.R.z)), radius_ * sine(n));
  }
  T face_offset() const {
    if (pair_.b.kind == ShapeKind::cylinder) return pair_.b.size.z;
    return dot(normal_, best_.vertex.at(pair_.b.size));
  }
  // Distance from the side of the point of the second core that is nearest to the axis at s, from where it is d; more
  // where this point is beyond an end.
  T side_distance(const T& s, const Distance<T>& d) const {
    const T out = positive_part(d.value), q = mul_add(out, sine(d.normal), d.value - out - radius_);
    const T h = magnitude(mul_add(s, length_, -out * dot(d.normal, pair_.R.z))) - length_;
    return mul_add(T(4.0), positive_part(h), q);
  }
  Spot<T> on_cylinder(const Vec3<T>& x) const {
    const Distance<T> outside = distance_from_cylinder(x, radius_, length_);
    const Distance<T> radial = distance_from_point(Vec3<T>{x.x, x.y, T(0.0)});
    const T way = sign_of(x.z), by_side = radial.value - radius_, by_end = mul_add(way, x.z, -length_);
    const T best = larger(along_, tube_), lose_side = best - tube_, lose_end = best - along_, four(4.0);
    const T on_side = larger(by_side, four * by_end) - lose_side, on_end = larger(by_end, four * by_side) - lose_end;
    const auto inside = less(outside.value, T(0.0)), ends = less(on_side, on_end);
    const Vec3<T> normal = select(inside, select(ends, Vec3<T>{T(0.0), T(0.0), way}, radial.normal), outside.normal);
    const T value = select(inside, larger(on_side, on_end), outside.value);
    return {value - reach_, normal, mul_add(T(-0.5) * value, normal, x)};
  }

  // ---- faces of a hull
  void put_face(FaceLanes<P>& face, int l, int w) const {
    const Polytope& hull = *pair_.b.surface->polytope;
    set_lane(face.normal, l, hull.faces[w].normal);
    face.vertex.set(l, {pair_.b.kind, zero3<double>(), pair_.b.surface}, hull.faces[w].vertex);
  }
  T height(const FaceLanes<P>& face, const Vec3<T>& x) const {
    return dot(from_plain<T>(face.normal), x - face.vertex.at(pair_.b.size));
  }
  T apart(const FaceLanes<P>& face) const { return height(face, pair_.p) - furthest(from_plain<T>(face.normal)); }
  int face_of(int l, const Point& x) const {
    const Polytope& hull = *pair_.b.surface->polytope;
    const auto level = [&](int w) {
      return dot(hull.faces[w].normal, x - hull.vertices[hull.faces[w].vertex]) + over_[l].apart[w];
    };
    int found = over_[l].best[0];
    for (int w = 0; w < static_cast<int>(hull.faces.size()); ++w)
      if (level(w) > level(found)) found = w;
    return found;
  }
  // Edges of the side of the hull that looks at an end, each way, that enter the circle.
  void find_edges() {
    found_ = true;
    const Polytope& hull = *pair_.b.surface->polytope;
    for (int l = 0; l < kLanesOfP; ++l) {
      const Convex a = convex_in_lane(pair_.a, pair_.R, pair_.p, l);
      const double way = in_lane(plain(way_), l), radius = a.size.x, top = a.size.z + in_lane(plain(reach_), l);
      const Point u = way * a.R.z;
      count_[l] = 0;
      for (int i = 0; i < static_cast<int>(hull.edges.size()); ++i) {
        const auto& e = hull.edges[i];
        if (std::min(dot(u, hull.faces[e.face[0]].normal), dot(u, hull.faces[e.face[1]].normal)) > -1e-9) continue;
        for (int from = 0; from < 2; ++from) {
          const Point p = transposed(a.R, hull.vertices[e.vertex[from]] - a.p);
          const Point d = transposed(a.R, hull.vertices[e.vertex[1 - from]] - a.p) - p;
          const double square = d.x * d.x + d.y * d.y, outside = p.x * p.x + p.y * p.y - radius * radius;
          const double slope = d.x * p.x + d.y * p.y, inside = slope * slope - square * outside;
          if (!(square > 0.0) || outside <= 0.0 || inside <= 0.0) continue;
          const double s = (-slope - std::sqrt(inside)) / square;
          if (!(s > 0.0 && s < 1.0) || way * (p.z + s * d.z) > top) continue;
          if (count_[l] < kMostCrossings) edges_[l][count_[l]++] = 2 * i + from;
        }
      }
    }
  }

  const CorePair<T>& pair_;
  T reach_, radius_, length_;
  Segment<T> axis_;
  Nearest<T> nearest_;
  T tube_, separates_, along_, way_, gap_, depth_, loss_, end_loss_;
  Vec3<T> normal_, nearest_normal_;
  FaceLanes<P> best_;
  struct Over {
    double apart[kMostFaces];
    int best[kBestFaces];
    void choose(int faces) {
      for (int i = 0; i < kBestFaces; ++i) {
        best[i] = 0;
        for (int w = 1; w < faces; ++w) {
          const bool taken = std::find(best, best + i, w) != best + i;
          if (!taken && (apart[w] > apart[best[i]] || std::find(best, best + i, best[i]) != best + i)) best[i] = w;
        }
      }
    }
  } over_[kLanesOfP];
  std::optional<Supports<T>> supports_;
  int edges_[kLanesOfP][kMostCrossings], count_[kLanesOfP];
  bool found_ = false;
};

// What others carry, taken from the depth of a place: all of it where they carry as much.
template <class T>
struct Carried {
  T sum{0.0};
  void add(const T& gap) {
    const T depth = positive_part(-gap);
    sum = mul_add(depth, depth, sum);
  }
  T from(const T& deepest) const {
    const auto touches = less(T(0.0), deepest);
    return select(touches, smaller(T(2.0) * sum / select(touches, deepest, T(1.0)), T(2.0) * deepest), T(0.0));
  }
};

// What separates more than faces do acts at the nearest place.
template <class T>
inline T beyond_faces(const T& gap, const T& faces) {
  return larger(gap, faces - gap);
}

// Places: the nearest; the rims and the side of the first cylinder; the same of the second.
template <class T>
class CylinderSpots {
 public:
  static constexpr int of_side = CylinderSide<T>::count_on(1), count = 1 + 2 * of_side;
  CylinderSpots(const Solid<T>& a, const Solid<T>& b)
      : a_(a),
        b_(b),
        pair_(core_pair(a, b)),
        swapped_(core_pair(b, a)),
        nearest_(nearest_parts(separation_lanes(pair_), pair_)),
        first_(pair_, T(0.0)),
        second_(swapped_, T(0.0)) {
    first_.know(nearest_.gap, nearest_.normal, second_.tube());
    second_.know(nearest_.gap, -transposed(pair_.R, nearest_.normal), first_.tube());
  }
  Spot<T> place(int k) {
    if (k > 0) {
      const Spot<T> s = local(k);
      return k <= of_side ? Spot<T>{s.gap, b_.pose.R * s.normal, to_common(b_.pose, s.point)}
                          : Spot<T>{s.gap, -(a_.pose.R * s.normal), to_common(a_.pose, s.point)};
    }
    Spot<T> s = nearest_;
    s.gap = beyond_faces(s.gap, larger(first_.separates(), second_.separates()));
    if (any(less(plain(s.gap), Plain<T>(0.0)))) {
      Carried<T> carried;
      for (int i = 1; i < count; ++i) carried.add(local(i).gap);
      s.gap += carried.from(T(-s.gap));
    }
    return {s.gap, b_.pose.R * s.normal, to_common(b_.pose, s.point)};
  }

 private:
  Spot<T> local(int k) { return k <= of_side ? first_.place(k - 1) : second_.place(k - 1 - of_side); }

  const Solid<T>&a_, &b_;
  CorePair<T> pair_, swapped_;
  Spot<T> nearest_;
  CylinderSide<T> first_, second_;
};

// Places: the nearest; the rims and the side of the cylinder; edges of the hull across its ends; vertices of the hull.
// The normal points to the cylinder.
template <class T>
class CylinderHullSpots {
 public:
  static constexpr int of_side = 1 + CylinderSide<T>::count_on(kBestFaces), fixed_count = of_side + kMostCrossings;
  CylinderHullSpots(const Solid<T>& a, const Solid<T>& b, int vertices)
      : a_(a),
        b_(b),
        vertices_(vertices),
        pair_(core_pair(a, b)),
        nearest_(nearest_parts(separation_lanes(pair_), pair_)),
        side_(pair_, b.radius) {
    side_.know(nearest_.gap, nearest_.normal, side_.separates());
  }
  Spot<T> place(int k) {
    if (k >= of_side) {
      const Spot<T> s = local(k);
      const Vec3<T> x = mul_add(T(-0.5) * b_.radius, s.normal, s.point);
      return {s.gap, -(a_.pose.R * s.normal), to_common(a_.pose, x)};
    }
    Spot<T> s = k > 0 ? local(k) : nearest_;
    if (k == 0) {
      s.gap = beyond_faces(s.gap, larger(side_.separates(), side_.along())) - b_.radius;
      if (any(less(plain(s.gap), Plain<T>(0.0)))) {
        Carried<T> carried;
        for (int i = 1; i < fixed_count + vertices_; ++i) carried.add(local(i).gap);
        s.gap += carried.from(T(-s.gap));
      }
    }
    const Vec3<T> x = mul_add(T(0.5) * b_.radius, s.normal, s.point);
    return {s.gap, b_.pose.R * s.normal, to_common(b_.pose, x)};
  }

 private:
  Spot<T> local(int k) {
    if (k < of_side) return side_.place(k - 1);
    return k < fixed_count ? side_.edge(k - of_side) : side_.vertex(k - fixed_count);
  }

  const Solid<T>&a_, &b_;
  int vertices_;
  CorePair<T> pair_;
  Spot<T> nearest_;
  CylinderSide<T> side_;
};

}  // namespace torsor
