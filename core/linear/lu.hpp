// Dense linear systems by LU factorisation with partial pivoting. Matrices are row-major. Lanes have their own pivots,
// and skip the zeros that they would skip alone.
#pragma once
#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/arena.hpp"
#include "base/threads.hpp"
#include "scalar/pack.hpp"

namespace torsor {

// The row with which a row was swapped, in each lane.
template <class S>
struct Pivot {
  int row[Lanes<S>::value];
  bool same() const {
    return std::all_of(row, row + Lanes<S>::value, [&](int r) { return r == row[0]; });
  }
};
// Swaps row k of X with that of its pivot.
template <class S, class T>
TORSOR_INLINE void swap_rows(const Pivot<S>& pivot, int k, T* X, int columns = 1) {
  if (Lanes<S>::value == 1 || pivot.same()) {
    if (pivot.row[0] != k) std::swap_ranges(X + k * columns, X + (k + 1) * columns, X + pivot.row[0] * columns);
    return;
  }
  if constexpr (Lanes<S>::value > 1)
    for (int l = 0; l < Lanes<S>::value; ++l)
      for (int j = 0; j < columns; ++j) std::swap(X[k * columns + j].lane(l), X[pivot.row[l] * columns + j].lane(l));
}

// Restores some lanes of factors.
template <class S>
void restore(const Mask<S>& lanes, std::size_t n, const S* saved, S* present) {
  for (std::size_t k = 0; k < n; ++k) present[k] = select(lanes, saved[k], present[k]);
}
template <class S>
void restore(const Mask<S>& lanes, const std::vector<Pivot<S>>& saved, std::vector<Pivot<S>>& present) {
  for (std::size_t k = 0; k < present.size(); ++k)
    for (int l = 0; l < Lanes<S>::value; ++l)
      if (in_lane(lanes, l)) present[k].row[l] = saved[k].row[l];
}

template <class S>
TORSOR_INLINE Mask<S> is_nonzero(const S& x) {
  return !equal(x, S(0.0));
}

// Whether column k has no entry from row k on that is more than the rounding of what was subtracted from it, |L| |U|
// (Higham 2002, theorem 9.3): the criterion is invariant under scaling of rows and of columns.
template <class S>
Mask<S> is_rounding(int n, const S* LU, int k) {
  Mask<S> rounding = every_lane<S>();
  for (int i = k; i < n && any(rounding); ++i) {
    S size(0.0);
    for (int j = 0; j < k; ++j) size += absolute(LU[i * n + j] * LU[j * n + k]);
    rounding = rounding & less_equal(absolute(LU[i * n + k]), S(1e-14) * size);
  }
  return rounding;
}

// Factors A (n x n) in place. False in lanes where a pivot is zero, NaN or mere rounding.
template <class S>
Mask<S> factor(int n, S* A, Pivot<S>* pivots) {
  Mask<S> good = every_lane<S>();
  for (int k = 0; k < n; ++k) {
    if (n > 256) poll();
    Pivot<S>& pivot = pivots[k];
    std::fill_n(pivot.row, Lanes<S>::value, k);
    S most = absolute(A[k * n + k]);
    for (int i = k + 1; i < n; ++i) {
      const S size = absolute(A[i * n + k]);
      const Mask<S> more = less(most, size);
      if (!any(more)) continue;
      most = select(more, size, most);
      for (int l = 0; l < Lanes<S>::value; ++l)
        if (in_lane(more, l)) pivot.row[l] = i;
    }
    good = good & less(S(0.0), most) & is_finite(most);
    if (!any(good)) return good;
    good = good & !is_rounding(n, A, k);
    if (!any(good)) return good;
    swap_rows(pivot, k, A, n);
    const S inverse = S(1.0) / A[k * n + k];
    for (int i = k + 1; i < n; ++i) {
      S& entry = A[i * n + k];
      const Mask<S> acts = is_nonzero(entry);
      entry = select(acts, entry * inverse, entry);
      add_scaled_where(acts, n - k - 1, -entry, A + k * n + k + 1, A + i * n + k + 1);
    }
  }
  return good;
}

// X (n x columns) <- A^-1 X
template <class S>
void solve(int n, const S* LU, const Pivot<S>* pivots, S* X, int columns = 1) {
  const auto subtract = [&](const S& x, int k, int i) TORSOR_INLINE_LAMBDA {  // x times row k from row i
    add_scaled_where(is_nonzero(x), columns, -x, X + k * columns, X + i * columns);
  };
  for (int k = 0; k < n; ++k) swap_rows(pivots[k], k, X, columns);
  for (int i = 0; i < n; ++i)
    for (int k = 0; k < i; ++k) subtract(LU[i * n + k], k, i);
  for (int i = n - 1; i >= 0; --i) {
    for (int k = i + 1; k < n; ++k) subtract(LU[i * n + k], k, i);
    const S inverse = S(1.0) / LU[i * n + i];
    for (int j = 0; j < columns; ++j) X[i * columns + j] *= inverse;
  }
}

// x <- A^-T x
template <class S>
void solve_transposed(int n, const S* LU, const Pivot<S>* pivots, S* x) {
  for (int i = 0; i < n; ++i) {
    x[i] = x[i] / LU[i * n + i];
    add_scaled(n - i - 1, -x[i], LU + i * n + i + 1, x + i + 1);
  }
  for (int i = n - 1; i >= 0; --i) add_scaled(i, -x[i], LU + i * n, x);
  for (int k = n - 1; k >= 0; --k) swap_rows(pivots[k], k, x);
}

}  // namespace torsor
