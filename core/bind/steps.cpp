// Integrators given by tables of stages: single steps, their derivatives, and trajectories.
#include "bind/steps.hpp"

#include "bind/complex.hpp"
#include "integrators/stage_adjoint.hpp"
#include "integrators/step_derivatives.hpp"

namespace torsor {
namespace {

// Arguments of a step from (q, v). The previous state, if given, is for two-step methods.
constexpr int kStepInputs = 7;
void step_slots(const Model& tree, const Options& options, Slot* in, Slot* out) {
  const Model& m = manifold(tree);
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
// Takes a step and writes q1 and v1. A single state that fails throws; of several, those that are done are returned.
template <class S>
Mask<S> take(Stepper<S>& stepper, const S* const* in, S* const* out) {
  StepContext<S>& at = stepper.at;
  const Model& m = at.scene.m;
  const bool previous = in[5] != nullptr && in[6] != nullptr;
  const double t = lane_of(*in[3], 0);
  at.p = in[4];
  plus(m, in[0], at.zero, at.nodes.q(1));  // makes quaternions of unit length
  std::copy_n(in[1], m.nv, at.nodes.v(1));
  if (previous) {
    plus(m, in[5], at.zero, at.nodes.q(0));
    std::copy_n(in[6], m.nv, at.nodes.v(0));
  }
  stepper.look_for_singularity(true);
  const StageControls<S> controls{in[2], 1, stepper.table.fractions};
  // As in a trajectory, an implicit step starts from the accelerations at its beginning.
  Mask<S> known = no_lane<S>(), done = known;
  if (stepper.table.is_implicit()) {
    stepper.read_control(controls, 0.0);
    known = stepper.accelerate(1, t, at.nodes.a(1));
    known = known & is_finite(largest(m.nv, at.nodes.a(1)));
  }
  if constexpr (Lanes<S>::value == 1) {
    if (const int joint = stepper.undetermined_joint(t); joint >= 0) fail_at(joint);
    at.arena.singular_joint = -1;
    done = stepper.take(previous, known, t, controls);
    if (!done) {
      if (!stepper.table.is_implicit() && at.arena.singular_joint >= 0) fail_at(at.arena.singular_joint);
      fail(stepper.gained ? Outcome::gained : Outcome::failed, stepper.shortfall);
    }
  } else {
    if (at.singular || (stepper.table.is_implicit() && !any(known))) return done;
    done = stepper.take(previous, true, t, controls) & equal(*in[3], S(t));  // one time for all
    if (stepper.table.is_implicit()) done = done & known;
  }
  std::copy_n(at.nodes.q(stepper.last_node()), m.nq, out[0]);
  std::copy_n(at.nodes.v(stepper.last_node()), m.nv, out[1]);
  return done;
}
// One step, from (q, v) to (q1, v1).
struct Step {
  static constexpr int inputs = kStepInputs, outputs = 2;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) { step_slots(m, options, in, out); }
  template <class S>
  static Mask<S> run(const Model& m, Arena&, const Options& options, const S* const* in, S* const* out) {
    const Scene scene{m, options.forces, options.constraints};
    if (options.hard != nullptr) return hard_step(scene, *options.hard, in, out);
    if (options.table == nullptr) return variational_step(scene, *options.variational, in, out);
    Stepper<S> stepper(scene, *options.table);
    return take(stepper, in, out);
  }
};

// One step and the derivatives of (q1, v1) with respect to (q, v, u) and, for two-step methods, the previous state.
template <bool two>
struct StepDerivatives {
  static constexpr int inputs = kStepInputs, outputs = two ? 12 : 8;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    step_slots(m, options, in, out);
    const int nv = manifold(m).nv;
    for (int k = 2; k < outputs; ++k) out[k] = {"derivative", 2, {nv, nv}};
  }
  template <class S>
  static Mask<S> run(const Model& m, Arena&, const Options& options, const S* const* in, S* const* out) {
    const Scene scene{m, options.forces, options.constraints};
    if (options.hard != nullptr) return hard_step_derivatives(scene, *options.hard, in, out);
    if (options.table == nullptr) return variational_step_derivatives(scene, *options.variational, in, out);
    const bool previous = two && in[5] != nullptr && in[6] != nullptr;
    Stepper<S> stepper(scene, *options.table);
    Mask<S> done = take(stepper, in, out);
    if (!any(done)) return done;
    StepTangents<S> tangents(stepper, {in[2], 1, options.table->fractions}, previous);
    done = done & tangents.run(lane_of(*in[3], 0));
    if (Lanes<S>::value == 1 && !any(done)) fail(Outcome::failed, {});
    for (int block = 0; block < (previous ? 5 : 3); ++block) {
      // derivatives of q1 and v1 with respect to q, v, u, then to the previous state
      put_block(tangents.q(), scene.m.nv, tangents.columns(), block, out[block < 3 ? 2 + block : 5 + block]);
      put_block(tangents.v(), scene.m.nv, tangents.columns(), block, out[block < 3 ? 5 + block : 7 + block]);
    }
    return done;
  }
};

}  // namespace

std::unique_ptr<Rollout> make_rollout(const Scene& scene, const IntegratorTable& table) {
  return std::make_unique<RolloutOf<StageRollout, StageAdjoint, IntegratorTable>>(scene, table);
}

void newton_forms(const Scene& scene, const double* p, const double* q, const double* v, const double* xi, double c,
                  double* out) {
  const Model& m = scene.m;
  std::fill_n(out, 3 * m.nv, std::numeric_limits<double>::quiet_NaN());
  StepContext<double> at(scene);
  at.p = p;
  std::copy_n(q, m.nq, at.nodes.q(1));
  std::copy_n(v, m.nv, at.nodes.v(1));
  const Stage stage{2, 1, {}, c, 1.0, 1.0, 0.0};
  ImplicitStage<double> system(at);
  const Evaluation<double>& e = system.evaluate_at(stage, 0.0, xi);
  const auto put = [&](int row) { system.solve(out + row * m.nv); };
  const BlockDiagonal<double>& V1 = system.terms().V1;
  if (scene.local && system.matrix().factor_tree(at, e, V1, c)) put(0);
  sum_inertias(m, e);
  if (scene.branched && system.matrix().factor_branches(at, e, V1, c)) put(1);
  if (system.matrix().factor_dense(at, e, V1, c)) put(2);
}

void bind_steps(Kernels& kernels) {
  kernels.add<Step>("step");
  kernels.add<StepDerivatives<false>>("step_derivatives");
  kernels.add<StepDerivatives<true>>("two_step_derivatives");
  kernels.add_coupled<Step>("step");
  kernels.add_coupled<StepDerivatives<false>>("step_derivatives");
  kernels.add_coupled<StepDerivatives<true>>("two_step_derivatives");
}

}  // namespace torsor
