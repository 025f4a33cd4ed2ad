#include "contact/polytope.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace torsor {
namespace {

double length(const Point& x) { return std::sqrt(dot(x, x)); }

// Groups of triangles, by one of each.
class Groups {
 public:
  explicit Groups(int n) : parent_(n) { std::iota(parent_.begin(), parent_.end(), 0); }
  int of(int i) {
    while (parent_[i] != i) i = parent_[i] = parent_[parent_[i]];
    return i;
  }
  void join(int i, int j) { parent_[of(i)] = of(j); }

 private:
  std::vector<int> parent_;
};

}  // namespace

Polytope::Polytope(const Triangles& triangles) : vertices(triangles.vertices()) {
  const auto& given = triangles.faces();
  const int n = static_cast<int>(given.size());
  std::vector<Point> areas;
  double largest = 0.0;
  for (const auto& f : given) {
    areas.push_back(cross(vertices[f[1]] - vertices[f[0]], vertices[f[2]] - vertices[f[0]]));
    largest = std::max(largest, length(areas.back()));
  }
  std::map<std::pair<int, int>, int> sides;  // directed edges, to triangles
  for (int f = 0; f < n; ++f)
    for (int k = 0; k < 3; ++k) sides[{given[f][k], given[f][(k + 1) % 3]}] = f;
  Groups groups(n);
  for (const auto& [ends, f] : sides) {
    const auto other = sides.find({ends.second, ends.first});
    if (other == sides.end()) continue;
    const double a = length(areas[f]), b = length(areas[other->second]);
    const bool flat =
        length(cross(areas[f], areas[other->second])) < 1e-6 * a * b && dot(areas[f], areas[other->second]) > 0;
    if (flat || std::min(a, b) < 1e-12 * largest) groups.join(f, other->second);
  }
  std::map<int, int> numbers;  // of groups
  std::vector<Point> sums;
  for (int f = 0; f < n; ++f) {
    const auto [at, added] = numbers.try_emplace(groups.of(f), static_cast<int>(faces.size()));
    if (added) {
      faces.push_back({{0.0, 0.0, 0.0}, given[f][0]});
      sums.push_back({0.0, 0.0, 0.0});
    }
    sums[at->second] += areas[f];
  }
  for (size_t i = 0; i < faces.size(); ++i) faces[i].normal = (1.0 / std::max(length(sums[i]), 1e-300)) * sums[i];
  for (const auto& [ends, f] : sides) {
    const auto other = sides.find({ends.second, ends.first});
    if (other == sides.end() || ends.first > ends.second) continue;
    const int i = numbers[groups.of(f)], j = numbers[groups.of(other->second)];
    if (i == j) continue;
    const Point d = vertices[ends.second] - vertices[ends.first];
    edges.push_back({{ends.first, ends.second}, {i, j}, (1.0 / length(d)) * d});
  }
  thickness = std::numeric_limits<double>::infinity();
  for (const Face& f : faces) {
    double least = 0.0;
    for (const Point& v : vertices) least = std::min(least, dot(f.normal, v - vertices[f.vertex]));
    thickness = std::min(thickness, -0.5 * least);
  }
  Point low = vertices[0], high = low;
  for (const Point& v : vertices) {
    low = {std::min(low.x, v.x), std::min(low.y, v.y), std::min(low.z, v.z)};
    high = {std::max(high.x, v.x), std::max(high.y, v.y), std::max(high.z, v.z)};
  }
  middle = 0.5 * (low + high);
  extent = 0.5 * (high - low);
}

const Polytope& unit_box() {
  static const Polytope box = [] {
    std::vector<Point> corners;
    for (int k = 0; k < 8; ++k) corners.push_back({k & 1 ? 1.0 : -1.0, k & 2 ? 1.0 : -1.0, k & 4 ? 1.0 : -1.0});
    return Polytope(Triangles(corners, {{0, 4, 6},
                                        {0, 6, 2},
                                        {1, 3, 7},
                                        {1, 7, 5},
                                        {0, 1, 5},
                                        {0, 5, 4},
                                        {2, 6, 7},
                                        {2, 7, 3},
                                        {0, 2, 3},
                                        {0, 3, 1},
                                        {4, 5, 7},
                                        {4, 7, 6}}));
  }();
  return box;
}

}  // namespace torsor
