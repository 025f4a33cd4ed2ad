// Columns along the path from the root to a body, stored so that a row of a matrix is combined with several of them at
// a time: SIMD lanes within one state.
#pragma once
#include <algorithm>

#include "base/arena.hpp"
#include "model/model.hpp"
#include "scalar/pack.hpp"

namespace torsor {

// Column<S> is a struct with members of type S only.
template <template <class> class Column, class S>
class Path {
 public:
  using V = Wide<S>;
  static constexpr int width = sizeof(V) / sizeof(S);

  // `step` bytes from column to column.
  Path(const Model& m, Arena& arena, const Column<S>* columns, std::size_t step = sizeof(Column<S>))
      : m_(m),
        columns_(columns),
        step_(step),
        stride_((m.depth + width - 1) / width * width),
        velocity_(arena.get<int>(stride_)),
        run_(arena.get<int>(stride_ / width)) {
    if constexpr (width > 1) {
      parts_ = arena.get<S>(numbers * stride_);
      for (int k = 0; k < numbers * stride_; ++k) parts_[k] = S(0.0);
      for (int t = 0; t < stride_; ++t) velocity_[t] = -1;
    }
  }
  // Moves to body i and stores the columns that were not on the path before. Fastest if bodies are visited in order or
  // in reverse order.
  void enter(int i) {
    const int end = m_.links[i].above + m_.links[i].nv;
    int first = end;
    for (int j = i; j >= 0; j = m_.links[j].parent) {
      const Model::Link& link = m_.links[j];
      if (link.above < known_ && velocity_[link.above] == link.iv) break;
      first = link.above;
      for (int k = 0; k < link.nv; ++k) {
        velocity_[first + k] = link.iv + k;
        if constexpr (width > 1) {
          const S* from = reinterpret_cast<const S*>(&column(link.iv + k));
#pragma GCC unroll 64
          for (int c = 0; c < numbers; ++c) part(first + k)[c * width] = from[c];
        }
      }
    }
    for (int t = first / width * width; width > 1 && t < end; t += width) {
      int run = 1;
      while (run < width && velocity_[t + run] == velocity_[t] + run) ++run;
      run_[t / width] = run;
    }
    if (first < end) known_ = end;
  }
  // Columns t, t + 1, ... of the path, t a multiple of the width.
  TORSOR_INLINE std::conditional_t<width == 1, const Column<V>&, Column<V>> at(int t) const {
    if constexpr (width == 1) {
      return column(velocity_[t]);
    } else {
      Column<V> e;
      V* to = reinterpret_cast<V*>(&e);
#pragma GCC unroll 64
      for (int c = 0; c < numbers; ++c) to[c] = load<V>(part(t) + c * width);
      return e;
    }
  }
  int velocity(int t) const { return velocity_[t]; }
  bool consecutive(int t) const { return run_[t / width] == width; }
  // Writes their results, for the first `count` columns of the path, into a row or a column of a matrix.
  TORSOR_INLINE void put_row(const V& x, int t, int count, S* row) const {
    if constexpr (width == 1) {
      if (t < count) row[velocity_[t]] = x;
    } else if (const int part = std::min(width, count - t); run_[t / width] >= part) {
      if (part == width)
        store(x, row + velocity_[t]);
      else
        store_part(x, row + velocity_[t], part);
    } else {
      for (int l = 0; l < width && t + l < count; ++l) row[velocity_[t + l]] = x.lane(l);
    }
  }
  TORSOR_INLINE void put_column(const V& x, int t, int count, S* column, int stride) const {
    if constexpr (width == 1) {
      if (t < count) column[velocity_[t] * stride] = x;
    } else if (t + width <= count) {
#pragma GCC unroll 8
      for (int l = 0; l < width; ++l) column[velocity_[t + l] * stride] = x.x[l];
    } else {
      for (int l = 0; l < width && t + l < count; ++l) column[velocity_[t + l] * stride] = x.lane(l);
    }
  }

 private:
  static constexpr int numbers = sizeof(Column<S>) / sizeof(S);
  // The first number of column t; the next ones follow in steps of the width.
  TORSOR_INLINE S* part(int t) const { return parts_ + t / width * (width * numbers) + t % width; }
  TORSOR_INLINE const Column<S>& column(int k) const {
    return *reinterpret_cast<const Column<S>*>(reinterpret_cast<const char*>(columns_) + k * step_);
  }

  const Model& m_;
  const Column<S>* columns_;
  std::size_t step_;
  int stride_;
  int known_ = 0;       // number of columns stored
  int* velocity_;       // along the path
  int* run_;            // how many velocities of a group, from its first on, are consecutive
  S* parts_ = nullptr;  // the columns along the path, group by group, number by number
};

}  // namespace torsor
