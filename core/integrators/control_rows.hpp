// The constraints of a variational step: g(q^k) = 0 at its control points k = 1..s, with multipliers at the points k =
// 0..s-1. Each is weighted by w_k, the weights of the Lobatto quadrature whose nodes the control points are, whatever
// the quadrature of the Lagrangian (docs/derivations/constraints.md):
//   r_0 += sum over k < s of Ad_k^T f_k,   r_k += J_k^T f_k,   f_k = h w_k G_k^T lambda_k,  dq^k = Ad_k dq0 + J_k dxi^k
// and the momentum p^ at the end of the step is projected: p1 = p^ + G_s^T kappa with G_s M^-1 p1 + g_t = 0.
//
// Over the tree, wrenches of pairs at the points 0 < k < s move with their bodies, which makes their derivatives sums
// over subtrees; the rest of the derivative of G^T lambda has rank six or three for each pair and
// point, as in integrators/stage_rows.hpp, and is part of the border.
#pragma once
#include "constraints/row_metric.hpp"
#include "integrators/action.hpp"
#include "integrators/scene_mass.hpp"
#include "integrators/scene_rows.hpp"
#include "linear/border.hpp"

namespace torsor {

template <class S>
struct ControlPoint {
  double t, weight;  // weight: h w_k
  const S* q;
  Motions<S> all;           // at rest
  ChartColumns<S>* charts;  // null at point 0
  const double* times;      // of moving markers
  S *G, *f;                 // rows x nv; nv, but at the last point
};

template <class S>
class ControlRows {
 public:
  ControlRows(const VariationalScene& scene, Arena& memory)
      : scene_(scene),
        m_(scene.m),
        set_(*scene.constraints),
        nv_(m_.nv),
        rows_(set_.rows),
        s_(scene.rule.s),
        memory_(memory),
        metric(m_, rows_, memory),
        border_(s_ * nv_, s_ * rows_, memory),
        points(s_ + 1) {
    for (S** vector : {&lambda_start, &kappa, &rate_, &kept_}) allocate(vector, rows_);
    for (S** vector : {&zero, &v1}) allocate(vector, nv_);
    allocate(&g, s_ * rows_);
    allocate(&y_, s_ * rows_ + border_of_pairs(set_) * (s_ - 1));
    for (int k = 0; k <= s_; ++k) {
      weights_.push_back(0.0);  // of the polynomials through the nodes, which the quadrature integrates exactly
      for (int a = 0; a < scene.rule.m; ++a) weights_[k] += scene.rule.w[a] * scene.share(a, k);
    }
  }
  ControlRows(const ControlRows&) = delete;

 private:
  const VariationalScene& scene_;
  const Model& m_;
  const ConstraintSet& set_;
  const int nv_, rows_, s_;
  Arena& memory_;

 public:
  RowMetric<S> metric;  // at the beginning of a step, then at its end
  S *lambda_start, *g;  // a guess of the multipliers; values, s x rows
  S *kappa, *v1;        // of the end: multipliers of the projection, and velocities after it
  S* zero;

 private:
  Border<S> border_;
  std::optional<Border<S>> wide_;  // over the tree, with the rest of the derivative of G^T lambda

 public:
  std::vector<ControlPoint<S>> points;

  int count() const { return rows_; }          // in one point
  int unknowns() const { return s_ * rows_; }  // all multipliers
  // Sums over subtrees that wrenches need, beyond those of the action.
  static int sums(const VariationalScene& scene) {
    return scene.constraints != nullptr && scene.local && !scene.constraints->pairs.empty() ? 6 * (scene.rule.s - 1)
                                                                                            : 0;
  }
  double weight(int k) const { return weights_[k]; }
  S kept(int row) const { return kept_[row]; }
  ConstraintState<S> state(Arena& arena, int k) const {
    const ControlPoint<S>& at = points[k];
    return row_state<S>(scene_, arena, at.all, at.q, zero, zero, at.t, at.times, false);
  }
  ConstraintState<S> state(Arena& arena, const Motions<S>& all, const S* q, const S* v, double t,
                           bool still = false) const {
    return row_state<S>(scene_, arena, all, q, v, zero, t, times_at(set_, arena, t), still);
  }

  // Before a step from (q, v): which rows are kept, and a guess of the multipliers from the accelerations there, under
  // controls u (null: none). False if the mass matrix is singular, in all lanes if it is in one.
  Mask<S> begin(Arena& arena, const S* q, const S* v, const S* a, const S* u, const S* p, double t) {
    arena.singular_joint = -1;
    const Motions<S> all = motions_at(arena, q, v);
    const SceneMass<S> mass(scene_, arena, q);
    if (arena.singular_joint >= 0) return no_lane<S>();
    metric.evaluate(state(arena, all, q, v, t), mass);
    for (int r = 0; r < rows_; ++r) kept_[r] = metric.kept(r);
    S* missing = arena.get<S>(nv_);
    driving_torques<S>(scene_, arena, q, v, a, t, p, missing);
    for (int k = 0; k < nv_; ++k) missing[k] = u == nullptr ? -missing[k] : -(missing[k] + u[k]);
    for (int r = 0; r < rows_; ++r) {
      lambda_start[r] = S(0.0);
      for (int k = 0; k < nv_; ++k) lambda_start[r] = mul_add(metric.Y(r)[k], missing[k], lambda_start[r]);
    }
    metric.solve(lambda_start);
    return every_lane<S>();
  }

  // Rows at the control points, and their forces, which are added to D. False if a joint turns by half a turn.
  Mask<S> evaluate(Arena& arena, const S* q0, const S* xi, const S* lambda, double t, S* D) {
    Mask<S> good = every_lane<S>();
    S* pulled = arena.get<S>(nv_);
    for (int k = 0; k <= s_; ++k) {
      ControlPoint<S>& at = points[k];
      at.t = t + scene_.rule.nodes[k] * scene_.h;
      at.weight = scene_.h * weights_[k];
      at.q = q0;
      at.charts = nullptr;
      if (k > 0) {
        S* q = arena.get<S>(m_.nq);
        const S* x = xi + (k - 1) * nv_;
        good = good & retract(m_, q0, x, q);
        at.q = q;
        at.charts = arena.get<ChartColumns<S>>(scene_.quaternions.size());
        for (std::size_t j = 0; j < scene_.quaternions.size(); ++j) {
          const Model::Body& body = m_.bodies[scene_.quaternions[j]];
          chart_columns(body.kind, x + body.iv, at.charts[j]);
        }
      }
      at.times = times_at(set_, arena, at.t);
      at.all = motions_at(arena, at.q, zero);
      at.G = arena.get<S>(std::size_t(rows_) * nv_);
      constraint_jacobian(state(arena, k), at.G, nv_);
      if (k > 0) constraint_values<S>(state(arena, k), g + (k - 1) * rows_, k == s_ ? rate_ : nullptr, nullptr);
      if (k == s_) break;
      at.f = arena.get<S>(nv_);
      std::fill_n(at.f, nv_, S(0.0));
      for (int r = 0; r < rows_; ++r) add_scaled(nv_, S(at.weight) * lambda[k * rows_ + r], at.G + r * nv_, at.f);
      pull(at, true, at.f, pulled);
      add_scaled(nv_, S(1.0), pulled, D);
      if (k == 0) continue;
      pull(at, false, at.f, pulled);
      add_scaled(nv_, S(1.0), pulled, D + k * nv_);
    }
    return good;
  }

  // p (p^ and then p1) at the last control point. False if the mass matrix is singular, in all lanes if it is in one,
  // or if rows that were not kept are violated, with velocities of the given size.
  Mask<S> project(Arena& arena, S* p, const S& speed) {
    const ControlPoint<S>& at = points[s_];
    arena.singular_joint = -1;
    const SceneMass<S> mass(scene_, arena, at.q);
    if (arena.singular_joint >= 0) return no_lane<S>();
    metric.evaluate(state(arena, s_), mass);
    mass.solve(p, v1);
    std::copy_n(rate_, rows_, kappa);
    metric.add_rates(v1, kappa);
    metric.solve(kappa);
    for (int r = 0; r < rows_; ++r) kappa[r] = -kappa[r];
    metric.add_torques(S(1.0), kappa, p);
    mass.solve(p, v1);
    Mask<S> good = every_lane<S>();
    const S reach = larger(S(1.0), largest_of(m_.nq, at.q));
    for (int r = 0; r < rows_; ++r) {
      const S limit =
          S(1e-7 * scene_.h) * (S(1.0) + speed) * (S(1.0) + largest_of(nv_, metric.G(r))) + S(1e-12) * reach;
      for (int k = 0; k < s_; ++k)
        good = good & (less(S(0.5), kept_[r]) | less_equal(absolute(g[k * rows_ + r]), limit));
    }
    return good;
  }

  // Accelerations a of free bodies become those under the constraints, at velocities that satisfy them.
  void constrain(Arena& arena, const SceneMass<S>& mass, const S* q, const S* v, double t, S* a) {
    const Motions<S> all = motions_at(arena, q, v);
    const ConstraintState<S> at = state(arena, all, q, v, t);
    metric.evaluate(at, mass);
    S* rate = arena.get<S>(rows_);
    constraint_values<S>(at, nullptr, nullptr, rate);
    metric.add_rates(a, rate);
    metric.solve(rate);
    metric.add_response(S(-1.0), rate, a);
  }

  // Maps of a point: of dq0 (`start`) or of dxi^k.  out = A^T y.
  void pull(const ControlPoint<S>& at, bool start, const S* y, S* out) const {
    std::copy_n(y, nv_, out);
    each_chart(at, [&](const ChartColumns<S>& chart, int iv) {
      chart.apply_transposed(start ? chart.Ad : chart.s, y + iv, out + iv);
    });
  }
  // out += A x
  void push(const ControlPoint<S>& at, bool start, const S* x, S* out) const {
    add_scaled(nv_, S(1.0), x, out);
    each_chart(at, [&](const ChartColumns<S>& chart, int iv) {
      S y[6];
      chart.apply(start ? chart.Ad : chart.s, x + iv, y);
      for (int k = 0; k < chart.n; ++k) out[iv + k] += y[k] - x[iv + k];
    });
  }
  // out += A^T X, rows of X nv apart, those of out `stride`.
  void add_rows(const ControlPoint<S>& at, bool start, const S* X, S* out, int stride) const {
    for (int k = 0; k < nv_; ++k) add_scaled(nv_, S(1.0), X + k * nv_, out + std::size_t(k) * stride);
    each_chart(at, [&](const ChartColumns<S>& chart, int iv) {
      for (int l = 0; l < chart.n; ++l) {
        S unit[6] = {}, turned[6];
        unit[l] = S(1.0);
        chart.apply_transposed(start ? chart.Ad : chart.s, unit, turned);
        for (int k = 0; k < chart.n; ++k)
          add_scaled(nv_, turned[k] - unit[k], X + (iv + l) * nv_, out + std::size_t(iv + k) * stride);
      }
    });
  }
  // h w_k d(G^T lambda)/dq A at a point, A being one of its maps; nv x nv in the arena.
  S* stiffness(Arena& arena, int k, const S* lambda, bool start) const {
    const ControlPoint<S>& at = points[k];
    S *K = arena.get<S>(std::size_t(nv_) * nv_), *row = arena.get<S>(nv_);
    std::fill_n(K, nv_ * nv_, S(0.0));
    add_constraint_stiffness<S>(state(arena, k), lambda + k * rows_, S(at.weight), K, nv_);
    for (int r = 0; r < nv_; ++r) {
      pull(at, start, K + r * nv_, row);
      std::copy_n(row, nv_, K + r * nv_);
    }
    return K;
  }

  // The matrix of Newton's method ------------------------------------------------------------------------------------

  // Adds the derivatives of the forces by xi, to a dense matrix.
  void add_to_matrix(Arena& arena, const S* lambda, S* H) const {
    const int size = s_ * nv_;
    for (int k = 1; k < s_; ++k) {
      const ControlPoint<S>& at = points[k];
      const S* K = stiffness(arena, k, lambda, false);
      S *first = H + (k - 1) * nv_, *own = first + std::size_t(k) * nv_ * size;
      add_rows(at, true, K, first, size);
      add_rows(at, false, K, own, size);
      each_chart(at, [&](const ChartColumns<S>& chart, int iv) {
        for_each_chart_term(chart, at.f + iv, [&](int r, int c, const S& start, const S& point) {
          first[(iv + r) * size + iv + c] += start;
          own[(iv + r) * size + iv + c] += point;
        });
      });
    }
  }
  // The same to a system over the tree, whose sums have `first` others before those of the wrenches; the rest is in the
  // border.
  void add_to_tree(const S* lambda, TreeSystem<S>& system, int first) {
    in_tree_ = true;
    for (int k = 1; k < s_; ++k) {
      const ControlPoint<S>& at = points[k];
      wrenches_.assign(m_.n(), zero_force<S>());
      Force<S>* Gamma = wrenches_.data();
      for (const PairPart& pair : set_.pairs) {
        const PairState<S> seen = pair_state(pair, at.all, at.times);
        const Force<S> W = pair_wrench(seen, pair, lambda + k * rows_);
        if (pair.B.body >= 0) Gamma[pair.B.body] += seen.to_B.act(W);
        if (pair.A.body >= 0) Gamma[pair.A.body] = Gamma[pair.A.body] - seen.to_A.act(W);
      }
      for (int i = m_.n() - 1; i >= 0; --i)
        if (const int parent = m_.links[i].parent; parent >= 0) Gamma[parent] += Gamma[i];
      std::size_t next = 0;
      for (int i = 0; i < m_.n(); ++i) {
        const bool on_group = next < scene_.quaternions.size() && scene_.quaternions[next] == i;
        fill_joint(at, k, i, on_group ? &at.charts[next++] : nullptr, Gamma[i], system, first + 6 * (k - 1));
      }
    }
  }
  // Takes them out of the system again, but for its blocks N, which are filled anew.
  void leave_tree(TreeSystem<S>& system, int first) {
    if (!in_tree_) return;
    in_tree_ = false;
    for (int i = 0; i < m_.n(); ++i)
      for (int k = 0; k < system.unknowns(i); ++k) {
        std::fill_n(system.C(i, k) + first, 6 * (s_ - 1), S(0.0));
        std::fill_n(system.L(i, k) + first, 6 * (s_ - 1), S(0.0));
      }
  }

  // Borders the factors of the matrix, dense or over the tree. Unknowns of rows are multipliers times h^2, so that all
  // blocks are of the same size whatever h.
  Mask<S> factor(Arena& arena, const TreeSolver<S>& solver, const S* lambda) {
    const bool tree = solver.form() == TreeSolver<S>::Form::tree && s_ > 1 && !set_.pairs.empty();
    if (tree && !wide_) wide_.emplace(s_ * nv_, unknowns() + border_of_pairs(set_) * (s_ - 1), memory_);
    used_ = tree ? &*wide_ : &border_;
    Border<S>& border = *used_;
    border.clear();
    S *start = arena.get<S>(nv_), *own = arena.get<S>(nv_);
    for (int k = 0; k <= s_; ++k) {
      const ControlPoint<S>& at = points[k];
      const S scale(-weights_[k] / scene_.h);
      for (int r = 0; r < rows_; ++r) {
        const int column = k * rows_ + r;
        const S* G = at.G + r * nv_;
        if (k > 0) pull(at, false, G, own);
        if (k < s_) {
          pull(at, true, G, start);
          border.E(column) = kept_[r] - S(1.0);
          for (int l = 0; l < nv_; ++l) {
            border.B(l, column) = scale * kept_[r] * start[l];
            if (k > 0) border.B(k * nv_ + l, column) = scale * kept_[r] * own[l];
          }
        }
        for (int l = 0; k > 0 && l < nv_; ++l) border.C(column - rows_)[(k - 1) * nv_ + l] = kept_[r] * own[l];
      }
    }
    int column = unknowns();
    for (int k = 1; tree && k < s_; ++k)
      for (const PairPart& pair : set_.pairs) {
        fill_pair(arena, k, pair, lambda + k * rows_, column);
        column += border_of_pair(pair);
      }
    return border.factor(solver);
  }
  Border<S>& border() { return *used_; }

  // x (s nv, then multipliers): from the right-hand side of the equations of motion, and minus `miss` of the rows, the
  // corrections.
  void solve(const TreeSolver<S>& solver, S* x, const S* miss) {
    std::fill_n(y_, used_->width(), S(0.0));
    for (int k = 0; k < unknowns(); ++k) y_[k] = -(kept_[k % rows_] * miss[k]);
    used_->solve(solver, x, y_);
    for (int k = 0; k < unknowns(); ++k) x[s_ * nv_ + k] = y_[k] / S(scene_.h * scene_.h);
  }
  // Sizes of the rounding errors of the forces (s x nv) are added to x, those of g returned.
  S* roundings(Arena& arena, const S* lambda, S* x) const {
    constexpr double eps = std::numeric_limits<double>::epsilon();
    S* out = arena.get<S>(unknowns());
    for (int k = 0; k <= s_; ++k) {
      const ControlPoint<S>& at = points[k];
      const S reach = larger(S(1.0), largest_of(m_.nq, at.q));
      for (int r = 0; r < rows_; ++r) {
        S size(1.0);
        for (int l = 0; l < nv_; ++l) {
          const S entry = absolute(at.G[r * nv_ + l]);
          size += entry;
          if (k == s_) continue;
          const S force = S(eps * at.weight) * absolute(lambda[k * rows_ + r]) * entry;
          x[k * nv_ + l] += select(less(x[k * nv_ + l], S(0.0)), -force, force);
        }
        if (k > 0) out[(k - 1) * rows_ + r] = S(r % 2 == 0 ? eps : -eps) * size * reach;
      }
    }
    return out;
  }
  // The same for many columns, x: s nv rows; Y: rows of the border, for the right-hand sides of the rows.
  void solve_columns(const TreeSolver<S>& solver, S* X, int columns, S* Y) const {
    used_->solve_columns(solver, X, columns, Y);
  }
  // (x, y) of the transposed system, y: s x rows.
  void solve_transposed(const TreeSolver<S>& solver, S* x, S* y) {
    std::fill_n(y_, used_->width(), S(0.0));
    std::copy_n(y, unknowns(), y_);
    used_->solve_transposed(solver, x, y_, true);
    for (int k = 0; k < unknowns(); ++k) y[k] = kept_[k % rows_] * y_[k];
  }

  // Calls f(chart, first velocity) for the joints on groups, at points beyond the first.
  template <class F>
  void each_chart(const ControlPoint<S>& at, F&& f) const {
    for (std::size_t j = 0; at.charts != nullptr && j < scene_.quaternions.size(); ++j)
      f(at.charts[j], m_.bodies[scene_.quaternions[j]].iv);
  }
  // Derivatives of Ad^T f and J^T f by xi at fixed f: calls each(row, column, the one, the other).
  template <class F>
  static void for_each_chart_term(const ChartColumns<S>& chart, const S* f, F&& each) {
    const Force<S> force = chart.covector(f);
    for (int r = 0; r < chart.n; ++r)
      for (int c = 0; c < chart.n; ++c)
        each(r, c, dot(cross(chart.Ad[r], chart.s[c]), force), dot(chart.ds[chart.n * r + c], force));
  }
  Motions<S> motions_at(Arena& arena, const S* q, const S* v) const {
    return row_motions<S>(scene_, arena, q, v, zero);
  }

 private:
  void allocate(S** vector, int size) { std::fill_n(*vector = memory_.get<S>(size), size, S(0.0)); }
  static S largest_of(int n, const S* x) {
    S most(0.0);
    for (int k = 0; k < n; ++k) most = larger(most, absolute(x[k]));
    return most;
  }
  // The blocks of joint i at point k: the change of the wrench Gamma on its subtree, which moves with the bodies.
  void fill_joint(const ControlPoint<S>& at, int k, int i, const ChartColumns<S>* chart, const Force<S>& Gamma,
                  TreeSystem<S>& system, int o) {
    const Model::Link& link = m_.links[i];
    const int n = link.nv, size = system.unknowns(i);
    const S weight(at.weight);
    for (int c = 0; c < n; ++c) {
      S start[6] = {}, own[6] = {};
      start[c] = own[c] = S(1.0);
      if (chart != nullptr) {
        S unit[6] = {};
        unit[c] = S(1.0);
        chart->apply(chart->Ad, unit, start);
        chart->apply(chart->s, unit, own);
      }
      Motion<S> by_start = zero_motion<S>(), by_own = by_start;
      for (int r = 0; r < n; ++r) {
        by_start = mul_add(start[r], at.all.columns[link.iv + r].S_, by_start);
        by_own = mul_add(own[r], at.all.columns[link.iv + r].S_, by_own);
      }
      const Force<S> turned = cross(by_own, Gamma);
      write(Force<S>{-turned.n, -turned.f}, system.C(i, (k - 1) * n + c) + o);
      for (int copy = 0; copy < s_; ++copy) std::fill_n(system.L(i, copy * n + c) + o, 6, S(0.0));
      write(weight * by_start, system.L(i, c) + o);
      write(weight * by_own, system.L(i, k * n + c) + o);
    }
    S* N = system.N(i);
    const auto add = [&](int r, int c, const S& start, const S& own) {
      N[r * size + (k - 1) * n + c] += start;
      N[(k * n + r) * size + (k - 1) * n + c] += own;
    };
    if (chart != nullptr) for_each_chart_term(*chart, at.f + link.iv, add);
    if (m_.bodies[i].general < 0) return;
    const auto& b = at.all.bodies[i];
    const auto& general = at.all.general[m_.bodies[i].general];
    for (int r = 0; r < n; ++r)
      for (int c = 0; c < n; ++c) {
        const S x = weight * dot(b.world(general.ds[n * r + c]), Gamma);
        add(r, c, x, x);
      }
  }
  // The rest of the derivative of the wrenches of a pair at point k: -(J_B^T (N - . x* W) - J_A^T N) and J_B - J_A.
  void fill_pair(Arena& arena, int k, const PairPart& pair, const S* lambda, int column) {
    Border<S>& border = *used_;
    const ControlPoint<S>& at = points[k];
    const auto* columns = at.all.columns;
    const PairState<S> seen = pair_state(pair, at.all, at.times);
    const Force<S> W = pair_wrench(seen, pair, lambda);
    const int count = border_of_pair(pair);
    S *torques = arena.get<S>(nv_), *pulled = arena.get<S>(nv_);
    for (int i = 0; i < count; ++i) {
      S unit[6] = {S(0.0), S(0.0), S(0.0), S(0.0), S(0.0), S(0.0)};
      unit[i] = S(1.0);
      const Motion<S> eta = read_motion(unit);
      Force<S> change = zero_force<S>();
      for (int r = 0; r < pair.rows; ++r) change += wrench_change(seen, pair.each[r], lambda[pair.row + r], eta);
      const Force<S> on_A = seen.to_A.act(change), on_B = seen.to_B.act(change - cross(eta, W));
      std::fill_n(torques, nv_, S(0.0));
      for_each_velocity(m_, pair.B.body, [&](int l) { torques[l] -= dot(columns[l].S_, on_B); });
      for_each_velocity(m_, pair.A.body, [&](int l) { torques[l] += dot(columns[l].S_, on_A); });
      for (int l = 0; l < nv_; ++l) torques[l] *= S(at.weight);
      pull(at, true, torques, pulled);
      for (int l = 0; l < nv_; ++l) border.B(l, column + i) = pulled[l];
      pull(at, false, torques, pulled);
      for (int l = 0; l < nv_; ++l) border.B(k * nv_ + l, column + i) = pulled[l];
      border.E(column + i) = S(1.0);
    }
    S* seen_rates = arena.get<S>(6 * nv_);
    std::fill_n(seen_rates, 6 * nv_, S(0.0));
    const auto see = [&](const std::vector<int>& moves, double sign, const SE3<S>& X) {
      for_each_velocity_of(m_, moves, [&](int l) {
        S eta[6];
        write(X.act_inverse(columns[l].S_), eta);
        for (int i = 0; i < count; ++i) seen_rates[i * nv_ + l] = S(sign) * eta[i];
      });
    };
    see(pair.moves_B, 1.0, seen.to_B);
    see(pair.moves_A, -1.0, seen.to_A);
    for (int i = 0; i < count; ++i) pull(at, false, seen_rates + i * nv_, border.C(column + i) + (k - 1) * nv_);
  }

  S *rate_, *kept_, *y_;
  std::vector<double> weights_;
  Border<S>* used_ = &border_;
  bool in_tree_ = false;
  std::vector<Force<S>> wrenches_;
};

}  // namespace torsor
