// First derivatives of forward dynamics under constraints (docs/derivations/constraints.md, 3). With x one of q, v, tau,
//   M da - G^T dlambda = -(ID_x - K_x),   G da = -(gamma_x + 2 alpha gdot_x + beta^2 g_x) - compliance dlambda,
// K = d(G^T lambda)/dq, at the accelerations and multipliers found. With D = G M^-1 G^T and Y = M^-1 G^T:
//   X0 = -M^-1 (ID_x - K_x),   dlambda = -D^-1 (gamma_x + ... + G X0),   da = X0 + Y dlambda.
//
// Where rows depend on each other, D^-1 is the pseudo-inverse, and the range of G turns with q: with N a basis of the
// null space of G^T and x such that G x = lambda, dlambda/dq gains N N^T d(G x)/dq.
#pragma once
#include "constraints/constrained_dynamics.hpp"
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
        G_(arena.get<S>(std::size_t(set.rows) * each_)),
        Y_(arena.get<S>(std::size_t(m.nv) * across_)),
        a_(arena.get<S>(m.nv)),
        lambda_(arena.get<S>(set.rows)),
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
    S *X = arena_.get<S>(std::size_t(nv) * stride), *X0 = arena_.get<S>(std::size_t(nv) * stride);
    std::fill_n(X, std::size_t(nv) * stride, S(0.0));
    const auto part = [&](S* matrix, int i) { return start[i] >= 0 ? matrix + start[i] : nullptr; };
    ride();
    pair_columns(m_, arena_, all_, wrenches_, axes_, part(X, 0), part(X, 1), static_cast<S*>(nullptr), stride);
    if (start[0] >= 0) subtract_stiffness(X, stride);
    for (int k = 0; start[2] >= 0 && k < nv; ++k) X[k * stride + start[2] + k] = S(-1.0);
    solve_mass(X, stride, X0);
    // gamma_x + 2 alpha gdot_x + beta^2 g_x + G X0, which D^-1 makes -dlambda
    S* B = arena_.get<S>(std::size_t(rows) * stride);
    std::fill_n(B, std::size_t(rows) * stride, S(0.0));
    differentiate_rows(part(B, 0), part(B, 1), stride);
    add_product(G_, each_, X0, stride, B);
    D_.solve_columns(B, stride, stride);
    subtract_product(B, stride, start, das, X0);
    for (int i = 0; i < 3; ++i)
      for (int r = 0; dls[i] != nullptr && r < rows; ++r)
        for (int k = 0; k < nv; ++k) dls[i][r * nv + k] = -B[std::size_t(r) * stride + start[i] + k];
    if (dls[0] != nullptr && any(D_.any_skipped())) add_turning_range(dls[0]);
  }

 private:
  ConstraintState<S> state() const { return {m_, set_, arena_, all_, q_, v_, a_, t_, times_, false}; }

  // Accelerations, multipliers, D and Y by the sparse factors of M^-1.
  void solve_by_factors() {
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
    const ConstraintState<S> at{m_, set_, arena_, all_, q_, v_, rest, t_, times_, false};
    S *g = arena_.get<S>(rows), *gdot = arena_.get<S>(rows), *b = arena_.get<S>(rows);
    constraint_values(at, g, gdot, b);
    constraint_jacobian(at, G_, each_);
    S* X = arena_.get<S>(std::size_t(nv) * across_);
    for (int k = 0; k < nv; ++k)
      for (int r = 0; r < across_; ++r) X[k * across_ + r] = r < rows ? -G_[std::size_t(r) * each_ + k] : S(0.0);
    S* const outs[] = {Y_};
    inverse_->multiply_negated(arena_, X, across_, outs, across_);
    for_each_row([&](int r, const std::vector<int>& bodies) {
      S* to = D_.matrix() + r * D_.stride();
      for (int s = r / width * width; s < rows; s += width) {
        V sum(0.0);
        for_each_velocity(m_, bodies, [&](int k) {
          sum = mul_add(V(G_[std::size_t(r) * each_ + k]), load<V>(Y_ + k * across_ + s), sum);
        });
        store(sum, to + s);
      }
      S value = stabilised(gains_, g[r], gdot[r], b[r]);
      for_each_velocity(m_, bodies, [&](int k) { value = mul_add(G_[std::size_t(r) * each_ + k], a_[k], value); });
      b[r] = -value;
    });
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
    constraint_jacobian(state(), G_, each_);
    articulated_ = factor_mass<S>(m_, arena_, q_, nullptr, nullptr);
    const CarriedRows<S> rows = carry_rows(m_, arena_, set_, articulated_, G_, each_);
    D_.pair_rows(m_, rows);
    D_.factor(gains_.compliance);
    std::fill_n(Y_, std::size_t(m_.nv) * across_, S(0.0));
    solve_all_rows(m_, arena_, articulated_, rows, Y_, across_);
  }
  // X0 = -M^-1 X. X is overwritten.
  void solve_mass(S* X, int stride, S* X0) {
    if (inverse_) {
      S* const outs[] = {X0};
      inverse_->multiply_negated(arena_, X, stride, outs, stride);
      return;
    }
    for (int k = 0; k < m_.nv * stride; ++k) X0[k] = -X[k];
    for (int c = 0; c < stride; ++c) torsor::solve_mass(m_, articulated_, X0 + c, X0 + c, stride);
  }

  // Calls f(row, bodies), bodies being those whose velocities the row of G may depend on.
  template <class F>
  void for_each_row(F f) const {
    for (const RowWalk& walk : row_plan<S>(set_).walks)
      for (int r = 0; r < walk.rows; ++r) f(walk.row + r, walk.bodies);
  }
  // B += G X, rows of G `of_G` apart.
  void add_product(const S* G, int of_G, const S* X, int stride, S* B) const {
    const std::vector<RowWalk>& walks = row_plan<S>(set_).walks;
    for (const RowWalk& walk : walks)
      in_blocks<2>(walk.rows, [&](auto count, int first) TORSOR_INLINE_LAMBDA {
        const S* g = G + std::size_t(walk.row + first) * of_G;
        S* to = B + std::size_t(walk.row + first) * stride;
        in_blocks<4>(stride / width, [&](auto size, int vector) TORSOR_INLINE_LAMBDA {
          const int c = vector * width;
          V sum[decltype(count)::value][size];
          for (int r = 0; r < count; ++r)
            for (int b = 0; b < size; ++b) sum[r][b] = load<V>(to + r * stride + c + b * width);
          for_each_velocity(m_, walk.bodies, [&](int k) TORSOR_INLINE_LAMBDA {
            const S* x = X + std::size_t(k) * stride + c;
            for (int r = 0; r < count; ++r) {
              const V s(g[r * of_G + k]);
              for (int b = 0; b < size; ++b) sum[r][b] = mul_add(s, load<V>(x + b * width), sum[r][b]);
            }
          });
          for (int r = 0; r < count; ++r)
            for (int b = 0; b < size; ++b) store(sum[r][b], to + r * stride + c + b * width);
        });
      });
  }
  // das = X0 - Y B
  void subtract_product(const S* B, int stride, const int* start, S* const* das, const S* X0) const {
    const int nv = m_.nv, rows = set_.rows;
    for (int i = 0; i < 3; ++i) {
      if (das[i] == nullptr) continue;
      in_blocks<3>(nv, [&](auto count, int first) TORSOR_INLINE_LAMBDA {
        in_blocks<5>(each_ / width, [&](auto size, int vector) TORSOR_INLINE_LAMBDA {
          const int c = vector * width;
          V sum[decltype(count)::value][size];
          for (int k = 0; k < count; ++k)
            for (int b = 0; b < size; ++b)
              sum[k][b] = load<V>(X0 + std::size_t(first + k) * stride + start[i] + c + b * width);
          for (int r = 0; r < rows; ++r) {
            const S* from = B + std::size_t(r) * stride + start[i] + c;
            V x[size];
            for (int b = 0; b < size; ++b) x[b] = load<V>(from + b * width);
            for (int k = 0; k < count; ++k) {
              const V s(-Y_[(first + k) * across_ + r]);
              for (int b = 0; b < size; ++b) sum[k][b] = mul_add(s, x[b], sum[k][b]);
            }
          }
          for (int k = 0; k < count; ++k)
            for (int b = 0; b < size; ++b)
              store_columns(sum[k][b], nv - c - b * width, das[i] + (first + k) * nv + c + b * width);
        });
      });
    }
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

  // Wrenches of reaction that move with their bodies, in the forces of all subtrees. Not those of pairs with joints that
  // move both markers: these would be forces on both that cancel.
  void ride() {
    const auto subtract = [&](int i, const Force<S>& F) {
      for (; i >= 0; i = m_.links[i].parent) {
        all_.bodies[i].f.n -= F.n;
        all_.bodies[i].f.f -= F.f;
      }
    };
    for (const PairPart& pair : set_.pairs) {
      if (pair.has_common) continue;
      const PairState<S> state = pair_state(pair, all_, times_);
      const Force<S> W = pair_wrench(state, pair, lambda_), on_A = state.to_A.act(W);
      subtract(pair.B.body, state.to_B.act(W));
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
  void subtract_stiffness(S* X, int stride) const {
    for (const PairPart& pair : set_.pairs)
      if (pair.has_common) add_riding(state(), pair, lambda_, S(-1.0), X, stride);
    add_constraint_border(state(), lambda_, S(-1.0), X, stride);
  }
  // gamma_x + 2 alpha gdot_x + beta^2 g_x
  void differentiate_rows(S* by_q, S* by_v, int stride) const {
    const int nv = m_.nv, rows = set_.rows;
    S* rate = gains_.alpha != 0.0 && by_q != nullptr ? arena_.get<S>(std::size_t(rows) * stride) : nullptr;
    constraint_derivatives(state(), rate, by_q, by_v, stride);
    const S twice(2.0 * gains_.alpha), square(gains_.beta * gains_.beta);
    for (int r = 0; r < rows; ++r) {
      const S* G = G_ + std::size_t(r) * each_;
      if (rate != nullptr) add_scaled(nv, twice, rate + r * stride, by_q + r * stride);
      if (gains_.beta != 0.0 && by_q != nullptr) add_positions(r, square, G, by_q + r * stride);
      if (gains_.alpha != 0.0 && by_v != nullptr) add_scaled(nv, twice, G, by_v + r * stride);
    }
  }
  // Rows on twists have no g.
  void add_positions(int r, const S& square, const S* G, S* to) const {
    for (const TwistPart& part : set_.twists)
      if (part.row == r) return;
    add_scaled(m_.nv, square, G, to);
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
  S *G_, *Y_;          // rows x nv and nv x rows, padded
  S *a_, *lambda_;
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
