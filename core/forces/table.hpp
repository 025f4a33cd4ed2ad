// Numbers of forces that are tables over time. They are in one flat array of parameters of all forces of a set, so that
// a call can use other values.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "scalar/scalar.hpp"

namespace torsor {

// Values over time: linear between rows, constant beyond the first and the last.
struct Table {
  int offset = 0, size = 0;   // number k of row r is parameter offset + size r + k
  std::vector<double> times;  // of the rows; empty for a row that holds at all times
  bool depends_on_time() const { return !times.empty(); }
  struct Place {
    int row, next;  // parameters where the two rows begin
    double s;       // the part of the second
  };
  Place place(double t) const {
    if (times.empty()) return {offset, offset, 0.0};
    const int rows = static_cast<int>(times.size());
    const int after = static_cast<int>(std::upper_bound(times.begin(), times.end(), t) - times.begin());
    const int r = std::max(after - 1, 0), next = std::min(after, rows - 1);
    const double s = std::isnan(t) ? t : r < next ? (t - times[r]) / (times[next] - times[r]) : 0.0;
    return {offset + size * r, offset + size * next, s};
  }
  template <class S>
  static S value(const Place& at, const S* p, int k) {
    return mul_add(S(at.s), p[at.next + k] - p[at.row + k], p[at.row + k]);
  }
  template <class S>
  static void add_gradient(const Place& at, const S& g, int k, S* gradient) {
    gradient[at.row + k] += (1.0 - at.s) * g;
    gradient[at.next + k] += at.s * g;
  }
};

}  // namespace torsor
