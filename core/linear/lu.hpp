// Dense linear systems by LU factorisation with partial pivoting. Matrices are row-major.
#pragma once
#include <cmath>
#include <utility>

#include "base/threads.hpp"
#include "scalar/scalar.hpp"

namespace torsor {

// Whether column k has no entry from row k on that is more than the rounding of what was subtracted from it, |L| |U|
// (Higham 2002, theorem 9.3): the criterion is invariant under scaling of rows and of columns.
inline bool is_rounding(int n, const double* LU, int k) {
  for (int i = k; i < n; ++i) {
    double size = 0.0;
    for (int j = 0; j < k; ++j) size += std::fabs(LU[i * n + j] * LU[j * n + k]);
    if (!(std::fabs(LU[i * n + k]) <= 1e-14 * size)) return false;
  }
  return true;
}

// Factors A (n x n) in place; row k was swapped with row pivots[k]. False if a pivot is zero, NaN or mere rounding.
inline bool factor(int n, double* A, int* pivots) {
  for (int k = 0; k < n; ++k) {
    if (n > 256) poll();
    int p = k;
    for (int i = k + 1; i < n; ++i)
      if (std::fabs(A[i * n + k]) > std::fabs(A[p * n + k])) p = i;
    pivots[k] = p;
    if (!(std::fabs(A[p * n + k]) > 0.0) || !std::isfinite(A[p * n + k])) return false;
    if (is_rounding(n, A, k)) return false;
    if (p != k)
      for (int j = 0; j < n; ++j) std::swap(A[k * n + j], A[p * n + j]);
    const double inverse = 1.0 / A[k * n + k];
    for (int i = k + 1; i < n; ++i) {
      if (A[i * n + k] == 0.0) continue;
      A[i * n + k] *= inverse;
      add_scaled(n - k - 1, -A[i * n + k], A + k * n + k + 1, A + i * n + k + 1);
    }
  }
  return true;
}

// X (n x columns) <- A^-1 X
inline void solve(int n, const double* LU, const int* pivots, double* X, int columns = 1) {
  for (int k = 0; k < n; ++k)
    if (pivots[k] != k)
      for (int j = 0; j < columns; ++j) std::swap(X[k * columns + j], X[pivots[k] * columns + j]);
  for (int i = 0; i < n; ++i)
    for (int k = 0; k < i; ++k)
      if (LU[i * n + k] != 0.0) add_scaled(columns, -LU[i * n + k], X + k * columns, X + i * columns);
  for (int i = n - 1; i >= 0; --i) {
    for (int k = i + 1; k < n; ++k)
      if (LU[i * n + k] != 0.0) add_scaled(columns, -LU[i * n + k], X + k * columns, X + i * columns);
    const double inverse = 1.0 / LU[i * n + i];
    for (int j = 0; j < columns; ++j) X[i * columns + j] *= inverse;
  }
}

// x <- A^-T x
inline void solve_transposed(int n, const double* LU, const int* pivots, double* x) {
  for (int i = 0; i < n; ++i) {
    x[i] /= LU[i * n + i];
    add_scaled(n - i - 1, -x[i], LU + i * n + i + 1, x + i + 1);
  }
  for (int i = n - 1; i >= 0; --i) add_scaled(i, -x[i], LU + i * n, x);
  for (int k = n - 1; k >= 0; --k) std::swap(x[k], x[pivots[k]]);
}

}  // namespace torsor
