// Cholesky's factorisation of a small dense matrix, row-major, of a single state.
#pragma once
#include <cmath>
#include <cstddef>

#include "linear/lu.hpp"

namespace torsor {

// A = L L^T, in the lower triangle. False if A is not positive definite.
inline bool cholesky(int n, double* A) {
  for (int j = 0; j < n; ++j) {
    double* row = A + std::size_t(j) * n;
    double sum = row[j];
    for (int k = 0; k < j; ++k) sum -= row[k] * row[k];
    if (!(sum > 0.0) || !std::isfinite(sum)) return false;
    row[j] = std::sqrt(sum);
    const double scale = 1.0 / row[j];
    for (int i = j + 1; i < n; ++i) {
      double* below = A + std::size_t(i) * n;
      double x = below[j];
      for (int k = 0; k < j; ++k) x -= below[k] * row[k];
      below[j] = x * scale;
    }
  }
  return true;
}
// x <- L^-1 x
inline void solve_lower(int n, const double* L, double* x) {
  for (int i = 0; i < n; ++i) {
    const double* row = L + std::size_t(i) * n;
    double sum = x[i];
    for (int k = 0; k < i; ++k) sum -= row[k] * x[k];
    x[i] = sum / row[i];
  }
}
// x <- A^-1 x
inline void cholesky_solve(int n, const double* L, double* x) {
  solve_lower(n, L, x);
  for (int i = n - 1; i >= 0; --i) {
    const double* row = L + std::size_t(i) * n;
    x[i] /= row[i];
    for (int k = 0; k < i; ++k) x[k] -= row[k] * x[i];
  }
}

}  // namespace torsor
