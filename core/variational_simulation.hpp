// Trajectories of variational steps, and gradients of losses on them. The state between steps is (q, p); rows of a trajectory have
// v = M(q)^-1 p too, and losses may be given on either.
#pragma once
#include "adjoint.hpp"
#include "variational_derivatives.hpp"

namespace torsor {

struct VariationalScheme {
  Rule rule;
  double h, tolerance;
  int iterations;
};

// p = M(q) v
inline void momentum_of(const Model& m, Arena& arena, const double* q, const double* v, double* p) {
  double* rest = arena.get<double>(m.nv);
  std::fill_n(rest, m.nv, 0.0);
  const Motions<double> all = motions(m, arena, q, v, rest, false);
  auto* mu = arena.get<Force<double>>(m.n());
  for (int i = 0; i < m.n(); ++i) {
    const auto& b = all.bodies[i];
    mu[i] = m.bodies[i].massless ? zero_force<double>() : shift_back(rotate(b.R, m.bodies[i].I), b.p) * b.v;
  }
  for (int i = m.n() - 1; i >= 0; --i) {
    const Model::Link& link = m.links[i];
    for (int k = link.iv; k < link.iv + link.nv; ++k) p[k] = dot(all.columns[k].S_, mu[i]);
    if (link.parent >= 0) mu[link.parent] += mu[i];
  }
}
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

// Rows first to last of a trajectory; `momenta` are its p. Ends as `run` does.
inline Progress run_variational(VariationalStep& w, const VariationalScheme& scheme, double t0, int64_t first,
                                int64_t last, const Track& track, double* momenta,
                                const std::vector<ChartLimit>& limits) {
  const Model& m = w.scene.m;
  const int nv = m.nv;
  for (int64_t step = first; step < last; ++step) {
    const double t = t0 + step * scheme.h;
    const StepControls<double> controls{track.u == nullptr ? nullptr : track.u + step * track.u_rows * nv,
                                        track.u_rows};
    std::copy_n(track.q + step * m.nq, m.nq, w.q0.begin());
    std::copy_n(momenta + step * nv, nv, w.p0.begin());
    if (step == 0) {
      if (!w.velocities(w.q0.data(), w.p0.data(), t, controls.at(0, nv), w.v0.data(), track.a))
        return {Outcome::singular, step};
    }
    std::copy_n(track.v + step * nv, nv, w.v0.begin());
    std::copy_n(track.a + step * nv, nv, w.a0.begin());
    if (!w.take(t, controls, scheme.tolerance, scheme.iterations)) return {Outcome::failed, step};
    const double* u = controls.at(w.scene.rule.m - 1, nv);
    if (!w.velocities(w.q1.data(), w.p1.data(), t + scheme.h, u, w.v1.data(), w.a1.data()))
      return {Outcome::singular, step};
    std::copy_n(w.q1.begin(), m.nq, track.q + (step + 1) * m.nq);
    std::copy_n(w.p1.begin(), nv, momenta + (step + 1) * nv);
    std::copy_n(w.v1.begin(), nv, track.v + (step + 1) * nv);
    std::copy_n(w.a1.begin(), nv, track.a + (step + 1) * nv);
    for (const ChartLimit& limit : limits)
      if (limit.reached(track.q + (step + 1) * m.nq)) return {Outcome::chart, step + 1};
  }
  return {Outcome::finished, last};
}

// From row `last` back to row `first`; false at a step, `row`, that cannot be repeated. on_momenta: gradients by p of each row, or
// null. At row 0, what comes out in out.v belongs to the velocity or, if `by_momentum`, to the momentum.
class VariationalReverse {
 public:
  VariationalReverse(VariationalStep& step, const VariationalScheme& scheme)
      : step_(step), m_(step.scene.m), weightless_(m_), scheme_(scheme) {
    weightless_.gravity = zero3<double>();
  }

  bool run(double t0, int64_t first, int64_t last, const Track& track, const double* momenta, const double* on_momenta,
           bool by_momentum, const Sensitivities& out, int64_t& row) {
    const int nv = m_.nv;
    std::vector<double> gq(nv, 0.0), gp(nv, 0.0), q0(nv), p0(nv), multiplier;
    const auto add_losses = [&](int64_t at) {
      add_scaled(nv, 1.0, out.q + at * nv, gq.data());
      if (on_momenta != nullptr) add_scaled(nv, 1.0, on_momenta + at * nv, gp.data());
      add_velocity(track.q + at * m_.nq, track.v + at * nv, out.v + at * nv, gq.data(), gp.data(), out);
    };
    add_losses(last);
    for (row = last - 1; row >= first; --row) {
      const double t = t0 + row * scheme_.h;
      const StepControls<double> controls{track.u == nullptr ? nullptr : track.u + row * track.u_rows * nv,
                                          track.u_rows};
      std::copy_n(track.q + row * m_.nq, m_.nq, step_.q0.begin());
      std::copy_n(momenta + row * nv, nv, step_.p0.begin());
      std::copy_n(track.v + row * nv, nv, step_.v0.begin());
      std::copy_n(track.a + row * nv, nv, step_.a0.begin());
      if (!step_.take(t, controls, scheme_.tolerance, scheme_.iterations)) return false;
      std::fill(q0.begin(), q0.end(), 0.0);
      std::fill(p0.begin(), p0.end(), 0.0);
      double* u = out.u == nullptr ? nullptr : out.u + row * track.u_rows * nv;
      if (!reverse_step(step_, gq.data(), gp.data(), q0.data(), p0.data(), u, multiplier)) return false;
      if (out.inertia != nullptr) add_parameters(multiplier, gq, gp, out);
      gq = q0;
      gp = p0;
      if (row > first) add_losses(row);
    }
    // The first row's own losses are on the state as it was given.
    double *to_q = out.q + first * nv, *to_v = out.v + first * nv;
    if (on_momenta != nullptr) add_scaled(nv, 1.0, on_momenta + first * nv, gp.data());
    if (by_momentum) add_velocity(track.q + first * m_.nq, track.v + first * nv, to_v, gq.data(), gp.data(), out);
    add_scaled(nv, 1.0, gq.data(), to_q);
    if (by_momentum)
      std::copy_n(gp.data(), nv, to_v);
    else
      add_momentum(track.q + first * m_.nq, track.v + first * nv, gp.data(), to_q, to_v, out);
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
    inverse_dynamics_vjp<double>(weightless_, arena, q, rest, v, x, nullptr, 0,
                                 {gq, nullptr, gv, nullptr, parameters ? inertia : nullptr,
                                  parameters ? placement : nullptr, nullptr});
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
  // A gradient by p = M v, as one by q and v.
  void add_momentum(const double* q, const double* v, const double* by_p, double* by_q, double* by_v,
                    const Sensitivities& out) {
    add_kinetic(1.0, q, v, by_p, by_q, by_v, out);
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
    step_vjp<double>(
        scene, arena, step_.action(), step_.end(), step_.controls().count, step_.p,
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
          force_parameter_gradient(m_, *scene.forces, arena, at.all, at.q, at.v, at.t, step_.p, d.q, out.forces);
          force_placement_gradient(m_, *scene.forces, arena, at.all, at.t, step_.p, d.q, out.placement);
          for (int k = 0; k < nv; ++k) d.q[k] /= at.weight;
        });
  }

  VariationalStep& step_;
  const Model& m_;
  Model weightless_;
  const VariationalScheme& scheme_;
};

}  // namespace torsor
