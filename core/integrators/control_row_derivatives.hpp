// Derivatives of the constraints of variational steps: as columns, and in reverse
// (docs/derivations/constraints.md).
#pragma once
#include "integrators/control_rows.hpp"
#include "integrators/trajectory.hpp"

namespace torsor {

// Columns -------------------------------------------------------------------------------------------------------------

// Adds the derivatives by q0, at fixed xi and multipliers, of the forces at the control points to D (rows of s + 1
// points, `stride` apart), and minus those of g to Y (s x rows of them).
template <class S>
void add_rows_by_start(const ControlRows<S>& rows, Arena& arena, int nv, const S* lambda, S* D, S* Y, int stride) {
  S* start = arena.get<S>(nv);
  const int last = static_cast<int>(rows.points.size()) - 1;
  for (int k = 0; k <= last; ++k) {
    const ControlPoint<S>& at = rows.points[k];
    if (k < last) {
      const S* K = rows.stiffness(arena, k, lambda, true);
      rows.add_rows(at, true, K, D, stride);
      if (k > 0) rows.add_rows(at, false, K, D + std::size_t(k) * nv * stride, stride);
    }
    for (int r = 0; k > 0 && r < rows.count(); ++r) {
      rows.pull(at, true, at.G + r * nv, start);
      add_scaled(nv, -rows.kept(r), start, Y + std::size_t((k - 1) * rows.count() + r) * stride);
    }
  }
}

// Columns of p^ become columns of p1, those of q1 being given (nv rows each, `stride` apart):
//   dp1 = dp^ + K dq1 + G^T dkappa,   D dkappa = -(G M^-1 (dp^ + K dq1 - d(M v1)/dq dq1) + d(G v1 + g_t)/dq dq1).
template <class S>
void project_columns(const VariationalScene& scene, Arena& arena, const ControlRows<S>& rows, const S* q1, S* p1,
                     int stride) {
  const int nv = scene.m.nv, count = rows.count();
  const ControlPoint<S>& at = rows.points.back();
  S *K = arena.get<S>(std::size_t(nv) * nv), *R = arena.get<S>(std::size_t(nv) * nv);
  S* by_q = arena.get<S>(std::size_t(count) * nv);
  std::fill_n(K, nv * nv, S(0.0));
  add_constraint_stiffness<S>(rows.state(arena, static_cast<int>(rows.points.size()) - 1), rows.kappa, S(1.0), K, nv);
  momentum_derivatives<S>(scene, arena, at.q, rows.v1, nullptr, R);
  const Motions<S> moving = rows.motions_at(arena, at.q, rows.v1);
  constraint_derivatives<S>(rows.state(arena, moving, at.q, rows.v1, at.t), by_q, nullptr, nullptr, nv);
  S* change = arena.get<S>(std::size_t(count) * stride);
  std::fill_n(change, std::size_t(count) * stride, S(0.0));
  S* moved = arena.get<S>(std::size_t(nv) * stride);
  for (int r = 0; r < nv; ++r) {
    S *row = p1 + std::size_t(r) * stride, *other = moved + std::size_t(r) * stride;
    for (int k = 0; k < nv; ++k) add_scaled(stride, K[r * nv + k], q1 + std::size_t(k) * stride, row);
    std::copy_n(row, stride, other);
    for (int k = 0; k < nv; ++k) add_scaled(stride, -R[r * nv + k], q1 + std::size_t(k) * stride, other);
  }
  for (int r = 0; r < count; ++r)
    for (int k = 0; k < nv; ++k) {
      S* row = change + std::size_t(r) * stride;
      add_scaled(stride, -rows.metric.Y(r)[k], moved + std::size_t(k) * stride, row);
      add_scaled(stride, -by_q[r * nv + k], q1 + std::size_t(k) * stride, row);
    }
  rows.metric.solve(change, stride);
  for (int k = 0; k < nv; ++k)
    for (int r = 0; r < count; ++r)
      add_scaled(stride, rows.metric.G(r)[k], change + std::size_t(r) * stride, p1 + std::size_t(k) * stride);
}

// Reverse -------------------------------------------------------------------------------------------------------------

// Weights on the rows of a step, and on its projection of momenta.
template <class S>
class ControlRowWeights {
 public:
  ControlRowWeights(const VariationalScene& scene, ControlRows<S>& rows)
      : scene_(scene),
        rows_(rows),
        nv_(scene.m.nv),
        on_q1(nv_),
        on_p1(nv_),
        nu(rows.unknowns()),
        left(rows.unknowns()),
        be_(rows.count()),
        x_(nv_) {}

 private:
  const VariationalScene& scene_;
  ControlRows<S>& rows_;
  const int nv_;

 public:
  std::vector<S> on_q1, on_p1;  // on q1 and p^, instead of p1
  std::vector<S> nu;            // on g, s x rows
  std::vector<S> left;          // the gradient by the multipliers, times h^-2, which nu and the weights on r make zero

  // From weights on q1 and p1: with be = D^+ G w_p and x = Y be, those on p^ are w_p - x, and on q1 the gradient of
  // kappa.(G (w_p - x)) + x.(M v1) - be.(G v1 + g_t) is added.
  void begin(Arena& arena, const S* q1, const S* p1) {
    std::copy_n(q1, nv_, on_q1.begin());
    std::copy_n(p1, nv_, on_p1.begin());
    std::fill(nu.begin(), nu.end(), S(0.0));
    std::fill(be_.begin(), be_.end(), S(0.0));
    rows_.metric.add_rates(p1, be_.data());
    rows_.metric.solve(be_.data());
    std::fill(x_.begin(), x_.end(), S(0.0));
    rows_.metric.add_response(S(1.0), be_.data(), x_.data());
    add_scaled(nv_, S(-1.0), x_.data(), on_p1.data());
    S* by_q = arena.get<S>(nv_);
    kinetic(arena, {by_q, nullptr, nullptr, nullptr, nullptr, nullptr});
    add_scaled(nv_, S(1.0), by_q, on_q1.data());
    add_projection(arena, {on_q1.data(), nullptr, nullptr, nullptr, nullptr});
  }
  // Adds the gradients of mu.r + nu.g by q0 and xi that rows make, and sets `left`. mu: s x nv.
  void add(Arena& arena, const S* lambda, const S* mu, S* by_q0, S* by_xi) {
    const int rows = rows_.count(), last = static_cast<int>(rows_.points.size()) - 1;
    S *d = arena.get<S>(nv_), *grad = arena.get<S>(nv_), *pulled = arena.get<S>(nv_);
    for (int k = 0; k <= last; ++k) {
      const ControlPoint<S>& at = rows_.points[k];
      std::fill_n(grad, nv_, S(0.0));
      if (k < last) {
        displace(at, k, mu, d);
        add_forces(arena, at, k, lambda, d, {grad, nullptr, nullptr, nullptr, nullptr});
        for (int r = 0; r < rows; ++r) {
          S rate(0.0);
          for (int l = 0; l < nv_; ++l) rate = mul_add(at.G[r * nv_ + l], d[l], rate);
          left[k * rows + r] = rows_.kept(r) * S(rows_.weight(k) / scene_.h) * rate;
        }
      }
      for (int r = 0; k > 0 && r < rows; ++r) add_scaled(nv_, nu[(k - 1) * rows + r], at.G + r * nv_, grad);
      rows_.pull(at, true, grad, pulled);
      add_scaled(nv_, S(1.0), pulled, by_q0);
      if (k == 0) continue;
      S* own = by_xi + (k - 1) * nv_;
      rows_.pull(at, false, grad, pulled);
      add_scaled(nv_, S(1.0), pulled, own);
      if (k == last) continue;
      rows_.each_chart(at, [&](const ChartColumns<S>& chart, int iv) {
        rows_.for_each_chart_term(chart, at.f + iv, [&](int r, int c, const S& start, const S& point) {
          own[iv + c] += mu[iv + r] * start + mu[k * nv_ + iv + r] * point;
        });
      });
    }
  }
  // Adds the gradients of all of them by parameters: of inertias, placements, and of the constraints and couplings.
  void add_parameters(Arena& arena, const S* lambda, const S* mu, const ParameterGradients<S>& out) {
    const Model& tree = scene_.tree;
    const int bodies = tree.nframes(), rows = rows_.count(), last = static_cast<int>(rows_.points.size()) - 1;
    const ConstraintGradients<S> to{nullptr, nullptr, nullptr, out.placement, out.constraints, out.couplings};
    S* d = arena.get<S>(nv_);
    for (int k = 0; k <= last; ++k) {
      const ControlPoint<S>& at = rows_.points[k];
      if (k < last) {
        displace(at, k, mu, d);
        add_forces(arena, at, k, lambda, d, to);
      }
      if (k > 0) add_gradient(arena, at.q, rows_.zero, at.t, false, nu.data() + (k - 1) * rows, nullptr, to);
    }
    S *by_inertia = arena.get<S>(10 * bodies), *by_placement = arena.get<S>(6 * bodies),
      *by_armature = arena.get<S>(tree.nv);
    kinetic(arena, {nullptr, nullptr, by_inertia, by_placement, by_armature, out.couplings});
    add_scaled(10 * bodies, S(1.0), by_inertia, out.inertia);
    add_scaled(tree.nv, S(1.0), by_armature, out.armature);
    add_scaled(6 * bodies, S(1.0), by_placement, out.placement);
    add_projection(arena, to);
  }

 private:
  // The displacement of point k that the weights of r make.
  void displace(const ControlPoint<S>& at, int k, const S* mu, S* d) const {
    std::fill_n(d, nv_, S(0.0));
    rows_.push(at, true, mu, d);
    if (k > 0) rows_.push(at, false, mu + k * nv_, d);
  }
  // Adds the gradients of x0.g + x1.gdot at (q, v); either may be null. `still`: x1.(G v), v being a virtual velocity.
  void add_gradient(Arena& arena, const S* q, const S* v, double t, bool still, const S* x0, const S* x1,
                    const ConstraintGradients<S>& out) {
    with_model<S>(scene_, [&](const auto& m) {
      const Motions<S> all = rows_.motions_at(arena, q, v);
      add_constraint_gradients<S>(m, rows_.state(arena, all, q, v, t, still), x0, x1, nullptr, out);
    });
  }
  // Those of h w_k lambda_k.(G d).
  void add_forces(Arena& arena, const ControlPoint<S>& at, int k, const S* lambda, const S* d,
                  const ConstraintGradients<S>& out) {
    S* weights = arena.get<S>(rows_.count());
    for (int r = 0; r < rows_.count(); ++r) weights[r] = S(at.weight) * lambda[k * rows_.count() + r];
    add_gradient(arena, at.q, d, at.t, true, nullptr, weights, out);
  }
  // Those of kappa.(G (w_p - x)) - be.(G v1 + g_t), and of x.(M v1).
  void add_projection(Arena& arena, const ConstraintGradients<S>& out) {
    const ControlPoint<S>& at = rows_.points.back();
    S* weights = arena.get<S>(rows_.count());
    for (int r = 0; r < rows_.count(); ++r) weights[r] = -be_[r];
    add_gradient(arena, at.q, on_p1.data(), at.t, true, nullptr, rows_.kappa, out);
    add_gradient(arena, at.q, rows_.v1, at.t, false, nullptr, weights, out);
  }
  void kinetic(Arena& arena, const MomentumGradients<S>& out) {
    momentum_gradients<S>(scene_, arena, rows_.points.back().q, rows_.v1, x_.data(), out);
  }

  std::vector<S> be_, x_;
};

}  // namespace torsor
