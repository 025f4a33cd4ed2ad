// Trajectories of variational steps, and gradients of losses on them. A step maps (q, p) to (q, p); rows of a
// trajectory have v = M(q)^-1 p, so that all integrators have the same state.
#pragma once
#include "dynamics/momentum.hpp"
#include "forces/force_placements.hpp"
#include "integrators/trajectory.hpp"
#include "integrators/variational_derivatives.hpp"

namespace torsor {

// M and d(M v)/dq, nv x nv.
template <class S>
void momentum_derivatives(const Model& m, Arena& arena, const S* q, const S* v, S* M, S* Mq) {
  S* rest = arena.get<S>(m.nv);
  std::fill_n(rest, m.nv, S(0.0));
  const Motions<S> all = motions(m, arena, q, rest, v, false);
  body_terms(m, all.bodies);
  add_to_parents<S>(m, all.bodies, nullptr);
  std::fill_n(M, m.nv * m.nv, S(0.0));
  std::fill_n(Mq, m.nv * m.nv, S(0.0));
  pair_columns<S>(m, arena, all, nullptr, 0, Mq, nullptr, M, m.nv);
}

// The loop is in integrators/trajectory.hpp. Accelerations are those of forward dynamics.
class VariationalRollout {
 public:
  VariationalRollout(const Scene& scene, const VariationalScheme& scheme) : step(scene, scheme), m_(scene.m) {}
  VariationalStep<double> step;
  Shortfall shortfall;
  double h() const { return step.scheme.h; }
  const double* parameters = nullptr;
  void set_parameters(const double* p) { step.p = p; }
  const ForceSet* forces() const { return step.scene.forces; }

  // Sets a row as the beginning of a step.
  void load(const Track& track, int64_t row, bool) {
    std::copy_n(track.q + row * m_.nq, m_.nq, step.q0.begin());
    std::copy_n(track.v + row * m_.nv, m_.nv, step.v0.begin());
    std::copy_n(track.a + row * m_.nv, m_.nv, step.a0.begin());
    step.arena.reset();
    generalized_momenta(m_, step.arena, step.q0.data(), step.v0.data(), step.p0.data());
  }
  Outcome advance(const Track& track, int64_t row, double t, bool) {
    const StepControls<double> controls = controls_of(track, row);
    if (track.start + row == 0) {
      if (!step.velocities(step.q0.data(), step.p0.data(), t, controls.at(0, m_.nv), step.v1.data(), step.a0.data()))
        return singular();
      std::copy_n(step.a0.begin(), m_.nv, track.a);
    }
    if (!step.take(t, controls)) {
      shortfall = step.shortfall;
      return Outcome::failed;
    }
    const double* u = controls.at(step.scene.rule.m - 1, m_.nv);
    if (!step.velocities(step.q1.data(), step.p1.data(), t + h(), u, step.v1.data(), step.a1.data())) return singular();
    std::copy_n(step.q1.begin(), m_.nq, track.q + (row + 1) * m_.nq);
    std::copy_n(step.v1.begin(), m_.nv, track.v + (row + 1) * m_.nv);
    std::copy_n(step.a1.begin(), m_.nv, track.a + (row + 1) * m_.nv);
    return Outcome::finished;
  }
  StepControls<double> controls_of(const Track& track, int64_t row) const {
    return {track.controls(row, m_.nv), track.u_rows};
  }

 private:
  Outcome singular() {
    shortfall.error = step.arena.singular_joint;
    return Outcome::singular;
  }
  const Model& m_;
};

// The adjoint: its state is the gradient by (q, p).
class VariationalAdjoint {
 public:
  VariationalAdjoint(VariationalRollout& rollout, const Track& track, const Sensitivities& out, int64_t first)
      : rollout_(rollout),
        step_(rollout.step),
        m_(step_.scene.m),
        weightless_(m_),
        track_(track),
        out_(out),
        first_(first),
        gq_(m_.nv, 0.0),
        gp_(m_.nv, 0.0),
        q0_(m_.nv),
        p0_(m_.nv) {
    weightless_.gravity = zero3<double>();
  }

  // Adds the gradients of the loss at a row; that by v = M^-1 p becomes one by q and p.
  void take_up(int64_t row) {
    const int nv = m_.nv;
    const double *q = track_.q + row * m_.nq, *v = track_.v + row * nv, *by_v = out_.v + row * nv;
    add_scaled(nv, 1.0, out_.q + row * nv, gq_.data());
    if (std::all_of(by_v, by_v + nv, [](double x) { return x == 0.0; })) return;
    step_.arena.reset();
    std::vector<double> x(nv);
    solve_mass(m_, factor_mass<double>(m_, step_.arena, q, nullptr, nullptr), by_v, x.data());
    add_scaled(nv, 1.0, x.data(), gp_.data());
    add_kinetic(-1.0, q, v, x.data(), gq_.data(), nullptr);
  }
  bool step_back(int64_t row, double t) {
    rollout_.load(track_, row, row == first_);
    if (!step_.take(t, rollout_.controls_of(track_, row))) return false;
    std::fill(q0_.begin(), q0_.end(), 0.0);
    std::fill(p0_.begin(), p0_.end(), 0.0);
    double* u = out_.u == nullptr ? nullptr : out_.u + row * track_.u_rows * m_.nv;
    if (!reverse_step(step_, gq_.data(), gp_.data(), q0_.data(), p0_.data(), u, multiplier_)) return false;
    if (out_.inertia != nullptr) add_parameters();
    std::swap(gq_, q0_);
    std::swap(gp_, p0_);
    return true;
  }
  // p = M v of the first row, whose own losses are added already
  void end(int64_t row) {
    const int nv = m_.nv;
    add_scaled(nv, 1.0, gq_.data(), out_.q + row * nv);
    add_kinetic(1.0, track_.q + row * m_.nq, track_.v + row * nv, gp_.data(), out_.q + row * nv, out_.v + row * nv);
  }

 private:
  // Adds s times the gradients of x.M(q) v by q, v and parameters, where wanted.
  void add_kinetic(double s, const double* q, const double* v, const double* x, double* by_q, double* by_v) {
    Arena& arena = step_.arena;
    arena.reset();
    const int nv = m_.nv, bodies = m_.nframes();
    double *rest = arena.get<double>(nv), *gq = arena.get<double>(nv), *gv = arena.get<double>(nv);
    double *inertia = arena.get<double>(10 * bodies), *placement = arena.get<double>(6 * bodies);
    std::fill_n(rest, nv, 0.0);
    const bool parameters = out_.inertia != nullptr;
    inverse_dynamics_vjp<double>(
        weightless_, arena, q, rest, v, x, nullptr, 0,
        {gq, nullptr, gv, nullptr, parameters ? inertia : nullptr, parameters ? placement : nullptr, nullptr});
    add_scaled(nv, s, gq, by_q);
    if (by_v != nullptr) add_scaled(nv, s, gv, by_v);
    if (!parameters) return;
    add_scaled(10 * bodies, s, inertia, out_.inertia);
    add_scaled(6 * bodies, s, placement, out_.placement);
  }
  // Gradients by parameters: with the displacements (dq, dv) of each point that correspond to the multipliers, those of
  // h w (dT(dq, dv) - dV(dq) + dq.tau). T by complex step, v.M(q) v / 2 along the displacement.
  void add_parameters() {
    const VariationalScene& scene = step_.scene;
    const int nv = m_.nv, bodies = m_.nframes(), s = scene.rule.s;
    Arena& arena = step_.arena;
    step_.evaluate();
    std::vector<double> by_q(nv), by_xi(std::size_t(s) * nv);
    std::vector<Complex> q(m_.nq), v(nv), rest(nv, 0.0), along(nv), inertia(10 * bodies), placement(6 * bodies);
    std::vector<double> still(nv, 0.0), weight_inertia(10 * bodies), weight_placement(6 * bodies), weight_gravity(3);
    step_vjp<double>(scene, arena, step_.action(), step_.end(), step_.controls().count, step_.p,
                     {multiplier_.data(), gq_.data(), gp_.data()}, {by_q.data(), by_xi.data(), nullptr},
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
                         out_.inertia[k] += at.weight * (0.5 * inertia[k].imag() / kStep - weight_inertia[k]);
                       for (int k = 0; k < 6 * bodies; ++k)
                         out_.placement[k] += at.weight * (0.5 * placement[k].imag() / kStep - weight_placement[k]);
                       for (int k = 0; k < 3; ++k) out_.gravity[k] -= at.weight * weight_gravity[k];
                       if (scene.forces == nullptr) return;
                       for (int k = 0; k < nv; ++k) d.q[k] *= at.weight;
                       force_parameter_gradient(m_, *scene.forces, arena, at.all, at.q, at.v, at.t, step_.p, d.q,
                                                out_.forces);
                       force_placement_gradient(m_, *scene.forces, arena, at.all, at.t, step_.p, d.q, out_.placement);
                       for (int k = 0; k < nv; ++k) d.q[k] /= at.weight;
                     });
  }

  VariationalRollout& rollout_;
  VariationalStep<double>& step_;
  const Model& m_;
  Model weightless_;
  const Track& track_;
  const Sensitivities& out_;
  const int64_t first_;
  std::vector<double> gq_, gp_, q0_, p0_, multiplier_;
};

}  // namespace torsor
