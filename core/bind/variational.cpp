#include <nanobind/stl/vector.h>

#include <chrono>

#include "bind/bind.hpp"
#include "integrators/variational_simulation.hpp"

namespace torsor {
namespace {

// What a kernel of one step is called with: q, p or v, u, t, parameters of the forces.
constexpr int kStepInputs = 5;
void step_slots(const Model& m, const Options& options, bool by_momentum, Slot* in) {
  in[0] = {"q", 1, {m.nq}};
  in[1] = {by_momentum ? "p" : "v", 1, {m.nv}};
  in[2] = {"u", 1, {m.nv}, true};
  in[3] = {"t", 0, {}};
  in[4] = {"parameters", 1, {options.forces == nullptr ? 0 : options.forces->parameters}, true};
}
// Takes the step from (q, p) or, unless `by_momentum`, from (q, v).
void take_step(VariationalStep& step, const double* const* in, bool by_momentum) {
  const Model& m = step.scene.m;
  const int nv = m.nv;
  step.p = in[4];
  std::fill(step.v0.begin(), step.v0.end(), 0.0);
  plus(m, in[0], step.v0.data(), step.q0.data());  // of the same chart, with unit quaternions
  double* v0 = step.v0.data();
  if (by_momentum) {
    std::copy_n(in[1], nv, step.p0.begin());
  } else {
    generalized_momenta(m, step.arena, step.q0.data(), in[1], step.p0.data());
    std::copy_n(in[1], nv, v0);
    v0 = step.v1.data();  // the same again, but for rounding
  }
  const StepControls<double> controls{in[2], 1};
  if (!step.velocities(step.q0.data(), step.p0.data(), *in[3], in[2], v0, step.a0.data()) ||
      !step.take(*in[3], controls))
    throw StepFailed();
}
void put_block(const std::vector<double>& from, int nv, int stride, int block, double* to) {
  for (int r = 0; r < nv; ++r) std::copy_n(&from[std::size_t(r) * stride + block * nv], nv, to + r * nv);
}

// One step, from (q, v) to (q1, v1).
struct VariationalStepKernel {
  static constexpr int inputs = kStepInputs, outputs = 2;
  static constexpr bool has_options = true, has_lanes = false, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    step_slots(m, options, false, in);
    out[0] = {"q1", 1, {m.nq}};
    out[1] = {"v1", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena&, const Options& options, const S* const* in, S* const* out) {
    VariationalStep step(m, options.forces, *options.variational);
    take_step(step, in, false);
    std::copy_n(step.q1.begin(), m.nq, out[0]);
    step.arena.reset();
    solve_mass(m, factor_mass<double>(m, step.arena, step.q1.data(), nullptr, nullptr), step.p1.data(), out[1]);
    if (step.arena.singular_joint >= 0) throw StepFailed();
  }
};

// One step and its derivatives, of (q1, p1) by (q, p, u), or of (q1, v1) by (q, v, u).
template <bool by_momentum>
struct VariationalDerivatives {
  static constexpr int inputs = kStepInputs, outputs = by_momentum ? 10 : 8;
  static constexpr bool has_options = true, has_lanes = false, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    step_slots(m, options, by_momentum, in);
    out[0] = {"q1", 1, {m.nq}};
    out[1] = {by_momentum ? "p1" : "v1", 1, {m.nv}};
    for (int k = 2; k < 8; ++k) out[k] = {"derivative", 2, {m.nv, m.nv}};
    const int parameters = options.forces == nullptr ? 0 : options.forces->parameters;
    for (int k = 8; k < outputs; ++k) out[k] = {"derivative", 2, {m.nv, parameters}};
  }
  template <class S>
  static void run(const Model& m, Arena&, const Options& options, const S* const* in, S* const* out) {
    const int nv = m.nv;
    VariationalStep step(m, options.forces, *options.variational);
    take_step(step, in, by_momentum);
    StepMatrices matrices;
    matrices.parameters = by_momentum && options.forces != nullptr && (options.wanted >> 8 & 3) == 3;
    std::vector<double> M, Mq;  // p0 = M v0; before the system is solved, as M after it would cost digits
    if (!by_momentum) {
      M.resize(std::size_t(nv) * nv);
      Mq.resize(M.size());
      momentum_derivatives(m, step.arena, step.q0.data(), in[1], M.data(), Mq.data());
      matrices.mass = M.data();
      matrices.turned = Mq.data();
    }
    if (!StepLinearisation(step).run(matrices)) throw StepFailed();
    std::copy_n(step.q1.begin(), m.nq, out[0]);
    if (by_momentum)
      std::copy_n(step.p1.begin(), nv, out[1]);
    else
      to_velocities(step, matrices, out[1]);
    for (int block = 0; block < 3; ++block) {
      put_block(matrices.q1, nv, matrices.stride, block, out[2 + block]);
      put_block(matrices.p1, nv, matrices.stride, block, out[5 + block]);
    }
    const int parameters = matrices.columns - 3 * nv;
    for (int k = 8; k < outputs && matrices.parameters; ++k)
      for (int r = 0; r < nv; ++r)
        std::copy_n(&(k == 8 ? matrices.q1 : matrices.p1)[std::size_t(r) * matrices.stride + 3 * nv], parameters,
                    out[k] + r * parameters);
  }
  // Rows of p1 become rows of v1 = M^-1 p1.
  static void to_velocities(VariationalStep& step, StepMatrices& matrices, double* v1) {
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
};

// Second derivatives of wq.q1 + wp.p1 by (q, p, u).
struct VariationalHessian {
  static constexpr int inputs = kStepInputs + 2, outputs = 6;
  static constexpr bool has_options = true, has_lanes = false, has_complex = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    step_slots(m, options, true, in);
    in[kStepInputs] = {"weight of q1", 1, {m.nv}};
    in[kStepInputs + 1] = {"weight of p1", 1, {m.nv}};
    for (int k = 0; k < outputs; ++k) out[k] = {"second derivative", 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena&, const Options& options, const S* const* in, S* const* out) {
    VariationalStep step(m, options.forces, *options.variational);
    take_step(step, in, true);
    StepMatrices matrices;
    if (!StepLinearisation(step).run(matrices)) throw StepFailed();
    const int nv = m.nv, columns = matrices.columns;
    std::vector<double> H(std::size_t(columns) * columns);
    step_hessian(step, matrices, in[kStepInputs], in[kStepInputs + 1], H.data());
    int block = 0;
    for (int row = 0; row < 3; ++row)  // qq qp qu pp pu uu
      for (int column = row; column < 3; ++column, ++block)
        for (int r = 0; r < nv; ++r)
          std::copy_n(&H[std::size_t(row * nv + r) * columns + column * nv], nv, out[block] + r * nv);
  }
};

// The discrete Euler-Lagrange equations of given control points: p0, D of those between as covectors there, and p1.
struct DiscreteEulerLagrange {
  static constexpr int inputs = 4, outputs = 3;
  static constexpr bool has_options = true, has_lanes = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    const int s = options.variational->rule.s;
    in[0] = {"q", 2, {s + 1, m.nq}};
    in[1] = {"u", 1, {m.nv}, true};
    in[2] = {"t", 0, {}};
    in[3] = {"parameters", 1, {options.forces == nullptr ? 0 : options.forces->parameters}, true};
    out[0] = {"p0", 1, {m.nv}};
    out[1] = {"residual", 2, {s - 1, m.nv}};
    out[2] = {"p1", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const VariationalScene scene{m, options.forces, options.variational->rule, options.variational->h};
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
    // D_0 is at fixed xi: with the other points fixed they all move
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

// For tests: the matrix of Newton's method at given control points, and what systems with it and with its transpose give over
// the tree, without forces that couple joints; NaN where that cannot be.
struct NewtonSystem {
  static constexpr int inputs = 5, outputs = 3;
  static constexpr bool has_options = true, has_lanes = false, has_complex = false;
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
    const VariationalScene scene{m, options.forces, options.variational->rule, options.variational->h};
    const int nv = m.nv, s = scene.rule.s;
    S* xi = arena.get<S>(s * nv);
    for (int c = 1; c <= s; ++c) chart(m, in[0], in[0] + c * m.nq, xi + (c - 1) * nv);
    const Action<S> action = evaluate_action<S>(scene, arena, in[0], xi, *in[2], {in[1], 1}, in[3]);
    const StepEnd<S> end = end_of(scene, arena, xi, action);
    ActionBlocks blocks(scene, false);
    blocks.fill(action, end, arena, in[3]);
    blocks.assemble(action, end, arena, in[3], out[0]);
    const bool good = blocks.system.factor();
    for (int k = 0; k < s * nv; ++k) out[1][k] = out[2][k] = good ? in[4][k] : std::numeric_limits<double>::quiet_NaN();
    if (!good) return;
    blocks.system.solve(out[1]);
    blocks.system.solve_transposed(out[2]);
  }
};

// Seconds that making and solving the system of Newton's method takes at control coordinates xi, densely or over the tree.
double variational_newton(nb::handle model, nb::handle scheme, std::vector<double> q0, std::vector<double> xi,
                          int repeats, bool dense) {
  const nb::object core = core_model(model);
  const Model& m = *nb::inst_ptr<Model>(core);
  VariationalStep step(m, nullptr, *variational_scheme(scheme));
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

}  // namespace

const VariationalScheme* variational_scheme(nb::handle scheme) { return nb::cast<const VariationalScheme*>(scheme); }

void bind_variational(nb::module_& module) {
  nb::class_<VariationalScheme>(module, "VariationalScheme")
      .def(
          "__init__",
          [](VariationalScheme* scheme, double h, double tolerance, int iterations, std::vector<double> nodes,
             std::vector<double> c, std::vector<double> w, std::vector<double> phi, std::vector<double> b) {
            const int s = static_cast<int>(nodes.size()) - 1, m = static_cast<int>(c.size());
            if (s < 1 || m < 1 || w.size() != c.size() || phi.size() != c.size() * nodes.size() ||
                b.size() != phi.size())
              throw std::invalid_argument("torsor: a variational rule has arrays of the wrong length");
            new (scheme) VariationalScheme{{s, m, nodes, c, w, phi, b}, h, tolerance, iterations};
          },
          nb::arg("h"), nb::arg("tolerance"), nb::arg("iterations"), nb::arg("nodes"), nb::arg("c"), nb::arg("w"),
          nb::arg("phi"), nb::arg("b"));
  module.def("variational_newton", variational_newton, nb::arg("model"), nb::arg("scheme"), nb::arg("q0"),
             nb::arg("xi"), nb::arg("repeats"), nb::arg("dense"));
  def_kernel<VariationalStepKernel>(module, "variational_step");
  def_kernel<VariationalDerivatives<true>>(module, "momentum_step_derivatives");
  def_kernel<VariationalDerivatives<false>>(module, "variational_step_derivatives");
  def_kernel<VariationalHessian>(module, "step_hessian");
  def_kernel<DiscreteEulerLagrange>(module, "discrete_euler_lagrange");
  def_kernel<NewtonSystem>(module, "variational_newton_system");
}

}  // namespace torsor
