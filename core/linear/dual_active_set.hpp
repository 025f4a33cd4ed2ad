// Convex quadratic programs by a dual active-set method (Goldfarb and Idnani 1983), in the space of the rows, on the
// factors of the matrix of the active ones (Arnstrom, Bemporad and Axehill 2022):
//   min x.H x / 2 + f.x   subject to   A x = b in the first rows,   A x >= b in the others.
// With x = x0 + H^-1 A^T a, x0 = -H^-1 f, the multipliers a and the slacks w = A x - b are the solution of
//   w = D a + d,   w = 0 in the first rows,   a >= 0, w >= 0, a.w = 0 in the others,   D = A H^-1 A^T,  d = A x0 - b.
// The multipliers of all iterates are >= 0, and their objective rises until no row is violated. A row that depends on
// the active ones takes the place of one of them, or shows that the rows contradict each other. D may be singular; a
// positive number added to its diagonal makes the multipliers unique.
//
// Scalars are real: which rows are active depends on values.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

namespace torsor {

enum class ProgramStatus : int {
  solved,
  infeasible,  // the rows contradict each other
  exhausted,   // after too many iterations
  not_convex   // H is not positive definite, or something is not finite
};

template <class S>
class DualActiveSet {
 public:
  // A row is violated if its slack is below -kViolated times the sum of the sizes of its terms, and depends on others
  // if what is left of it is below kDependent, both for rows of length 1 in the metric of H^-1.
  static constexpr double kViolated = 1e-12, kDependent = 1e-11;
  static constexpr double kRounding = 1e-14;  // of the entries of D, which grows in what is left of a row
  // Rows contradict each other if one of them cannot be satisfied to this, relative to the largest of d.
  static constexpr double kContradiction = 1e-8;

  // D (n x n, rows `stride` apart) is read, and d. With `warm` it starts from the rows that were active last.
  ProgramStatus solve(int n, int equalities, const S* D, int stride, const S* d, int iterations, bool warm = false) {
    prepare(n, equalities, D, stride, d, warm);
    steps = 0;
    for (int i = 0; i < equalities; ++i)
      if (scale_[i] > S(0.0) && place_[i] < 0) add(i);
    settle();
    for (int row; steps <= iterations && (row = most_violated(steps > iterations / 2)) != kNone;) {
      if (row == kNotFinite) return ProgramStatus::not_convex;
      if (scale_[row] == S(0.0)) return ProgramStatus::infeasible;  // 0 >= a positive number
      while (steps <= iterations && !enter(row)) {
        if (exchange(row)) continue;
        const auto [w, size] = slack(row);
        if (w < -S(kContradiction) * size) return ProgramStatus::infeasible;
        ignored_[row] = true;  // it is violated by rounding only, as where many rows meet in a point
        break;
      }
    }
    if (steps > iterations) return ProgramStatus::exhausted;
    for (int i = 0; i < n; ++i) a[i] = scale_[i] * y_[i];
    return all_hold() ? ProgramStatus::solved : ProgramStatus::infeasible;
  }

  std::vector<S> a;  // multipliers
  int steps = 0;     // that the last solution took
  // The rows that are active, in the order in which they were factored.
  const std::vector<int>& active() const { return active_; }
  bool is_active(int row) const { return place_[row] >= 0; }

 private:
  static constexpr int kNone = -1, kNotFinite = -2;

  // Rows are scaled to D_ii = 1; y are multipliers of scaled rows.
  void prepare(int n, int equalities, const S* D, int stride, const S* d, bool warm) {
    const bool same = warm && n == n_;
    n_ = n;
    equalities_ = equalities;
    D_ = D;
    stride_ = stride;
    scale_.resize(n);
    d_.resize(n);
    a.assign(n, S(0.0));
    y_.assign(n, S(0.0));
    const std::vector<int> before = same ? active_ : std::vector<int>{};
    place_.assign(n, kNone);
    ignored_.assign(n, false);
    active_.clear();
    L_.resize(std::size_t(n) * n);
    pivot_.resize(n);
    for (int i = 0; i < n; ++i) {
      const S own = D[std::size_t(i) * stride + i];
      scale_[i] = own > S(0.0) ? S(1.0) / std::sqrt(own) : S(0.0);
      d_[i] = own > S(0.0) ? scale_[i] * d[i] : d[i];
    }
    for (int i : before)
      if (scale_[i] > S(0.0)) add(i);
  }
  S D(int i, int j) const { return scale_[i] * scale_[j] * D_[std::size_t(i) * stride_ + j]; }
  S& L(int i, int j) { return L_[std::size_t(i) * n_ + j]; }
  const S& L(int i, int j) const { return L_[std::size_t(i) * n_ + j]; }
  int count() const { return static_cast<int>(active_.size()); }
  bool may_leave(int row) const { return row >= equalities_; }

  // Adds a row to the active ones, as the last row of L. False if it depends on them.
  bool add(int row) {
    const int k = count();
    S left(1.0), doubt(kDependent);
    for (int j = 0; j < k; ++j) {
      S x = D(row, active_[j]);
      for (int l = 0; l < j; ++l) x -= L(k, l) * pivot_[l] * L(j, l);
      L(k, j) = x / pivot_[j];
      left -= L(k, j) * x;
      doubt += S(kRounding) * std::abs(L(k, j));
    }
    pivot_[k] = left;
    if (!(left > doubt)) return false;
    place_[row] = k;
    active_.push_back(row);
    return true;
  }
  // Removes a row: what it has contributed to the pivots of the rows after it is given back to them.
  void remove(int row) {
    const int k = place_[row], n = count() - 1;
    S weight = pivot_[k];
    work_.assign(n, S(0.0));
    for (int i = k; i < n; ++i) {
      work_[i] = L(i + 1, k);
      for (int j = 0; j < k; ++j) L(i, j) = L(i + 1, j);
      for (int j = k; j < i; ++j) L(i, j) = L(i + 1, j + 1);
      pivot_[i] = pivot_[i + 1];
      active_[i] = active_[i + 1];
      place_[active_[i]] = i;
    }
    active_.pop_back();
    place_[row] = kNone;
    for (int j = k; j < n; ++j) {
      const S x = work_[j], before = pivot_[j];
      pivot_[j] += weight * x * x;
      const S share = weight * x / pivot_[j];
      weight *= before / pivot_[j];
      for (int i = j + 1; i < n; ++i) {
        work_[i] -= x * L(i, j);
        L(i, j) += share * work_[i];
      }
    }
  }
  // x = (L pivot L^T)^-1 x
  void solve_active(std::vector<S>& x) const {
    const int n = count();
    for (int i = 0; i < n; ++i)
      for (int j = 0; j < i; ++j) x[i] -= L(i, j) * x[j];
    for (int i = n - 1; i >= 0; --i) {
      x[i] /= pivot_[i];
      for (int j = i + 1; j < n; ++j) x[i] -= L(j, i) * x[j];
    }
  }
  // The multipliers with which the active rows hold, corrected once.
  void find_target() {
    const int n = count();
    target_.assign(n, S(0.0));
    for (int pass = 0; pass < 2; ++pass) {
      work_.resize(n);
      for (int i = 0; i < n; ++i) {
        S sum = d_[active_[i]];
        for (int j = 0; j < n; ++j) sum += D(active_[i], active_[j]) * target_[j];
        work_[i] = -sum;
      }
      solve_active(work_);
      for (int i = 0; i < n; ++i) target_[i] += work_[i];
    }
  }
  // Makes a violated row active. Its multiplier rises then; if not, the row depends on others but for rounding: false.
  bool enter(int row) {
    if (!add(row)) return false;
    const S before = y_[row];
    settle();
    return place_[row] >= 0 || before > S(0.0);
  }
  // Moves the multipliers to where the active rows hold. Rows whose multiplier would become negative are removed.
  void settle() {
    for (;;) {
      ++steps;
      find_target();
      S step(1.0);
      int blocks = kNone;
      for (int j = 0; j < count(); ++j) {
        const S from = y_[active_[j]], to = target_[j];
        if (!may_leave(active_[j]) || !(to < S(0.0))) continue;
        const S reach = from / (from - to);
        if (blocks >= 0 && !(reach < step)) continue;
        step = std::min(step, reach);
        blocks = active_[j];
      }
      for (int j = 0; j < count(); ++j) {
        S& y = y_[active_[j]];
        y = blocks < 0 ? target_[j] : y + step * (target_[j] - y);
      }
      if (blocks < 0) return;
      y_[blocks] = S(0.0);
      remove(blocks);
    }
  }
  // The row that is violated most, or the first one; kNone if all hold.
  int most_violated(bool first) const {
    int found = kNone;
    S most(0.0);
    for (int i = equalities_; i < n_; ++i) {
      if (place_[i] >= 0 || ignored_[i]) continue;
      const auto [w, size] = slack(i);
      if (!std::isfinite(w)) return kNotFinite;
      if (!(w < -S(kViolated) * size) || !(w < most)) continue;
      found = i;
      most = w;
      if (first) break;
    }
    return found;
  }
  struct Slack {
    S w, size;
  };
  Slack slack(int i) const {
    Slack out{d_[i], std::abs(d_[i])};
    for (int j : active_) {
      const S x = D(i, j) * y_[j];
      out.w += x;
      out.size += std::abs(x);
    }
    return out;
  }
  // Moves along the multipliers that leave all rows as they are, of the active ones and of a row that depends on them,
  // until one of them is 0, and removes that. False if there is none.
  bool exchange(int row) {
    ++steps;
    const int n = count();
    target_.resize(n);
    for (int i = 0; i < n; ++i) target_[i] = -D(active_[i], row);
    solve_active(target_);
    int blocks = kNone;
    S step(0.0);
    for (int j = 0; j < n; ++j) {
      if (!may_leave(active_[j]) || !(target_[j] < -S(1e-10))) continue;
      const S reach = -y_[active_[j]] / target_[j];
      if (blocks >= 0 && !(reach < step)) continue;
      step = reach;
      blocks = active_[j];
    }
    if (blocks < 0) return false;
    for (int j = 0; j < n; ++j) y_[active_[j]] += step * target_[j];
    y_[row] += step;
    y_[blocks] = S(0.0);
    remove(blocks);
    return true;
  }
  // Whether the solution satisfies all rows: where they contradict each other by so little that this was not seen,
  // multipliers are so large that the sums have no digits left.
  bool all_hold() const {
    S largest(0.0);
    for (const S& x : d_) largest = std::max(largest, std::abs(x));
    for (int i = 0; i < n_; ++i) {
      const S w = slack(i).w, miss = i < equalities_ ? std::abs(w) : -w;
      if (!(miss <= S(kContradiction) * largest)) return false;
    }
    return true;
  }

  int n_ = 0, equalities_ = 0, stride_ = 0;
  const S* D_ = nullptr;
  std::vector<S> scale_, d_, y_, L_, pivot_, target_, work_;
  std::vector<int> active_, place_;
  std::vector<char> ignored_;
};

// The program itself, dense: H (n x n), f (n), A (m x n), b (m), row-major. Writes x (n) and a (m).
template <class S>
ProgramStatus solve_program(int n, int m, int equalities, const S* H, const S* f, const S* A, const S* b,
                            int iterations, S* x, S* a) {
  std::vector<S> C(H, H + std::size_t(n) * n), Y(std::size_t(m) * n), D(std::size_t(m) * m), d(m);
  for (int i = 0; i < n; ++i)  // H = C C^T
    for (int j = 0; j <= i; ++j) {
      S sum = C[i * n + j];
      for (int k = 0; k < j; ++k) sum -= C[i * n + k] * C[j * n + k];
      if (i == j && !(sum > S(0.0))) return ProgramStatus::not_convex;
      C[i * n + j] = i == j ? std::sqrt(sum) : sum / C[j * n + j];
    }
  const auto forward = [&](S* y) {
    for (int i = 0; i < n; ++i) {
      for (int k = 0; k < i; ++k) y[i] -= C[i * n + k] * y[k];
      y[i] /= C[i * n + i];
    }
  };
  for (int i = 0; i < n; ++i) x[i] = -f[i];
  forward(x);
  for (int r = 0; r < m; ++r) {
    S* y = &Y[std::size_t(r) * n];
    std::copy_n(A + std::size_t(r) * n, n, y);
    forward(y);
    d[r] = -b[r];
    for (int k = 0; k < n; ++k) d[r] += y[k] * x[k];
    for (int s = 0; s <= r; ++s) {
      S sum(0.0);
      for (int k = 0; k < n; ++k) sum += y[k] * Y[std::size_t(s) * n + k];
      D[std::size_t(r) * m + s] = D[std::size_t(s) * m + r] = sum;
    }
  }
  DualActiveSet<S> solver;
  const ProgramStatus status = solver.solve(m, equalities, D.data(), m, d.data(), iterations);
  if (status != ProgramStatus::solved) return status;
  std::copy_n(solver.a.data(), m, a);
  for (int r = 0; r < m; ++r)
    for (int k = 0; k < n; ++k) x[k] += a[r] * Y[std::size_t(r) * n + k];
  for (int i = n - 1; i >= 0; --i) {
    x[i] /= C[i * n + i];
    for (int k = 0; k < i; ++k) x[k] -= C[i * n + k] * x[i];
  }
  return status;
}

}  // namespace torsor
