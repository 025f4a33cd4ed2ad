// A matrix whose factors are known, bordered by columns B and rows C:
//   [[H, -B], [C, -E]] (x, y) = (b, c),   E diagonal,
// solved through the Schur complement C H^-1 B - E (docs/derivations/constraints.md).
#pragma once
#include "linear/tree_solver.hpp"

namespace torsor {

template <class S>
class Border {
 public:
  Border(int size, int width, Arena& memory)
      : n_(size), w_(width), columns_(BranchMatrix<S>::rounded(std::max(width, 1))) {
    B_ = memory.get<S>(std::size_t(n_) * columns_);
    Z_ = memory.get<S>(std::size_t(n_) * columns_);
    C_ = memory.get<S>(std::size_t(w_) * n_);
    E_ = memory.get<S>(w_);
    LU_ = memory.get<S>(std::size_t(w_) * w_);
    pivots_.resize(w_);
    clear();
  }
  int width() const { return w_; }
  S& B(int row, int k) { return B_[row * columns_ + k]; }
  S* C(int k) { return C_ + k * n_; }
  S& E(int k) { return E_[k]; }
  void clear() {
    std::fill_n(B_, std::size_t(n_) * columns_, S(0.0));
    std::fill_n(C_, std::size_t(w_) * n_, S(0.0));
    std::fill_n(E_, w_, S(0.0));
  }

  // After H, which is `solver`, was factored. False in lanes where the whole is singular.
  Mask<S> factor(const TreeSolver<S>& solver) {
    if (w_ == 0) return every_lane<S>();
    std::copy_n(B_, std::size_t(n_) * columns_, Z_);
    solver.solve_columns(Z_, columns_);
    for (int r = 0; r < w_; ++r) {
      S* row = LU_ + r * w_;
      std::fill_n(row, w_, S(0.0));
      for (int k = 0; k < n_; ++k) add_scaled(w_, C_[r * n_ + k], Z_ + k * columns_, row);
      row[r] -= E_[r];
    }
    return torsor::factor(w_, LU_, pivots_.data());
  }
  // x (size): b and then x; y (width): c and then y.
  void solve(const TreeSolver<S>& solver, S* x, S* y) const {
    solver.solve(x);
    if (w_ == 0) return;
    for (int r = 0; r < w_; ++r)
      for (int k = 0; k < n_; ++k) y[r] = mul_add(-C_[r * n_ + k], x[k], y[r]);
    torsor::solve(w_, LU_, pivots_.data(), y);
    for (int k = 0; k < n_; ++k)
      for (int r = 0; r < w_; ++r) x[k] = mul_add(Z_[k * columns_ + r], y[r], x[k]);
  }
  // The same for many columns; y: width x columns.
  void solve_columns(const TreeSolver<S>& solver, S* X, int columns, S* y) const {
    solver.solve_columns(X, columns);
    if (w_ == 0) return;
    for (int r = 0; r < w_; ++r)
      for (int k = 0; k < n_; ++k) add_scaled(columns, -C_[r * n_ + k], X + std::size_t(k) * columns, y + r * columns);
    torsor::solve(w_, LU_, pivots_.data(), y, columns);
    for (int k = 0; k < n_; ++k)
      for (int r = 0; r < w_; ++r)
        add_scaled(columns, Z_[k * columns_ + r], y + r * columns, X + std::size_t(k) * columns);
  }
  // [[H, -B], [C, -E]]^T (x, y) = (b, 0), or (b, c) if `given`; y: c and then y.
  void solve_transposed(const TreeSolver<S>& solver, S* x, S* y, bool given = false) const {
    if (w_ > 0) {
      for (int r = 0; r < w_; ++r) {
        if (!given) y[r] = S(0.0);
        for (int k = 0; k < n_; ++k) y[r] = mul_add(Z_[k * columns_ + r], x[k], y[r]);
      }
      torsor::solve_transposed(w_, LU_, pivots_.data(), y);
      for (int r = 0; r < w_; ++r) add_scaled(n_, -y[r], C_ + r * n_, x);
    }
    solver.solve_transposed(x);
  }

  // Keeps the factors, so that those of some lanes can be restored.
  void save() {
    saved_.assign(Z_, Z_ + std::size_t(n_) * columns_);
    saved_.insert(saved_.end(), C_, C_ + std::size_t(w_) * n_);
    saved_.insert(saved_.end(), LU_, LU_ + std::size_t(w_) * w_);
    saved_pivots_ = pivots_;
  }
  void restore(const Mask<S>& lanes) {
    const S* at = saved_.data();
    for (const auto& [part, size] : {std::pair<S*, std::size_t>{Z_, std::size_t(n_) * columns_},
                                     {C_, std::size_t(w_) * n_},
                                     {LU_, std::size_t(w_) * w_}}) {
      torsor::restore(lanes, size, at, part);
      at += size;
    }
    torsor::restore(lanes, saved_pivots_, pivots_);
  }

 private:
  int n_, w_, columns_;
  S *B_, *Z_, *C_, *E_, *LU_;
  std::vector<Pivot<S>> pivots_, saved_pivots_;
  AlignedVector<S> saved_;
};

}  // namespace torsor
