// The inverse of the mass matrix between velocities f that are not prescribed, as a product of sparse factors:
//   M_ff = L^T D L  (Featherstone 2008),   M_ff^-1 = W D^-1 W^T,   W = L^-1,
// where row k of L and of W has entries for k and for velocities above it alone. Rows are stored along the path from
// the root, where their entries are contiguous.
#pragma once
#include "dynamics/forward_dynamics.hpp"
#include "tree/motions.hpp"

namespace torsor {

// Rows of a matrix, each beginning with a whole vector.
template <class S>
TORSOR_INLINE int padded(int columns) {
  constexpr int width = sizeof(Wide<S>) / sizeof(S);
  return (columns + width - 1) / width * width;
}

template <class S>
class TreeInverse {
  using V = Wide<S>;
  static constexpr int width = sizeof(V) / sizeof(S);

 public:
  TreeInverse(const Model& m, Arena& arena, const Motions<S>& all, const unsigned char* prescribed)
      : m_(m),
        prescribed_(prescribed),
        stride_(padded<S>(m.depth)),
        W_(arena.get<S>(m.nv * stride_)),
        D_(arena.get<S>(m.nv)),
        Dinv_(arena.get<S>(m.nv)),
        path_(arena.get<int>(m.depth)),
        order_(arena.get<int>(m.nv)),
        y_(arena.get<S>(m.nv)) {
    int count = 0;
    for (const Model::Link& link : m.links)
      for (int k = link.iv; k < link.iv + link.nv; ++k) order_[count++] = k;
    S* L = arena.get<S>(m.nv * stride_);
    pair_mass(all, arena, L);
    const bool doubtful = factor(all, arena, L);
    invert(L);
    if (m.has_weak && doubtful) check(all, arena);
  }
  bool held(int k) const { return prescribed_ != nullptr && prescribed_[k] != 0; }

  // y = M_ff^-1 x, zero for prescribed velocities; both may be the same.
  void multiply(const S* x, S* y) const {
    for (int k = 0; k < m_.nv; ++k) y_[k] = S(0.0);
    each_body(1, [&](const Model::Link& link, int, int) {
      for (int j = 0; j < link.nv; ++j)
        for (int t = 0; t <= link.above + j; ++t) {
          S& sum = y_[path_[t]];
          sum = mul_add(weight(link.iv + j, t), x[link.iv + j], sum);
        }
    });
    for (int k = 0; k < m_.nv; ++k) y_[k] = Dinv_[k] * y_[k];
    each_body(1, [&](const Model::Link& link, int, int) {
      for (int j = 0; j < link.nv; ++j) {
        const int k = link.iv + j;
        S even(0.0), odd(0.0);
        int t = 0;
        for (; t + 1 <= link.above + j; t += 2) {
          even = mul_add(weight(k, t), y_[path_[t]], even);
          odd = mul_add(weight(k, t + 1), y_[path_[t + 1]], odd);
        }
        if (t <= link.above + j) even = mul_add(weight(k, t), y_[path_[t]], even);
        y[k] = held(k) ? S(0.0) : even + odd;
      }
    });
  }
  // outs = -M_ff^-1 X, rows of prescribed velocities zero: matrices of `columns` (0: nv) columns, side by side in X
  // with their rows padded, `stride` numbers altogether. X is overwritten.
  void multiply_negated(Arena& arena, S* X, int stride, S* const* outs, int columns = 0) const {
    const int nv = columns > 0 ? columns : m_.nv, each = padded<S>(nv);
    struct Target {  // of a vector of X's first row
      S* to;
      int count;
    };
    auto* targets = arena.get<Target>(stride / width);
    for (int c = 0; c < stride; c += width) targets[c / width] = {outs[c / each] + c % each, nv - c % each};
    in_blocks(stride, [&](auto size, int c) TORSOR_INLINE_LAMBDA {
      const Target* target = targets + c / width;
      multiply_block(size, X, stride, c, [&](int k, int b, const V& x) TORSOR_INLINE_LAMBDA {
        store_columns(x, target[b].count, target[b].to + k * nv);
      });
    });
  }
  // The same block by block: done(size, c, block) after each, which has columns c .. c + size of vectors, rows next to
  // each other.
  template <class F>
  void multiply_negated_by_blocks(Arena& arena, S* X, int stride, F done) const {
    S* block = arena.get<S>(std::size_t(m_.nv) * 8 * width);
    in_blocks(stride, [&](auto size, int c) TORSOR_INLINE_LAMBDA {
      multiply_block(size, X, stride, c,
                     [&](int k, int b, const V& x) TORSOR_INLINE_LAMBDA { store(x, block + (k * size + b) * width); });
      done(size, c, block);
    });
  }

 private:
  const S& weight(int k, int t) const { return W_[k * stride_ + t]; }

  // put(k, b, x) for the rows of a block of `size` vectors of -M_ff^-1 X, from column c on.
  template <class Size, class Put>
  TORSOR_INLINE void multiply_block(Size size, S* X, int stride, int c, Put put) const {
    // -D^-1 W^T X, in place
    each_body(stride, [&](const Model::Link& link, int first, int end) TORSOR_INLINE_LAMBDA {
      for (int j = 0; j < link.nv; ++j) {
        S* own = X + (link.iv + j) * stride + c;
        const S* w = W_ + link.above + j;
        V sum[size];
        for (int b = 0; b < size; ++b) sum[b] = load<V>(own + b * width);
        for (int o = first + j + 1; o < end; ++o) {
          const V s(w[order_[o] * stride_]);
          const S* from = X + order_[o] * stride + c;
          for (int b = 0; b < size; ++b) sum[b] = mul_add(s, load<V>(from + b * width), sum[b]);
        }
        const V scale(-Dinv_[link.iv + j]);
        for (int b = 0; b < size; ++b) store(scale * sum[b], own + b * width);
      }
    });
    // W times that
    each_body(stride, [&](const Model::Link& link, int, int) TORSOR_INLINE_LAMBDA {
      for (int j = 0; j < link.nv; ++j) {
        const int k = link.iv + j;
        const S* w = W_ + k * stride_;
        V sum[size];
        for (int b = 0; b < size; ++b) sum[b] = load<V>(X + k * stride + c + b * width);
        for (int t = 0; t < link.above + j; ++t) {
          const V s(w[t]);
          const S* from = X + path_[t] + c;
          for (int b = 0; b < size; ++b) sum[b] = mul_add(s, load<V>(from + b * width), sum[b]);
        }
        for (int b = 0; b < size; ++b) put(k, b, held(k) ? V(0.0) : sum[b]);
      }
    });
  }

  // f(link, first, end) for all bodies, parents first; path_ leads to each in steps of `stride`, and its subtree's
  // velocities are order_[first .. end).
  template <class F>
  TORSOR_INLINE void each_body(int stride, F f) const {
    int first = 0;
    for (const Model::Link& link : m_.links) {
      for (int j = 0; j < link.nv; ++j) path_[link.above + j] = (link.iv + j) * stride;
      f(link, first, first + link.below);
      first += link.nv;
    }
  }
  // f(size, c) for blocks of `size` vectors from column c on, `size` a constant up to 8 and as even as possible: the
  // sums of a block stay in registers.
  template <class F>
  static TORSOR_INLINE void in_blocks(int columns, F f) {
    if (columns == 0) return;
    const int vectors = columns / width, blocks = (vectors + 7) / 8, size = vectors / blocks, larger = vectors % blocks;
    for (int b = 0, c = 0; b < blocks; ++b) {
      const int own = size + (b < larger);
      with_constant(own, std::make_integer_sequence<int, 8>(), [&](auto n) TORSOR_INLINE_LAMBDA { f(n, c); });
      c += own * width;
    }
  }
  // f(n) with the constant n of 1..8.
  template <int... less, class F>
  static TORSOR_INLINE void with_constant(int n, std::integer_sequence<int, less...>, F f) {
    (void)((n == less + 1 && (f(std::integral_constant<int, less + 1>()), true)) || ...);
  }
  // The first `count` numbers of x, or all.
  static TORSOR_INLINE void store_columns(const V& x, int count, S* to) {
    if constexpr (width == 1)
      *to = x;
    else if (count >= width)
      store(x, to);
    else
      store_part(x, to, count);
  }

  // Rows of M along the paths.
  void pair_mass(const Motions<S>& all, Arena& arena, S* rows) const {
    Path<Motion, S> path(m_, arena, &all.columns->S_, sizeof(DerivativeColumn<S>));
    for (int i = m_.n() - 1; i >= 0; --i) {
      path.enter(i);
      const Model::Link& link = m_.links[i];
      for (int j = 0; j < link.nv; ++j) {
        const Force<V> IS = lift<V>(all.bodies[i].I * all.columns[link.iv + j].S_);
        for (int t = 0; t <= link.above + j; t += width) store(dot(path.at(t), IS), rows + (link.iv + j) * stride_ + t);
        if (all.armature != nullptr) rows[(link.iv + j) * stride_ + link.above + j] += all.armature[link.iv + j];
      }
    }
  }
  // L^T D L in place: L beside the diagonal, D on it. Prescribed velocities are left out. Returns whether some pivot is
  // in doubt.
  bool factor(const Motions<S>& all, Arena& arena, S* L) {
    bool doubtful = false;
    int first = m_.nv;
    for (int i = m_.n() - 1; i >= 0; --i) {
      const Model::Link& link = m_.links[i];
      first -= link.nv;
      for (int j = link.nv - 1; j >= 0; --j) {
        const int k = link.iv + j, diagonal = link.above + j;
        S* own = L + k * stride_;
        for (int c = 0; c <= diagonal; c += width) {
          V sum = load<V>(own + c);
          for (int o = first + j + 1; o < first + link.below; ++o) {
            const S* row = L + order_[o] * stride_;
            sum = mul_add(V(-row[diagonal]), load<V>(row + c) * V(D_[order_[o]]), sum);
          }
          store(sum, own + c);
        }
        D_[k] = held(k) ? S(0.0) : own[diagonal];
        if (!held(k)) {
          const S N = rigid_pivot(all, i, k);
          note_singular(arena, is_nothing(D_[k], N), m_.bodies[i].joint);
          doubtful = doubtful || any(less(D_[k], S(kDoubt) * N));
        }
        Dinv_[k] = held(k) ? S(0.0) : S(1.0) / D_[k];
        const V inverse(Dinv_[k]);
        for (int c = 0; c < diagonal; c += width) store(load<V>(own + c) * inverse, own + c);
      }
    }
    return doubtful;
  }
  // The scale of pivots: the inertia of a subtree as a whole, about the point of the tree, where rounding errors arise.
  S rigid_pivot(const Motions<S>& all, int i, int k) const {
    const RigidInertia<S>& I = all.bodies[i].I;
    const Model::Link& link = m_.links[i];
    Motion<S> largest = all.columns[k].S_;
    for (int l = link.iv; m_.bodies[i].general >= 0 && l < link.iv + link.nv; ++l)
      largest = longer(largest, all.columns[l].S_);
    return torsor::rigid_pivot<Screw<double>>(Scale<S>{I.J.xx + I.J.yy + I.J.zz, S(3.0) * I.m}, largest);
  }
  // Whether pivots are zero compared with the responses to their velocities, the columns of W.
  void check(const Motions<S>& all, Arena& arena) const {
    S* size = arena.get<S>(m_.nv);
    for (int k = 0; k < m_.nv; ++k) size[k] = S(0.0);
    each_body(1, [&](const Model::Link& link, int, int) {
      for (int j = 0; j < link.nv; ++j) {
        const int k = link.iv + j;
        if (held(k)) continue;
        const S N = rigid_pivot(all, static_cast<int>(&link - m_.links.data()), k);
        for (int t = 0; t <= link.above + j; ++t) {
          const S x = weight(k, t);
          size[path_[t]] = mul_add(x * x, N, size[path_[t]]);
        }
      }
    });
    for (int i = m_.n() - 1; i >= 0; --i)
      for (int k = m_.links[i].iv + m_.links[i].nv - 1; k >= m_.links[i].iv; --k)
        if (!held(k)) note_singular(arena, is_nothing(D_[k], size[k]), m_.bodies[i].joint);
  }
  // W = L^-1, with its diagonal of ones and zeros beyond it.
  void invert(const S* L) const {
    for (int k = 0; k < m_.nv * stride_; ++k) W_[k] = S(0.0);
    each_body(stride_, [&](const Model::Link& link, int, int) {
      for (int j = 0; j < link.nv; ++j) {
        const int k = link.iv + j, diagonal = link.above + j;
        for (int c = 0; c < diagonal; c += width) {
          V sum(0.0);
          for (int t = diagonal - 1; t >= c; --t)
            sum = mul_add(V(-L[k * stride_ + t]), load<V>(W_ + path_[t] + c), sum);
          store(sum, W_ + k * stride_ + c);
        }
        W_[k * stride_ + diagonal] = S(1.0);
        for (int t = diagonal + 1; t < stride_ && t % width != 0; ++t) W_[k * stride_ + t] = S(0.0);
      }
    });
  }

  const Model& m_;
  const unsigned char* prescribed_;
  int stride_;
  S* W_;
  S* D_;
  S* Dinv_;
  int* path_;
  int* order_;  // velocities, those of a subtree next to each other
  S* y_;
};

}  // namespace torsor
