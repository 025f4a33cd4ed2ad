// Trajectories of variational steps, and gradients of losses on them. A step goes from (q, p) to (q, p); rows of a trajectory have
// v = M(q)^-1 p, so that states are the same for all integrators.
#pragma once
#include "dynamics/momentum.hpp"
#include "integrators/adjoint.hpp"
#include "integrators/variational_derivatives.hpp"

namespace torsor {

// M and d(M v)/dq, nv x nv.
inline void momentum_derivatives(const Model& m, Arena& arena, const double* q, const double* v, double* M,
                                 double* Mq) {
  double* rest = arena.get<double>(m.nv);
  std::fill_n(rest, m.nv, 0.0);
  const Motions<double> all = motions(m, arena, q, rest, v, false);
  body_terms(m, all.bodies);
  add_to_parents<double>(m, all.bodies, nullptr);
  std::fill_n(M, m.nv * m.nv, 0.0);
  std::fill_n(Mq, m.nv * m.nv, 0.0);
  pair_columns<double>(m, arena, all, nullptr, 0, Mq, nullptr, M, m.nv);
}

// Puts a row of a trajectory at the beginning of a step.
inline void load_row(VariationalStep& step, const Track& track, int64_t row) {
  const Model& m = step.scene.m;
  std::copy_n(track.q + row * m.nq, m.nq, step.q0.begin());
  std::copy_n(track.v + row * m.nv, m.nv, step.v0.begin());
  std::copy_n(track.a + row * m.nv, m.nv, step.a0.begin());
  step.arena.reset();
  generalized_momenta(m, step.arena, step.q0.data(), step.v0.data(), step.p0.data());
}
inline StepControls<double> controls_of(const Model& m, const Track& track, int64_t row) {
  return {track.u == nullptr ? nullptr : track.u + row * track.u_rows * m.nv, track.u_rows};
}

// Rows first to last of a trajectory; ends as `run` does. Accelerations are those of forward dynamics.
inline Progress run_variational(VariationalStep& step, double t0, int64_t first, int64_t last, const Track& track,
                                const std::vector<ChartLimit>& limits) {
  const Model& m = step.scene.m;
  const double h = step.scene.h;
  const auto singular = [&](int64_t row) -> Progress {
    step.shortfall.error = step.arena.singular_joint;
    return {Outcome::singular, row};
  };
  StepParameters parameters(step.p, step.scene.forces, track.signals);
  for (int64_t row = first; row < last; ++row) {
    step.p = parameters.at(row);
    const double t = t0 + (track.start + row) * h;
    const StepControls<double> controls = controls_of(m, track, row);
    load_row(step, track, row);
    if (track.start + row == 0) {
      if (!step.velocities(step.q0.data(), step.p0.data(), t, controls.at(0, m.nv), step.v1.data(), step.a0.data()))
        return singular(row);
      std::copy_n(step.a0.begin(), m.nv, track.a);
    }
    if (!step.take(t, controls)) return {Outcome::failed, row};
    const double* u = controls.at(step.scene.rule.m - 1, m.nv);
    if (!step.velocities(step.q1.data(), step.p1.data(), t + h, u, step.v1.data(), step.a1.data()))
      return singular(row);
    std::copy_n(step.q1.begin(), m.nq, track.q + (row + 1) * m.nq);
    std::copy_n(step.v1.begin(), m.nv, track.v + (row + 1) * m.nv);
    std::copy_n(step.a1.begin(), m.nv, track.a + (row + 1) * m.nv);
    for (const ChartLimit& limit : limits)
      if (limit.reached(track.q + (row + 1) * m.nq)) return {Outcome::chart, row + 1};
  }
  return {Outcome::finished, last};
}

// From row `last` back to row `first`, as `reverse` does.
class VariationalReverse {
 public:
  explicit VariationalReverse(VariationalStep& step) : step_(step), m_(step.scene.m), weightless_(m_) {
    weightless_.gravity = zero3<double>();
  }

  bool run(double t0, int64_t first, int64_t last, const Track& track, const Sensitivities& out, int64_t& row) {
    const int nv = m_.nv;
    std::vector<double> gq(nv, 0.0), gp(nv, 0.0), q0(nv), p0(nv), multiplier;
    const auto add_losses = [&](int64_t at) {
      add_scaled(nv, 1.0, out.q + at * nv, gq.data());
      add_velocity(track.q + at * m_.nq, track.v + at * nv, out.v + at * nv, gq.data(), gp.data(), out);
    };
    if (last == first) return true;
    add_losses(last);
    StepParameters parameters(step_.p, step_.scene.forces, track.signals);
    for (row = last - 1; row >= first; --row) {
      poll();
      step_.p = parameters.at(row);
      load_row(step_, track, row);
      if (!step_.take(t0 + (track.start + row) * step_.scene.h, controls_of(m_, track, row))) return false;
      std::fill(q0.begin(), q0.end(), 0.0);
      std::fill(p0.begin(), p0.end(), 0.0);
      double* u = out.u == nullptr ? nullptr : out.u + row * track.u_rows * nv;
      if (!reverse_step(step_, gq.data(), gp.data(), q0.data(), p0.data(), u, multiplier)) return false;
      if (out.inertia != nullptr) add_parameters(multiplier, gq, gp, out);
      finish_step(nv, track, row, out);
      gq = q0;
      gp = p0;
      if (row > first) add_losses(row);
    }
    // p = M v of the first row, whose own losses are there already
    add_scaled(nv, 1.0, gq.data(), out.q + first * nv);
    add_kinetic(1.0, track.q + first * m_.nq, track.v + first * nv, gp.data(), out.q + first * nv, out.v + first * nv,
                out);
    return true;
  }

 private:
  // Adds s times the gradients of x.M(q) v by q, v and parameters, where asked for.
  void add_kinetic(double s, const double* q, const double* v, const double* x, double* by_q, double* by_v,
                   const Sensitivities& out) {
    Arena& arena = step_.arena;
    arena.reset();
    const int nv = m_.nv, bodies = m_.nframes();
    double *rest = arena.get<double>(nv), *gq = arena.get<double>(nv), *gv = arena.get<double>(nv);
    double *inertia = arena.get<double>(10 * bodies), *placement = arena.get<double>(6 * bodies);
    std::fill_n(rest, nv, 0.0);
    const bool parameters = out.inertia != nullptr;
    inverse_dynamics_vjp<double>(
        weightless_, arena, q, rest, v, x, nullptr, 0,
        {gq, nullptr, gv, nullptr, parameters ? inertia : nullptr, parameters ? placement : nullptr, nullptr});
    add_scaled(nv, s, gq, by_q);
    if (by_v != nullptr) add_scaled(nv, s, gv, by_v);
    if (!parameters) return;
    add_scaled(10 * bodies, s, inertia, out.inertia);
    add_scaled(6 * bodies, s, placement, out.placement);
  }
  // A gradient by v = M^-1 p, as one by q and p.
  void add_velocity(const double* q, const double* v, const double* by_v, double* by_q, double* by_p,
                    const Sensitivities& out) {
    const int nv = m_.nv;
    if (std::all_of(by_v, by_v + nv, [](double x) { return x == 0.0; })) return;
    step_.arena.reset();
    std::vector<double> x(nv);
    solve_mass(m_, factor_mass<double>(m_, step_.arena, q, nullptr, nullptr), by_v, x.data());
    add_scaled(nv, 1.0, x.data(), by_p);
    add_kinetic(-1.0, q, v, x.data(), by_q, nullptr, out);
  }
  // Gradients by parameters of what the step is made of: with the displacements (dq, dv) that the multipliers give to each point,
  // those of h w (dT(dq, dv) - dV(dq) + dq.tau). T by complex step, v.M(q) v / 2 along the displacement.
  void add_parameters(const std::vector<double>& multiplier, const std::vector<double>& on_q1,
                      const std::vector<double>& on_p1, const Sensitivities& out) {
    const VariationalScene& scene = step_.scene;
    const int nv = m_.nv, bodies = m_.nframes(), s = scene.rule.s;
    Arena& arena = step_.arena;
    step_.evaluate();
    std::vector<double> by_q(nv), by_xi(std::size_t(s) * nv);
    std::vector<Complex> q(m_.nq), v(nv), rest(nv, 0.0), along(nv), inertia(10 * bodies), placement(6 * bodies);
    std::vector<double> still(nv, 0.0), weight_inertia(10 * bodies), weight_placement(6 * bodies), weight_gravity(3);
    step_vjp<double>(scene, arena, step_.action(), step_.end(), step_.controls().count, step_.p,
                     {multiplier.data(), on_q1.data(), on_p1.data()}, {by_q.data(), by_xi.data(), nullptr},
                     [&](int a, const Displacement<double>& d) {
                       const ActionPoint<double>& at = step_.action().points[a];
                       const std::vector<Complex> from(at.q, at.q + m_.nq);
                       for (int k = 0; k < nv; ++k) {
                         along[k] = Complex(0.0, kStep * d.q[k]);
                         v[k] = Complex(at.v[k], kStep * d.v[k]);
                       }
                       plus(m_, from.data(), along.data(), q.data());
                       inverse_dynamics_vjp<Complex>(
                           weightless_, arena, q.data(), rest.data(), v.data(), v.data(), nullptr, 0,
                           {nullptr, nullptr, nullptr, nullptr, inertia.data(), placement.data(), nullptr});
                       inverse_dynamics_vjp<double>(m_, arena, at.q, still.data(), still.data(), d.q, nullptr, 0,
                                                    {nullptr, nullptr, nullptr, nullptr, weight_inertia.data(),
                                                     weight_placement.data(), weight_gravity.data()});
                       for (int k = 0; k < 10 * bodies; ++k)
                         out.inertia[k] += at.weight * (0.5 * inertia[k].imag() / kStep - weight_inertia[k]);
                       for (int k = 0; k < 6 * bodies; ++k)
                         out.placement[k] += at.weight * (0.5 * placement[k].imag() / kStep - weight_placement[k]);
                       for (int k = 0; k < 3; ++k) out.gravity[k] -= at.weight * weight_gravity[k];
                       if (scene.forces == nullptr) return;
                       for (int k = 0; k < nv; ++k) d.q[k] *= at.weight;
                       force_parameter_gradient(m_, *scene.forces, arena, at.all, at.q, at.v, at.t, step_.p, d.q,
                                                out.forces);
                       force_placement_gradient(m_, *scene.forces, arena, at.all, at.t, step_.p, d.q, out.placement);
                       for (int k = 0; k < nv; ++k) d.q[k] /= at.weight;
                     });
  }

  VariationalStep& step_;
  const Model& m_;
  Model weightless_;
};

}  // namespace torsor
