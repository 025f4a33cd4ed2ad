// Single steps of every integrator, alone and with their derivatives.
#include "bind/bind.hpp"
#include "integrators/step_derivatives.hpp"
#include "integrators/variational_rollout.hpp"

namespace torsor {
namespace {

int parameter_count(const Options& options) { return options.forces == nullptr ? 0 : options.forces->parameters; }

// What a step from (q, v) is called with; the state before, if given, is for methods of two steps.
constexpr int kStepInputs = 7;
void step_slots(const Model& m, const Options& options, Slot* in, Slot* out) {
  in[0] = {"q", 1, {m.nq}};
  in[1] = {"v", 1, {m.nv}};
  in[2] = {"u", 1, {m.nv}, true};
  in[3] = {"t", 0, {}};
  in[4] = {"parameters", 1, {parameter_count(options)}, true};
  in[5] = {"previous q", 1, {m.nq}, true};
  in[6] = {"previous v", 1, {m.nv}, true};
  out[0] = {"q1", 1, {m.nq}};
  out[1] = {"v1", 1, {m.nv}};
}
// What a step from (q, p) is called with.
constexpr int kMomentumInputs = 5;
void momentum_slots(const Model& m, const Options& options, Slot* in) {
  in[0] = {"q", 1, {m.nq}};
  in[1] = {"p", 1, {m.nv}};
  in[2] = {"u", 1, {m.nv}, true};
  in[3] = {"t", 0, {}};
  in[4] = {"parameters", 1, {parameter_count(options)}, true};
}

[[noreturn]] void fail(Outcome outcome, const Shortfall& shortfall) {
  throw StepFailed(static_cast<int>(outcome), shortfall.error, shortfall.allowed);
}
[[noreturn]] void fail_at(int joint) { fail(Outcome::singular, {static_cast<double>(joint), 0.0}); }

// Takes the step; writes q1 and v1.
void take(Stepper<double>& stepper, const double* const* in, double* const* out) {
  StepContext<double>& at = stepper.at;
  const Model& m = at.scene.m;
  const bool previous = in[5] != nullptr && in[6] != nullptr;
  at.p = in[4];
  plus(m, in[0], at.zero, at.nodes.q(1));  // quaternions of unit length
  std::copy_n(in[1], m.nv, at.nodes.v(1));
  if (previous) {
    plus(m, in[5], at.zero, at.nodes.q(0));
    std::copy_n(in[6], m.nv, at.nodes.v(0));
  }
  stepper.look_for_singularity(true);
  if (const int joint = stepper.undetermined_joint(*in[3]); joint >= 0) fail_at(joint);
  if (stepper.take(previous, false, *in[3], {in[2], 1, stepper.table.fractions}) == 0) {
    if (!stepper.table.is_implicit() && at.arena.singular_joint >= 0) fail_at(at.arena.singular_joint);
    fail(stepper.gained ? Outcome::gained : Outcome::failed, stepper.shortfall);
  }
  std::copy_n(at.nodes.q(stepper.last_node()), m.nq, out[0]);
  std::copy_n(at.nodes.v(stepper.last_node()), m.nv, out[1]);
}
// The same from v or from p to q1 and p1, which `step` has.
void take(VariationalStep& step, const double* const* in, bool by_momentum) {
  const Model& m = step.scene.m;
  step.p = in[4];
  std::fill(step.v0.begin(), step.v0.end(), 0.0);
  plus(m, in[0], step.v0.data(), step.q0.data());  // of the same chart, with unit quaternions
  double* v0 = step.v0.data();
  if (by_momentum) {
    std::copy_n(in[1], m.nv, step.p0.begin());
  } else {
    generalized_momenta(m, step.arena, step.q0.data(), in[1], step.p0.data());
    std::copy_n(in[1], m.nv, v0);
    v0 = step.v1.data();  // the same again, but for rounding
  }
  if (!step.velocities(step.q0.data(), step.p0.data(), *in[3], in[2], v0, step.a0.data()))
    fail_at(step.arena.singular_joint);
  if (!step.take(*in[3], {in[2], 1})) fail(Outcome::failed, step.shortfall);
}

// One step, from (q, v) to (q1, v1).
struct Step {
  static constexpr int inputs = kStepInputs, outputs = 2;
  static constexpr bool has_options = true, has_lanes = false, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) { step_slots(m, options, in, out); }
  template <class S>
  static void run(const Model& m, Arena&, const Options& options, const S* const* in, S* const* out) {
    const Scene scene{m, options.forces};
    if (options.table != nullptr) {
      Stepper<double> stepper(scene, *options.table);
      return take(stepper, in, out);
    }
    VariationalStep step(scene, *options.variational);
    take(step, in, false);
    std::copy_n(step.q1.begin(), m.nq, out[0]);
    step.arena.reset();
    solve_mass(m, factor_mass<double>(m, step.arena, step.q1.data(), nullptr, nullptr), step.p1.data(), out[1]);
    if (step.arena.singular_joint >= 0) fail_at(step.arena.singular_joint);
  }
};

// nv columns of a matrix, the first of which is number `block` nv.
void put_block(const double* from, int nv, int stride, int block, double* to) {
  for (int r = 0; r < nv; ++r) std::copy_n(from + std::size_t(r) * stride + block * nv, nv, to + r * nv);
}
// Rows of p1 become rows of v1 = M^-1 p1.
void to_velocities(VariationalStep& step, StepMatrices& matrices, double* v1) {
  const Model& m = step.scene.m;
  const int nv = m.nv, columns = matrices.stride;
  std::vector<double> M(std::size_t(nv) * nv), Mq(M.size());
  solve_mass(m, factor_mass<double>(m, step.arena, step.q1.data(), nullptr, nullptr), step.p1.data(), v1);
  momentum_derivatives(m, step.arena, step.q1.data(), v1, M.data(), Mq.data());
  for (int r = 0; r < nv; ++r)
    for (int k = 0; k < nv; ++k)
      add_scaled(columns, -Mq[std::size_t(r) * nv + k], &matrices.q1[std::size_t(k) * columns],
                 &matrices.p1[std::size_t(r) * columns]);
  const MassFactor<double> mass = factor_mass<double>(m, step.arena, step.q1.data(), nullptr, nullptr);
  for (int k = 0; k < columns; ++k) solve_mass(m, mass, &matrices.p1[k], &matrices.p1[k], columns);
}

// One step and its derivatives, of (q1, v1) by (q, v, u) and, if it is given, by the state before.
struct StepDerivatives {
  static constexpr int inputs = kStepInputs, outputs = 12;
  static constexpr bool has_options = true, has_lanes = false, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    step_slots(m, options, in, out);
    for (int k = 2; k < outputs; ++k) out[k] = {"derivative", 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena&, const Options& options, const S* const* in, S* const* out) {
    const Scene scene{m, options.forces};
    if (options.table != nullptr)
      over_stages(scene, *options.table, in, out);
    else
      over_action(scene, *options.variational, in, out);
  }

 private:
  static void over_stages(const Scene& scene, const IntegratorTable& table, const double* const* in,
                          double* const* out) {
    const int nv = scene.m.nv;
    const bool previous = in[5] != nullptr && in[6] != nullptr;
    Stepper<double> stepper(scene, table);
    take(stepper, in, out);
    StepTangents<double> tangents(stepper, {in[2], 1, table.fractions}, previous);
    if (!tangents.run(*in[3])) fail(Outcome::failed, {});
    for (int block = 0; block < (previous ? 5 : 3); ++block) {
      // dq1 and dv1 by q, v, u, then both by the state before
      put_block(tangents.q(), nv, tangents.columns(), block, out[block < 3 ? 2 + block : 5 + block]);
      put_block(tangents.v(), nv, tangents.columns(), block, out[block < 3 ? 5 + block : 7 + block]);
    }
  }
  static void over_action(const Scene& scene, const VariationalScheme& scheme, const double* const* in,
                          double* const* out) {
    const Model& m = scene.m;
    const int nv = m.nv;
    VariationalStep step(scene, scheme);
    take(step, in, false);
    // p0 = M v0; before the system is solved, as M after it would cost digits
    std::vector<double> M(std::size_t(nv) * nv), Mq(M.size());
    momentum_derivatives(m, step.arena, step.q0.data(), in[1], M.data(), Mq.data());
    StepMatrices matrices;
    matrices.mass = M.data();
    matrices.turned = Mq.data();
    if (!StepLinearisation(step).run(matrices)) fail(Outcome::failed, {});
    std::copy_n(step.q1.begin(), m.nq, out[0]);
    to_velocities(step, matrices, out[1]);
    for (int block = 0; block < 3; ++block) {
      put_block(matrices.q1.data(), nv, matrices.stride, block, out[2 + block]);
      put_block(matrices.p1.data(), nv, matrices.stride, block, out[5 + block]);
    }
  }
};

// One step of a variational integrator and its derivatives, of (q1, p1) by (q, p, u), and by the parameters of the forces.
struct MomentumStepDerivatives {
  static constexpr int inputs = kMomentumInputs, outputs = 10;
  static constexpr bool has_options = true, has_lanes = false, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    momentum_slots(m, options, in);
    out[0] = {"q1", 1, {m.nq}};
    out[1] = {"p1", 1, {m.nv}};
    for (int k = 2; k < 8; ++k) out[k] = {"derivative", 2, {m.nv, m.nv}};
    for (int k = 8; k < outputs; ++k) out[k] = {"derivative", 2, {m.nv, parameter_count(options)}};
  }
  template <class S>
  static void run(const Model& m, Arena&, const Options& options, const S* const* in, S* const* out) {
    const int nv = m.nv;
    const Scene scene{m, options.forces};
    VariationalStep step(scene, *options.variational);
    take(step, in, true);
    StepMatrices matrices;
    matrices.parameters = options.forces != nullptr && (options.wanted >> 8 & 3) == 3;
    if (!StepLinearisation(step).run(matrices)) fail(Outcome::failed, {});
    std::copy_n(step.q1.begin(), m.nq, out[0]);
    std::copy_n(step.p1.begin(), nv, out[1]);
    for (int block = 0; block < 3; ++block) {
      put_block(matrices.q1.data(), nv, matrices.stride, block, out[2 + block]);
      put_block(matrices.p1.data(), nv, matrices.stride, block, out[5 + block]);
    }
    const int parameters = matrices.columns - 3 * nv;
    for (int k = 8; k < outputs && matrices.parameters; ++k)
      for (int r = 0; r < nv; ++r)
        std::copy_n(&(k == 8 ? matrices.q1 : matrices.p1)[std::size_t(r) * matrices.stride + 3 * nv], parameters,
                    out[k] + r * parameters);
  }
};

// Second derivatives of wq.q1 + wp.p1 by (q, p, u).
struct StepHessian {
  static constexpr int inputs = kMomentumInputs + 2, outputs = 6;
  static constexpr bool has_options = true, has_lanes = false, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    momentum_slots(m, options, in);
    in[kMomentumInputs] = {"weight of q1", 1, {m.nv}};
    in[kMomentumInputs + 1] = {"weight of p1", 1, {m.nv}};
    for (int k = 0; k < outputs; ++k) out[k] = {"second derivative", 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena&, const Options& options, const S* const* in, S* const* out) {
    const Scene scene{m, options.forces};
    VariationalStep step(scene, *options.variational);
    take(step, in, true);
    StepMatrices matrices;
    if (!StepLinearisation(step).run(matrices)) fail(Outcome::failed, {});
    const int nv = m.nv, columns = matrices.columns;
    std::vector<double> H(std::size_t(columns) * columns);
    step_hessian(step, matrices, in[kMomentumInputs], in[kMomentumInputs + 1], H.data());
    int block = 0;
    for (int row = 0; row < 3; ++row)  // qq qp qu pp pu uu
      for (int column = row; column < 3; ++column, ++block)
        for (int r = 0; r < nv; ++r)
          std::copy_n(&H[std::size_t(row * nv + r) * columns + column * nv], nv, out[block] + r * nv);
  }
};

}  // namespace

void bind_steps(nb::module_& module) {
  def_kernel<Step>(module, "step");
  def_kernel<StepDerivatives>(module, "step_derivatives");
  def_kernel<MomentumStepDerivatives>(module, "momentum_step_derivatives");
  def_kernel<StepHessian>(module, "step_hessian");
}

}  // namespace torsor
