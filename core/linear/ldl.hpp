// Dense symmetric systems by L D L^T without pivoting, for positive definite matrices. Row-major; only the lower
// triangle is read and written: L below the diagonal, 1 / D on it.
#pragma once
#include <cstddef>

#include "scalar/pack.hpp"

namespace torsor {

// A = L D L^T. check(k, D, A_kk) is called for each pivot.
template <class S, class Check>
void factor_ldl(int n, S* A, Check&& check) {
  for (int j = 0; j < n; ++j) {
    S* row = A + std::size_t(j) * n;
    const S size = row[j];
    // row holds L_jk D_k until here; the division gives L_jk and the pivot
    for (int k = 0; k < j; ++k) {
      S sum = row[k];
      const S* above = A + std::size_t(k) * n;
      for (int l = 0; l < k; ++l) sum = mul_add(-row[l], above[l], sum);
      row[k] = sum;
    }
    S D = size;
    for (int k = 0; k < j; ++k) {
      const S L = row[k] * A[std::size_t(k) * n + k];
      D = mul_add(-row[k], L, D);
      row[k] = L;
    }
    check(j, D, size);
    row[j] = S(1.0) / D;
  }
}
// X <- A^-1 X, n x m.
template <class S>
void solve_ldl(int n, const S* L, int m, S* X) {
  for (int i = 1; i < n; ++i)
    for (int k = 0; k < i; ++k)
      add_scaled(m, -L[std::size_t(i) * n + k], X + std::size_t(k) * m, X + std::size_t(i) * m);
  for (int i = n - 1; i >= 0; --i) {
    S* x = X + std::size_t(i) * m;
    for (int c = 0; c < m; ++c) x[c] = x[c] * L[std::size_t(i) * n + i];
    for (int k = i + 1; k < n; ++k) add_scaled(m, -L[std::size_t(k) * n + i], X + std::size_t(k) * m, x);
  }
}

}  // namespace torsor
