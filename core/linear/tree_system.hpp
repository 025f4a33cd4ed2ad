// A linear system over a tree, solved from the tips to the root and back in a time that is linear in the number of
// bodies. Fan 2018, Algs. B.1 and B.2, corrected and for joints with any number of unknowns;
// docs/derivations/tree_systems.md.
//
// Body i has unknowns u_i, a state x_i and a sum y_i over its subtree:
//   x_i = x_p + A_i u_i,   y_i = P_i x_i + sum over children c of (y_c - C_c u_c),   L_i y_i + E_i x_p + N_i u_i = b_i,
// p being its parent, and x_p = 0 at a root. Eliminating the unknowns of the children keeps this form, with a different
// P_i. For a single state, vectors run over entries of rows or over right-hand sides. For several lanes, each with a
// system of its own, they are the lanes, and sums run in the same order.
#pragma once
#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include "base/arena.hpp"
#include "linear/lu.hpp"
#include "model/model.hpp"
#include "scalar/pack.hpp"

namespace torsor {

template <class S>
class TreeSystem {
  using V = Wide<S>;
  static constexpr int width = sizeof(V) / sizeof(S);

 public:
  // `states` and `sums`: length of x_i and y_i. Body i has `copies` unknowns for each of its velocities, those of copy
  // c beginning at c nv in all vectors of unknowns. Allocated in `memory`, which must live as long. All blocks are zero
  // at first.
  TreeSystem(const Model& m, Arena& memory, int states, int sums, int copies)
      : m_(m), memory_(memory), nx_(states), ny_(sums), copies_(copies), xs_(rounded(states)), ys_(rounded(sums)) {
    int most = 0;
    for (const Model::Link& link : m.links) {
      const int count = copies * link.nv;
      first_.push_back(unknowns_);
      square_.push_back(squares_);
      unknowns_ += count;
      squares_ += count * count;
      most = std::max(most, count);
    }
    if (most > kMost) throw std::invalid_argument("torsor: a joint has too many unknowns");
    const auto allocate = [&](std::size_t size) {
      S* data = memory.get<S>(size);
      std::fill_n(data, size, S(0.0));
      return data;
    };
    const std::size_t n = m.n(), matrix = std::size_t(ny_) * xs_;
    for (S** rows : {&A_, &E_, &X_}) *rows = allocate(std::size_t(unknowns_) * xs_);
    for (S** rows : {&C_, &L_, &V_}) *rows = allocate(std::size_t(unknowns_) * ys_);
    for (S** blocks : {&N_, &Lambda_}) *blocks = allocate(squares_);
    P_ = allocate(n * matrix);
    for (S** vector : {&state_, &state_bar_}) *vector = memory.get<S>(n * xs_);
    for (S** vector : {&sum_, &sum_bar_}) *vector = memory.get<S>(n * ys_);
    unknown_ = memory.get<S>(most);
    inverse_ = allocate(n);
    pivots_.resize(unknowns_);
    ranges_.assign(ny_, {0, nx_});
    share_places();
    for (int k = 0; k < places_; ++k) Q_.push_back(memory.get<S>(matrix));
  }

  // The blocks of body i, to be filled. Unknown k of it has column k of A_i and C_i and row k of L_i and E_i.
  int unknowns(int i) const { return copies_ * m_.links[i].nv; }
  int sums() const { return ny_; }
  S* A(int i, int k) { return &A_[std::size_t(first_[i] + k) * xs_]; }
  S* E(int i, int k) { return &E_[std::size_t(first_[i] + k) * xs_]; }
  S* C(int i, int k) { return &C_[std::size_t(first_[i] + k) * ys_]; }
  S* L(int i, int k) { return &L_[std::size_t(first_[i] + k) * ys_]; }
  S* N(int i) { return N_ + square_[i]; }
  S* P(int i, int row) { return &P_[(std::size_t(i) * ny_ + row) * xs_]; }
  // Declares that row y of all P is zero except from `begin` to `end`.
  void set_range(int y, int begin, int end) { ranges_[y] = {begin, end}; }

  // Eliminates all unknowns. False in lanes where an unknown cannot be found from its own rows: the system may still
  // have a solution.
  Mask<S> factor() {
    if (nx_ == 12 && ny_ == 6) return eliminate<12, 6>();
    if (nx_ == 18 && ny_ == 6) return eliminate<18, 6>();
    if (nx_ == 12 && ny_ == 12) return eliminate<12, 12>();
    return eliminate<0, 0>();
  }

  // Keeps the factors, so that those of some lanes can be restored after new ones were made.
  void save() {
    const auto all = factors();
    if (saved_.empty())
      for (const auto& [data, size] : all) saved_.push_back(memory_.get<S>(size));
    for (std::size_t k = 0; k < all.size(); ++k) std::copy_n(all[k].first, all[k].second, saved_[k]);
    saved_pivots_ = pivots_;
  }
  void restore(const Mask<S>& lanes) {
    const auto all = factors();
    for (std::size_t k = 0; k < all.size(); ++k) torsor::restore(lanes, all[k].second, saved_[k], all[k].first);
    torsor::restore(lanes, saved_pivots_, pivots_);
  }

  // u (all unknowns) from b, in place.
  void solve(S* u) {
    if (nx_ == 12 && ny_ == 6) return solve<12, 6>(u);
    if (nx_ == 18 && ny_ == 6) return solve<18, 6>(u);
    if (nx_ == 12 && ny_ == 12) return solve<12, 12>(u);
    solve<0, 0>(u);
  }
  template <int NX, int NY>
  void solve(S* u) {
    std::fill_n(sum_, std::size_t(m_.n()) * ys_, S(0.0));
    // y_i = P_i x_i + c_i; u_i = X_i x_p + d_i
    for (int i = m_.n() - 1; i >= 0; --i) {
      const int n = unknowns(i), p = m_.links[i].parent;
      S *c = &sum_[i * ys_], *d = unknown_;
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
      add_scaled(ys_, S(1.0), c, &sum_[p * ys_]);
    }
    for (int i = 0; i < m_.n(); ++i) {
      const int n = unknowns(i), p = m_.links[i].parent;
      S* x = &state_[i * xs_];
      if constexpr (NX > 0)
        if (n == 1 && p >= 0) {
          unfold_one<NX>(i, p, x, u[place(i, 0)]);
          continue;
        }
      if (p < 0)
        std::fill_n(x, xs_, S(0.0));
      else
        std::copy_n(&state_[p * xs_], xs_, x);
      if (p >= 0)
        for (int k = 0; k < n; ++k) u[place(i, k)] += dot(xs_, &X_[std::size_t(first_[i] + k) * xs_], &state_[p * xs_]);
      for (int k = 0; k < n; ++k) add_scaled(xs_, u[place(i, k)], A(i, k), x);
    }
  }

  // The same for several right-hand sides, side by side in the rows of U, `columns` apart: a multiple of the vectors'
  // width, as `padded` gives.
  void solve_columns(S* U, int columns) {
    if (nx_ == 12 && ny_ == 6) return solve_columns<12, 6>(U, columns);
    if (nx_ == 18 && ny_ == 6) return solve_columns<18, 6>(U, columns);
    if (nx_ == 12 && ny_ == 12) return solve_columns<12, 12>(U, columns);
    solve_columns<0, 0>(U, columns);
  }
  // B = the matrix of the system times U; both as in solve_columns, except that U has only the copies of unknowns from
  // `from` on, the others being zero, and B only the rows of copies from `to` on. Needs the blocks only.
  void multiply_columns(const S* U, S* B, int columns, int from = 0, int to = 0) {
    if (nx_ == 12 && ny_ == 12)
      multiply_columns<12, 12>(U, B, columns, from, to);
    else
      multiply_columns<0, 0>(U, B, columns, from, to);
  }

  // u from b of the transposed system, in place.
  void solve_transposed(S* u) {
    std::fill_n(state_bar_, std::size_t(m_.n()) * xs_, S(0.0));
    for (int i = m_.n() - 1; i >= 0; --i) {
      const int n = unknowns(i), p = m_.links[i].parent;
      S* x = &state_bar_[i * xs_];
      for (int k = 0; k < n; ++k) u[place(i, k)] += dot(xs_, A(i, k), x);
      if (p < 0) continue;
      for (int k = 0; k < n; ++k) add_scaled(xs_, u[place(i, k)], &X_[std::size_t(first_[i] + k) * xs_], x);
      add_scaled(xs_, S(1.0), x, &state_bar_[p * xs_]);
    }
    for (int i = 0; i < m_.n(); ++i) {
      const int n = unknowns(i), p = m_.links[i].parent;
      S *y = &sum_bar_[i * ys_], *d = unknown_;
      if (p < 0)
        std::fill_n(y, ys_, S(0.0));
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
  void assemble(S* H, int rows) {
    for (int i = m_.n() - 1; i >= 0; --i) {
      const int n = unknowns(i), p = m_.links[i].parent;
      const auto [Q, before, parent] = subtree(i);
      for (int k = 0; p >= 0 && k < ny_ * xs_; ++k) parent[k] = mul_add(S(1.0), Q[k], before[k]);
      for (int k = 0; k < n; ++k) {
        S *column = &V_[std::size_t(first_[i] + k) * ys_], *row = &X_[std::size_t(first_[i] + k) * xs_];
        std::copy_n(E(i, k), xs_, row);
        for (int y = 0; y < ny_; ++y) {
          column[y] = dot(xs_, Q + y * xs_, A(i, k));
          add_scaled(xs_, L(i, k)[y], Q + y * xs_, row);
        }
      }
      for (int j = 0; j < n; ++j)
        for (int k = 0; k < n; ++k)
          H[place(i, j) * rows + place(i, k)] =
              dot(ys_, L(i, j), &V_[std::size_t(first_[i] + k) * ys_]) + N(i)[n * j + k];
      for (int k = 0; k < n; ++k) add_scaled(ys_, S(-1.0), C(i, k), &V_[std::size_t(first_[i] + k) * ys_]);
      for (int a = p; a >= 0; a = m_.links[a].parent)
        for (int j = 0; j < unknowns(a); ++j)
          for (int k = 0; k < n; ++k) {
            H[place(a, j) * rows + place(i, k)] = dot(ys_, L(a, j), &V_[std::size_t(first_[i] + k) * ys_]);
            H[place(i, k) * rows + place(a, j)] = dot(xs_, &X_[std::size_t(first_[i] + k) * xs_], A(a, j));
          }
    }
  }

 private:
  static constexpr int vectors(int n) { return (n + width - 1) / width; }
  static constexpr int rounded(int n) { return vectors(n) * width; }
  // Of unknown k of body i in a vector of all.
  int place(int i, int k) const {
    const Model::Link& link = m_.links[i];
    return copies_ == 1 ? link.iv + k : k / link.nv * m_.nv + link.iv + k % link.nv;
  }
  // What `solve` reads, and how many numbers.
  std::array<std::pair<S*, std::size_t>, 6> factors() const {
    const std::size_t rows = unknowns_;
    return {{{A_, rows * xs_},
             {L_, rows * ys_},
             {V_, rows * ys_},
             {X_, rows * xs_},
             {Lambda_, squares_},
             {inverse_, m_.n()}}};
  }

  // P with the children eliminated is needed from the first of them on until the body itself is eliminated. Bodies
  // share the places for it.
  void share_places() {
    last_child_.assign(m_.n(), -1);
    place_.assign(m_.n(), -1);
    for (int i = 0; i < m_.n(); ++i)
      if (m_.links[i].parent >= 0) last_child_[m_.links[i].parent] = i;
    std::vector<int> unused;
    for (int i = m_.n() - 1; i >= 0; --i) {
      const int p = m_.links[i].parent;
      if (p >= 0 && place_[p] < 0) {
        if (unused.empty()) unused.push_back(places_++);
        place_[p] = unused.back();
        unused.pop_back();
      }
      if (place_[i] >= 0) unused.push_back(place_[i]);
    }
  }
  // P of body i with its children eliminated: P itself at a tip. The same of its parent before and after it, if it has
  // one.
  struct Subtree {
    const S *own, *before;
    S* parent;
  };
  Subtree subtree(int i) {
    const int p = m_.links[i].parent;
    Subtree s{last_child_[i] < 0 ? P(i, 0) : Q_[place_[i]], nullptr, nullptr};
    if (p < 0) return s;
    s.parent = Q_[place_[p]];
    s.before = last_child_[p] == i ? P(p, 0) : s.parent;
    return s;
  }

  // A sum over the entries of rows, in one order for every S: entry k goes to partial sum k mod kLanes, and pairs of
  // these are added.
  struct RowSum {
    static constexpr int count = kLanes / width;
    V part[count];
    TORSOR_INLINE RowSum() {
#pragma GCC unroll 8
      for (int c = 0; c < count; ++c) part[c] = V(0.0);
    }
    TORSOR_INLINE void add(int c, const V& a, const V& b) { part[c % count] = mul_add(a, b, part[c % count]); }
    TORSOR_INLINE S total() const {
      S sum(0.0);
#pragma GCC unroll 8
      for (int l = 0; l < kLanes; l += 2) {
        if constexpr (width > 1)
          sum += part[0].lane(l) + part[0].lane(l + 1);
        else
          sum += part[l] + part[l + 1];
      }
      return sum;
    }
  };
  static TORSOR_INLINE S dot(int n, const S* a, const S* b) {  // n a multiple of the width
    RowSum sum;
    int k = 0;
    for (; k + kLanes <= n; k += kLanes)
#pragma GCC unroll 8
      for (int c = 0; c < RowSum::count; ++c) sum.add(c, load<V>(a + k + c * width), load<V>(b + k + c * width));
    if constexpr (width == 1)
#pragma GCC unroll 8
      for (int c = 0; c < kLanes; ++c)
        if (k + c < n) sum.add(c, a[k + c], b[k + c]);
    return sum.total();
  }

  // d <- Lambda_i^-1 d
  void solve_block(int i, V* d) {
    const int n = unknowns(i);
    const S* LU = &Lambda_[square_[i]];
    for (int k = 0; k < n; ++k) swap_rows(pivots_[first_[i] + k], k, d);
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
  static TORSOR_INLINE V dot_add(int count, const S* row, const V* x, V sum) {
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
  static TORSOR_INLINE void add_row(int count, const S* row, const V& s, V* x) {
    const int n = N > 0 ? N : count;
#pragma GCC unroll 16
    for (int k = 0; k < n; ++k) x[k] = mul_add(V(row[k]), s, x[k]);
  }

  template <int NX, int NY>
  void solve_columns(S* U, int columns) {
    sums_.resize(std::size_t(m_.n()) * ny_);
    states_.resize(std::size_t(m_.n() + 1) * nx_);
    V *state = states_.data() + nx_, *sum = sums_.data(), d[kMost];
    std::fill_n(states_.data(), nx_, V(0.0));  // of the world
    for (int column = 0; column < columns; column += width) {
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
  void multiply_columns(const S* U, S* B, int columns, int from, int to) {
    sums_.resize(std::size_t(m_.n()) * ny_);
    states_.resize(std::size_t(m_.n() + 1) * nx_);
    V *state = states_.data() + nx_, *sum = sums_.data(), u[kMost];
    std::fill_n(states_.data(), nx_, V(0.0));  // of the world
    for (int column = 0; column < columns; column += width) {
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
          const S* row = P(i, r) + begin;
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

  // Columns of U = P A and rows of X = L P + E of unknown k of body i, P being Q here.
  template <int NX, int NY>
  TORSOR_INLINE void project(int i, int k, const S* Q, S* u, S* x) {
    const S *a = A(i, k), *l = L(i, k), *e = E(i, k);
    if constexpr (NX > 0) {
      constexpr int count = vectors(NX), row = count * width;
      V left[count], right[count];
#pragma GCC unroll 18
      for (int c = 0; c < count; ++c) {
        left[c] = load<V>(e + c * width);
        right[c] = load<V>(a + c * width);
      }
      for (int y = 0; y < NY; ++y) {
        const V factor(l[y]);
        RowSum sum;
#pragma GCC unroll 18
        for (int c = 0; c < count; ++c) {
          const V part = load<V>(Q + y * row + c * width);
          sum.add(c, part, right[c]);
          left[c] = mul_add(factor, part, left[c]);
        }
        u[y] = sum.total();
      }
#pragma GCC unroll 18
      for (int c = 0; c < count; ++c) store(left[c], x + c * width);
    } else {
      std::copy_n(e, xs_, x);
      for (int y = 0; y < ny_; ++y) {
        u[y] = dot(xs_, Q + y * xs_, a);
        add_scaled(xs_, l[y], Q + y * xs_, x);
      }
    }
  }
  // Lambda = L U + N of body i, factored; false if a pivot is small beside the terms of Lambda.
  template <int NY>
  TORSOR_INLINE Mask<S> factor_block(int i, const S* U) {
    const int n = unknowns(i), ny = NY > 0 ? NY : ny_;
    S *Lambda = &Lambda_[square_[i]], scale(0.0);
    for (int j = 0; j < n; ++j)
      for (int k = 0; k < n; ++k) {
        const S *l = L(i, j), *u = U + k * ys_;
        S value = N(i)[n * j + k], size = absolute(value);
        for (int y = 0; y < ny; ++y) {
          value = mul_add(l[y], u[y], value);
          size += absolute(l[y] * u[y]);
        }
        Lambda[n * j + k] = value;
        scale = larger(scale, size);
      }
    Mask<S> good = torsor::factor(n, Lambda, &pivots_[first_[i]]);
    for (int k = 0; k < n; ++k) good = good & less(S(kSmall) * scale, absolute(Lambda[n * k + k]));
    return good;
  }
  template <int NX, int NY>
  Mask<S> eliminate() {
    const int xs = NX > 0 ? rounded(NX) : xs_, ny = NY > 0 ? NY : ny_;
    Mask<S> good = every_lane<S>();
    for (int i = m_.n() - 1; i >= 0; --i) {
      const int n = unknowns(i), p = m_.links[i].parent;
      const auto [Q, before, parent] = subtree(i);
      S *U = &V_[std::size_t(first_[i]) * ys_], *X = &X_[std::size_t(first_[i]) * xs];
      for (int k = 0; k < n; ++k) project<NX, NY>(i, k, Q, U + k * ys_, X + k * xs);
      if constexpr (NX > 0)
        if (n == 1) {
          good = good & eliminate_one<NX, NY>(i, Q, before, parent, U, X);
          if (!any(good)) return good;
          continue;
        }
      good = good & factor_block<NY>(i, U);
      if (!any(good)) return good;
      if (p < 0) continue;
      // X = -Lambda^-1 (L P + E), V = U - C, and what the parent sees of this subtree: P + V X
      torsor::solve(n, &Lambda_[square_[i]], &pivots_[first_[i]], X, xs);
      for (int k = 0; k < n * xs; ++k) X[k] = -X[k];
      for (int k = 0; k < n; ++k) add_scaled(ys_, S(-1.0), C(i, k), U + k * ys_);
      for (int y = 0; y < ny; ++y) {
        S* to = parent + y * xs;
        for (int k = 0; k < xs; ++k) to[k] = mul_add(S(1.0), Q[y * xs + k], before[y * xs + k]);
        for (int k = 0; k < n; ++k) add_scaled(xs, U[k * ys_ + y], X + k * xs, to);
      }
    }
    return good;
  }

  // The same, after project, for a body with one unknown.
  template <int NX, int NY>
  TORSOR_INLINE Mask<S> eliminate_one(int i, const S* Q, const S* before, S* parent, S* U, S* X) {
    constexpr int count = vectors(NX), xs = rounded(NX);
    const S *l = L(i, 0), *c = C(i, 0);
    S value = N(i)[0], scale = absolute(value);
    for (int y = 0; y < NY; ++y) {
      value = mul_add(l[y], U[y], value);
      scale += absolute(l[y] * U[y]);
    }
    Lambda_[square_[i]] = value;
    pivots_[first_[i]] = {};
    const Mask<S> good = less(S(kSmall) * scale, absolute(value));
    inverse_[i] = S(1.0) / value;
    if (parent == nullptr || !any(good)) return good;
    const V factor(-inverse_[i]);
    V x[count];
#pragma GCC unroll 18
    for (int k = 0; k < count; ++k) {
      x[k] = factor * load<V>(X + k * width);
      store(x[k], X + k * width);
    }
    for (int y = 0; y < NY; ++y) {
      U[y] -= c[y];
      const V u(U[y]);
#pragma GCC unroll 18
      for (int k = 0; k < count; ++k) {
        const int at = y * xs + k * width;
        store(mul_add(u, x[k], load<V>(before + at) + load<V>(Q + at)), parent + at);
      }
    }
    return good;
  }

  // The two sweeps of solve for a body with one unknown.
  template <int NY>
  TORSOR_INLINE void fold_one(int i, int p, const S* c, S& u) {
    constexpr int count = vectors(NY);
    V sum[count];
    RowSum product;
#pragma GCC unroll 18
    for (int k = 0; k < count; ++k) {
      sum[k] = load<V>(c + k * width);
      product.add(k, load<V>(L(i, 0) + k * width), sum[k]);
    }
    u = (u - product.total()) * inverse_[i];
    if (p < 0) return;
    const V factor(u);
    S* parent = &sum_[p * ys_];
    const S* v = &V_[std::size_t(first_[i]) * ys_];
#pragma GCC unroll 18
    for (int k = 0; k < count; ++k)
      store(load<V>(parent + k * width) + mul_add(factor, load<V>(v + k * width), sum[k]), parent + k * width);
  }
  template <int NX>
  TORSOR_INLINE void unfold_one(int i, int p, S* x, S& u) {
    constexpr int count = vectors(NX);
    const S *parent = &state_[p * xs_], *row = &X_[std::size_t(first_[i]) * xs_];
    V state[count];
    RowSum product;
#pragma GCC unroll 18
    for (int k = 0; k < count; ++k) {
      state[k] = load<V>(parent + k * width);
      product.add(k, load<V>(row + k * width), state[k]);
    }
    u += product.total();
    const V factor(u);
#pragma GCC unroll 18
    for (int k = 0; k < count; ++k) store(mul_add(factor, load<V>(A(i, 0) + k * width), state[k]), x + k * width);
  }

  static constexpr double kSmall = 1e-10;  // of Lambda relative to its terms: 6 digits must remain
  static constexpr int kMost = 6 * 17;     // unknowns of a joint
  const Model& m_;
  Arena& memory_;
  int nx_, ny_, copies_, xs_, ys_;               // xs_, ys_: rounded up to whole vectors
  int unknowns_ = 0, squares_ = 0, places_ = 0;  // of all bodies
  std::vector<std::pair<int, int>> ranges_;      // of P
  AlignedVector<V> sums_, states_;               // of several columns
  std::vector<int> first_, square_, last_child_, place_;
  std::vector<Pivot<S>> pivots_, saved_pivots_;
  S *A_, *E_, *X_, *C_, *L_, *V_, *N_, *Lambda_, *P_;
  S *state_, *state_bar_, *sum_, *sum_bar_, *unknown_;
  S* inverse_;  // of Lambda, for bodies with one unknown
  std::vector<S*> Q_, saved_;
};

}  // namespace torsor
