// Rows at a configuration in the metric of the mass matrix: G, Y = M^-1 G^T and the factors of D = G M^-1 G^T, for
// projections of velocities onto the constraints and for multipliers (docs/derivations/constraints.md).
//
// D = L d L^T without pivoting. A row whose pivot vanishes depends on those before it and is skipped: its multiplier is
// zero, which changes neither velocities nor accelerations.
#pragma once
#include "constraints/constraints.hpp"

namespace torsor {

template <class S>
class RowMetric {
 public:
  RowMetric(const Model& m, int rows, Arena& memory) : nv_(m.nv), rows_(rows) {
    G_ = memory.get<S>(std::size_t(rows) * nv_);
    Y_ = memory.get<S>(std::size_t(rows) * nv_);
    L_ = memory.get<S>(std::size_t(rows) * rows);
    inverse_ = memory.get<S>(rows);
  }
  const S* G(int row) const { return G_ + std::size_t(row) * nv_; }
  const S* Y(int row) const { return Y_ + std::size_t(row) * nv_; }
  // 1 for rows that are kept, 0 for skipped ones.
  S kept(int row) const { return select(equal(inverse_[row], S(0.0)), S(0.0), S(1.0)); }

  // At a configuration with the columns of `at` and the factors of its mass matrix: mass.solve(x, y) sets y = M^-1 x.
  template <class Mass>
  void evaluate(const ConstraintState<S>& at, const Mass& mass) {
    constraint_jacobian(at, G_, nv_);
    for (int r = 0; r < rows_; ++r) mass.solve(G(r), Y_ + std::size_t(r) * nv_);
    factor();
  }
  // X (rows x columns) = D^+ X, rows that are skipped being zero.
  void solve(S* X, int columns = 1) const {
    const auto subtract = [&](const S& x, int j, int i) { add_scaled(columns, -x, X + j * columns, X + i * columns); };
    const auto scale = [&](int i, const S& x) {
      const Mask<S> skipped = equal(inverse_[i], S(0.0));
      for (int c = 0; c < columns; ++c) X[i * columns + c] = select(skipped, S(0.0), x * X[i * columns + c]);
    };
    for (int i = 0; i < rows_; ++i) {
      for (int j = 0; j < i; ++j) subtract(L_[i * rows_ + j], j, i);
      scale(i, S(1.0));
    }
    for (int i = rows_ - 1; i >= 0; --i) {
      scale(i, inverse_[i]);
      for (int j = i + 1; j < rows_; ++j) subtract(L_[j * rows_ + i], j, i);
      scale(i, S(1.0));
    }
  }
  // out += G x
  void add_rates(const S* x, S* out) const {
    for (int r = 0; r < rows_; ++r)
      for (int k = 0; k < nv_; ++k) out[r] = mul_add(G(r)[k], x[k], out[r]);
  }
  // x += s Y multipliers, and the same with G^T.
  void add_response(const S& s, const S* multipliers, S* x) const {
    for (int r = 0; r < rows_; ++r) add_scaled(nv_, s * multipliers[r], Y(r), x);
  }
  void add_torques(const S& s, const S* multipliers, S* x) const {
    for (int r = 0; r < rows_; ++r) add_scaled(nv_, s * multipliers[r], G(r), x);
  }
  int rows() const { return rows_; }

 private:
  void factor() {
    for (int i = 0; i < rows_; ++i) {
      S own(0.0);
      for (int j = 0; j <= i; ++j) {
        S x(0.0);
        for (int k = 0; k < nv_; ++k) x = mul_add(G(i)[k], Y(j)[k], x);
        if (j == i) own = x;
        for (int k = 0; k < j; ++k) x = mul_add(-(L_[i * rows_ + k] * pivot(k)), L_[j * rows_ + k], x);
        L_[i * rows_ + j] = x * (j == i ? S(1.0) : inverse_[j]);
      }
      const S d = L_[i * rows_ + i];
      inverse_[i] = select(less(S(kDependent) * own, d), S(1.0) / d, S(0.0));
    }
  }
  S pivot(int k) const { return select(equal(inverse_[k], S(0.0)), S(0.0), L_[k * rows_ + k]); }

  static constexpr double kDependent = 1e-11;  // of its own diagonal: below that a pivot is rounding
  int nv_, rows_;
  S *G_, *Y_, *L_, *inverse_;
};

}  // namespace torsor
