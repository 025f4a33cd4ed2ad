// The load of a joint: a function of the wrench that it transmits, which is affine in unknowns z.
#pragma once
#include <functional>
#include <vector>

#include "linear/cholesky.hpp"

namespace torsor {

// size(W, derivatives by W) with the wrench W = offset + map z, map being 6 x n.
struct JointLoad {
  double offset[6];
  std::vector<double> map;
  std::function<double(const double*, double*)> size;

  void put_wrench(int n, const double* z, double* W) const {
    for (int k = 0; k < 6; ++k) {
      W[k] = offset[k];
      for (int j = 0; j < n; ++j) W[k] += map[std::size_t(k) * n + j] * z[j];
    }
  }
  // The load at z and, if by_z is not null, `factor` times its derivatives (n), which are added.
  double at(int n, const double* z, double* by_z = nullptr, double factor = 1.0) const {
    double W[6], by_W[6];
    put_wrench(n, z, W);
    const double result = size(W, by_W);
    for (int k = 0; by_z != nullptr && k < 6; ++k) add_scaled(n, factor * by_W[k], &map[std::size_t(k) * n], by_z);
    return result;
  }
};

}  // namespace torsor
