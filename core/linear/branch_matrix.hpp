// Matrices over the velocities of a tree whose entries between branches are zero. Elimination from the tips to the root
// keeps these zeros (Featherstone 2005, for symmetric ones), in O(n d^2) for depth d. There is no pivoting: matrices
// that would need it are detected and reported.
#pragma once
#include <algorithm>

#include "base/arena.hpp"
#include "model/model.hpp"
#include "scalar/pack.hpp"

namespace torsor {

template <class S>
class BranchMatrix {
  using V = Wide<S>;
  static constexpr int width = sizeof(V) / sizeof(S);

 public:
  // Allocated in `memory`, which must live as long.
  BranchMatrix(const Model& m, Arena& memory)
      : m_(m),
        memory_(memory),
        up_(memory.get<int>(m.nv)),
        depth_(memory.get<int>(m.nv)),
        first_(memory.get<std::size_t>(m.nv)),
        most_(memory.get<S>(m.nv)) {
    for (const Model::Link& link : m.links)
      for (int k = 0; k < link.nv; ++k) {
        const int r = link.iv + k;
        up_[r] = k > 0 ? r - 1 : link.parent < 0 ? -1 : m.links[link.parent].iv + m.links[link.parent].nv - 1;
        depth_[r] = link.above + k;
        first_[r] = size_;
        size_ += rounded(link.above + link.nv);
      }
    rows_ = memory.get<S>(size_);
    columns_ = memory.get<S>(size_);
    std::fill_n(rows_, size_, S(0.0));
    std::fill_n(columns_, size_, S(0.0));
  }
  // Entry t of row r, and of column r, belongs to velocity t on the path from the root to r, which is the last. Rows
  // are padded to all velocities of r's joint and to whole vectors; the padding is not read.
  S* row(int r) { return rows_ + first_[r]; }
  S* column(int r) { return columns_ + first_[r]; }
  int depth(int r) const { return depth_[r]; }  // velocities before r

  // Calls f(r, t, a) for all r and for the t-th velocity a of the path to r.
  template <class F>
  void for_each_entry(F&& f) const {
    for (int r = 0; r < m_.nv; ++r)
      for (int a = r, t = depth_[r]; t >= 0; --t, a = up_[a]) f(r, t, a);
  }
  // From a dense matrix.
  void read(const S* A) {
    const int n = m_.nv;
    for_each_entry([&](int r, int t, int a) {
      row(r)[t] = A[r * n + a];
      column(r)[t] = A[a * n + r];
    });
  }

  // Factors it in place. False in lanes where a pivot is zero, or so small that digits are lost: compared with its
  // value before elimination, whose errors grow by as much as other pivots have shrunk.
  Mask<S> factor() {
    Mask<S> good = every_lane<S>();
    S least(1.0);
    for (int r = 0; r < m_.nv; ++r) most_[r] = S(1e3) * absolute(row(r)[depth_[r]]);
    for_each_velocity_from_tips([&](int r) {
      const int d = depth_[r];
      S *R = row(r), *C = column(r);
      const S inverse = S(1.0) / R[d];
      R[d] = inverse;
      const S share = S(1e3) / (absolute(inverse) * most_[r]);
      good = good & is_finite(inverse) & less(S(1e-12), share * least);
      least = smaller(least, share);
      for (int t = d - 1, a = up_[r]; t >= 0; --t, a = up_[a]) {
        C[t] *= inverse;
        good = good & less_equal(absolute(C[t] * R[t]), most_[a]);
      }
      for (int t = d - 1, a = up_[r]; t >= 0; --t, a = up_[a]) {
        subtract(t + 1, C[t], R, row(a));
        subtract(t, R[t], C, column(a));
      }
    });
    return good;
  }

  // Keeps the factors, so that those of some lanes can be restored after new ones were made.
  void save() {
    if (saved_ == nullptr) saved_ = memory_.get<S>(2 * size_);
    std::copy_n(rows_, size_, saved_);
    std::copy_n(columns_, size_, saved_ + size_);
  }
  void restore(const Mask<S>& lanes) {
    for (std::size_t k = 0; k < size_; ++k) {
      rows_[k] = select(lanes, saved_[k], rows_[k]);
      columns_[k] = select(lanes, saved_[size_ + k], columns_[k]);
    }
  }

  // x <- A^-1 x
  void solve(S* x) const {
    for_each_velocity_from_tips([&](int r) {
      const S* C = columns_ + first_[r];
      for (int t = depth_[r] - 1, a = up_[r]; t >= 0; --t, a = up_[a]) x[a] = mul_add(-C[t], x[r], x[a]);
    });
    for_each_velocity_from_root([&](int r) {
      const S* R = rows_ + first_[r];
      S sum = x[r];
      for (int t = depth_[r] - 1, a = up_[r]; t >= 0; --t, a = up_[a]) sum = mul_add(-R[t], x[a], sum);
      x[r] = sum * R[depth_[r]];
    });
  }
  // x <- A^-T x
  void solve_transposed(S* x) const {
    for_each_velocity_from_tips([&](int r) {
      const S* R = rows_ + first_[r];
      x[r] *= R[depth_[r]];
      for (int t = depth_[r] - 1, a = up_[r]; t >= 0; --t, a = up_[a]) x[a] = mul_add(-R[t], x[r], x[a]);
    });
    for_each_velocity_from_root([&](int r) {
      const S* C = columns_ + first_[r];
      for (int t = depth_[r] - 1, a = up_[r]; t >= 0; --t, a = up_[a]) x[r] = mul_add(-C[t], x[a], x[r]);
    });
  }
  // X <- A^-1 X, rows `stride` apart, a multiple of the vector width; the padding is solved too.
  void solve_columns(S* X, int stride) const {
    int j = 0;
    for (; j + 4 * width <= stride; j += 4 * width) solve_some<4>(X + j, stride);
    for (; j < stride; j += width) solve_some<1>(X + j, stride);
  }

  static int rounded(int n) { return (n + width - 1) / width * width; }

 private:
  template <class F>
  TORSOR_INLINE void for_each_velocity_from_tips(F&& f) const {
    for (int i = m_.n() - 1; i >= 0; --i)
      for (int r = m_.links[i].iv + m_.links[i].nv - 1; r >= m_.links[i].iv; --r) f(r);
  }
  template <class F>
  TORSOR_INLINE void for_each_velocity_from_root(F&& f) const {
    for (int i = 0; i < m_.n(); ++i)
      for (int r = m_.links[i].iv; r < m_.links[i].iv + m_.links[i].nv; ++r) f(r);
  }
  static TORSOR_INLINE void subtract(int n, const S& s, const S* x, S* y) {  // y -= s x, in whole vectors
    const V factor(-s);
    for (int k = 0; k < n; k += width) store(mul_add(factor, load<V>(x + k), load<V>(y + k)), y + k);
  }
  template <int W>
  void solve_some(S* X, int stride) const {
    for_each_velocity_from_tips([&](int r) {
      const S* C = columns_ + first_[r];
      V x[W];
#pragma GCC unroll 4
      for (int w = 0; w < W; ++w) x[w] = load<V>(X + r * stride + w * width);
      for (int t = depth_[r] - 1, a = up_[r]; t >= 0; --t, a = up_[a]) {
        const V factor(-C[t]);
        S* y = X + a * stride;
#pragma GCC unroll 4
        for (int w = 0; w < W; ++w) store(mul_add(factor, x[w], load<V>(y + w * width)), y + w * width);
      }
    });
    for_each_velocity_from_root([&](int r) {
      const S* R = rows_ + first_[r];
      V x[W];
#pragma GCC unroll 4
      for (int w = 0; w < W; ++w) x[w] = load<V>(X + r * stride + w * width);
      for (int t = depth_[r] - 1, a = up_[r]; t >= 0; --t, a = up_[a]) {
        const V factor(-R[t]);
        const S* y = X + a * stride;
#pragma GCC unroll 4
        for (int w = 0; w < W; ++w) x[w] = mul_add(factor, load<V>(y + w * width), x[w]);
      }
      const V inverse(R[depth_[r]]);
#pragma GCC unroll 4
      for (int w = 0; w < W; ++w) store(inverse * x[w], X + r * stride + w * width);
    });
  }

  const Model& m_;
  Arena& memory_;
  int *up_, *depth_;  // the velocity before one on its path, or -1, and how many there are
  std::size_t* first_;
  S* most_;  // that elimination may subtract from a diagonal entry
  std::size_t size_ = 0;
  S *rows_, *columns_, *saved_ = nullptr;
};

}  // namespace torsor
