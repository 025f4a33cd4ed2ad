#include "contact/separation.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace torsor {
namespace {

using Matrix = Mat3<double>;
const Point kNone{0.0, 0.0, 0.0};

double length(const Point& x) { return std::sqrt(dot(x, x)); }
Point unit(const Point& x, const Point& otherwise) {
  const double l = length(x);
  return l > 1e-150 ? (1.0 / l) * x : otherwise;
}
Point times(const Point& a, const Point& b) { return {a.x * b.x, a.y * b.y, a.z * b.z}; }
Point axis(int k) { return {k == 0 ? 1.0 : 0.0, k == 1 ? 1.0 : 0.0, k == 2 ? 1.0 : 0.0}; }
double sign(double x) { return x < 0.0 ? -1.0 : 1.0; }
bool is_flat(const Convex& x) {
  return x.kind == ShapeKind::box || x.kind == ShapeKind::convex || x.kind == ShapeKind::capsule;
}

// Both cores, the first one displaced.
struct Shifted {
  const Convex &a, &b;
  Point shift{0.0, 0.0, 0.0};
};
// A difference of points of both.
struct Corner {
  Point w{0.0, 0.0, 0.0}, a{0.0, 0.0, 0.0}, b{0.0, 0.0, 0.0};
};
Corner furthest(const Shifted& x, const Point& n) {  // least along n
  const Point a = x.a.at(x.a.furthest(-transposed(x.a.R, n))), b = x.b.at(x.b.furthest(transposed(x.b.R, n)));
  return {a + x.shift - b, a, b};
}
double apart(const Shifted& x, const Point& n) { return dot(n, furthest(x, n).w); }

// The point of a simplex that is nearest to the origin, with its corners that matter and their weights.
struct Simplex {
  Corner c[4];
  double weight[4] = {0.0, 0.0, 0.0, 0.0};
  int count = 0;
  Point nearest{0.0, 0.0, 0.0};

  // False if the origin lies within.
  bool reduce() {
    Simplex best;
    double least = std::numeric_limits<double>::infinity();
    const auto take = [&](std::initializer_list<std::pair<int, double>> parts) {
      Point x = kNone;
      for (const auto& [i, l] : parts) x = mul_add(l, c[i].w, x);
      const double square = dot(x, x);
      if (!(square < least)) return;
      least = square;
      best.count = 0;
      best.nearest = x;
      for (const auto& [i, l] : parts) {
        best.c[best.count] = c[i];
        best.weight[best.count++] = l;
      }
    };
    for (int i = 0; i < count; ++i) take({{i, 1.0}});
    for (int i = 0; i < count; ++i)
      for (int j = i + 1; j < count; ++j) {
        const Point d = c[j].w - c[i].w;
        const double t = -dot(c[i].w, d) / dot(d, d);
        if (t > 0.0 && t < 1.0) take({{i, 1.0 - t}, {j, t}});
      }
    for (int skip = 0; skip < count && count >= 3; ++skip) {
      if (count == 3 && skip > 0) break;
      int k[3], m = 0;
      for (int i = 0; i < count && m < 3; ++i)
        if (count == 3 || i != skip) k[m++] = i;
      const Point a = c[k[0]].w, d = c[k[1]].w - a, e = c[k[2]].w - a, n = cross(d, e);
      const double square = dot(n, n);
      if (!(square > 0.0)) continue;
      const double s = dot(cross(-a, e), n) / square, t = dot(cross(d, -a), n) / square;
      if (s > 0.0 && t > 0.0 && s + t < 1.0) take({{k[0], 1.0 - s - t}, {k[1], s}, {k[2], t}});
    }
    if (count == 4) {
      const Point a = c[0].w, d = c[1].w - a, e = c[2].w - a, f = c[3].w - a;
      const double volume = dot(d, cross(e, f));
      if (volume != 0.0) {
        const double r = dot(-a, cross(e, f)) / volume, s = dot(d, cross(-a, f)) / volume,
                     t = dot(d, cross(e, -a)) / volume;
        if (r >= 0.0 && s >= 0.0 && t >= 0.0 && r + s + t <= 1.0) return false;
      }
    }
    *this = best;
    return true;
  }
};

struct Found {
  Point normal;
  double gap;  // along it
  Point a, b;  // nearest points
};

// The nearest points of separate cores, by simplices of the differences of their points; the normal with the largest
// gap of those that were met.
Found nearest_points(const Shifted& x, const Point& start, double tolerance) {
  Found best{start, -std::numeric_limits<double>::infinity(), kNone, kNone};
  Simplex simplex;
  Point n = start;
  for (int iteration = 0; iteration < 60; ++iteration) {
    const Corner c = furthest(x, n);
    const double gap = dot(n, c.w);
    if (gap > best.gap) best = {n, gap, kNone, kNone};
    const double distance = length(simplex.nearest);
    if (simplex.count > 0 && distance - gap <= tolerance * distance) break;
    bool known = false;
    for (int i = 0; i < simplex.count; ++i)
      known = known || length(c.w - simplex.c[i].w) <= 1e-15 * (1e-300 + length(c.w));
    if (known) break;
    simplex.c[simplex.count++] = c;
    if (!simplex.reduce() || length(simplex.nearest) < 1e-14 * length(c.w)) break;
    n = unit(simplex.nearest, n);
  }
  for (int i = 0; i < simplex.count; ++i) {
    best.a = mul_add(simplex.weight[i], simplex.c[i].a, best.a);
    best.b = mul_add(simplex.weight[i], simplex.c[i].b, best.b);
  }
  return best;
}

// ---- parts

class Parts {
 public:
  // Those of a core near the direction u.
  Parts(const Convex& x, const Point& u, double angle) {
    switch (x.kind) {
      case ShapeKind::ellipsoid: {
        Part p;
        p.round = {1.0, 1.0, 1.0};
        add(p);
        break;
      }
      case ShapeKind::cylinder: {
        Part p;
        const double across = std::hypot(u.x, u.y);
        p.sign.z = sign(u.z);
        if (across < angle) {
          p.kind = Part::face;
          p.along = {0.0, 0.0, p.sign.z};
          add(p);
        }
        p.round = {1.0, 1.0, 0.0};
        if (std::fabs(u.z) < angle) {
          Part side = p;
          side.sign.z = 0.0;
          side.kind = Part::edge;
          side.along = {0.0, 0.0, 1.0};
          add(side);
        }
        p.kind = Part::point;
        if (across > 1e-12) add(p);
        break;
      }
      case ShapeKind::capsule: {
        Part p;
        if (std::fabs(u.z) < angle) {
          p.kind = Part::edge;
          add(p);
        }
        p.kind = Part::point;
        p.sign.z = sign(u.z);
        add(p);
        break;
      }
      default:
        add_polytope(x, u, angle);
    }
  }
  const Part* begin() const { return parts_; }
  const Part* end() const { return parts_ + count_; }

 private:
  void add(const Part& p) {
    if (count_ < 12) parts_[count_++] = p;
  }
  void add_polytope(const Convex& x, const Point& u, double angle) {
    const bool box = x.kind == ShapeKind::box;
    const double size = box ? length(x.size) : 1.0;
    const auto put = [&](Part::Kind kind, int k, const Point& along) {
      Part p;
      p.kind = kind;
      (box ? p.sign : p.vertex) = x.hull->vertices[k];
      p.along = along;
      add(p);
    };
    for (const auto& f : x.hull->faces)
      if (length(u - f.normal) < angle) put(Part::face, f.vertex, f.normal);
    double most = -1e300, reach = 0.0;
    int first = 0;
    for (int k = 0; k < static_cast<int>(x.hull->vertices.size()); ++k) {
      const double height = dot(u, x.vertex(k));
      reach = std::max(reach, std::fabs(height));
      if (height > most) {
        most = height;
        first = k;
      }
    }
    const double near = most - angle * std::max(size * (box ? 1.0 : 0.0), reach);
    for (const auto& e : x.hull->edges)
      if (std::fabs(dot(u, e.along)) < angle && dot(u, x.vertex(e.vertex[0])) > near)
        put(Part::edge, e.vertex[0], e.along);
    put(Part::point, first, u);
    for (int k = 0; k < static_cast<int>(x.hull->vertices.size()); ++k)
      if (k != first && dot(u, x.vertex(k)) > near) put(Part::point, k, u);
  }

  Part parts_[12];
  int count_ = 0;
};

Point furthest(const Convex& x, const Part& p, const Point& u) {
  const Point m = times(p.round, x.size), w = times(m, u);
  const double l = length(w);
  return p.vertex + times(p.sign, x.size) + (l > 0.0 ? 1.0 / l : 0.0) * times(m, w);
}
// t.H s with H the second derivative of the support function along u.
double curvature(const Convex& x, const Part& p, const Point& u, const Point& t, const Point& s) {
  const Point m = times(p.round, x.size), w = times(m, u);
  const double l = length(w);
  if (!(l > 0.0)) return 0.0;
  const Point mt = times(m, t), ms = times(m, s);
  return (dot(mt, ms) - dot(w, mt) * dot(w, ms) / (l * l)) / l;
}

double apart_by_parts(const Convex& a, const Convex& b, const Part& pa, const Part& pb, const Point& n) {
  return dot(n, a.at(furthest(a, pa, -transposed(a.R, n))) - b.at(furthest(b, pb, transposed(b.R, n))));
}

// Where the gap between two parts is largest: a closed form, or Newton's method on the unit sphere or on the circle
// normal to an edge.
bool improve(const Convex& a, const Convex& b, const Part& pa, const Part& pb, Point& n) {
  if (pb.kind == Part::face) {
    n = b.R * pb.along;
    return true;
  }
  if (pa.kind == Part::face) {
    n = -(a.R * pa.along);
    return true;
  }
  Point along = kNone;
  if (pa.kind == Part::edge) along = a.R * pa.along;
  if (pb.kind == Part::edge) {
    const Point other = b.R * pb.along;
    if (pa.kind == Part::edge) {
      const Point c = cross(along, other);
      const double l = length(c);
      if (l > 1e-7) {
        n = (sign(dot(c, n)) / l) * c;
        return true;
      }
    }
    along = other;
  }
  const bool on_circle = dot(along, along) > 0.0;
  if (on_circle) n = unit(mul_add(-dot(n, along), along, n), n);
  const auto difference = [&](const Point& m) {
    return a.at(furthest(a, pa, -transposed(a.R, m))) - b.at(furthest(b, pb, transposed(b.R, m)));
  };
  Point d = difference(n);
  double gap = dot(n, d);
  for (int iteration = 0; iteration < 30; ++iteration) {
    const Point other = std::fabs(n.x) < 0.6 ? axis(0) : axis(1);
    const Point t1 = on_circle ? cross(along, n) : unit(cross(other, n), n), t2 = cross(n, t1);
    const auto bend = [&](const Point& s, const Point& t) {
      return curvature(a, pa, -transposed(a.R, n), transposed(a.R, s), transposed(a.R, t)) +
             curvature(b, pb, transposed(b.R, n), transposed(b.R, s), transposed(b.R, t));
    };
    double k11 = bend(t1, t1), k12 = bend(t1, t2), k22 = bend(t2, t2);
    const double least = on_circle ? k11 : 0.5 * (k11 + k22) - std::hypot(0.5 * (k11 - k22), k12);
    // Where the sum is not positive, the way is uphill at least.
    const double more = std::max(gap, 1e-10 * (k11 + k22) + 1e-14 * length(d) - least);
    k11 += more;
    k22 += more;
    const double g1 = dot(t1, d), g2 = on_circle ? 0.0 : dot(t2, d);
    double s1, s2 = 0.0;
    if (on_circle) {
      s1 = g1 / k11;
    } else {
      const double det = k11 * k22 - k12 * k12;
      s1 = (k22 * g1 - k12 * g2) / det;
      s2 = (k11 * g2 - k12 * g1) / det;
    }
    const double size = std::hypot(s1, s2);
    if (!(size < 1e300)) return false;
    if (size > 0.5) {
      s1 *= 0.5 / size;
      s2 *= 0.5 / size;
    }
    Point next = n, next_d = d;
    double next_gap = gap;
    bool better = false;
    for (int halving = 0; halving < 20 && !better; ++halving) {
      next = unit(mul_add(s1, t1, mul_add(s2, t2, n)), n);
      next_d = difference(next);
      next_gap = dot(next, next_d);
      better = size < 1e-6 || next_gap >= gap - 1e-15 * length(d);
      s1 *= 0.5;
      s2 *= 0.5;
    }
    if (!better) break;
    n = next;
    d = next_d;
    gap = next_gap;
    if (size < 1e-14) break;
  }
  return true;
}

// Uphill from a direction. Overlapping cores are moved apart along it, by t: this adds t n.n_before to the gap, so that
// the maximum over n, that of separate cores, is a step uphill, which is repeated.
Found best_direction(Shifted x, const Point& start, double scale, double tolerance) {
  Found best{start, apart(x, start), kNone, kNone};
  for (int iteration = 0; iteration < 12; ++iteration) {
    const bool overlap = best.gap < 0.005 * scale;
    x.shift = (overlap ? 0.01 * scale - 1.2 * best.gap : 0.0) * best.normal;
    Found next = nearest_points(x, best.normal, tolerance);
    x.shift = kNone;
    next.gap = apart(x, next.normal);
    const double was = best.gap;
    if (next.gap >= was) best = next;
    if (!overlap || next.gap <= was + 1e-7 * scale) break;
  }
  return best;
}

// The best of the directions to start from, in order.
struct Starts {
  Point normal[4] = {kNone, kNone, kNone, kNone};
  double gap[4];
  int count = 0;
  void add(const Point& n, double g) {
    int i = count;
    for (; i > 0 && gap[i - 1] < g; --i)
      if (i < 4) {
        normal[i] = normal[i - 1];
        gap[i] = gap[i - 1];
      }
    if (i == 4) return;
    normal[i] = n;
    gap[i] = g;
    count = std::min(count + 1, 4);
  }
};

}  // namespace

Point Convex::vertex(int k) const {
  return kind == ShapeKind::box ? times(hull->vertices[k], size) : hull->vertices[k];
}
Point Convex::furthest(const Point& u) const {
  switch (kind) {
    case ShapeKind::box:
      return {sign(u.x) * size.x, sign(u.y) * size.y, sign(u.z) * size.z};
    case ShapeKind::capsule:
      return {0.0, 0.0, sign(u.z) * size.z};
    case ShapeKind::cylinder: {
      const double across = std::hypot(u.x, u.y), scale = across > 0.0 ? size.x / across : 0.0;
      return {scale * u.x, scale * u.y, sign(u.z) * size.z};
    }
    case ShapeKind::ellipsoid: {
      const Point w = times(size, u);
      return times(size, unit(w, {1.0, 0.0, 0.0}));
    }
    default: {
      const Point* best = hull->vertices.data();
      double most = dot(u, *best);
      for (const Point& v : hull->vertices) {
        const double height = dot(u, v);
        if (height > most) {
          most = height;
          best = &v;
        }
      }
      return *best;
    }
  }
}
double Convex::least_size() const {
  if (kind == ShapeKind::capsule) return size.z;
  return kind == ShapeKind::convex ? hull->thickness : std::min(size.x, std::min(size.y, size.z));
}

bool overlap_deeply(const Convex& a, const Convex& b, double limit) {
  const Shifted pair{a, b};
  for (const Convex* x : {&b, &a}) {
    if (x->kind == ShapeKind::capsule) continue;
    for (int k = 0; k < 3; ++k) {
      const Point n = x->R.column(k);
      if (apart(pair, (dot(n, a.p - b.p) < 0.0 ? -1.0 : 1.0) * n) >= -limit) return false;
    }
  }
  return apart(pair, unit(a.p - b.p, axis(2))) < -limit;
}

Separation separation(const Convex& a, const Convex& b) {
  const Shifted pair{a, b};
  const double scale = std::min(a.least_size(), b.least_size());
  const bool flat = is_flat(a) && is_flat(b), round = a.kind == ShapeKind::ellipsoid && b.kind == ShapeKind::ellipsoid;
  Starts starts;
  const Point centres = unit(a.p - b.p, axis(2));
  starts.add(centres, apart(pair, centres));
  if (starts.gap[0] < scale)
    for (const Convex* x : {&a, &b}) {
      const auto add = [&](const Point& u) {
        const Point n = (x == &a ? -1.0 : 1.0) * (x->R * u);
        starts.add(n, apart(pair, n));
      };
      if (x->kind == ShapeKind::convex)
        for (const auto& f : x->hull->faces) add(f.normal);
      else
        for (int k = 0; k < 6; ++k) add((k % 2 == 0 ? 1.0 : -1.0) * axis(k / 2));
    }
  Separation best{starts.normal[0], -std::numeric_limits<double>::infinity(), {}, {}, kNone, kNone};
  for (int start = 0; start < starts.count; ++start) {
    // There is one maximum only where cores are separate.
    if (start > 0 && best.gap > -0.02 * scale) break;
    const Found found = round ? Found{starts.normal[start], starts.gap[start], kNone, kNone}
                              : best_direction(pair, starts.normal[start], scale, flat ? 1e-14 : 1e-5);
    const Point& n = found.normal;
    const double angle = flat ? 1e-6 : 0.02;
    const Parts of_a(a, -transposed(a.R, n), angle), of_b(b, transposed(b.R, n), angle);
    for (const Part& pa : of_a)
      for (const Part& pb : of_b) {
        Point m = n;
        if (!improve(a, b, pa, pb, m)) continue;
        const double g = apart(pair, m);
        // Parts that are not those of the direction found, as the end of a tilted cylinder, do not count.
        if (std::fabs(apart_by_parts(a, b, pa, pb, m) - g) > 1e-11 * scale) continue;
        if (g > best.gap + 1e-14 * (scale + std::fabs(g)))
          best = {m, g, pa, pb, transposed(a.R, found.a - a.p), transposed(b.R, found.b - b.p)};
      }
  }
  return best;
}

}  // namespace torsor
