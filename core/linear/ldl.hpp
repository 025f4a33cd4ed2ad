// Dense symmetric systems by L D L^T without pivoting, for positive definite matrices. Row-major; only the lower
// triangle is read and written: L below the diagonal, 1 / D on it.
#pragma once
#include <cstddef>

#include "scalar/pack.hpp"

namespace torsor {

// A = L D L^T. check(k, D, A_kk) is called for each pivot. work: n numbers.
template <class S, class Check>
void factor_ldl(int n, S* A, S* work, Check&& check) {
  for (int j = 0; j < n; ++j) work[j] = A[std::size_t(j) * n + j];  // before anything is subtracted
  for (int j = 0; j < n; ++j) {
    S* own = A + std::size_t(j) * n;
    check(j, own[j], work[j]);
    const S inverse = S(1.0) / own[j];
    own[j] = inverse;
    for (int k = j + 1; k < n; ++k) own[k] = A[std::size_t(k) * n + j];  // the column, in a row
    for (int i = j + 1; i < n; ++i) {
      S* row = A + std::size_t(i) * n;
      const S l = own[i] * inverse;
      for (int k = j + 1; k <= i; ++k) row[k] = mul_add(-l, own[k], row[k]);
      row[j] = l;
    }
  }
}
// X <- A^-1 X, n x m.
template <class S>
void solve_ldl(int n, const S* L, int m, S* X) {
  for (int k = 0; k < n; ++k)
    for (int i = k + 1; i < n; ++i)
      add_scaled(m, -L[std::size_t(i) * n + k], X + std::size_t(k) * m, X + std::size_t(i) * m);
  for (int i = n - 1; i >= 0; --i) {
    S* x = X + std::size_t(i) * m;
    for (int c = 0; c < m; ++c) x[c] = x[c] * L[std::size_t(i) * n + i];
  }
  for (int i = n - 1; i >= 0; --i)
    for (int k = 0; k < i; ++k)
      add_scaled(m, -L[std::size_t(i) * n + k], X + std::size_t(i) * m, X + std::size_t(k) * m);
}

}  // namespace torsor
