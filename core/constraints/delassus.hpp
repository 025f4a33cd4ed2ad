// D = G M^-1 G^T of the rows of constraints, and multipliers from it (docs/derivations/constraints.md, 3 and 4).
//
// A row is carried from the joints it acts on to the root, as a right-hand side of mass_solve.hpp is:
//   e_k = G_k - S_k.beta,   beta += U_k Psi_k e_k,   so that   D_rs = sum over k of e_kr Psi_k e_ks,
// which needs neither M nor its inverse. Rows of one state are carried several at a time, in lanes.
//
// D is factorised as L d L^T without pivoting. Where rows depend on each other, D is singular: a row whose pivot falls
// below 1e-11 of its own diagonal is skipped, in each lane by itself. Multipliers are then those of least norm. Vectors
// are added to each other, never summed across, so that a state has the same bits alone and in any lane.
#pragma once
#include "constraints/constraint_set.hpp"
#include "dynamics/mass_inverse.hpp"
#include "dynamics/mass_solve.hpp"

namespace torsor {

// Rows as they arrive at the joints: E has e_k, F has Psi_k e_k, by velocity (plan.places apart) and place of the row.
// Where no row of a walk arrives, they are not set.
template <class S>
struct CarriedRows {
  const RowPlan& plan;
  S *E, *F;
  CarriedRows(const Model& m, Arena& arena, const ConstraintSet& set)
      : plan(row_plan<S>(set)),
        E(arena.get<S>(std::size_t(m.nv) * plan.places)),
        F(arena.get<S>(std::size_t(m.nv) * plan.places)) {}
};

// Calls f(velocity) for the velocities of bodies, in their order.
template <class F>
TORSOR_INLINE void for_each_velocity(const Model& m, const std::vector<int>& bodies, F&& f) {
  for (int i : bodies) {
    const Model::Link& link = m.links[i];
    for (int k = link.iv; k < link.iv + link.nv; ++k) f(k);
  }
}

// Carries all rows of G (rows `stride` apart) by the factors of the mass matrix.
template <class S>
CarriedRows<S> carry_rows(const Model& m, Arena& arena, const ConstraintSet& set, const MassFactor<S>& f, const S* G,
                          int stride) {
  using V = Wide<S>;
  constexpr int width = sizeof(V) / sizeof(S);
  const CarriedRows<S> rows(m, arena, set);
  const int places = rows.plan.places;
  auto* arrived = arena.get<Force<V>>(m.n());
  for (const RowWalk& walk : rows.plan.walks)
    for (int first = 0; first < walk.rows; first += width) {
      const int at = walk.place + first;
      for (int i : walk.bodies) arrived[i] = zero_force<V>();
      for (int i : walk.bodies) {
        const Model::Body& body = m.bodies[i];
        Force<V> beta = arrived[i];
        for (int k = body.iv + body.nv - 1; k >= body.iv; --k) {
          V e(0.0), x(0.0);
          if (!f.held(k)) {
            if constexpr (width == 1)
              e = G[(walk.row + first) * stride + k];
            else
              for (int l = 0; l < width && first + l < walk.rows; ++l)
                e.lane(l) = G[(walk.row + first + l) * stride + k];
            e -= dot(lift<V>(f.columns[k]), beta);
            x = e * V(f.Psi[k]);
            beta = mul_add(x, lift<V>(f.U[k]), beta);
          }
          store(e, rows.E + std::size_t(k) * places + at);
          store(x, rows.F + std::size_t(k) * places + at);
        }
        if (body.parent >= 0) arrived[body.parent] += body.offset ? shift_back(beta, lift<V>(f.bodies[i].r)) : beta;
      }
    }
  return rows;
}

// x (nv) += the sum of multipliers times F, for the velocities of rows.plan.bodies.
template <class S>
void add_multiples(const Model& m, const CarriedRows<S>& rows, const S* multipliers, S* x) {
  for (const RowWalk& walk : rows.plan.walks)
    for_each_velocity(m, walk.bodies, [&](int k) {
      const S* row = rows.F + std::size_t(k) * rows.plan.places + walk.place;
      for (int r = 0; r < walk.rows; ++r) x[k] = mul_add(multipliers[walk.row + r], row[r], x[k]);
    });
}

// y (nv) = M^-1 G^T lambda.
template <class S>
void solve_rows(const Model& m, const MassFactor<S>& f, const CarriedRows<S>& rows, const S* multipliers, S* y) {
  for (int k = 0; k < m.nv; ++k) y[k] = S(0.0);
  add_multiples(m, rows, multipliers, y);
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    f.A[i] = body.parent < 0 ? zero_motion<S>()
             : body.offset   ? shift(f.A[body.parent], f.bodies[i].r)
                             : f.A[body.parent];
    for (int k = body.iv; k < body.iv + body.nv; ++k) {
      if (f.held(k)) continue;
      y[k] = mul_add(-f.Psi[k], dot(f.A[i], f.U[k]), y[k]);
      f.A[i] = mul_add(y[k], f.columns[k], f.A[i]);
    }
  }
}

// Y = M^-1 G^T (nv x rows, `stride` apart).
template <class S>
void solve_all_rows(const Model& m, Arena& arena, const MassFactor<S>& f, const CarriedRows<S>& rows, S* Y,
                    int stride) {
  using V = Wide<S>;
  constexpr int width = sizeof(V) / sizeof(S);
  auto* A = arena.get<Motion<V>>(m.n());
  auto* reached = arena.get<bool>(m.n());
  for (const RowWalk& walk : rows.plan.walks) {
    std::fill_n(reached, m.n(), false);
    for (int i : walk.bodies) reached[i] = true;
    for (int first = 0; first < walk.rows; first += width)
      for (int i = 0; i < m.n(); ++i) {
        const Model::Body& body = m.bodies[i];
        A[i] = body.parent < 0 ? zero_motion<V>()
               : body.offset   ? shift(A[body.parent], lift<V>(f.bodies[i].r))
                               : A[body.parent];
        for (int k = body.iv; k < body.iv + body.nv; ++k) {
          V y(0.0);
          if (!f.held(k)) {
            if (reached[i]) y = load<V>(rows.F + std::size_t(k) * rows.plan.places + walk.place + first);
            y = mul_add(-V(f.Psi[k]), dot(A[i], lift<V>(f.U[k])), y);
            A[i] = mul_add(y, lift<V>(f.columns[k]), A[i]);
          }
          S* to = Y + k * stride + walk.row + first;
          if constexpr (width == 1)
            *to = y;
          else
            store_part(y, to, std::min(width, walk.rows - first));
        }
      }
  }
}

// The symmetric matrix D, its factors, and products with its inverse, or pseudo-inverse where rows were skipped.
template <class S>
class Delassus {
  using V = Wide<S>;
  static constexpr int width = sizeof(V) / sizeof(S);

 public:
  static constexpr double kPivot = 1e-11, kContradiction = 1e-6;

  Delassus(Arena& arena, int rows)
      : arena_(arena),
        m_(rows),
        stride_(padded<S>(rows) + width),
        D_(arena.get<S>(std::size_t(rows) * stride_)),
        L_(arena.get<S>(std::size_t(rows) * stride_)),
        inverse_(arena.get<S>(rows)),
        x_(arena.get<S>(stride_)),
        skipped_(arena.get<Mask<S>>(rows)) {}

  // D before it is factorised: entries (r, s) with s >= r, rows `stride` apart. There is room for a whole vector after
  // the last column.
  S* matrix() { return D_; }
  int stride() const { return stride_; }
  int rows() const { return m_; }

  // D from rows that were carried.
  __attribute__((noinline)) void pair_rows(const Model& m, const CarriedRows<S>& rows) {
    const int places = rows.plan.places;
    int* common = arena_.get<int>(m.nv);
    for (const RowWalk& a : rows.plan.walks)
      for (const RowWalk* b = &a; b != rows.plan.walks.data() + rows.plan.walks.size(); ++b) {
        int count = 0;  // velocities to which rows of both come
        for (std::size_t i = 0, j = 0; i < a.bodies.size() && j < b->bodies.size();) {
          const int of_a = a.bodies[i], of_b = b->bodies[j];
          if (of_a == of_b)
            for (int k = 0; k < m.links[of_a].nv; ++k) common[count++] = m.links[of_a].iv + k;
          i += of_a >= of_b;
          j += of_b >= of_a;
        }
        for (int c = 0; c < b->rows; c += width)
          in_chunks(b == &a ? std::min(a.rows, c + width) : a.rows, [&](auto size, int first) TORSOR_INLINE_LAMBDA {
            V sum[size];
            for (int r = 0; r < size; ++r) sum[r] = V(0.0);
            const S *F = rows.F + a.place + first, *E = rows.E + b->place + c;
            for (int k = 0; k < count; ++k) {
              const std::size_t at = std::size_t(common[k]) * places;
              const V e = load<V>(E + at);
              for (int r = 0; r < size; ++r) sum[r] = mul_add(V(F[at + r]), e, sum[r]);
            }
            for (int r = 0; r < size; ++r) store(sum[r], D_ + (a.row + first + r) * stride_ + b->row + c);
          });
      }
  }

  // Factorises D + compliance.
  __attribute__((noinline)) void factor(double compliance = 0.0) {
    const S tiny(1e-300);  // a row that moves nothing is skipped
    any_skipped_ = no_lane<S>();
    std::fill_n(L_, std::size_t(m_) * stride_, S(0.0));
    for (int r = 0; r < m_; ++r) {
      if (compliance > 0.0) D_[r * stride_ + r] += S(compliance);
      inverse_[r] = mul_add(S(kPivot), D_[r * stride_ + r], tiny);  // the limit of its pivot, until that is known
    }
    for (int j = 0; j < m_; ++j) {
      S* own = D_ + j * stride_;
      skipped_[j] = less(own[j], inverse_[j]);
      inverse_[j] = S(1.0) / own[j];
      if (__builtin_expect(any(skipped_[j]), 0)) {
        any_skipped_ = any_skipped_ | skipped_[j];
        inverse_[j] = select(skipped_[j], S(0.0), inverse_[j]);
        for (int s = j; s < m_; ++s) own[s] = select(skipped_[j], S(0.0), own[s]);
      }
      for (int i = j + 1; i < m_; ++i) {
        const S l = own[i] * inverse_[j];
        L_[i * stride_ + j] = l;
        const V minus(-l);
        S* row = D_ + i * stride_;
        for (int s = i; s < m_; s += width) store(mul_add(minus, load<V>(own + s), load<V>(row + s)), row + s);
      }
      const V scale(inverse_[j]);
      for (int s = j; s < m_; s += width) store(load<V>(own + s) * scale, own + s);
      own[j] = S(1.0);
      if (__builtin_expect(any(skipped_[j]), 0)) own[j] = select(skipped_[j], S(0.0), S(1.0));
    }
    if (__builtin_expect(any(any_skipped_), 0)) factor_least_norm();
  }
  // Lanes in which rows were skipped, and the rows.
  const Mask<S>& any_skipped() const { return any_skipped_; }
  const Mask<S>& skipped(int row) const { return skipped_[row]; }
  // How many rows were not.
  S rank() const {
    S count(m_);
    for (int r = 0; any(any_skipped_) && r < m_; ++r) count -= select(skipped_[r], S(1.0), S(0.0));
    return count;
  }

  // x = D^-1 b, or of least norm; both may be the same.
  __attribute__((noinline)) void solve(const S* b, S* x) const {
    std::copy_n(b, m_, x_);
    for (int j = 0; j < m_; ++j) {
      const S* column = D_ + j * stride_;
      const V minus(-x_[j]);
      for (int s = j + 1; s < m_; s += width) store(mul_add(minus, load<V>(column + s), load<V>(x_ + s)), x_ + s);
    }
    for (int j = 0; j < m_; ++j) x_[j] = x_[j] * inverse_[j];
    for (int j = m_ - 1; j > 0; --j) {
      const S* row = L_ + j * stride_;
      const V minus(-x_[j]);
      for (int s = 0; s < j; s += width) store(mul_add(minus, load<V>(row + s), load<V>(x_ + s)), x_ + s);
    }
    if (__builtin_expect(any(any_skipped_), 0)) {
      S* least = arena_.get<S>(m_);
      solve_least_norm(b, 1, least);
      for (int j = 0; j < m_; ++j) x_[j] = select(any_skipped_, least[j], x_[j]);
    }
    std::copy_n(x_, m_, x);
  }
  // The same of many columns, in place: B has `columns` of them in rows that are `stride` apart, both multiples of the
  // vector.
  __attribute__((noinline)) void solve_columns(S* B, int columns, int stride) const {
    S* given = nullptr;
    if (__builtin_expect(any(any_skipped_), 0)) {
      given = arena_.get<S>(std::size_t(m_) * stride);
      for (int r = 0; r < m_; ++r) std::copy_n(B + r * stride, columns, given + r * stride);
    }
    in_chunks(columns / width, [&](auto size, int first) TORSOR_INLINE_LAMBDA {
      S* own = B + first * width;
      for (int j = 0; j < m_; ++j) {
        V sum[size];
        for (int b = 0; b < size; ++b) sum[b] = load<V>(own + j * stride + b * width);
        for (int s = 0; s < j; ++s) {
          const V minus(-L_[j * stride_ + s]);
          for (int b = 0; b < size; ++b) sum[b] = mul_add(minus, load<V>(own + s * stride + b * width), sum[b]);
        }
        for (int b = 0; b < size; ++b) store(sum[b], own + j * stride + b * width);
      }
      for (int j = m_ - 1; j >= 0; --j) {
        V sum[size];
        const V scale(inverse_[j]);
        for (int b = 0; b < size; ++b) sum[b] = load<V>(own + j * stride + b * width) * scale;
        for (int s = m_ - 1; s > j; --s) {
          const V minus(-L_[s * stride_ + j]);
          for (int b = 0; b < size; ++b) sum[b] = mul_add(minus, load<V>(own + s * stride + b * width), sum[b]);
        }
        for (int b = 0; b < size; ++b) store(sum[b], own + j * stride + b * width);
      }
    });
    if (given == nullptr) return;
    S* least = arena_.get<S>(m_);
    for (int c = 0; c < columns; ++c) {
      solve_least_norm(given + c, stride, least);
      for (int r = 0; r < m_; ++r) B[r * stride + c] = select(any_skipped_, least[r], B[r * stride + c]);
    }
  }
  // B = N N^T B, N being a basis of the null space of D; zero where no row was skipped. B as for solve_columns.
  void project_on_null_space(S* B, int columns, int stride) const {
    S *z = arena_.get<S>(m_), *out = arena_.get<S>(m_);
    for (int c = 0; c < columns; ++c) {
      if (any(any_skipped_)) {
        multiply_transposed(B + c, stride, z);
        solve_gram(z);
        multiply(z, out);
      }
      for (int r = 0; r < m_; ++r) {
        S& x = B[r * stride + c];
        x = any(any_skipped_) ? select(any_skipped_, x - out[r], S(0.0)) : S(0.0);
      }
    }
  }

  // Notes a skipped row that D x = b does not fulfil beside those that were kept. `squares` (rows): of the terms whose
  // sum b is; null: those of b.
  void note_contradictions(const S* b, const S* squares, const S* x) const {
    if (!any(any_skipped_)) return;
    S* y = arena_.get<S>(m_);  // d L^T x
    multiply_transposed(x, 1, y);
    for (int j = 0; j < m_; ++j) y[j] = select(skipped_[j], S(0.0), y[j] / select(skipped_[j], S(1.0), inverse_[j]));
    for (int r = 0; r < m_; ++r) {
      if (!any(skipped_[r])) continue;
      S rest = b[r], size = squares != nullptr ? squares[r] : b[r] * b[r];
      for (int j = 0; j < r; ++j) {
        const S term = L_[r * stride_ + j] * y[j];
        rest -= term;
        size = mul_add(term, term, size);
      }
      const auto wrong = skipped_[r] & less(S(kContradiction * kContradiction) * size, rest * rest);
      if (any(wrong)) return note(r, first_lane(wrong));
    }
  }

 private:
  // f(size, first) for chunks of at most six, `size` a constant: the sums of a chunk stay in registers.
  template <class F>
  static TORSOR_INLINE void in_chunks(int count, F f) {
    int first = 0;
    for (; count - first >= 6; first += 6) f(std::integral_constant<int, 6>(), first);
    switch (count - first) {
      case 1:
        return f(std::integral_constant<int, 1>(), first);
      case 2:
        return f(std::integral_constant<int, 2>(), first);
      case 3:
        return f(std::integral_constant<int, 3>(), first);
      case 4:
        return f(std::integral_constant<int, 4>(), first);
      case 5:
        return f(std::integral_constant<int, 5>(), first);
      default:
        return;
    }
  }

  // L with the ones of its diagonal, but for skipped rows.
  S entry(int i, int j) const { return i == j ? D_[j * stride_ + j] : L_[i * stride_ + j]; }
  // y = L^T b, b `stride` apart
  void multiply_transposed(const S* b, int stride, S* y) const {
    for (int j = 0; j < m_; ++j) {
      y[j] = S(0.0);
      for (int i = j; i < m_; ++i) y[j] = mul_add(entry(i, j), b[i * stride], y[j]);
    }
  }
  // y = L z
  void multiply(const S* z, S* y) const {
    for (int i = 0; i < m_; ++i) {
      y[i] = S(0.0);
      for (int j = 0; j <= i; ++j) y[i] = mul_add(entry(i, j), z[j], y[i]);
    }
  }
  // L^T L = Q c Q^T, with ones in place of skipped columns.
  __attribute__((noinline)) void factor_least_norm() {
    Q_ = arena_.get<S>(std::size_t(m_) * m_);
    for (int i = 0; i < m_; ++i)
      for (int j = 0; j <= i; ++j) {
        S sum(0.0);
        for (int k = i; k < m_; ++k) sum = mul_add(entry(k, i), entry(k, j), sum);
        Q_[i * m_ + j] = i == j ? select(skipped_[i], S(1.0), sum) : sum;
      }
    for (int j = 0; j < m_; ++j)
      for (int i = j + 1; i < m_; ++i) {
        const S l = Q_[i * m_ + j] / Q_[j * m_ + j];
        for (int k = i; k < m_; ++k) Q_[k * m_ + i] = mul_add(-l, Q_[k * m_ + j], Q_[k * m_ + i]);
      }
  }
  // z = (L^T L)^-1 z. Q_ has the columns of Q times c.
  void solve_gram(S* z) const {
    for (int j = 0; j < m_; ++j) {
      z[j] = z[j] / Q_[j * m_ + j];
      for (int i = j + 1; i < m_; ++i) z[i] = mul_add(-Q_[i * m_ + j], z[j], z[i]);
    }
    for (int j = m_ - 1; j >= 0; --j)
      for (int i = j + 1; i < m_; ++i) z[j] = mul_add(-(Q_[i * m_ + j] / Q_[j * m_ + j]), z[i], z[j]);
  }
  // x = L (L^T L)^-1 d^-1 (L^T L)^-1 L^T b
  __attribute__((noinline)) void solve_least_norm(const S* b, int stride, S* x) const {
    S* z = arena_.get<S>(m_);
    multiply_transposed(b, stride, z);
    solve_gram(z);
    for (int j = 0; j < m_; ++j) z[j] = z[j] * inverse_[j];
    solve_gram(z);
    multiply(z, x);
  }
  // Row r in one lane, with the rows whose combination it is: the row of L times the inverse of the rows kept.
  void note(int r, int lane) const {
    if (arena_.contradiction >= 0) return;
    arena_.contradiction = r;
    arena_.contradiction_lane = lane;
    arena_.contradicted.clear();
    const auto number = [&](const S& x) {
      if constexpr (Lanes<S>::value > 1 && !IsDual<S>::value)
        return x.lane(lane);
      else if constexpr (std::is_same_v<S, Complex>)
        return x.real();
      else if constexpr (IsDual<S>::value)
        return value_in_lane(x.v, lane);
      else
        return double(x);
    };
    std::vector<double> c(m_);
    double largest = 0.0;
    for (int j = r - 1; j >= 0; --j) {
      if (in_lane(skipped_[j], lane)) continue;
      c[j] = number(L_[r * stride_ + j]);
      for (int i = j + 1; i < r; ++i) c[j] -= c[i] * number(L_[i * stride_ + j]);
      largest = std::max(largest, std::fabs(c[j]));
    }
    for (int j = 0; j < r; ++j)
      if (std::fabs(c[j]) > 1e-9 * largest) arena_.contradicted.push_back(j);
  }
  template <class T>
  static double value_in_lane(const T& x, int lane) {
    if constexpr (Lanes<T>::value > 1)
      return x.lane(lane);
    else
      return x;
  }

  Arena& arena_;
  int m_, stride_;
  S* D_;        // the columns of L as rows, once it is factorised; with the diagonal of L
  S* L_;        // below its diagonal, zeros elsewhere
  S* inverse_;  // of d, zero for skipped rows
  S* x_;
  Mask<S>* skipped_;
  Mask<S> any_skipped_ = no_lane<S>();
  S* Q_ = nullptr;
};

}  // namespace torsor
