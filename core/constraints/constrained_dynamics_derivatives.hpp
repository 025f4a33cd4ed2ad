// First derivatives of forward dynamics under constraints (docs/derivations/constraints.md, 3). With x one of q, v,
// tau,
//   M da - G^T dlambda = -(ID_x - K_x),   G da = -(gamma_x + 2 alpha gdot_x + beta^2 g_x) - compliance dlambda,
// K = d(G^T lambda)/dq, at the accelerations and multipliers found. With D = G M^-1 G^T and Y = M^-1 G^T:
//   X0 = -M^-1 (ID_x - K_x),   dlambda = -D^-1 (gamma_x + ... + G X0),   da = X0 + Y dlambda.
//
// Where rows depend on each other, D^-1 is the pseudo-inverse, and the range of G turns with q: with N a basis of the
// null space of G^T and x such that G x = lambda, dlambda/dq gains N N^T d(G x)/dq.
#pragma once
#include "constraints/constrained_dynamics.hpp"
#include "constraints/row_groups.hpp"
#include "derivatives/forward_dynamics_derivatives.hpp"

namespace torsor {

// The derivatives, each nv x nv or rows x nv; any may be null.
template <class S>
struct ConstrainedBlocks {
  S *da_dq, *da_dv, *da_dtau, *dl_dq, *dl_dv, *dl_dtau;
};

template <class S>
class ConstrainedDerivatives {
  using V = Wide<S>;
  static constexpr int width = sizeof(V) / sizeof(S);
  struct Target {  // of a vector of columns: the matrices, or null, and the column
    S *da, *dl;
    int at;
  };

 public:
  ConstrainedDerivatives(const Model& m, Arena& arena, const ConstraintSet& set, double t, const S* q, const S* v,
                         const S* tau, const S* f_ext, int axes, const ConstraintGains& gains)
      : m_(m),
        arena_(arena),
        set_(set),
        t_(t),
        q_(q),
        v_(v),
        tau_(tau),
        f_ext_(f_ext),
        axes_(axes),
        gains_(gains),
        times_(times_at(set, arena, t)),
        each_(padded<S>(m.nv)),
        across_(padded<S>(set.rows)),
        G_(arena.get<S>(std::size_t(m.nv) * across_)),
        Y_(arena.get<S>(std::size_t(m.nv) * across_)),
        a_(arena.get<S>(m.nv)),
        lambda_(arena.get<S>(set.rows)),
        states_(arena.get<PairState<S>>(set.pairs.size())),
        velocities_(arena.get<int>(2 * m.depth)),
        targets_(arena.get<Target>(3 * each_ / width)),
        D_(arena, set.rows) {}

  void run(const ConstrainedBlocks<S>& out) {
    const int nv = m_.nv, rows = set_.rows;
    S* const das[] = {out.da_dq, out.da_dv, out.da_dtau};
    S* const dls[] = {out.dl_dq, out.dl_dv, out.dl_dtau};
    int start[3], stride = 0;  // where q, v and tau are in a row; -1: not asked for
    for (int i = 0; i < 3; ++i) {
      start[i] = das[i] != nullptr || dls[i] != nullptr ? stride : -1;
      if (start[i] >= 0) stride += each_;
    }
    if (m_.depth > kDeep)
      solve_articulated();
    else
      solve_by_factors();
    if (stride == 0) return;
    S* X = arena_.get<S>(std::size_t(nv) * stride + width);
    std::fill_n(X, std::size_t(nv) * stride, S(0.0));
    const auto part = [&](S* matrix, int i) { return start[i] >= 0 ? matrix + start[i] : nullptr; };
    for (std::size_t p = 0; p < set_.pairs.size(); ++p) states_[p] = pair_state(set_.pairs[p], all_, times_);
    ride();
    pair_columns(m_, arena_, all_, wrenches_, axes_, part(X, 0), part(X, 1), static_cast<S*>(nullptr), stride);
    if (start[0] >= 0) subtract_stiffness(X, stride);
    for (int k = 0; start[2] >= 0 && k < nv; ++k) X[k * stride + start[2] + k] = S(-1.0);
    // gamma_x + 2 alpha gdot_x + beta^2 g_x
    S* B = arena_.get<S>(std::size_t(rows) * stride);
    std::fill_n(B, std::size_t(rows) * stride, S(0.0));
    if (start[0] >= 0 || start[1] >= 0) differentiate_rows(part(B, 0), part(B, 1), stride);
    for (int i = 0; i < 3; ++i)
      for (int c = 0; start[i] >= 0 && c < each_; c += width) targets_[(start[i] + c) / width] = {das[i], dls[i], c};
    if (inverse_)
      inverse_->multiply_negated_by_blocks(
          arena_, X, stride, [&](auto size, int c, S* X0) TORSOR_INLINE_LAMBDA { finish(size, c, X0, B + c, stride); });
    else
      for (int c = 0; c < stride; c += width) {
        S* X0 = arena_.get<S>(std::size_t(nv) * width);
        solve_column(X + c, stride, X0);
        finish(std::integral_constant<int, 1>(), c, X0, B + c, stride);
      }
    if (dls[0] != nullptr && any(D_.any_skipped())) add_turning_range(dls[0]);
  }

 private:
  ConstraintState<S> state() const { return {m_, set_, arena_, all_, q_, v_, a_, t_, times_, false}; }

  // Accelerations, multipliers, D and Y by the sparse factors of M^-1.
  __attribute__((noinline)) void solve_by_factors() {
    const int nv = m_.nv, rows = set_.rows;
    S* rest = arena_.get<S>(nv);
    std::fill_n(rest, nv, S(0.0));
    all_ = motions(m_, arena_, q_, v_, rest);
    wrenches_ = sum_subtrees(m_, arena_, all_.bodies, f_ext_, axes_);
    inverse_.emplace(m_, arena_, all_, nullptr);
    for (int i = 0; i < m_.n(); ++i)
      for (int k = m_.links[i].iv; k < m_.links[i].iv + m_.links[i].nv; ++k)
        a_[k] = tau_[k] - dot(all_.columns[k].S_, all_.bodies[i].f);
    inverse_->multiply(a_, a_);  // a without constraints
    S* b = arena_.get<S>(rows);
    evaluate_rows(rest, b);
    S* X = arena_.get<S>(std::size_t(nv) * across_);
    for (int k = 0; k < nv * across_; k += width) store(-load<V>(G_ + k), X + k);
    S* const outs[] = {Y_};
    inverse_->multiply_negated(arena_, X, across_, outs, across_);
    pair_with_solutions(b);
    D_.factor(gains_.compliance);
    D_.solve(b, lambda_);
    if (any(D_.any_skipped())) check();
    S* da = arena_.get<S>(nv);
    for (int k = 0; k < nv; ++k) {
      S sum = a_[k];
      for (int r = 0; r < rows; ++r) sum = mul_add(Y_[k * across_ + r], lambda_[r], sum);
      da[k] = a_[k] = sum;
    }
    accelerate(m_, arena_, all_, da);
  }
  // Notes rows that contradict each other.
  __attribute__((noinline)) void check() {
    const S* f = body_wrenches(m_, arena_, q_, axes_, f_ext_);
    constrained_forward_dynamics(m_, arena_, set_, t_, q_, v_, tau_, f, gains_, arena_.get<S>(m_.nv),
                                 arena_.get<S>(set_.rows), arena_.get<S>(1));
  }
  // The same by articulated bodies.
  void solve_articulated() {
    const S* f = body_wrenches(m_, arena_, q_, axes_, f_ext_);
    constrained_forward_dynamics(m_, arena_, set_, t_, q_, v_, tau_, f, gains_, a_, lambda_, arena_.get<S>(1));
    all_ = motions(m_, arena_, q_, v_, a_);
    wrenches_ = sum_subtrees(m_, arena_, all_.bodies, f_ext_, axes_);
    evaluate_rows(a_, nullptr);
    articulated_ = factor_mass<S>(m_, arena_, q_, nullptr, nullptr);
    S* G = arena_.get<S>(std::size_t(set_.rows) * m_.nv);
    for (int r = 0; r < set_.rows; ++r)
      for (int k = 0; k < m_.nv; ++k) G[std::size_t(r) * m_.nv + k] = G_[k * across_ + r];
    const CarriedRows<S> rows = carry_rows(m_, arena_, set_, articulated_, G, m_.nv);
    D_.pair_rows(m_, rows);
    D_.factor(gains_.compliance);
    std::fill_n(Y_, std::size_t(m_.nv) * across_, S(0.0));
    solve_all_rows(m_, arena_, articulated_, rows, Y_, across_);
  }
  // X0 = -M^-1 X of `width` columns, rows of X0 next to each other.
  void solve_column(const S* X, int stride, S* X0) {
    for (int k = 0; k < m_.nv; ++k)
      for (int c = 0; c < width; ++c) X0[k * width + c] = -X[k * stride + c];
    for (int c = 0; c < width; ++c) solve_mass(m_, articulated_, X0 + c, X0 + c, width);
  }

  // g, gdot and gamma as they enter, at accelerations a, into b, and G.
  __attribute__((noinline)) void evaluate_rows(const S* a, S* b) {
    std::fill_n(G_, std::size_t(m_.nv) * across_, S(0.0));
    const ConstraintState<S> at{m_, set_, arena_, all_, q_, v_, a, t_, times_, false};
    for (const PairPart& pair : set_.pairs) {
      const PairState<S> state = pair_state(pair, all_, times_);
      const PairState<V> wide = lift_state<V>(state);
      for_each_group<S>(pair, wide, false, [&](const RowGroup<V>& x) TORSOR_INLINE_LAMBDA {
        const int row = pair.row + x.first;
        if (b != nullptr) store_columns(stabilised(gains_, x.g, x.gdot, x.gamma), x.rows, b + row);
        const auto put = [&](const std::vector<int>& moves, const Force<V>& F) TORSOR_INLINE_LAMBDA {
          for_each_velocity(m_, moves, [&](int k) TORSOR_INLINE_LAMBDA {
            store_columns(dot(lift<V>(all_.columns[k].S_), F), x.rows, G_ + k * across_ + row);
          });
        };
        put(pair.moves_B, wide.to_B.act(x.W));
        if (pair.moves_A.empty()) return;
        const Force<V> on_A = wide.to_A.act(x.W);
        put(pair.moves_A, {-on_A.n, -on_A.f});
      });
    }
    if (set_.couplings.empty() && set_.twists.empty() && set_.custom.empty()) return;
    S* G = arena_.get<S>(std::size_t(set_.rows) * m_.nv);  // of all rows, but other rows are left as they are
    S *g = arena_.get<S>(set_.rows), *gdot = arena_.get<S>(set_.rows), *gamma = arena_.get<S>(set_.rows);
    constraint_values(at, g, gdot, gamma);
    constraint_jacobian(at, G, m_.nv);
    const auto take = [&](const ConstraintPart& part) {
      for (int r = part.row; r < part.row + part.rows; ++r) {
        if (b != nullptr) b[r] = stabilised(gains_, g[r], gdot[r], gamma[r]);
        for (int k = 0; k < m_.nv; ++k) G_[k * across_ + r] = G[std::size_t(r) * m_.nv + k];
      }
    };
    for (const auto& part : set_.couplings) take(part);
    for (const auto& part : set_.twists) take(part);
    for (const auto& part : set_.custom) take(part);
  }
  // D = G Y, and b = -(b + G a).
  __attribute__((noinline)) void pair_with_solutions(S* b) {
    for (const RowWalk& walk : row_plan<S>(set_).walks)
      for (int r = walk.row; r < walk.row + walk.rows; ++r) {
        S value = b[r];
        for_each_velocity(m_, walk.bodies, [&](int k) { value = mul_add(G_[k * across_ + r], a_[k], value); });
        b[r] = -value;
        S* to = D_.matrix() + r * D_.stride();
        in_blocks<2>((across_ - r / width * width) / width, [&](auto size, int vector) TORSOR_INLINE_LAMBDA {
          const int s = r / width * width + vector * width;
          V sum[size];
          for (int c = 0; c < size; ++c) sum[c] = V(0.0);
          for_each_velocity(m_, walk.bodies, [&](int k) TORSOR_INLINE_LAMBDA {
            const V own(G_[k * across_ + r]);
            for (int c = 0; c < size; ++c) sum[c] = mul_add(own, load<V>(Y_ + k * across_ + s + c * width), sum[c]);
          });
          for (int c = 0; c < size; ++c) store(sum[c], to + s + c * width);
        });
      }
  }

  // dlambda = -D^-1 (B + G X0) and da = X0 + Y dlambda of `size` vectors of columns, from c on. X0 has its rows next to
  // each other, those of B are `stride` apart.
  template <class Size>
  __attribute__((noinline)) void finish(Size size, int c, const S* X0, S* B, int stride) const {
    const int nv = m_.nv, rows = set_.rows;
    for (const RowWalk& walk : row_plan<S>(set_).walks)
      in_blocks<3>(walk.rows, [&](auto count, int first) TORSOR_INLINE_LAMBDA {
        const S* G = G_ + walk.row + first;
        S* to = B + std::size_t(walk.row + first) * stride;
        V sum[decltype(count)::value][Size::value];
        for (int r = 0; r < count; ++r)
          for (int b = 0; b < size; ++b) sum[r][b] = load<V>(to + r * stride + b * width);
        for_each_velocity(m_, walk.bodies, [&](int k) TORSOR_INLINE_LAMBDA {
          const S* x = X0 + k * size * width;
          for (int r = 0; r < count; ++r) {
            const V g(G[k * across_ + r]);
            for (int b = 0; b < size; ++b) sum[r][b] = mul_add(g, load<V>(x + b * width), sum[r][b]);
          }
        });
        for (int r = 0; r < count; ++r)
          for (int b = 0; b < size; ++b) store(sum[r][b], to + r * stride + b * width);
      });
    D_.solve_columns(B, size * width, stride);
    const Target* target = targets_ + c / width;
    for (int r = 0; r < rows; ++r)
      for (int b = 0; b < size; ++b) {
        if (target[b].dl == nullptr) continue;
        const int at = target[b].at;
        store_columns(-load<V>(B + std::size_t(r) * stride + b * width), nv - at, target[b].dl + r * nv + at);
      }
    bool some = false;
    for (int b = 0; b < size; ++b) some = some || target[b].da != nullptr;
    if (!some) return;
    in_blocks<3>(nv, [&](auto count, int first) TORSOR_INLINE_LAMBDA {
      V sum[decltype(count)::value][Size::value];
      for (int k = 0; k < count; ++k)
        for (int b = 0; b < size; ++b) sum[k][b] = load<V>(X0 + ((first + k) * size + b) * width);
      for (int r = 0; r < rows; ++r) {
        const S* from = B + std::size_t(r) * stride;
        for (int k = 0; k < count; ++k) {
          const V y(-Y_[(first + k) * across_ + r]);
          for (int b = 0; b < size; ++b) sum[k][b] = mul_add(y, load<V>(from + b * width), sum[k][b]);
        }
      }
      for (int k = 0; k < count; ++k)
        for (int b = 0; b < size; ++b)
          if (target[b].da != nullptr)
            store_columns(sum[k][b], nv - target[b].at, target[b].da + (first + k) * nv + target[b].at);
    });
  }
  static TORSOR_INLINE void store_columns(const V& x, int count, S* to) {
    if constexpr (width == 1)
      *to = x;
    else if (count >= width)
      store(x, to);
    else if (count > 0)
      store_part(x, to, count);
  }
  // f(size, first) for blocks of `most` and a smaller last one, whose size is a constant.
  template <int most, class F>
  static TORSOR_INLINE void in_blocks(int count, F f) {
    int first = 0;
    for (; count - first >= most; first += most) f(std::integral_constant<int, most>(), first);
    in_rest<most - 1>(count - first, first, f);
  }
  template <int size, class F>
  static TORSOR_INLINE void in_rest(int count, int first, F f) {
    if constexpr (size > 0) {
      if (count == size)
        f(std::integral_constant<int, size>(), first);
      else
        in_rest<size - 1>(count, first, f);
    }
  }

  // Wrenches of reaction that move with their bodies, in the forces of all subtrees. Not those of pairs with joints
  // that move both markers: these would be forces on both that cancel.
  __attribute__((noinline)) void ride() {
    const auto subtract = [&](int i, const Force<S>& F) {
      for (; i >= 0; i = m_.links[i].parent) {
        all_.bodies[i].f.n -= F.n;
        all_.bodies[i].f.f -= F.f;
      }
    };
    for (std::size_t p = 0; p < set_.pairs.size(); ++p) {
      const PairPart& pair = set_.pairs[p];
      if (pair.has_common) continue;
      const Force<S> W = pair_wrench(states_[p], pair, lambda_), on_A = states_[p].to_A.act(W);
      subtract(pair.B.body, states_[p].to_B.act(W));
      if (pair.motion.size == 0) subtract(pair.A.body, {-on_A.n, -on_A.f});
    }
    for (const TwistPart& part : set_.twists)
      for (const auto& body : part.bodies) {
        if (body.marker.body < 0) continue;
        const Force<S> w = twist_term(body, all_).w;
        subtract(body.marker.body, {lambda_[part.row] * w.n, lambda_[part.row] * w.f});
      }
  }
  // X -= the rest of K.
  __attribute__((noinline)) void subtract_stiffness(S* X, int stride) const {
    for (std::size_t p = 0; p < set_.pairs.size(); ++p) {
      if (set_.pairs[p].has_common) add_riding(state(), set_.pairs[p], lambda_, S(-1.0), X, stride);
      subtract_border(set_.pairs[p], states_[p], X, stride);
    }
    for (const CustomPart& part : set_.custom) {
      const S* K = custom_stiffness(state(), part, lambda_);
      for (int j = 0; j < m_.nv; ++j) add_scaled(m_.nv, S(-1.0), K + j * m_.nv, X + j * stride);
    }
  }
  // X -= (J_B^T (N - . x* W) - J_A^T N) (J_B - J_A), several columns at a time. With sums over the terms of linear
  // rows, N (w, v) = (T w + v x f, 0), T = sum of lambda (y a^T - a.y), and for a distance
  // (0, lambda / l (1 - n n^T) dy).
  void subtract_border(const PairPart& pair, const PairState<S>& at, S* X, int stride) const {
    Mat3<S> T{zero3<S>(), zero3<S>(), zero3<S>()};
    Vec3<S> f = zero3<S>(), n = zero3<S>();
    Force<S> W = zero_force<S>();
    S trace(0.0), stretch(0.0);
    for (int r = 0; r < pair.rows; ++r) {
      const S& lambda = lambda_[pair.row + r];
      const PairRow& row = pair.each[r];
      if (row.is_distance) {
        const S inverse = S(1.0) / square_root(dot(at.p, at.p));
        n = inverse * at.p;
        stretch += lambda * inverse;
        W.f = mul_add(lambda, n, W.f);
      }
      for (const RowTerm& term : row.terms) {
        const Vec3<S> y = mul_add(S(term.s), at.p, at.R * term.b), a = (lambda * S(term.coefficient)) * lift<S>(term.a);
        T.x = mul_add(a.x, y, T.x);
        T.y = mul_add(a.y, y, T.y);
        T.z = mul_add(a.z, y, T.z);
        trace += dot(a, y);
        f = mul_add(S(term.s), a, f);
        W.n = cross_add(y, a, W.n);
      }
    }
    T.x.x -= trace;
    T.y.y -= trace;
    T.z.z -= trace;
    W.f += f;
    // Columns of the velocities that move B, then of those that move A.
    int *velocity = velocities_, of_B = 0, count = 0;
    for (auto i = pair.moves_B.rbegin(); i != pair.moves_B.rend(); ++i)
      for (int k = 0; k < m_.links[*i].nv; ++k) velocity[count++] = m_.links[*i].iv + k;
    of_B = count;
    for (auto i = pair.moves_A.rbegin(); i != pair.moves_A.rend(); ++i)
      for (int k = 0; k < m_.links[*i].nv; ++k) velocity[count++] = m_.links[*i].iv + k;
    const Mat3<V> T_ = lift<V>(T);
    const Vec3<V> f_ = lift<V>(f), n_ = lift<V>(n), p_ = lift<V>(at.p);
    const Force<V> W_ = lift<V>(W);
    const SE3<V> to_A = lift<V>(at.to_A), to_B = lift<V>(at.to_B);
    const bool has_distance = pair.sees[3] && pair.lanes.empty();
    for (int first = 0, part; first < count; first += part) {
      const bool moves_B = first < of_B;
      part = std::min(width, (moves_B ? of_B : count) - first);
      const Motion<V> column = gather(velocity + first, part), eta = (moves_B ? to_B : to_A).act_inverse(column);
      Force<V> change{T_ * eta.w + cross(eta.v, f_), zero3<V>()};
      if (has_distance) {
        const Vec3<V> dy = cross_add(eta.w, p_, eta.v);
        change.f = V(stretch) * (dy - dot(n_, dy) * n_);
      }
      const V sign(moves_B ? -1.0 : 1.0);
      const Force<V> by_B = to_B.act(change - cross(eta, W_)), by_A = to_A.act(change);
      const bool consecutive = rises(velocity + first, part);
      for (int j = 0; j < count; ++j) {
        const Motion<V> row = lift<V>(all_.columns[velocity[j]].S_);
        const V x = j < of_B ? sign * dot(row, by_B) : -(sign * dot(row, by_A));
        S* to = X + velocity[j] * stride;
        if constexpr (width == 1) {
          to[velocity[first]] += x;
        } else if (consecutive) {
          store_columns(load<V>(to + velocity[first]) + x, part, to + velocity[first]);
        } else {
          for (int l = 0; l < part; ++l) to[velocity[first + l]] += x.lane(l);
        }
      }
    }
  }
  static bool rises(const int* velocity, int count) {
    for (int l = 1; l < count; ++l)
      if (velocity[l] != velocity[l - 1] + 1) return false;
    return true;
  }
  TORSOR_INLINE Motion<V> gather(const int* velocity, int count) const {
    if constexpr (width == 1) {
      return all_.columns[*velocity].S_;
    } else {
      alignas(64) S numbers[6][width] = {};
      for (int l = 0; l < count; ++l) {
        const Motion<S>& c = all_.columns[velocity[l]].S_;
        numbers[0][l] = c.w.x;
        numbers[1][l] = c.w.y;
        numbers[2][l] = c.w.z;
        numbers[3][l] = c.v.x;
        numbers[4][l] = c.v.y;
        numbers[5][l] = c.v.z;
      }
      return {{load<V>(numbers[0]), load<V>(numbers[1]), load<V>(numbers[2])},
              {load<V>(numbers[3]), load<V>(numbers[4]), load<V>(numbers[5])}};
    }
  }
  // gamma_x + 2 alpha gdot_x + beta^2 g_x
  __attribute__((noinline)) void differentiate_rows(S* by_q, S* by_v, int stride) const {
    const V twice(2.0 * gains_.alpha), square(gains_.beta * gains_.beta);
    const bool damped = gains_.alpha != 0.0, pulled = gains_.beta != 0.0;
    for (std::size_t p = 0; p < set_.pairs.size(); ++p) {
      const PairPart& pair = set_.pairs[p];
      const PairState<V> at = lift_state<V>(states_[p]);
      for_each_group<S>(pair, at, true, [&](const RowGroup<V>& x) TORSOR_INLINE_LAMBDA {
        const GroupWrenches<V> w = group_wrenches(at, pair.A_rests(), x);
        RowWrenches<V> in_A = w.gamma;  // with the gains
        if (damped) {
          in_A.C0 = mul_add(twice, w.rate, in_A.C0);
          in_A.C1 = mul_add(twice, x.W, in_A.C1);
        }
        if (pulled) in_A.C0 = mul_add(square, x.W, in_A.C0);
        const auto put = [&](const std::vector<int>& moves, const SE3<V>& to, const V& sign) TORSOR_INLINE_LAMBDA {
          const Force<V> C0 = to.act(in_A.C0), C1 = to.act(in_A.C1), C2 = to.act(in_A.C2);
          const int row = (pair.row + x.first) * stride;
          for_each_velocity(m_, moves, [&](int k) TORSOR_INLINE_LAMBDA {
            const auto& c = all_.columns[k];
            const Motion<V> S_ = lift<V>(c.S_);
            if (by_q != nullptr)
              scatter(sign * (dot(S_, C0) + dot(lift<V>(c.Psidot), C1) + dot(lift<V>(c.Psiddot), C2)), x.rows,
                      by_q + row + k, stride);
            if (by_v != nullptr)
              scatter(sign * (dot(S_, C1) + dot(lift<V>(c.Vdot), C2)), x.rows, by_v + row + k, stride);
          });
        };
        put(pair.moves_B, at.to_B, V(1.0));
        if (!pair.moves_A.empty()) put(pair.moves_A, at.to_A, V(-1.0));
      });
    }
    if (!set_.couplings.empty() || !set_.twists.empty() || !set_.custom.empty())
      differentiate_other_rows(by_q, by_v, stride);
  }
  static TORSOR_INLINE void scatter(const V& x, int rows, S* to, int stride) {
    if constexpr (width == 1)
      *to = x;
    else
      for (int r = 0; r < rows; ++r) to[r * stride] = x.lane(r);
  }
  // Those that are not of pairs.
  __attribute__((noinline)) void differentiate_other_rows(S* by_q, S* by_v, int stride) const {
    const int nv = m_.nv;
    const std::size_t size = std::size_t(set_.rows) * nv;
    S *rate = arena_.get<S>(size), *dq = arena_.get<S>(size), *dv = arena_.get<S>(size);
    constraint_derivatives(state(), rate, dq, dv, nv);
    const S twice(2.0 * gains_.alpha), square(gains_.beta * gains_.beta);
    const auto take = [&](const ConstraintPart& part, bool has_g) {
      for (int r = part.row; r < part.row + part.rows; ++r)
        for (int k = 0; k < nv; ++k) {
          const std::size_t at = std::size_t(r) * nv + k;
          const S& G = G_[k * across_ + r];
          if (by_q != nullptr) by_q[r * stride + k] = dq[at] + twice * rate[at] + (has_g ? square * G : S(0.0));
          if (by_v != nullptr) by_v[r * stride + k] = dv[at] + twice * G;
        }
    };
    for (const auto& part : set_.couplings) take(part, true);
    for (const auto& part : set_.twists) take(part, false);  // which have no g
    for (const auto& part : set_.custom) take(part, true);
  }
  // dl_dq += N N^T d(G x)/dq, G x = lambda, in lanes where rows were skipped.
  __attribute__((noinline)) void add_turning_range(S* dl_dq) {
    const int nv = m_.nv, rows = set_.rows;
    S *mu = arena_.get<S>(rows), *x = arena_.get<S>(nv), *rest = arena_.get<S>(nv);
    D_.solve(lambda_, mu);
    std::fill_n(rest, nv, S(0.0));
    for (int k = 0; k < nv; ++k) {
      x[k] = S(0.0);
      for (int r = 0; r < rows; ++r) x[k] = mul_add(Y_[k * across_ + r], mu[r], x[k]);
    }
    const auto rate_by_q = [&](const S* velocity) {
      S* out = arena_.get<S>(std::size_t(rows) * each_);
      const Motions<S> all = motions(m_, arena_, q_, velocity, rest, false, true);
      constraint_derivatives(ConstraintState<S>{m_, set_, arena_, all, q_, velocity, rest, t_, times_, true}, out,
                             static_cast<S*>(nullptr), static_cast<S*>(nullptr), each_);
      return out;
    };
    S* turned = rate_by_q(x);
    if (!set_.custom.empty()) {  // less the part of the rate that does not depend on v
      const S* still = rate_by_q(rest);
      for (std::size_t k = 0; k < std::size_t(rows) * each_; ++k) turned[k] -= still[k];
    }
    D_.project_on_null_space(turned, nv, each_);
    for (int r = 0; r < rows; ++r)
      for (int k = 0; k < nv; ++k)
        dl_dq[r * nv + k] =
            select(D_.any_skipped(), dl_dq[r * nv + k] + turned[std::size_t(r) * each_ + k], dl_dq[r * nv + k]);
  }

  const Model& m_;
  Arena& arena_;
  const ConstraintSet& set_;
  double t_;
  const S *q_, *v_, *tau_, *f_ext_;
  int axes_;
  const ConstraintGains& gains_;
  const double* times_;
  int each_, across_;  // numbers in a row of nv, and of rows, of whole vectors
  S *G_, *Y_;          // G^T and M^-1 G^T, nv x rows, padded
  S *a_, *lambda_;
  PairState<S>* states_;  // at these
  int* velocities_;
  Target* targets_;
  Delassus<S> D_;
  Motions<S> all_{};
  const WorldWrench<S>* wrenches_ = nullptr;
  std::optional<TreeInverse<S>> inverse_;
  MassFactor<S> articulated_{};
};

template <class S>
void constrained_forward_dynamics_derivatives(const Model& m, Arena& arena, const ConstraintSet& set, double t,
                                              const S* q, const S* v, const S* tau, const S* f_ext, int axes,
                                              const ConstraintGains& gains, const ConstrainedBlocks<S>& out) {
  if (m.nv == 0) return;
  ConstrainedDerivatives<S>(m, arena, set, t, q, v, tau, f_ext, axes, gains).run(out);
}

}  // namespace torsor
