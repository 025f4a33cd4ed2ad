// Variational integrators: their equations, single steps, first and second derivatives of these, and trajectories.
#include <chrono>

#include "bind/complex.hpp"
#include "bind/steps.hpp"
#include "integrators/variational_rollout.hpp"

namespace torsor {
namespace {

// The discrete Euler-Lagrange equations at given control points: p0, D of the interior points as covectors there, and
// p1.
struct DiscreteEulerLagrange {
  static constexpr int inputs = 4, outputs = 3;
  static constexpr bool has_options = true, has_lanes = false;
  static void slots(const Model& tree, const Options& options, Slot* in, Slot* out) {
    const Model& m = manifold(tree);
    const int s = options.variational->rule.s;
    in[0] = {"q", 2, {s + 1, m.nq}};
    in[1] = {"u", 1, {m.nv}, true};
    in[2] = {"t", 0, {}};
    in[3] = {"parameters", 1, {parameter_count(options)}, true};
    out[0] = {"p0", 1, {m.nv}};
    out[1] = {"residual", 2, {s - 1, m.nv}};
    out[2] = {"p1", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& tree, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const VariationalScene scene({tree, options.forces, options.constraints}, options.variational->rule,
                                 options.variational->h);
    const Model& m = scene.m;
    const int nv = m.nv, s = scene.rule.s;
    S* xi = arena.get<S>(s * nv);
    for (int c = 1; c <= s; ++c) chart(m, in[0], in[0] + c * m.nq, xi + (c - 1) * nv);
    double t;
    if constexpr (std::is_same_v<S, double>)
      t = *in[2];
    else
      t = in[2]->real();
    const Action<S> action = evaluate_action<S>(scene, arena, in[0], xi, t, {in[1], 1}, in[3]);
    const StepEnd<S> end = end_of(scene, arena, xi, action);
    pull_to_start(scene, end, end.p1, out[0]);
    for (int k = 0; k < nv; ++k) {
      out[0][k] -= action.D[k];
      out[2][k] = end.p1[k];
    }
    // D_0 is the derivative at fixed xi; at fixed control points, all xi change
    auto* columns = arena.get<ChartColumns<S>>(1);
    for (int c = 1; c < s; ++c) {
      S* row = out[1] + (c - 1) * nv;
      S* pulled = arena.get<S>(nv);
      for (int k = 0; k < nv; ++k) pulled[k] = row[k] = action.D[c * nv + k];
      for (int i : scene.quaternions) {
        const int iv = m.bodies[i].iv;
        chart_columns(m.bodies[i].kind, xi + (c - 1) * nv + iv, *columns);
        columns->solve_transposed(row + iv);
        columns->apply_transposed(columns->Ad, row + iv, pulled + iv);
      }
      for (int k = 0; k < nv; ++k) out[0][k] += pulled[k];
    }
  }
};

// For tests: the matrix of Newton's method at given control points, and the solutions over the tree of systems with it
// and with its transpose, without forces that couple joints; NaN if the tree solver fails. Lanes have the time of the
// first.
struct NewtonSystem {
  static constexpr int inputs = 5, outputs = 3;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    DiscreteEulerLagrange::slots(m, options, in, out);
    const int size = options.variational->rule.s * m.nv;
    in[4] = {"right-hand side", 1, {size}};
    out[0] = {"matrix", 2, {size, size}};
    out[1] = {"solution", 1, {size}};
    out[2] = {"solution of the transposed system", 1, {size}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const VariationalScene scene({m, options.forces, options.constraints}, options.variational->rule,
                                 options.variational->h);
    const int nv = m.nv, s = scene.rule.s;
    S* xi = arena.get<S>(s * nv);
    for (int c = 1; c <= s; ++c) chart(m, in[0], in[0] + c * m.nq, xi + (c - 1) * nv);
    const Action<S> action = evaluate_action<S>(scene, arena, in[0], xi, lane_of(*in[2], 0), {in[1], 1}, in[3]);
    const StepEnd<S> end = end_of(scene, arena, xi, action);
    using Blocks = ActionBlocks<S>;
    TreeSystem<S> system(m, arena, Blocks::length(scene.rule), Blocks::length(scene.rule),
                         Blocks::copies(scene.rule, false));
    Blocks blocks(scene, false, system);
    blocks.fill(action, end, arena, in[3]);
    blocks.assemble(action, end, arena, in[3], out[0]);
    const Mask<S> good = blocks.system.factor();
    const S none(std::numeric_limits<double>::quiet_NaN());
    for (int k = 0; k < s * nv; ++k) out[1][k] = out[2][k] = select(good, in[4][k], none);
    if (!any(good)) return;
    blocks.system.solve(out[1]);
    blocks.system.solve_transposed(out[2]);
  }
};

// Ends a step in lanes where it is not done: a single state fails.
template <class S>
Mask<S> done_or(const Mask<S>& done, Outcome outcome, const Shortfall& shortfall) {
  if (Lanes<S>::value == 1 && !any(done)) fail(outcome, shortfall);
  return done;
}

// Takes a step from (q, v) or from (q, p); `step` then holds q1 and p1. Returns the lanes that are done: lanes have one
// time, and the others are not.
template <class S>
Mask<S> take(VariationalStep<S>& step, const S* const* in, bool by_momentum) {
  const Model& m = step.scene.m;
  const double t = lane_of(*in[3], 0);
  step.p = in[4];
  std::fill(step.v0.begin(), step.v0.end(), S(0.0));
  plus(m, in[0], step.v0.data(), step.q0.data());  // makes quaternions of unit length
  S* v0 = step.v0.data();
  if (by_momentum) {
    std::copy_n(in[1], m.nv, step.p0.begin());
  } else {
    step.arena.reset();
    scene_momenta<S>(step.scene, step.arena, step.q0.data(), in[1], step.p0.data());
    std::copy_n(in[1], m.nv, v0);
    v0 = step.v1.data();  // differs from v by rounding only
  }
  Mask<S> done = step.velocities(step.q0.data(), step.p0.data(), t, in[2], v0, step.a0.data());
  if (!any(done)) return done_or<S>(done, Outcome::singular, {static_cast<double>(step.arena.singular_joint), 0.0});
  done = step.take(t, {in[2], 1});
  if constexpr (Lanes<S>::value > 1) done = done & equal(*in[3], S(t));
  return done_or<S>(done, Outcome::failed, step.shortfall);
}

// Derivatives of the step just taken.
template <class S>
Mask<S> linearise(VariationalStep<S>& step, StepMatrices<S>& matrices) {
  return done_or<S>(StepLinearisation<S>(step).run(matrices), Outcome::failed, {});
}

// Turns the rows of p1 into those of v1 = M^-1 p1.
template <class S>
void to_velocities(VariationalStep<S>& step, StepMatrices<S>& matrices, S* v1) {
  const int nv = step.scene.m.nv, columns = matrices.stride;
  std::vector<S> M(std::size_t(nv) * nv), Mq(M.size());
  SceneMass<S>(step.scene, step.arena, step.q1.data()).solve(step.p1.data(), v1);
  momentum_derivatives<S>(step.scene, step.arena, step.q1.data(), v1, M.data(), Mq.data());
  for (int r = 0; r < nv; ++r)
    for (int k = 0; k < nv; ++k)
      add_scaled(columns, -Mq[std::size_t(r) * nv + k], &matrices.q1[std::size_t(k) * columns],
                 &matrices.p1[std::size_t(r) * columns]);
  const SceneMass<S> mass(step.scene, step.arena, step.q1.data());
  for (int k = 0; k < columns; ++k) mass.solve(&matrices.p1[k], &matrices.p1[k], columns);
}

// Arguments of a step from (q, p).
constexpr int kMomentumInputs = 5;
void momentum_slots(const Model& tree, const Options& options, Slot* in) {
  const Model& m = manifold(tree);
  in[0] = {"q", 1, {m.nq}};
  in[1] = {"p", 1, {m.nv}};
  in[2] = {"u", 1, {m.nv}, true};
  in[3] = {"t", 0, {}};
  in[4] = {"parameters", 1, {parameter_count(options)}, true};
}

// One step of a variational integrator and the derivatives of (q1, p1) with respect to (q, p, u) and to the parameters
// of the forces.
struct MomentumStepDerivatives {
  static constexpr int inputs = kMomentumInputs, outputs = 10;
  static constexpr bool has_options = true, has_complex = false;
  static void slots(const Model& tree, const Options& options, Slot* in, Slot* out) {
    const Model& m = manifold(tree);
    momentum_slots(tree, options, in);
    out[0] = {"q1", 1, {m.nq}};
    out[1] = {"p1", 1, {m.nv}};
    for (int k = 2; k < 8; ++k) out[k] = {"derivative", 2, {m.nv, m.nv}};
    for (int k = 8; k < outputs; ++k) out[k] = {"derivative", 2, {m.nv, parameter_count(options)}};
  }
  // Returns the lanes that are done.
  template <class S>
  static Mask<S> run(const Model& m, Arena&, const Options& options, const S* const* in, S* const* out) {
    const Scene scene{m, options.forces, options.constraints};
    const int nv = scene.m.nv;
    VariationalStep<S> step(scene, *options.variational);
    Mask<S> done = take(step, in, true);
    if (!any(done)) return done;
    StepMatrices<S> matrices;
    matrices.parameters = options.forces != nullptr && (options.wanted >> 8 & 3) == 3;
    done = done & linearise(step, matrices);
    if (!any(done)) return done;
    std::copy_n(step.q1.begin(), scene.m.nq, out[0]);
    std::copy_n(step.p1.begin(), nv, out[1]);
    for (int block = 0; block < 3; ++block) {
      put_block(matrices.q1, nv, matrices.stride, block, out[2 + block]);
      put_block(matrices.p1, nv, matrices.stride, block, out[5 + block]);
    }
    const int parameters = matrices.columns - 3 * nv;
    for (int k = 8; k < outputs && matrices.parameters; ++k)
      for (int r = 0; r < nv; ++r)
        std::copy_n(&(k == 8 ? matrices.q1 : matrices.p1)[std::size_t(r) * matrices.stride + 3 * nv], parameters,
                    out[k] + r * parameters);
    return done;
  }
};

// Second derivatives of wq.q1 + wp.p1 with respect to (q, p, u).
struct StepHessian {
  static constexpr int inputs = kMomentumInputs + 2, outputs = 6;
  static constexpr bool has_options = true, has_lanes = false, has_complex = false;
  static void slots(const Model& tree, const Options& options, Slot* in, Slot* out) {
    const Model& m = manifold(tree);
    momentum_slots(tree, options, in);
    in[kMomentumInputs] = {"weight of q1", 1, {m.nv}};
    in[kMomentumInputs + 1] = {"weight of p1", 1, {m.nv}};
    for (int k = 0; k < outputs; ++k) out[k] = {"second derivative", 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena&, const Options& options, const S* const* in, S* const* out) {
    const Scene scene{m, options.forces, options.constraints};
    VariationalStep<S> step(scene, *options.variational);
    take(step, in, true);
    StepMatrices<S> matrices;
    linearise(step, matrices);
    const int nv = scene.m.nv, columns = matrices.columns;
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

template <class S>
Mask<S> variational_step(const Scene& scene, const VariationalScheme& scheme, const S* const* in, S* const* out) {
  const Model& m = scene.m;
  VariationalStep<S> step(scene, scheme);
  const Mask<S> done = take(step, in, false);
  if (!any(done)) return done;
  std::copy_n(step.q1.begin(), m.nq, out[0]);
  step.arena.reset();
  SceneMass<S>(scene, step.arena, step.q1.data()).solve(step.p1.data(), out[1]);
  if (step.arena.singular_joint < 0) return done;
  return done_or<S>(no_lane<S>(), Outcome::singular, {static_cast<double>(step.arena.singular_joint), 0.0});
}

template <class S>
Mask<S> variational_step_derivatives(const Scene& scene, const VariationalScheme& scheme, const S* const* in,
                                     S* const* out) {
  const Model& m = scene.m;
  const int nv = m.nv;
  VariationalStep<S> step(scene, scheme);
  Mask<S> done = take(step, in, false);
  if (!any(done)) return done;
  // of p0 = M v0: applied before the system is solved, because multiplying by M afterwards loses digits
  std::vector<S> M(std::size_t(nv) * nv), Mq(M.size());
  momentum_derivatives<S>(scene, step.arena, step.q0.data(), in[1], M.data(), Mq.data());
  StepMatrices<S> matrices;
  matrices.mass = M.data();
  matrices.turned = Mq.data();
  done = done & linearise(step, matrices);
  if (!any(done)) return done;
  std::copy_n(step.q1.begin(), m.nq, out[0]);
  to_velocities(step, matrices, out[1]);
  for (int block = 0; block < 3; ++block) {
    put_block(matrices.q1, nv, matrices.stride, block, out[2 + block]);
    put_block(matrices.p1, nv, matrices.stride, block, out[5 + block]);
  }
  return done;
}

#define TORSOR_STEPS_OF(S)                                                                               \
  template Mask<S> variational_step(const Scene&, const VariationalScheme&, const S* const*, S* const*); \
  template Mask<S> variational_step_derivatives(const Scene&, const VariationalScheme&, const S* const*, S* const*);
TORSOR_STEPS_OF(double)
TORSOR_STEPS_OF(Pack<kLanes>)
#undef TORSOR_STEPS_OF

std::unique_ptr<Rollout> make_rollout(const Scene& scene, const VariationalScheme& scheme) {
  return std::make_unique<RolloutOf<VariationalRollout, VariationalAdjoint, VariationalScheme>>(scene, scheme);
}

double variational_newton_time(const Model& m, const VariationalScheme& scheme, const std::vector<double>& q0,
                               const std::vector<double>& xi, int repeats, bool dense) {
  VariationalStep<double> step({m, nullptr}, scheme);
  if (q0.size() != step.q0.size() || xi.size() != step.xi.size() || repeats < 1)
    throw std::invalid_argument("torsor: arguments of variational_newton have the wrong length");
  step.q0 = q0;
  step.xi = xi;
  step.evaluate();
  double best = std::numeric_limits<double>::infinity();
  for (int k = 0; k < repeats; ++k) {
    const auto start = std::chrono::steady_clock::now();
    step.direction(dense);
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

void bind_variational(Kernels& kernels) {
  kernels.add<DiscreteEulerLagrange>("discrete_euler_lagrange");
  RareKernels().add<DiscreteEulerLagrange>("discrete_euler_lagrange");  // most of its code is in complex.cpp
  kernels.add<NewtonSystem>("variational_newton_system");
  kernels.add<MomentumStepDerivatives>("momentum_step_derivatives");
  kernels.add<StepHessian>("step_hessian");
  kernels.add_coupled<DiscreteEulerLagrange>("discrete_euler_lagrange");
  RareKernels().add_coupled<DiscreteEulerLagrange>("discrete_euler_lagrange");
  kernels.add_coupled<MomentumStepDerivatives>("momentum_step_derivatives");
  kernels.add_coupled<StepHessian>("step_hessian");
}

}  // namespace torsor
