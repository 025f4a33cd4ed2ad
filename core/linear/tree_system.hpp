// A linear system over a tree, solved from the tips to the root and back in a time that is linear in the number of
// bodies. Fan 2018, Algs. B.1 and B.2, corrected and for joints with any number of unknowns;
// docs/derivations/tree_systems.md.
//
// Body i has unknowns u_i, a state x_i and a sum y_i over its subtree:
//   x_i = x_p + A_i u_i,   y_i = P_i x_i + sum over children c of (y_c - C_c u_c),   L_i y_i + E_i x_p + N_i u_i = b_i,
// p being its parent, and x_p = 0 at a root. Eliminating the unknowns of the children keeps this form, with a different
// P_i. Blocks are factored with pivots, so that systems are of a single state; vectors run over entries of rows or over
// right-hand sides.
#pragma once
#include <algorithm>
#include <stdexcept>
#include <vector>

#include "base/arena.hpp"
#include "linear/lu.hpp"
#include "model/model.hpp"
#include "scalar/pack.hpp"

namespace torsor {

class TreeSystem {
  using V = Pack<kLanes>;

 public:
  // `states` and `sums`: length of x_i and y_i. Body i has `copies` unknowns for each of its velocities, those of copy
  // c beginning at c nv in all vectors of unknowns.
  TreeSystem(const Model& m, int states, int sums, int copies)
      : m_(m), nx_(states), ny_(sums), copies_(copies), xs_(rounded(states)), ys_(rounded(sums)) {
    int k = 0, square = 0;
    for (const Model::Link& link : m.links) {
      const int count = copies * link.nv;
      first_.push_back(k);
      square_.push_back(square);
      k += count;
      square += count * count;
      most_ = std::max(most_, count);
    }
    for (auto* rows : {&A_, &E_, &X_}) rows->resize(std::size_t(k) * xs_);
    for (auto* rows : {&C_, &L_, &V_}) rows->resize(std::size_t(k) * ys_);
    for (auto* blocks : {&N_, &Lambda_}) blocks->resize(square);
    P_.resize(std::size_t(m.n()) * ny_ * xs_);
    S_.resize(P_.size());
    pivots_.resize(k);
    for (auto* vector : {&state_, &state_bar_}) vector->resize(std::size_t(m.n()) * xs_);
    for (auto* vector : {&sum_, &sum_bar_}) vector->resize(std::size_t(m.n()) * ys_);
    unknown_.resize(most_);
    ranges_.assign(ny_, {0, nx_});
    if (most_ > kMost) throw std::invalid_argument("torsor: a joint has too many unknowns");
    inverse_.resize(m.n());
  }

  // The blocks of body i, to be filled. Unknown k of it has column k of A_i and C_i and row k of L_i and E_i.
  int unknowns(int i) const { return copies_ * m_.links[i].nv; }
  double* A(int i, int k) { return &A_[std::size_t(first_[i] + k) * xs_]; }
  double* E(int i, int k) { return &E_[std::size_t(first_[i] + k) * xs_]; }
  double* C(int i, int k) { return &C_[std::size_t(first_[i] + k) * ys_]; }
  double* L(int i, int k) { return &L_[std::size_t(first_[i] + k) * ys_]; }
  double* N(int i) { return N_.data() + square_[i]; }
  double* P(int i, int row) { return &P_[(std::size_t(i) * ny_ + row) * xs_]; }
  // Declares that row y of all P is zero except from `begin` to `end`.
  void set_range(int y, int begin, int end) { ranges_[y] = {begin, end}; }
  void clear() {
    for (auto* all : {&A_, &E_, &C_, &L_, &N_, &P_}) std::fill(all->begin(), all->end(), 0.0);
  }

  // Eliminates all unknowns. False if an unknown cannot be found from its own rows: the system may still have a
  // solution.
  bool factor() {
    S_ = P_;
    return eliminate();
  }
  // The same, but P is destroyed and must be filled again.
  bool factor_once() {
    std::swap(S_, P_);
    return eliminate();
  }

  // u (all unknowns) from b, in place.
  void solve(double* u) {
    if (nx_ == 12 && ny_ == 6) return solve<12, 6>(u);
    if (nx_ == 18 && ny_ == 6) return solve<18, 6>(u);
    if (nx_ == 12 && ny_ == 12) return solve<12, 12>(u);
    solve<0, 0>(u);
  }
  template <int NX, int NY>
  void solve(double* u) {
    std::fill(sum_.begin(), sum_.end(), 0.0);
    // y_i = P_i x_i + c_i; u_i = X_i x_p + d_i
    for (int i = m_.n() - 1; i >= 0; --i) {
      const int n = unknowns(i), p = m_.links[i].parent;
      double *c = &sum_[i * ys_], *d = unknown_.data();
      if constexpr (NX > 0)
        if (n == 1) {
          fold_one<NY>(i, p, c, u[place(i, 0)]);
          continue;
        }
      for (int k = 0; k < n; ++k) d[k] = u[place(i, k)] - dot(ys_, L(i, k), c);
      torsor::solve(n, &Lambda_[square_[i]], &pivots_[first_[i]], d);
      for (int k = 0; k < n; ++k) u[place(i, k)] = d[k];
      if (p < 0) continue;
      for (int k = 0; k < n; ++k) add_scaled(ys_, d[k], &V_[std::size_t(first_[i] + k) * ys_], c);
      add_scaled(ys_, 1.0, c, &sum_[p * ys_]);
    }
    for (int i = 0; i < m_.n(); ++i) {
      const int n = unknowns(i), p = m_.links[i].parent;
      double* x = &state_[i * xs_];
      if constexpr (NX > 0)
        if (n == 1 && p >= 0) {
          unfold_one<NX>(i, p, x, u[place(i, 0)]);
          continue;
        }
      if (p < 0)
        std::fill_n(x, xs_, 0.0);
      else
        std::copy_n(&state_[p * xs_], xs_, x);
      if (p >= 0)
        for (int k = 0; k < n; ++k) u[place(i, k)] += dot(xs_, &X_[std::size_t(first_[i] + k) * xs_], &state_[p * xs_]);
      for (int k = 0; k < n; ++k) add_scaled(xs_, u[place(i, k)], A(i, k), x);
    }
  }

  // The same for several right-hand sides, side by side in the rows of U, `columns` apart: a multiple of the lanes.
  void solve_columns(double* U, int columns) {
    if (nx_ == 12 && ny_ == 6) return solve_columns<12, 6>(U, columns);
    if (nx_ == 18 && ny_ == 6) return solve_columns<18, 6>(U, columns);
    if (nx_ == 12 && ny_ == 12) return solve_columns<12, 12>(U, columns);
    solve_columns<0, 0>(U, columns);
  }
  // B = the matrix of the system times U; both as in solve_columns, except that U has only the copies of unknowns from
  // `from` on, the others being zero, and B only the rows of copies from `to` on. Needs the blocks only.
  void multiply_columns(const double* U, double* B, int columns, int from = 0, int to = 0) {
    if (nx_ == 12 && ny_ == 12)
      multiply_columns<12, 12>(U, B, columns, from, to);
    else
      multiply_columns<0, 0>(U, B, columns, from, to);
  }

  // u from b of the transposed system, in place.
  void solve_transposed(double* u) {
    std::fill(state_bar_.begin(), state_bar_.end(), 0.0);
    for (int i = m_.n() - 1; i >= 0; --i) {
      const int n = unknowns(i), p = m_.links[i].parent;
      double* x = &state_bar_[i * xs_];
      for (int k = 0; k < n; ++k) u[place(i, k)] += dot(xs_, A(i, k), x);
      if (p < 0) continue;
      for (int k = 0; k < n; ++k) add_scaled(xs_, u[place(i, k)], &X_[std::size_t(first_[i] + k) * xs_], x);
      add_scaled(xs_, 1.0, x, &state_bar_[p * xs_]);
    }
    for (int i = 0; i < m_.n(); ++i) {
      const int n = unknowns(i), p = m_.links[i].parent;
      double *y = &sum_bar_[i * ys_], *d = unknown_.data();
      if (p < 0)
        std::fill_n(y, ys_, 0.0);
      else
        std::copy_n(&sum_bar_[p * ys_], ys_, y);
      for (int k = 0; k < n; ++k) d[k] = u[place(i, k)] + dot(ys_, &V_[std::size_t(first_[i] + k) * ys_], y);
      torsor::solve_transposed(n, &Lambda_[square_[i]], &pivots_[first_[i]], d);
      for (int k = 0; k < n; ++k) {
        u[place(i, k)] = d[k];
        add_scaled(ys_, -d[k], L(i, k), y);
      }
    }
  }

  // The matrix of the system, dense, `rows` apart. With P summed over subtrees: L_i (P_j A_j - C_j) for a body j beyond
  // i, (L_i P_i + E_i) A_j for one before it, L_i P_i A_i + N_i for itself.
  void assemble(double* H, int rows) {
    S_ = P_;
    for (int i = m_.n() - 1; i >= 0; --i) {
      const int n = unknowns(i), p = m_.links[i].parent;
      double* S = &S_[std::size_t(i) * ny_ * xs_];
      if (p >= 0) add_scaled(ny_ * xs_, 1.0, S, &S_[std::size_t(p) * ny_ * xs_]);
      for (int k = 0; k < n; ++k) {
        double *column = &V_[std::size_t(first_[i] + k) * ys_], *row = &X_[std::size_t(first_[i] + k) * xs_];
        std::copy_n(E(i, k), xs_, row);
        for (int y = 0; y < ny_; ++y) {
          column[y] = dot(xs_, S + y * xs_, A(i, k));
          add_scaled(xs_, L(i, k)[y], S + y * xs_, row);
        }
      }
      for (int j = 0; j < n; ++j)
        for (int k = 0; k < n; ++k)
          H[place(i, j) * rows + place(i, k)] =
              dot(ys_, L(i, j), &V_[std::size_t(first_[i] + k) * ys_]) + N(i)[n * j + k];
      for (int k = 0; k < n; ++k) add_scaled(ys_, -1.0, C(i, k), &V_[std::size_t(first_[i] + k) * ys_]);
      for (int a = p; a >= 0; a = m_.links[a].parent)
        for (int j = 0; j < unknowns(a); ++j)
          for (int k = 0; k < n; ++k) {
            H[place(a, j) * rows + place(i, k)] = dot(ys_, L(a, j), &V_[std::size_t(first_[i] + k) * ys_]);
            H[place(i, k) * rows + place(a, j)] = dot(xs_, &X_[std::size_t(first_[i] + k) * xs_], A(a, j));
          }
    }
  }

 private:
  static constexpr int vectors(int n) { return (n + kLanes - 1) / kLanes; }
  static int rounded(int n) { return (n + kLanes - 1) / kLanes * kLanes; }
  // Of unknown k of body i in a vector of all.
  int place(int i, int k) const {
    const Model::Link& link = m_.links[i];
    return copies_ == 1 ? link.iv + k : k / link.nv * m_.nv + link.iv + k % link.nv;
  }
  static TORSOR_INLINE double dot(int n, const double* a, const double* b) {  // n a multiple of the lanes
    V sum(0.0);
    for (int k = 0; k < n; k += kLanes) sum = mul_add(load<V>(a + k), load<V>(b + k), sum);
    return total(sum);
  }
  static TORSOR_INLINE double total(const V& a) {
    double sum = 0.0;
    for (int l = 0; l < kLanes; l += 2) sum += a.lane(l) + a.lane(l + 1);
    return sum;
  }

  // d <- Lambda_i^-1 d, lane by lane.
  void solve_block(int i, V* d) {
    const int n = unknowns(i);
    const double* LU = &Lambda_[square_[i]];
    for (int k = 0; k < n; ++k) std::swap(d[k], d[pivots_[first_[i] + k]]);
    for (int j = 1; j < n; ++j)
      for (int k = 0; k < j; ++k) d[j] = mul_add(V(-LU[n * j + k]), d[k], d[j]);
    for (int j = n - 1; j >= 0; --j) {
      for (int k = j + 1; k < n; ++k) d[j] = mul_add(V(-LU[n * j + k]), d[k], d[j]);
      d[j] = d[j] / V(LU[n * j + j]);
    }
  }

  // Below, NX and NY are the lengths of x and y, or 0 if known only at run time.

  // sum of row_k x_k over `count` numbers, added to `sum`; and x += row s.
  template <int N>
  static TORSOR_INLINE V dot_add(int count, const double* row, const V* x, V sum) {
    V other(0.0);
    const int n = N > 0 ? N : count;
    int k = 0;
#pragma GCC unroll 16
    for (; k + 1 < n; k += 2) {
      sum = mul_add(V(row[k]), x[k], sum);
      other = mul_add(V(row[k + 1]), x[k + 1], other);
    }
    if (k < n) sum = mul_add(V(row[k]), x[k], sum);
    return sum + other;
  }
  template <int N>
  static TORSOR_INLINE void add_row(int count, const double* row, const V& s, V* x) {
    const int n = N > 0 ? N : count;
#pragma GCC unroll 16
    for (int k = 0; k < n; ++k) x[k] = mul_add(V(row[k]), s, x[k]);
  }

  template <int NX, int NY>
  void solve_columns(double* U, int columns) {
    sums_.resize(std::size_t(m_.n()) * ny_);
    states_.resize(std::size_t(m_.n() + 1) * nx_);
    V *state = states_.data() + nx_, *sum = sums_.data(), d[kMost];
    std::fill_n(states_.data(), nx_, V(0.0));  // of the world
    for (int column = 0; column < columns; column += kLanes) {
      const auto at = [&](int i, int k) { return U + std::size_t(place(i, k)) * columns + column; };
      std::fill(sums_.begin(), sums_.end(), V(0.0));
      for (int i = m_.n() - 1; i >= 0; --i) {
        const int n = unknowns(i), p = m_.links[i].parent;
        V* c = sum + std::size_t(i) * ny_;
        for (int k = 0; k < n; ++k) d[k] = load<V>(at(i, k)) - dot_add<NY>(ny_, L(i, k), c, V(0.0));
        solve_block(i, d);
        for (int k = 0; k < n; ++k) {
          store(d[k], at(i, k));
          if (p >= 0) add_row<NY>(ny_, &V_[std::size_t(first_[i] + k) * ys_], d[k], c);
        }
        for (int y = 0; p >= 0 && y < ny_; ++y) sum[std::size_t(p) * ny_ + y] += c[y];
      }
      for (int i = 0; i < m_.n(); ++i) {
        const int n = unknowns(i), p = m_.links[i].parent;
        V *x = state + i * nx_, *before = state + p * nx_;
        for (int k = 0; k < nx_; ++k) x[k] = before[k];
        for (int k = 0; k < n; ++k) {
          V value = load<V>(at(i, k));
          if (p >= 0) value = dot_add<NX>(nx_, &X_[std::size_t(first_[i] + k) * xs_], before, value);
          store(value, at(i, k));
          add_row<NX>(nx_, A(i, k), value, x);
        }
      }
    }
  }
  template <int NX, int NY>
  void multiply_columns(const double* U, double* B, int columns, int from, int to) {
    sums_.resize(std::size_t(m_.n()) * ny_);
    states_.resize(std::size_t(m_.n() + 1) * nx_);
    V *state = states_.data() + nx_, *sum = sums_.data(), u[kMost];
    std::fill_n(states_.data(), nx_, V(0.0));  // of the world
    for (int column = 0; column < columns; column += kLanes) {
      const auto read = [&](int i) {
        const int first = from * m_.links[i].nv;
        for (int k = first; k < unknowns(i); ++k)
          u[k] = load<V>(U + std::size_t(place(i, k) - from * m_.nv) * columns + column);
        return first;
      };
      for (int i = 0; i < m_.n(); ++i) {
        V *x = state + i * nx_, *before = state + m_.links[i].parent * nx_, *y = sum + std::size_t(i) * ny_;
        for (int k = 0; k < nx_; ++k) x[k] = before[k];
        for (int k = read(i); k < unknowns(i); ++k) add_row<NX>(nx_, A(i, k), u[k], x);
        for (int r = 0; r < ny_; ++r) {
          const auto [begin, end] = ranges_[r];
          const double* row = P(i, r) + begin;
          y[r] = end - begin == 6   ? dot_add<6>(6, row, x + begin, V(0.0))
                 : end - begin == 3 ? dot_add<3>(3, row, x + begin, V(0.0))
                                    : dot_add<0>(end - begin, row, x + begin, V(0.0));
        }
      }
      for (int i = m_.n() - 1; i >= 0; --i) {
        const int n = unknowns(i), p = m_.links[i].parent, first = read(i);
        V* y = sum + std::size_t(i) * ny_;
        for (int j = to * m_.links[i].nv; j < n; ++j) {
          V total = dot_add<NY>(ny_, L(i, j), y, V(0.0));
          if (p >= 0) total = dot_add<NX>(nx_, E(i, j), state + p * nx_, total);
          total = dot_add<0>(n - first, N(i) + n * j + first, u + first, total);
          store(total, B + std::size_t(place(i, j) - to * m_.nv) * columns + column);
        }
        if (p < 0) continue;
        for (int k = first; k < n; ++k) add_row<NY>(ny_, C(i, k), -u[k], y);
        for (int r = 0; r < ny_; ++r) sum[std::size_t(p) * ny_ + r] += y[r];
      }
    }
  }

  bool eliminate() {
    if (nx_ == 12 && ny_ == 6) return eliminate<12, 6>();
    if (nx_ == 18 && ny_ == 6) return eliminate<18, 6>();
    if (nx_ == 12 && ny_ == 12) return eliminate<12, 12>();
    return eliminate<0, 0>();
  }
  // Columns of U = P A and rows of X = L P + E of unknown k of body i, P being S here.
  template <int NX, int NY>
  TORSOR_INLINE void project(int i, int k, const double* S, double* u, double* x) {
    const double *a = A(i, k), *l = L(i, k), *e = E(i, k);
    if constexpr (NX > 0) {
      constexpr int count = vectors(NX), width = count * kLanes;
      V left[count], right[count];
#pragma GCC unroll 8
      for (int c = 0; c < count; ++c) {
        left[c] = load<V>(e + c * kLanes);
        right[c] = load<V>(a + c * kLanes);
      }
      for (int y = 0; y < NY; ++y) {
        const V factor(l[y]);
        V sum(0.0);
#pragma GCC unroll 8
        for (int c = 0; c < count; ++c) {
          const V part = load<V>(S + y * width + c * kLanes);
          sum = mul_add(part, right[c], sum);
          left[c] = mul_add(factor, part, left[c]);
        }
        u[y] = total(sum);
      }
#pragma GCC unroll 8
      for (int c = 0; c < count; ++c) store(left[c], x + c * kLanes);
    } else {
      std::copy_n(e, xs_, x);
      for (int y = 0; y < ny_; ++y) {
        u[y] = dot(xs_, S + y * xs_, a);
        add_scaled(xs_, l[y], S + y * xs_, x);
      }
    }
  }
  // Lambda = L U + N of body i, factored; false if a pivot is small beside the terms of Lambda.
  template <int NY>
  TORSOR_INLINE bool factor_block(int i, const double* U) {
    const int n = unknowns(i), ny = NY > 0 ? NY : ny_;
    double *Lambda = &Lambda_[square_[i]], scale = 0.0;
    for (int j = 0; j < n; ++j)
      for (int k = 0; k < n; ++k) {
        const double *l = L(i, j), *u = U + k * ys_;
        double value = N(i)[n * j + k], size = std::fabs(value);
        for (int y = 0; y < ny; ++y) {
          value = mul_add(l[y], u[y], value);
          size += std::fabs(l[y] * u[y]);
        }
        Lambda[n * j + k] = value;
        scale = std::max(scale, size);
      }
    if (!torsor::factor(n, Lambda, &pivots_[first_[i]])) return false;
    for (int k = 0; k < n; ++k)
      if (!(std::fabs(Lambda[n * k + k]) > kSmall * scale)) return false;
    return true;
  }
  template <int NX, int NY>
  bool eliminate() {
    const int xs = NX > 0 ? vectors(NX) * kLanes : xs_, ny = NY > 0 ? NY : ny_;
    for (int i = m_.n() - 1; i >= 0; --i) {
      const int n = unknowns(i), p = m_.links[i].parent;
      double* S = &S_[std::size_t(i) * ny * xs];
      double *U = &V_[std::size_t(first_[i]) * ys_], *X = &X_[std::size_t(first_[i]) * xs];
      for (int k = 0; k < n; ++k) project<NX, NY>(i, k, S, U + k * ys_, X + k * xs);
      if constexpr (NX > 0)
        if (n == 1) {
          if (!eliminate_one<NX, NY>(i, p, S, U, X)) return false;
          continue;
        }
      if (!factor_block<NY>(i, U)) return false;
      if (p < 0) continue;
      // X = -Lambda^-1 (L P + E), V = U - C, and what the parent sees of this subtree: P + V X
      torsor::solve(n, &Lambda_[square_[i]], &pivots_[first_[i]], X, xs);
      double* parent = &S_[std::size_t(p) * ny * xs];
      for (int k = 0; k < n * xs; ++k) X[k] = -X[k];
      for (int k = 0; k < n; ++k) add_scaled(ys_, -1.0, C(i, k), U + k * ys_);
      for (int y = 0; y < ny; ++y) {
        add_scaled(xs, 1.0, S + y * xs, parent + y * xs);
        for (int k = 0; k < n; ++k) add_scaled(xs, U[k * ys_ + y], X + k * xs, parent + y * xs);
      }
    }
    return true;
  }

  // The same, after project, for a body with one unknown.
  template <int NX, int NY>
  TORSOR_INLINE bool eliminate_one(int i, int p, const double* S, double* U, double* X) {
    constexpr int count = vectors(NX);
    const double *l = L(i, 0), *c = C(i, 0);
    double value = N(i)[0], scale = std::fabs(value);
    for (int y = 0; y < NY; ++y) {
      value = mul_add(l[y], U[y], value);
      scale += std::fabs(l[y] * U[y]);
    }
    Lambda_[square_[i]] = value;
    pivots_[first_[i]] = 0;
    if (!(std::fabs(value) > kSmall * scale)) return false;
    inverse_[i] = 1.0 / value;
    if (p < 0) return true;
    const V factor(-inverse_[i]);
    V x[count];
#pragma GCC unroll 8
    for (int k = 0; k < count; ++k) {
      x[k] = factor * load<V>(X + k * kLanes);
      store(x[k], X + k * kLanes);
    }
    double* parent = &S_[std::size_t(p) * NY * xs_];
    for (int y = 0; y < NY; ++y) {
      U[y] -= c[y];
      const V u(U[y]);
#pragma GCC unroll 8
      for (int k = 0; k < count; ++k) {
        double* to = parent + y * xs_ + k * kLanes;
        store(mul_add(u, x[k], load<V>(to) + load<V>(S + y * xs_ + k * kLanes)), to);
      }
    }
    return true;
  }

  // The two sweeps of solve for a body with one unknown.
  template <int NY>
  TORSOR_INLINE void fold_one(int i, int p, const double* c, double& u) {
    constexpr int count = vectors(NY);
    V sum[count], product(0.0);
#pragma GCC unroll 8
    for (int k = 0; k < count; ++k) {
      sum[k] = load<V>(c + k * kLanes);
      product = mul_add(load<V>(L(i, 0) + k * kLanes), sum[k], product);
    }
    u = (u - total(product)) * inverse_[i];
    if (p < 0) return;
    const V factor(u);
    double* parent = &sum_[p * ys_];
    const double* v = &V_[std::size_t(first_[i]) * ys_];
#pragma GCC unroll 8
    for (int k = 0; k < count; ++k)
      store(load<V>(parent + k * kLanes) + mul_add(factor, load<V>(v + k * kLanes), sum[k]), parent + k * kLanes);
  }
  template <int NX>
  TORSOR_INLINE void unfold_one(int i, int p, double* x, double& u) {
    constexpr int count = vectors(NX);
    const double *parent = &state_[p * xs_], *row = &X_[std::size_t(first_[i]) * xs_];
    V state[count], product(0.0);
#pragma GCC unroll 8
    for (int k = 0; k < count; ++k) {
      state[k] = load<V>(parent + k * kLanes);
      product = mul_add(load<V>(row + k * kLanes), state[k], product);
    }
    u += total(product);
    const V factor(u);
#pragma GCC unroll 8
    for (int k = 0; k < count; ++k) store(mul_add(factor, load<V>(A(i, 0) + k * kLanes), state[k]), x + k * kLanes);
  }

  static constexpr double kSmall = 1e-10;  // of Lambda relative to its terms: 6 digits must remain
  static constexpr int kMost = 6 * 17;     // unknowns of a joint
  const Model& m_;
  int nx_, ny_, copies_, xs_, ys_;  // xs_, ys_: rounded up to whole vectors
  int most_ = 0;
  std::vector<std::pair<int, int>> ranges_;  // of P
  std::vector<V> sums_, states_;             // of several columns
  std::vector<int> first_, square_, pivots_;
  AlignedVector A_, E_, X_, C_, L_, V_, N_, Lambda_, P_, S_;
  AlignedVector state_, state_bar_, sum_, sum_bar_, unknown_;
  AlignedVector inverse_;  // of Lambda, for bodies with one unknown
};

}  // namespace torsor
