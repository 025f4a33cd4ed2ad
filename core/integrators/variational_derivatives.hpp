// Derivatives of variational steps: as matrices, in reverse, and the second ones contracted with a weight. Fan 2018,
// propositions 3 and 4, for any joint; docs/derivations/variational.md.
#pragma once
#include "derivatives/inverse_dynamics_vjp.hpp"
#include "dynamics/mass_inverse.hpp"
#include "integrators/control_row_derivatives.hpp"
#include "integrators/variational_step.hpp"
#include "scalar/complex_step.hpp"

namespace torsor {

// Reverse -----------------------------------------------------------------------------------------------------------

// Weights on the results of a step: on its equations r (s x nv), on q1 and on p1. They are real.
template <class S>
struct StepWeights {
  using Real = std::conditional_t<std::is_same_v<S, Complex>, double, S>;
  const Real *r, *q1, *p1;
};
// Gradients of weight.r + weight.q1 + weight.p1 at fixed p0, accumulated.
template <class S>
struct StepGradients {
  S *q0, *xi, *u;  // nv, s x nv, rows of controls x nv
};
// The parts of step_vjp are inlined: measured, complex steps through it are 4 % slower otherwise.

// Weights nu of D (s + 1 rows of nv) from those of r_0 = p0 + D_0 - Ad^T p1, r_k = D_k and p1 = J^-T D_s. Their direct
// gradients by q0 and xi^s are added to `out`: those of q1, and of J and Ad at the end.
template <class S>
TORSOR_INLINE S* weights_of_action(const VariationalScene& scene, Arena& arena, const StepEnd<S>& end,
                                   const StepWeights<S>& weights, const StepGradients<S>& out) {
  const Model& m = scene.m;
  const int nv = m.nv, s = scene.rule.s;
  S* nu = arena.get<S>((s + 1) * nv);
  for (int k = 0; k < s * nv; ++k) nu[k] = weights.r[k];
  S* last = nu + s * nv;
  S* last_xi = out.xi + (s - 1) * nv;
  for (int k = 0; k < nv; ++k) {
    last[k] = weights.p1[k] - weights.r[k];
    out.q0[k] += weights.q1[k];
    last_xi[k] += weights.q1[k];
  }
  for (std::size_t j = 0; j < scene.quaternions.size(); ++j) {
    const ChartColumns<S>& chart = end.charts[j];
    const int iv = m.bodies[scene.quaternions[j]].iv, size = chart.n;
    const Force<S> P = chart.covector(end.p1 + iv);
    S on_q1[6], Ad_nu[6], by_q0[6], by_xi[6];
    for (int k = 0; k < size; ++k) on_q1[k] = weights.q1[iv + k];
    chart.apply(chart.Ad, nu + iv, Ad_nu);
    for (int k = 0; k < size; ++k) last[iv + k] = weights.p1[iv + k] - Ad_nu[k];
    chart.solve(last + iv);
    chart.apply_transposed(chart.Ad, on_q1, by_q0);
    chart.apply_transposed(chart.s, on_q1, by_xi);
    for (int k = 0; k < size; ++k) {
      out.q0[iv + k] += by_q0[k] - on_q1[k];
      last_xi[iv + k] += by_xi[k] - on_q1[k];
      for (int l = 0; l < size; ++l) {
        last_xi[iv + k] -= last[iv + l] * dot(chart.ds[size * l + k], P);
        last_xi[iv + k] -= nu[iv + l] * dot(cross(chart.Ad[l], chart.s[k]), P);
      }
    }
  }
  return nu;
}

// Weights of D at point a of the quadrature, in the chart: nu of D_0, and those of D_1..D_s by their shares in xi and
// xidot.
template <class S>
struct PointWeights {
  const S* nu;
  S *share, *rate;
};
template <class S>
TORSOR_INLINE PointWeights<S> weights_at(const VariationalScene& scene, Arena& arena, int a, const S* nu) {
  const int nv = scene.m.nv;
  const PointWeights<S> w{nu, arena.get<S>(nv), arena.get<S>(nv)};
  for (int k = 0; k < nv; ++k) {
    w.share[k] = w.rate[k] = S(0.0);
    for (int c = 1; c <= scene.rule.s; ++c) {
      w.share[k] = mul_add(S(scene.share(a, c)), nu[c * nv + k], w.share[k]);
      w.rate[k] = mul_add(S(scene.rate(a, c)), nu[c * nv + k], w.rate[k]);
    }
  }
  return w;
}

// Phi nu: dq = Ad nu_0 + J share, dv = T share + J rate.
template <class S>
TORSOR_INLINE Displacement<S> displace(const VariationalScene& scene, Arena& arena, const ActionPoint<S>& at,
                                       const PointWeights<S>& w) {
  const int nv = scene.m.nv;
  const Displacement<S> d{arena.get<S>(nv), arena.get<S>(nv)};
  for (int k = 0; k < nv; ++k) {
    d.q[k] = w.nu[k] + w.share[k];
    d.v[k] = w.rate[k];
  }
  for (std::size_t j = 0; j < scene.quaternions.size(); ++j) {
    const ChartColumns<S>& chart = at.charts[j];
    const int iv = scene.m.bodies[scene.quaternions[j]].iv, size = chart.n;
    S Ad_nu[6], J_share[6], J_rate[6], T_share[6];
    chart.apply(chart.Ad, w.nu + iv, Ad_nu);
    chart.apply(chart.s, w.share + iv, J_share);
    chart.apply(chart.s, w.rate + iv, J_rate);
    Motion<S> T[6];
    for (int k = 0; k < size; ++k) {
      T[k] = zero_motion<S>();
      for (int l = 0; l < size; ++l) T[k] = mul_add(at.xidot[iv + l], chart.ds[size * l + k], T[k]);
    }
    chart.apply(T, w.share + iv, T_share);
    for (int k = 0; k < size; ++k) {
      d.q[iv + k] = Ad_nu[k] + J_share[k];
      d.v[iv + k] = T_share[k] + J_rate[k];
    }
  }
  return d;
}

// Adds Phi^T (grad.q, grad.v) of point a, and the derivatives of Phi at fixed f and g.
template <class S>
TORSOR_INLINE void pull_back(const VariationalScene& scene, const ActionPoint<S>& at, int a, const PointWeights<S>& w,
                             const PointGradients<S>& grad, const StepGradients<S>& out) {
  const int nv = scene.m.nv, s = scene.rule.s;
  for (int k = 0; k < nv; ++k) {
    out.q0[k] += grad.q[k];
    for (int c = 1; c <= s; ++c) {
      S& sum = out.xi[(c - 1) * nv + k];
      sum = mul_add(S(scene.share(a, c)), grad.q[k], mul_add(S(scene.rate(a, c)), grad.v[k], sum));
    }
  }
  for (std::size_t j = 0; j < scene.quaternions.size(); ++j) {
    const ChartColumns<S>& chart = at.charts[j];
    const int iv = scene.m.bodies[scene.quaternions[j]].iv, size = chart.n;
    const Force<S> F = chart.covector(at.f + iv), G = chart.covector(at.g + iv), V = chart.covector(grad.v + iv);
    S Ad_q[6], J_q[6], J_v[6];  // transposed
    chart.apply_transposed(chart.Ad, grad.q + iv, Ad_q);
    chart.apply_transposed(chart.s, grad.q + iv, J_q);
    chart.apply_transposed(chart.s, grad.v + iv, J_v);
    for (int k = 0; k < size; ++k) {
      S by_share = J_q[k] - grad.q[iv + k], by_rate = J_v[k] - grad.v[iv + k];
      for (int l = 0; l < size; ++l) {
        const Motion<S>&ds_lk = chart.ds[size * l + k], &ds_kl = chart.ds[size * k + l];
        S J_change = dot(ds_lk, F);  // of f.J + g.T
        for (int o = 0; o < size; ++o)
          J_change = mul_add(at.xidot[iv + o], dot(chart.d2s[size * (size * o + l) + k], G), J_change);
        by_share += at.xidot[iv + l] * dot(ds_lk, V) + w.share[iv + l] * J_change + w.rate[iv + l] * dot(ds_lk, G) +
                    w.nu[iv + l] * dot(cross(chart.Ad[l], chart.s[k]), F);
        by_rate += w.share[iv + l] * dot(ds_kl, G);
      }
      out.q0[iv + k] += Ad_q[k] - grad.q[iv + k];
      for (int c = 1; c <= s; ++c)
        out.xi[(c - 1) * nv + iv + k] += S(scene.share(a, c)) * by_share + S(scene.rate(a, c)) * by_rate;
    }
  }
}

// Calls each(a, displacement) for each point, before its gradients are added.
template <class S, class Each>
void step_vjp(const VariationalScene& scene, Arena& arena, const Action<S>& action, const StepEnd<S>& end,
              int control_rows, const S* p, const StepWeights<S>& weights, const StepGradients<S>& out, Each&& each) {
  const int nv = scene.m.nv;
  const S* nu = weights_of_action(scene, arena, end, weights, out);
  for (int a = 0; a < scene.rule.m; ++a) {
    const ActionPoint<S>& at = action.points[a];
    const PointWeights<S> w = weights_at(scene, arena, a, nu);
    const Displacement<S> d = displace(scene, arena, at, w);
    each(a, d);
    const PointGradients<S> grad = point_gradients(scene, arena, at, p, d);
    if (out.u != nullptr)
      for (int k = 0; k < nv; ++k) out.u[(control_rows == 1 ? 0 : a * nv) + k] += S(at.weight) * d.q[k];
    pull_back(scene, at, a, w, grad, out);
  }
}

// Matrices ----------------------------------------------------------------------------------------------------------

// The step just taken, linearised: columns are those of q0, p0, the rows of controls and, if wanted, the parameters of
// the forces, with `stride` from row to row.
template <class S>
struct StepMatrices {
  bool parameters = false;  // whether they are wanted
  const S *mass = nullptr,
          *turned = nullptr;  // M and d(M v)/dq at the start: columns are those of v0 in place of p0
  int columns, stride;
  // Allocated in the memory of the step.
  S* xi;       // s nv rows: of the control coordinates
  S *q1, *p1;  // nv rows
};
template <class S>
class StepLinearisation {
 public:
  explicit StepLinearisation(VariationalStep<S>& step)
      : step_(step),
        scene_(step.scene),
        nv_(scene_.m.nv),
        s_(scene_.rule.s),
        system_(scene_.m, step.memory, ActionBlocks<S>::length(scene_.rule), ActionBlocks<S>::length(scene_.rule),
                ActionBlocks<S>::copies(scene_.rule, true)),
        blocks_(scene_, true, system_) {}

  // False in lanes where the matrix of Newton's method is singular.
  Mask<S> run(StepMatrices<S>& out) {
    const int rows = step_.controls().count, whole = (s_ + 1) * nv_, size = s_ * nv_;
    const int parameters = out.parameters && scene_.forces != nullptr ? scene_.forces->parameters : 0;
    const int columns = out.columns = (2 + rows) * nv_ + parameters, stride = out.stride = padded<S>(columns);
    const Mask<S> good = step_.factor_for_columns();
    if (!any(good)) return good;
    blocks_.fill(step_.action(), step_.end(), step_.arena, step_.p);
    Arena& memory = step_.memory;
    if (step_.solved_densely()) {
      H_ = memory.get<S>(std::size_t(whole) * whole);
      blocks_.assemble(step_.action(), step_.end(), step_.arena, step_.p, H_);
    }
    // Rows of D at fixed xi, then those of p1 and of the equations r; J dxi = -r.
    const std::size_t all = std::size_t(size) * stride, last = std::size_t(nv_) * stride;
    S* D = memory.get<S>(all + last);
    for (S** matrix : {&out.q1, &out.p1}) *matrix = memory.get<S>(last);
    std::fill_n(D, all + last, S(0.0));
    by_start(D, stride);
    by_torques(D, stride, rows, parameters);
    ControlRows<S>* constraints = step_.rows();
    S* Y = nullptr;  // right-hand sides of the rows
    if (constraints != nullptr) {
      const std::size_t width = std::size_t(constraints->border().width()) * stride;
      std::fill_n(Y = memory.get<S>(width), width, S(0.0));
      add_rows_by_start(*constraints, step_.arena, nv_, step_.multipliers(), D, Y, stride);
    }
    std::copy_n(D + all, last, out.p1);
    out.xi = memory.get<S>(all);
    std::fill_n(out.xi, all, S(0.0));
    combine(D, out.xi, stride);
    for (std::size_t k = 0; k < all; ++k) out.xi[k] = -D[k];
    for (int k = 0; k < nv_; ++k) {
      S* row = &out.xi[std::size_t(k) * stride];
      if (out.mass == nullptr) {
        row[nv_ + k] -= S(1.0);
        continue;
      }
      add_scaled(nv_, S(-1.0), out.turned + std::size_t(k) * nv_, row);
      add_scaled(nv_, S(-1.0), out.mass + std::size_t(k) * nv_, row + nv_);
    }
    if (constraints != nullptr)
      constraints->solve_columns(step_.solver(), out.xi, stride, Y);
    else
      step_.solver().solve_columns(out.xi, stride);
    // dp1 with the control coordinates moving, dq1 = J dxi^s + Ad dq0
    by_coordinates(out.xi, out.p1, stride);
    momentum_rows(out.p1, out.xi, stride);
    std::copy_n(out.xi + all - last, last, out.q1);
    for (int k = 0; k < nv_; ++k) out.q1[std::size_t(k) * stride + k] += S(1.0);
    each_chart([&](const ChartColumns<S>& chart, int iv) {
      for (int k = 0; k < columns; ++k) {
        S x[6] = {}, y[6], start[6] = {};
        for (int r = 0; r < chart.n; ++r) x[r] = out.xi[std::size_t((s_ - 1) * nv_ + iv + r) * stride + k];
        chart.apply(chart.s, x, y);
        if (k >= iv && k < iv + chart.n) {
          S unit[6] = {};
          unit[k - iv] = S(1.0);
          chart.apply(chart.Ad, unit, start);
        }
        for (int r = 0; r < chart.n; ++r) out.q1[std::size_t(iv + r) * stride + k] = y[r] + start[r];
      }
    });
    if (constraints != nullptr) project_columns(scene_, step_.arena, *constraints, out.q1, out.p1, stride);
    return good;
  }

 private:
  template <class F>
  void each_chart(F&& f) const {
    for (std::size_t j = 0; j < scene_.quaternions.size(); ++j)
      f(step_.end().charts[j], scene_.m.bodies[scene_.quaternions[j]].iv);
  }
  // All rows of D by q0.
  void by_start(S* D, int stride) {
    const int whole = (s_ + 1) * nv_;
    if (step_.solved_densely()) {
      for (int r = 0; r < whole; ++r) std::copy_n(&H_[std::size_t(r) * whole], nv_, D + std::size_t(r) * stride);
      return;
    }
    const int width = padded<S>(nv_);
    const std::size_t size = std::size_t(whole) * width;
    S *unit = step_.memory.template get<S>(size), *result = step_.memory.template get<S>(size);
    std::fill_n(unit, size, S(0.0));
    for (int k = 0; k < nv_; ++k) unit[std::size_t(k) * width + k] = S(1.0);
    system_.multiply_columns(unit, result, width);
    for (int r = 0; r < whole; ++r) std::copy_n(&result[std::size_t(r) * width], nv_, D + std::size_t(r) * stride);
  }
  // Adds all rows of D by controls and parameters: h w Phi_q^T times the torques that they change.
  void by_torques(S* D, int stride, int rows, int parameters) {
    std::vector<S> torques(std::size_t(nv_) * std::max(nv_, parameters)), unit(nv_);
    for (int a = 0; a < scene_.rule.m; ++a) {
      const ActionPoint<S>& at = step_.action().points[a];
      std::fill(torques.begin(), torques.end(), S(0.0));
      for (int k = 0; k < nv_; ++k) torques[std::size_t(k) * nv_ + k] = S(1.0);
      add_torques(D, stride, a, torques, nv_, 2 * nv_ + (rows == 1 ? 0 : a * nv_));
      if (parameters == 0) continue;
      std::fill(torques.begin(), torques.end(), S(0.0));
      for (int k = 0; k < nv_; ++k) {
        std::fill(unit.begin(), unit.end(), S(0.0));
        unit[k] = S(1.0);
        const ActionPoint<S>& own = scene_.coupled ? *at.tree : at;
        const S* along = scene_.coupled ? tree_velocity<S>(scene_, step_.arena, at, unit.data()) : unit.data();
        force_parameter_gradient(scene_.tree, *scene_.forces, step_.arena, own.all, own.q, own.v, at.t, step_.p, along,
                                 &torques[std::size_t(k) * parameters]);
      }
      add_torques(D, stride, a, torques, parameters, (2 + rows) * nv_);
    }
  }
  // torques: nv x count, for the columns from `first` on.
  void add_torques(S* D, int stride, int a, const std::vector<S>& torques, int count, int first) const {
    const ActionPoint<S>& at = step_.action().points[a];
    const auto row = [&](int c, int k) { return D + std::size_t(c * nv_ + k) * stride + first; };
    for (int k = 0; k < nv_; ++k)
      for (int c = 0; c <= s_; ++c)
        add_scaled(count, S(at.weight * (c == 0 ? 1.0 : scene_.share(a, c))), &torques[std::size_t(k) * count],
                   row(c, k));
    for (std::size_t j = 0; j < scene_.quaternions.size(); ++j) {
      const ChartColumns<S>& chart = at.charts[j];
      const int iv = scene_.m.bodies[scene_.quaternions[j]].iv;
      for (int l = 0; l < chart.n; ++l) {
        S unit[6] = {}, start[6], turned[6];
        unit[l] = S(1.0);
        chart.apply_transposed(chart.Ad, unit, start);
        chart.apply_transposed(chart.s, unit, turned);
        for (int k = 0; k < chart.n; ++k)
          for (int c = 0; c <= s_; ++c)
            add_scaled(count,
                       S(at.weight) * (c == 0 ? start[k] - unit[k] : S(scene_.share(a, c)) * (turned[k] - unit[k])),
                       &torques[std::size_t(iv + l) * count], row(c, iv + k));
      }
    }
  }
  // Adds the change of the control coordinates to `last`, the rows of D_s.
  void by_coordinates(const S* xi, S* last, int stride) {
    const int whole = (s_ + 1) * nv_, size = s_ * nv_;
    if (step_.solved_densely()) {
      for (int r = 0; r < nv_; ++r)
        for (int k = 0; k < size; ++k)
          add_scaled(stride, H_[std::size_t(size + r) * whole + nv_ + k], &xi[std::size_t(k) * stride],
                     last + std::size_t(r) * stride);
      return;
    }
    S* result = step_.memory.template get<S>(std::size_t(nv_) * stride);
    system_.multiply_columns(xi, result, stride, 1, s_);
    add_scaled(nv_ * stride, S(1.0), result, last);
  }
  // Rows of D_s become rows of p1 = J^-T D_s.
  void momentum_rows(S* last, const S* xi, int stride) const {
    each_chart([&](const ChartColumns<S>& chart, int iv) {
      const Force<S> P = chart.covector(step_.end().p1 + iv);
      for (int k = 0; k < stride; ++k) {
        S y[6] = {};
        for (int r = 0; r < chart.n; ++r) {
          y[r] = last[std::size_t(iv + r) * stride + k];
          for (int l = 0; l < chart.n; ++l)
            y[r] -= dot(chart.ds[chart.n * r + l], P) * xi[std::size_t((s_ - 1) * nv_ + iv + l) * stride + k];
        }
        chart.solve_transposed(y);
        for (int r = 0; r < chart.n; ++r) last[std::size_t(iv + r) * stride + k] = y[r];
      }
    });
  }
  // Rows of D_0 become those of r_0 = p0 + D_0 - Ad^T p1 at fixed xi and p0.
  void combine(S* D, const S* xi, int stride) const {
    S* last = D + std::size_t(s_) * nv_ * stride;
    momentum_rows(last, xi, stride);
    add_scaled(nv_ * stride, S(-1.0), last, D);
    each_chart([&](const ChartColumns<S>& chart, int iv) {
      for (int k = 0; k < stride; ++k) {
        S y[6] = {}, pulled[6];
        for (int r = 0; r < chart.n; ++r) y[r] = last[std::size_t(iv + r) * stride + k];
        chart.apply_transposed(chart.Ad, y, pulled);
        for (int r = 0; r < chart.n; ++r) D[std::size_t(iv + r) * stride + k] -= pulled[r] - y[r];
      }
    });
  }

  VariationalStep<S>& step_;
  const VariationalScene& scene_;
  int nv_, s_;
  TreeSystem<S> system_;
  ActionBlocks<S> blocks_;
  S* H_ = nullptr;
};

// The same without `each`.
template <class S>
void step_vjp(const VariationalScene& scene, Arena& arena, const Action<S>& action, const StepEnd<S>& end,
              int control_rows, const S* p, const StepWeights<S>& weights, const StepGradients<S>& out) {
  step_vjp(scene, arena, action, end, control_rows, p, weights, out, [](int, const Displacement<S>&) {});
}

// Reverse over one step: from weights on q1 and p1 to gradients by q0, p0 and controls (added; by_u may be null), and
// the multiplier of r. `of_rows`: their weights, with constraints. A small pivot within a subtree loses digits;
// iterative refinement recovers them, in each lane as long as it helps there. False in lanes where the matrix of
// Newton's method is singular.
template <class S>
Mask<S> reverse_step(VariationalStep<S>& step, const S* on_q1, const S* on_p1, S* by_q0, S* by_p0, S* by_u,
                     std::vector<S>& multiplier, ControlRowWeights<S>* of_rows = nullptr) {
  const VariationalScene& scene = step.scene;
  const int nv = scene.m.nv, size = scene.rule.s * nv, rows = step.controls().count;
  multiplier.assign(size, S(0.0));
  std::vector<S> by_xi(size), start(nv), controls(by_u == nullptr ? 0 : std::size_t(rows) * nv);
  const Mask<S> good = step.factor(no_lane<S>());
  if (!any(good)) return good;
  if (of_rows != nullptr) {
    of_rows->begin(step.arena, on_q1, on_p1);
    on_q1 = of_rows->on_q1.data();
    on_p1 = of_rows->on_p1.data();
  }
  Mask<S> going = good;
  S first(0.0), before(0.0);
  for (int round = 0;; ++round) {
    for (auto* gradient : {&by_xi, &start, &controls}) std::fill(gradient->begin(), gradient->end(), S(0.0));
    step_vjp<S>(scene, step.arena, step.action(), step.end(), rows, step.p, {multiplier.data(), on_q1, on_p1},
                {start.data(), by_xi.data(), by_u == nullptr ? nullptr : controls.data()});
    if (of_rows != nullptr) of_rows->add(step.arena, step.multipliers(), multiplier.data(), start.data(), by_xi.data());
    S left(0.0);
    for (const S& x : by_xi) left = larger(left, absolute(x));
    if (round == 0) first = left;
    if (round > 0) going = going & !(less_equal(left, S(1e-12) * first) | less(S(0.1) * before, left));
    if (round == 3 || !any(going)) break;
    before = left;
    if (of_rows != nullptr) {
      step.rows()->solve_transposed(step.solver(), by_xi.data(), of_rows->left.data());
      for (std::size_t k = 0; k < of_rows->nu.size(); ++k)
        of_rows->nu[k] = select(going, of_rows->nu[k] - of_rows->left[k], of_rows->nu[k]);
    } else {
      step.solver().solve_transposed(by_xi.data());
    }
    for (int k = 0; k < size; ++k)
      multiplier[k] = select(going, mul_add(S(-1.0), by_xi[k], multiplier[k]), multiplier[k]);
  }
  add_scaled(nv, S(1.0), start.data(), by_q0);
  add_scaled(nv, S(1.0), multiplier.data(), by_p0);
  if (by_u != nullptr) add_scaled(rows * nv, S(1.0), controls.data(), by_u);
  return good;
}

// Second derivatives of weights.(q1, p1) by (q0, p0, controls), columns x columns of `step`'s matrices: row j, column k
// is the derivative along k of the first one along j. Both directions by complex step of functions that are linear in
// them.
inline void step_hessian(VariationalStep<double>& step, const StepMatrices<double>& matrices, const double* on_q1,
                         const double* on_p1, double* H) {
  const VariationalScene& scene = step.scene;
  const Model& m = scene.m;
  const int nv = m.nv, size = scene.rule.s * nv, rows = step.controls().count;
  const int columns = matrices.columns, stride = matrices.stride;
  std::vector<double> multiplier, by_q0(nv, 0.0), by_p0(nv, 0.0);
  reverse_step<double>(step, on_q1, on_p1, by_q0.data(), by_p0.data(), nullptr, multiplier);
  const int parameters = scene.forces == nullptr ? 0 : scene.forces->parameters;
  const std::vector<Complex> p(step.p, step.p + parameters);
  const std::vector<Complex> from(step.q0.begin(), step.q0.end());
  std::vector<Complex> q0(m.nq), along(nv), xi(size), u(std::size_t(rows) * nv), gq(nv), gx(size), gu(u.size());
  for (int k = 0; k < columns; ++k) {
    poll();
    for (int l = 0; l < nv; ++l) along[l] = Complex(0.0, k == l ? kStep : 0.0);
    plus(m, from.data(), along.data(), q0.data());
    for (int l = 0; l < size; ++l) xi[l] = Complex(step.xi[l], kStep * matrices.xi[std::size_t(l) * stride + k]);
    for (int l = 0; l < rows * nv; ++l)
      u[l] = Complex(step.controls().rows == nullptr ? 0.0 : step.controls().rows[l], k == 2 * nv + l ? kStep : 0.0);
    step.arena.reset();
    const Action<Complex> action =
        evaluate_action<Complex>(scene, step.arena, q0.data(), xi.data(), step.start(), {u.data(), rows}, p.data());
    const StepEnd<Complex> end = end_of<Complex>(scene, step.arena, xi.data(), action);
    for (auto* gradient : {&gq, &gx, &gu}) std::fill(gradient->begin(), gradient->end(), 0.0);
    step_vjp<Complex>(scene, step.arena, action, end, rows, p.data(), {multiplier.data(), on_q1, on_p1},
                      {gq.data(), gx.data(), gu.data()});
    for (int j = 0; j < columns; ++j) {
      double sum = j < nv ? gq[j].imag() : j < 2 * nv ? 0.0 : gu[j - 2 * nv].imag();
      for (int l = 0; l < size; ++l) sum = mul_add(matrices.xi[std::size_t(l) * stride + j], gx[l].imag(), sum);
      H[std::size_t(j) * columns + k] = sum / kStep;
    }
  }
}

}  // namespace torsor
