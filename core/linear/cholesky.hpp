// Cholesky's factorisation of a small dense matrix, row-major, of a single state.
#pragma once
#include <cmath>
#include <cstddef>

#include "linear/lu.hpp"

namespace torsor {

// A = U^T U, in the upper triangle, which alone is read; the diagonal has 1 / U_ii. False if A is not positive
// definite. Loops run along rows, so that they are vectorised.
inline bool cholesky(int n, double* A) {
  for (int j = 0; j < n; ++j) {
    double* row = A + std::size_t(j) * n;
    if (!(row[j] > 0.0) || !std::isfinite(row[j])) return false;
    row[j] = 1.0 / std::sqrt(row[j]);
    for (int k = j + 1; k < n; ++k) row[k] *= row[j];
    for (int i = j + 1; i < n; ++i) {
      double* below = A + std::size_t(i) * n;
      const double x = row[i];
      for (int k = i; k < n; ++k) below[k] -= x * row[k];
    }
  }
  return true;
}
// x <- U^-T x
inline void solve_transposed(int n, const double* U, double* x) {
  for (int i = 0; i < n; ++i) {
    const double* row = U + std::size_t(i) * n;
    const double y = x[i] *= row[i];
    for (int k = i + 1; k < n; ++k) x[k] -= y * row[k];
  }
}
// x <- A^-1 x
inline void cholesky_solve(int n, const double* U, double* x) {
  solve_transposed(n, U, x);
  for (int i = n - 1; i >= 0; --i) {
    const double* row = U + std::size_t(i) * n;
    double sum = x[i];
    for (int k = i + 1; k < n; ++k) sum -= row[k] * x[k];
    x[i] = sum * row[i];
  }
}

}  // namespace torsor
