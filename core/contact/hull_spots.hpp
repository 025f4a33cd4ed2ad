// Convex hulls on convex hulls and boxes: the vertices of each on the other, the points where edges of each cross edges
// of the other, and the place of least distance or overlap. As for boxes, which face a point is pushed out of depends
// on how the hulls lie: it is that which separates them most, as far as the point is not within another one by more
// than they overlap.
#pragma once
#include <algorithm>
#include <optional>

#include "contact/faces.hpp"
#include "contact/nearest_parts.hpp"

namespace torsor {

constexpr int kMostVertices = 256;  // of a convex hull
constexpr int kMostFaces = 2 * kMostVertices;
constexpr int kMostCrossings = 16;  // of edges of one hull with those of another

// A vertex in each lane, in its own frame.
template <class P>
struct VertexLanes {
  Vec3<P> vertex, sign;
  void set(int l, const Core<double>& core, int k) {
    const bool box = core.kind == ShapeKind::box;
    const Point& x = polytope_of(core.kind, core.surface)->vertices[k];
    set_lane(vertex, l, box ? Point{0.0, 0.0, 0.0} : x);
    set_lane(sign, l, box ? x : Point{0.0, 0.0, 0.0});
  }
  template <class T>
  Vec3<T> at(const Vec3<T>& size) const {
    return from_plain<T>(vertex) + times(from_plain<T>(sign), size);
  }
};
// A face of the second hull in each lane, and the vertex of the first that is lowest over it.
template <class P>
struct FaceLanes {
  Vec3<P> normal;
  VertexLanes<P> vertex, lowest;
};

// How the first hull lies over the faces of the second, in one lane.
struct OverFaces {
  const Polytope *a, *b;
  Point at_a[kMostVertices];  // vertices of the first in the frame of the second
  Point at_b[kMostVertices];
  double apart[kMostFaces];
  int lowest[kMostFaces], best = 0;

  double height(int face, const Point& x) const { return dot(b->faces[face].normal, x - at_b[b->faces[face].vertex]); }
  void set(const Convex& first, const Convex& second) {
    a = first.hull;
    b = second.hull;
    for (size_t k = 0; k < a->vertices.size(); ++k) at_a[k] = first.at(first.vertex(static_cast<int>(k)));
    for (size_t k = 0; k < b->vertices.size(); ++k) at_b[k] = second.vertex(static_cast<int>(k));
    best = 0;
    for (int w = 0; w < static_cast<int>(b->faces.size()); ++w) {
      apart[w] = 1e300;
      lowest[w] = 0;
      for (int k = 0; k < static_cast<int>(a->vertices.size()); ++k) {
        const double h = height(w, at_a[k]);
        if (h < apart[w]) {
          apart[w] = h;
          lowest[w] = k;
        }
      }
      if (apart[w] > apart[best]) best = w;
    }
  }
  // The face of which a point has the largest height less what the best one separates more.
  int face_of(const Point& x) const {
    int found = best;
    double most = height(best, x);
    for (int w = 0; w < static_cast<int>(b->faces.size()); ++w) {
      const double level = height(w, x) + apart[w] - apart[best];
      if (level > most) {
        most = level;
        found = w;
      }
    }
    return found;
  }
};

// The face that is next to take over from the best one: that with the least difference of separations, divided by how
// much its normal differs.
struct TakeOver {
  int face;
  double factor;
};
inline TakeOver take_over(const Polytope& hull, const double* apart, int best) {
  TakeOver next{best, 1.0};
  double least = 1e300;
  for (int w = 0; w < static_cast<int>(hull.faces.size()); ++w) {
    const double away = std::min(1.0, 8.0 * (1.0 - dot(hull.faces[w].normal, hull.faces[best].normal)));
    if (w != best && apart[best] - apart[w] < least * away) {
      least = (apart[best] - apart[w]) / away;
      next = {w, 1.0 / away};
    }
  }
  return next;
}

// Where an edge of the first hull crosses one of the second, seen along the normal of the best face of that.
struct Crossing {
  int of_a, of_b;  // edges
  double weight;
};

// The first hull on the second, in the frame of the second.
template <class T>
class HullSide {
  using P = Plain<T>;
  static constexpr int kLanesOfP = Lanes<P>::value;

 public:
  HullSide(const CorePair<T>& pair, const T& reach) : pair_(pair), reach_(reach) {
    for (int l = 0; l < kLanesOfP; ++l) {
      over_[l].set(convex_in_lane(pair.a, pair.R, pair.p, l), convex_in_lane(pair.b, identity3<T>(), zero3<T>(), l));
      put_face(best_, l, over_[l].best);
    }
    separates_ = apart(best_);
  }
  // The largest separation by a face, and its normal.
  const T& separates() const { return separates_; }
  Vec3<T> normal() const { return from_plain<T>(best_.normal); }
  // What is known of the other side: by how much the cores overlap, or are apart, and what points lose where a face of
  // the first hull separates more.
  void know(const T& gap, const T& beside) {
    gap_ = gap;
    depth_ = positive_part(-gap);
    beside_ = beside;
  }

  Vec3<T> vertex(int k) const {
    const Core<double> core{pair_.a.kind, zero3<double>(), pair_.a.surface};
    VertexLanes<P> v;
    for (int l = 0; l < kLanesOfP; ++l) v.set(l, core, k);
    return mul_add(pair_.R, v.at(pair_.a.size), pair_.p);
  }
  // A point of the first hull.
  Spot<T> point(const Vec3<T>& x) const {
    const T above = height(best_, x);
    const auto far_off = !less(plain(above), plain(reach_));
    const Spot<T> apart_from{larger(above, T(1.001) * gap_) - reach_, normal(), x};
    if (!any(!far_off)) return apart_from;
    FaceLanes<P> face;
    const Vec3<P> at = plain(x);
    for (int l = 0; l < kLanesOfP; ++l) put_face(face, l, over_[l].face_of(in_lane(at, l)));
    const T level = height(face, x) + (apart(face) - separates_);
    const Distance<T> d = distance_from_core(pair_.b, x);
    const T far = mul_add(T(-2.0), depth_, d.value);
    const auto outside = less(level, far);
    const T gap = select(outside, far, level) - reach_;
    // Beside the face, but within the hull, the direction stays that of the face.
    const Vec3<T> n = select(outside & less(T(0.0), far), d.normal, from_plain<T>(face.normal));
    return select(far_off, apart_from, {gap + beside_, n, mul_add(T(-0.5) * (gap + reach_), n, x)});
  }

  Spot<T> crossing(int k, const T& carried) {
    if (!found_) find_crossings();
    const Spot<T> none{larger(gap_, T(0.0)) + T(1.0), normal(), pair_.p};
    bool some = false;
    for (int l = 0; l < kLanesOfP; ++l) some = some || k < count_[l];
    if (!some) return none;
    VertexLanes<P> v[4];
    Mask<P> exists = no_lane<P>();
    const Core<double> a{pair_.a.kind, zero3<double>(), pair_.a.surface},
        b{pair_.b.kind, zero3<double>(), pair_.b.surface};
    for (int l = 0; l < kLanesOfP; ++l) {
      const bool here = k < count_[l];
      const Crossing c = here ? crossings_[l][k] : Crossing{0, 0, 0.0};
      for (int i = 0; i < 2; ++i) {
        v[i].set(l, a, over_[l].a->edges[c.of_a].vertex[i]);
        v[2 + i].set(l, b, over_[l].b->edges[c.of_b].vertex[i]);
      }
      set_lane(exists, l, here);
    }
    const Vec3<T> p = mul_add(pair_.R, v[0].at(pair_.a.size), pair_.p),
                  d = mul_add(pair_.R, v[1].at(pair_.a.size), pair_.p) - p;
    const Vec3<T> q = v[2].at(pair_.b.size), e = v[3].at(pair_.b.size) - q, n = normal(), r = q - p;
    const auto positive = [&](const T& x) { return select(exists & less(T(kNoSquare), x), x, T(1.0)); };
    const T turn = dot(cross(d, e), n), turns = select(exists, turn, T(1.0)), size = magnitude(turn);
    const T s = dot(cross(r, e), n) / turns, t = dot(cross(r, d), n) / turns, one(1.0);
    // How far the ends are across the other edge.
    const auto flat = [&](const Vec3<T>& x) {
      const Vec3<T> y = mul_add(-dot(n, x), n, x);
      return square_root(positive(dot(y, y)));
    };
    const T clear = smaller(smaller(s, one - s) * (size / flat(e)), smaller(t, one - t) * (size / flat(d)));
    Spot<T> spot = point(mul_add(s, d, p));
    spot.gap = larger(spot.gap, -smaller(clear, limit())) + T(2.0) * carried;
    return select(exists, spot, none);
  }

  // What is taken from points of the other hull on this one where a face of this one separates more.
  T beside_of(const HullSide& other, const T& depth) const {
    if (!any(less(plain(other.separates_), plain(separates_)))) return T(0.0);
    FaceLanes<P> face;
    const Mat3<P> R{plain(pair_.R.x), plain(pair_.R.y), plain(pair_.R.z)};
    const Vec3<P> normal = R * other.best_.normal;
    const P deep = plain(depth), best = plain(other.separates_);
    for (int l = 0; l < kLanesOfP; ++l) {
      int found = over_[l].best;
      double most = -1.0;
      for (int w = 0; w < static_cast<int>(over_[l].b->faces.size()); ++w) {
        const double loss = aside_loss(in_lane(normal, l), over_[l].b->faces[w].normal,
                                       over_[l].apart[w] - in_lane(best, l), in_lane(deep, l));
        if (loss > most) {
          most = loss;
          found = w;
        }
      }
      put_face(face, l, found);
    }
    const Vec3<T> theirs = pair_.R * from_plain<T>(other.best_.normal);
    return aside_loss(theirs, from_plain<T>(face.normal), T(apart(face) - other.separates_), depth);
  }

 private:
  void put_face(FaceLanes<P>& face, int l, int w) const {
    const OverFaces& x = over_[l];
    set_lane(face.normal, l, x.b->faces[w].normal);
    face.vertex.set(l, {pair_.b.kind, zero3<double>(), pair_.b.surface}, x.b->faces[w].vertex);
    face.lowest.set(l, {pair_.a.kind, zero3<double>(), pair_.a.surface}, x.lowest[w]);
  }
  T height(const FaceLanes<P>& face, const Vec3<T>& x) const {
    return dot(from_plain<T>(face.normal), x - face.vertex.at(pair_.b.size));
  }
  T apart(const FaceLanes<P>& face) const {
    return height(face, mul_add(pair_.R, face.lowest.at(pair_.a.size), pair_.p));
  }
  // At most this much is carried by crossings, so that they begin and end at depth 0 where another face takes over.
  T limit() {
    if (limit_) return *limit_;
    FaceLanes<P> face;
    P turn(0.0);
    for (int l = 0; l < kLanesOfP; ++l) {
      const TakeOver next = take_over(*over_[l].b, over_[l].apart, over_[l].best);
      put_face(face, l, next.face);
      set_lane(turn, l, next.factor);
    }
    limit_ = (separates_ - apart(face)) * from_plain<T>(turn);
    return *limit_;
  }
  void find_crossings() {
    found_ = true;
    const P reach = plain(reach_);
    for (int l = 0; l < kLanesOfP; ++l) {
      const OverFaces& x = over_[l];
      const Convex a = convex_in_lane(pair_.a, pair_.R, pair_.p, l);
      const Point n = x.b->faces[x.best].normal, m = transposed(a.R, n);
      const double top = in_lane(reach, l);
      count_[l] = 0;
      // Edges of the upper side of the second hull.
      int upper[kMostFaces * 3 / 2], uppers = 0;
      for (int j = 0; j < static_cast<int>(x.b->edges.size()); ++j) {
        const auto& e = x.b->edges[j];
        if (std::max(dot(n, x.b->faces[e.face[0]].normal), dot(n, x.b->faces[e.face[1]].normal)) > 1e-9)
          upper[uppers++] = j;
      }
      for (int i = 0; i < static_cast<int>(x.a->edges.size()); ++i) {
        const auto& e = x.a->edges[i];
        const Point &p = x.at_a[e.vertex[0]], d = x.at_a[e.vertex[1]] - p;
        if (std::min(x.height(x.best, p), x.height(x.best, p + d)) > top) continue;
        if (std::min(dot(m, x.a->faces[e.face[0]].normal), dot(m, x.a->faces[e.face[1]].normal)) > -1e-9) continue;
        for (int u = 0; u < uppers; ++u) {
          const auto& f = x.b->edges[upper[u]];
          const Point &q = x.at_b[f.vertex[0]], g = x.at_b[f.vertex[1]] - q, r = q - p;
          const double turn = dot(cross(d, g), n);
          if (turn == 0.0) continue;
          const double s = dot(cross(r, g), n) / turn, t = dot(cross(r, d), n) / turn;
          if (!(s > 0.0 && s < 1.0 && t > 0.0 && t < 1.0)) continue;
          const Point at = mul_add(s, d, p);
          const double level = x.height(x.best, at);
          if (level > top) continue;
          insert(l, {i, upper[u], std::min(std::min(s, 1.0 - s), std::min(t, 1.0 - t)) * std::fabs(turn)});
        }
      }
    }
  }
  // Those with the most room, in the order of their edges.
  void insert(int l, const Crossing& c) {
    if (count_[l] < kMostCrossings) {
      crossings_[l][count_[l]++] = c;
      return;
    }
    int least = 0;
    for (int i = 1; i < kMostCrossings; ++i)
      if (crossings_[l][i].weight < crossings_[l][least].weight) least = i;
    if (crossings_[l][least].weight >= c.weight) return;
    std::copy(crossings_[l] + least + 1, crossings_[l] + kMostCrossings, crossings_[l] + least);
    crossings_[l][kMostCrossings - 1] = c;
  }

  const CorePair<T>& pair_;
  T reach_, separates_, gap_, depth_, beside_;
  FaceLanes<P> best_;
  OverFaces over_[kLanesOfP];
  Crossing crossings_[kLanesOfP][kMostCrossings];
  int count_[kLanesOfP];
  bool found_ = false;
  std::optional<T> limit_;
};

inline int vertex_count(const Shape& a) {
  return a.kind == ShapeKind::box ? 8 : static_cast<int>(a.surface->polytope->vertices.size());
}
inline int hull_spot_count(const Shape& a, const Shape& b) {
  const bool known = a.surface && (b.surface || b.kind == ShapeKind::box);  // else: there are formulas
  return known ? vertex_count(a) + vertex_count(b) + 2 * kMostCrossings + 1 : 1;
}
// Places: the vertices of the first, those of the second, crossings of edges of the first over the second, of the
// second over the first, and the nearest place, less what vertices carry.
template <class T>
class HullSpots {
 public:
  HullSpots(const Solid<T>& a, const Solid<T>& b, int vertices_a, int vertices_b)
      : a_(a),
        b_(b),
        vertices_a_(vertices_a),
        vertices_b_(vertices_b),
        reach_(a.radius + b.radius),
        pair_(core_pair(a, b)),
        swapped_(core_pair(b, a)),
        nearest_(nearest_parts(separation_lanes(pair_), pair_)),
        first_(pair_, reach_),
        second_(swapped_, reach_) {
    const T depth = positive_part(-nearest_.gap);
    first_.know(nearest_.gap, second_.beside_of(first_, depth));
    second_.know(nearest_.gap, first_.beside_of(second_, depth));
  }
  Spot<T> place(int k) {
    if (k < vertices_a_) return of_first(first_.point(first_.vertex(k)));
    k -= vertices_a_;
    if (k < vertices_b_) return of_second(second_.point(second_.vertex(k)));
    k -= vertices_b_;
    if (k == 2 * kMostCrossings) return nearest();
    if (!carried_) carried_ = positive_part(-nearest().gap);
    return k < kMostCrossings ? of_first(first_.crossing(k, *carried_))
                              : of_second(second_.crossing(k - kMostCrossings, *carried_));
  }

 private:
  // From the frames of the hulls, in the middle of both surfaces.
  Spot<T> of_first(const Spot<T>& s) const {
    const Vec3<T> x = mul_add(T(0.5) * (b_.radius - a_.radius), s.normal, s.point);
    return {s.gap, b_.pose.R * s.normal, to_common(b_.pose, x)};
  }
  Spot<T> of_second(const Spot<T>& s) const {
    const Vec3<T> x = mul_add(T(0.5) * (a_.radius - b_.radius), s.normal, s.point);
    return {s.gap, -(a_.pose.R * s.normal), to_common(a_.pose, x)};
  }
  // As far as edges separate more than faces do.
  Spot<T> nearest() const {
    const T faces = larger(first_.separates(), second_.separates());
    Spot<T> s = nearest_;
    s.gap = larger(s.gap, faces - s.gap) - reach_;
    if (!any(less(plain(s.gap), Plain<T>(0.0)))) return of_first(s);
    T least = first_.point(first_.vertex(0)).gap;
    for (int k = 1; k < vertices_a_; ++k) least = smaller(least, first_.point(first_.vertex(k)).gap);
    for (int k = 0; k < vertices_b_; ++k) least = smaller(least, second_.point(second_.vertex(k)).gap);
    s.gap += positive_part(-least);
    return of_first(s);
  }

  const Solid<T>&a_, &b_;
  int vertices_a_, vertices_b_;
  T reach_;
  CorePair<T> pair_, swapped_;
  Spot<T> nearest_;
  HullSide<T> first_, second_;
  std::optional<T> carried_;
};

}  // namespace torsor
