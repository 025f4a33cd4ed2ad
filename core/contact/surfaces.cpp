#include "contact/surfaces.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

namespace torsor {
namespace {

double squared(const Point& x) { return dot(x, x); }
double length(const Point& x) { return std::sqrt(squared(x)); }
Point unit(const Point& x) {
  const double l = length(x);
  return l > 0.0 ? (1.0 / l) * x : Point{0.0, 0.0, 1.0};
}
double component(const Point& x, int k) { return k == 0 ? x.x : k == 1 ? x.y : x.z; }
Point least(const Point& a, const Point& b) { return {std::min(a.x, b.x), std::min(a.y, b.y), std::min(a.z, b.z)}; }
Point most(const Point& a, const Point& b) { return {std::max(a.x, b.x), std::max(a.y, b.y), std::max(a.z, b.z)}; }

// Keeps the nearest of features, in order, each place once.
class Nearest {
 public:
  Nearest(Feature* out, int most, int count) : out_(out), most_(most), count_(count) {}
  void add(const Feature& f, const Point& foot) {
    for (int i = 0; i < count_; ++i)
      if (squared(feet_[i] - foot) <= 1e-18 * (1e-100 + squared(foot))) return;
    int i = std::min(count_, most_ - 1);
    if (count_ == most_ && !(f.distance < out_[i].distance)) return;
    for (; i > first_ && f.distance < out_[i - 1].distance; --i) {
      out_[i] = out_[i - 1];
      feet_[i] = feet_[i - 1];
    }
    out_[i] = f;
    feet_[i] = foot;
    count_ = std::min(count_ + 1, most_);
  }
  void fix_first(const Feature& f, const Point& foot) {
    out_[0] = f;
    feet_[0] = foot;
    count_ = first_ = 1;
  }
  int count() const { return count_; }

 private:
  Feature* out_;
  Point feet_[16];
  int most_, count_, first_ = 0;
};

}  // namespace

Triangles::Triangles(std::vector<Point> vertices, std::vector<std::array<int, 3>> faces)
    : vertices_(std::move(vertices)), faces_(std::move(faces)) {
  const int n = static_cast<int>(faces_.size());
  normals_.reserve(n);
  for (int f = 0; f < n; ++f) normals_.push_back(unit(cross(vertex(f, 1) - vertex(f, 0), vertex(f, 2) - vertex(f, 0))));
  // Faces across edges.
  std::map<std::pair<int, int>, std::pair<int, int>> edges;  // directed, to (face, edge)
  for (int f = 0; f < n; ++f)
    for (int k = 0; k < 3; ++k) edges[{faces_[f][k], faces_[f][(k + 1) % 3]}] = {f, k};
  across_.assign(n, {-1, -1, -1});
  concave_.assign(n, {false, false, false});
  neighbours_.resize(vertices_.size());
  vertex_normals_.assign(vertices_.size(), Point{0.0, 0.0, 0.0});
  for (int f = 0; f < n; ++f)
    for (int k = 0; k < 3; ++k) {
      const int a = faces_[f][k], b = faces_[f][(k + 1) % 3];
      neighbours_[a].push_back(b);
      neighbours_[b].push_back(a);
      const Point e1 = unit(vertex(f, k + 1) - vertex(f, k)), e2 = unit(vertex(f, k + 2) - vertex(f, k));
      const double angle = std::acos(std::min(1.0, std::max(-1.0, dot(e1, e2))));
      vertex_normals_[a] = mul_add(angle, normals_[f], vertex_normals_[a]);
      const auto other = edges.find({b, a});
      if (other == edges.end()) continue;
      const auto [g, j] = other->second;
      across_[f][k] = g;
      const Point out = vertex(g, j + 2) - vertex(f, k);
      concave_[f][k] = dot(normals_[f], out) > 1e-9 * length(out);
    }
  Point low{1e300, 1e300, 1e300}, high{-1e300, -1e300, -1e300};
  for (const Point& v : vertices_) {
    low = least(low, v);
    high = most(high, v);
  }
  centre_ = 0.5 * (low + high);
  for (const Point& v : vertices_) radius_ = std::max(radius_, length(v - centre_));
  order_.resize(n);
  for (int f = 0; f < n; ++f) order_[f] = f;
  nodes_.reserve(n);
  if (n > 0) build(0, n);
}

int Triangles::build(int first, int count) {
  const int at = static_cast<int>(nodes_.size());
  nodes_.push_back({{1e300, 1e300, 1e300}, {-1e300, -1e300, -1e300}, -1, -1, first, count});
  Node node = nodes_[at];
  for (int i = first; i < first + count; ++i)
    for (int k = 0; k < 3; ++k) {
      node.low = least(node.low, vertex(order_[i], k));
      node.high = most(node.high, vertex(order_[i], k));
    }
  if (count > 4) {
    const Point size = node.high - node.low;
    const int axis = size.x >= size.y && size.x >= size.z ? 0 : size.y >= size.z ? 1 : 2;
    const auto middle = [&](int f) {
      return component(vertex(f, 0), axis) + component(vertex(f, 1), axis) + component(vertex(f, 2), axis);
    };
    const auto begin = order_.begin() + first;
    std::nth_element(begin, begin + count / 2, begin + count, [&](int a, int b) { return middle(a) < middle(b); });
    node.left = build(first, count / 2);
    node.right = build(first + count / 2, count - count / 2);
  }
  nodes_[at] = node;
  return at;
}

double Triangles::square_from(const Node& node, const Point& x) const {
  const Point below = most(node.low - x, {0.0, 0.0, 0.0}), above = most(x - node.high, {0.0, 0.0, 0.0});
  return squared(below + above);
}
template <class F>
void Triangles::for_each_near(const Point& low, const Point& high, F&& f) const {
  int stack[128], depth = 0;
  if (!nodes_.empty()) stack[depth++] = 0;
  while (depth > 0) {
    const Node& node = nodes_[stack[--depth]];
    if (node.low.x > high.x || node.low.y > high.y || node.low.z > high.z || node.high.x < low.x ||
        node.high.y < low.y || node.high.z < low.z)
      continue;
    if (node.left < 0) {
      for (int i = node.first; i < node.first + node.count; ++i) f(order_[i]);
    } else {
      stack[depth++] = node.left;
      stack[depth++] = node.right;
    }
  }
}
template <class F>
void Triangles::for_each_within(const Point& x, double reach, F&& f) const {
  const Point r{reach, reach, reach};
  for_each_near(x - r, x + r, f);
}

// The regions of a triangle: of its vertices, of its edges, of its inside.
Triangles::Foot Triangles::foot_on(int face, const Point& x) const {
  const Point &a = vertex(face, 0), &b = vertex(face, 1), &c = vertex(face, 2);
  const auto found = [&](Feature::Kind kind, int k, const Point& at) { return Foot{kind, k, at, squared(x - at)}; };
  const Point ab = b - a, ac = c - a, ap = x - a;
  const double d1 = dot(ab, ap), d2 = dot(ac, ap);
  if (d1 <= 0.0 && d2 <= 0.0) return found(Feature::vertex, 0, a);
  const Point bp = x - b;
  const double d3 = dot(ab, bp), d4 = dot(ac, bp);
  if (d3 >= 0.0 && d4 <= d3) return found(Feature::vertex, 1, b);
  const double vc = d1 * d4 - d3 * d2;
  if (vc <= 0.0 && d1 >= 0.0 && d3 <= 0.0) return found(Feature::edge, 0, mul_add(d1 / (d1 - d3), ab, a));
  const Point cp = x - c;
  const double d5 = dot(ab, cp), d6 = dot(ac, cp);
  if (d6 >= 0.0 && d5 <= d6) return found(Feature::vertex, 2, c);
  const double vb = d5 * d2 - d1 * d6;
  if (vb <= 0.0 && d2 >= 0.0 && d6 <= 0.0) return found(Feature::edge, 2, mul_add(d2 / (d2 - d6), ac, a));
  const double va = d3 * d6 - d5 * d4;
  if (va <= 0.0 && d4 - d3 >= 0.0 && d5 - d6 >= 0.0)
    return found(Feature::edge, 1, mul_add((d4 - d3) / ((d4 - d3) + (d5 - d6)), c - b, b));
  const Point& n = normals_[face];
  return found(Feature::face, 0, mul_add(-dot(n, ap), n, x));
}

Point Triangles::inward(int face, int k) const {
  return cross(normals_[face], unit(vertex(face, k + 1) - vertex(face, k)));
}

// Whether no neighbouring feature is nearer.
bool Triangles::is_local(int face, const Foot& foot, const Point& x) const {
  const Point out = x - foot.at;
  const double tolerance = 1e-12 * length(out);
  if (foot.kind == Feature::edge) {
    const int other = across_[face][foot.k];
    if (dot(out, inward(face, foot.k)) > tolerance) return false;
    if (other < 0) return true;
    for (int j = 0; j < 3; ++j)
      if (across_[other][j] == face && faces_[other][j] == faces_[face][(foot.k + 1) % 3])
        return dot(out, inward(other, j)) <= tolerance;
  }
  if (foot.kind == Feature::vertex) {
    const int v = faces_[face][foot.k];
    for (const int other : neighbours_[v])
      if (dot(out, unit(vertices_[other] - vertices_[v])) > tolerance) return false;
  }
  return true;
}

Feature Triangles::feature_at(int face, const Foot& foot, const Point& x) const {
  Feature f;
  f.kind = foot.kind;
  f.at = foot.at;
  const Point& n = normals_[face];
  const Point out = x - foot.at;
  Point outward = n;
  if (foot.kind == Feature::edge) {
    const int other = across_[face][foot.k];
    if (other >= 0) outward = n + normals_[other];
    f.along = unit(vertex(face, foot.k + 1) - vertex(face, foot.k));
  } else if (foot.kind == Feature::vertex) {
    outward = vertex_normals_[faces_[face][foot.k]];
  }
  f.side = dot(out, outward) < 0.0 ? -1.0 : 1.0;
  // On the surface itself an edge or a vertex has no direction to the point: the face has.
  if (foot.square <= 1e-24 * squared(vertex(face, 1) - vertex(face, 0))) f.kind = Feature::face;
  if (f.kind == Feature::face) {
    f.along = n;
    f.distance = dot(n, out);
    f.side = 1.0;
    double nearest = 1e300;
    for (int k = 0; k < 3; ++k)
      if (concave_[face][k]) {
        const Point in = inward(face, k);
        const double away = dot(in, foot.at - vertex(face, k));
        if (away < nearest) {
          nearest = away;
          f.border = vertex(face, k);
          f.from_border = in;
        }
      }
  } else {
    f.distance = f.side * std::sqrt(foot.square);
  }
  return f;
}

Feature Triangles::nearest_of_hull(const Point& x) const {
  // Within, the nearest face; outside, faces that look away are not nearest.
  int inner = 0;
  double highest = -1e300, square = 1e300;
  const int n = static_cast<int>(faces_.size());
  for (int f = 0; f < n; ++f) {
    const double height = dot(normals_[f], x - vertex(f, 0));
    if (height > highest) {
      highest = height;
      inner = f;
    }
  }
  int face = inner;
  Foot foot{Feature::face, 0, mul_add(-highest, normals_[inner], x), highest * highest};
  if (highest > 0.0)
    for (int f = 0; f < n; ++f) {
      const double height = dot(normals_[f], x - vertex(f, 0));
      if (height <= 0.0 || height * height >= square) continue;
      const Foot here = foot_on(f, x);
      if (here.square < square) {
        square = here.square;
        face = f;
        foot = here;
      }
    }
  return feature_at(face, foot, x);
}

int Triangles::nearest(const Point& x, double reach, Feature* out, int most) const {
  // The nearest of all, box by box.
  int face = -1;
  Foot best{Feature::face, 0, x, 1e300};
  std::vector<std::pair<double, int>> open{{nodes_.empty() ? 1e300 : square_from(nodes_[0], x), 0}};
  while (!open.empty()) {
    const auto [square, at] = open.back();
    open.pop_back();
    if (square >= best.square || nodes_.empty()) continue;
    const Node& node = nodes_[at];
    if (node.left < 0) {
      for (int i = node.first; i < node.first + node.count; ++i) {
        const Foot here = foot_on(order_[i], x);
        if (here.square < best.square) {
          best = here;
          face = order_[i];
        }
      }
    } else {
      const double left = square_from(nodes_[node.left], x), right = square_from(nodes_[node.right], x);
      open.emplace_back(std::max(left, right), left > right ? node.left : node.right);  // the nearer one is next
      open.emplace_back(std::min(left, right), left > right ? node.right : node.left);
    }
  }
  if (face < 0) return 0;
  Nearest found(out, std::min(most, 16), 0);
  const Feature first = feature_at(face, best, x);
  found.fix_first(first, best.at);
  if (most > 1 && first.distance > 0.0)
    for_each_within(x, reach, [&](int f) {
      const Foot foot = foot_on(f, x);
      if (foot.square > reach * reach || !is_local(f, foot, x)) return;
      const Feature feature = feature_at(f, foot, x);
      if (feature.distance > 0.0) found.add(feature, foot.at);
    });
  return found.count();
}

int Triangles::nearest_to_segment(const Point& c, const Point& e, double reach, Feature* out, int most_count) const {
  Nearest found(out, std::min(most_count, 16), 0);
  const Point size{std::fabs(e.x) + reach, std::fabs(e.y) + reach, std::fabs(e.z) + reach};
  const double square = squared(e);
  if (square <= 0.0) return 0;
  for_each_near(c - size, c + size, [&](int f) {
    for (int k = 0; k < 3; ++k) {
      // Vertex k, and edge k, by the nearest points of two lines.
      const Point &v = vertex(f, k), &w = vertex(f, k + 1);
      const auto consider = [&](Feature::Kind kind, const Point& at) {
        const double s = dot(at - c, e) / square;
        if (!(s > -1.0 && s < 1.0)) return;
        const Point x = mul_add(s, e, c);
        const Foot foot{kind, k, at, squared(x - at)};
        if (foot.square > reach * reach || !is_local(f, foot, x)) return;
        const Feature feature = feature_at(f, foot, x);
        if (feature.kind == kind && feature.side > 0.0) found.add(feature, at);
      };
      consider(Feature::vertex, v);
      const Point d = w - v, r = v - c;
      const double a = squared(d), b = dot(d, e), determinant = a * square - b * b;
      if (determinant <= 1e-12 * a * square) continue;
      const double t = (b * dot(e, r) - square * dot(d, r)) / determinant;
      if (t > 0.0 && t < 1.0) consider(Feature::edge, mul_add(t, d, v));
    }
  });
  return found.count();
}

Heights::Heights(std::vector<double> heights, int rows, int columns, double size_x, double size_y)
    : heights_(std::move(heights)),
      rows_(rows),
      columns_(columns),
      x0_(-0.5 * size_x),
      y0_(-0.5 * size_y),
      dx_(size_x / (columns - 1)),
      dy_(size_y / (rows - 1)) {}

Heights::Patch Heights::patch(double x, double y) const {
  // Far beyond the grid all patches are alike; what is not a number takes one of these.
  const auto number = [](double t, int count) { return std::lround(std::min(std::max(-9.0, t), count + 9.0)); };
  const long i = number((y - y0_) / dy_, rows_), j = number((x - x0_) / dx_, columns_);
  Patch out;
  for (int r = 0; r < 3; ++r)
    for (int c = 0; c < 3; ++c) {
      const long row = std::min(std::max(i + r - 1, 0L), rows_ - 1L);
      const long column = std::min(std::max(j + c - 1, 0L), columns_ - 1L);
      out.c[3 * r + c] = heights_[row * columns_ + column];
    }
  out.x = x0_ + dx_ * static_cast<double>(j);
  out.y = y0_ + dy_ * static_cast<double>(i);
  return out;
}

}  // namespace torsor
