#include <nanobind/stl/vector.h>

#include <chrono>

#include "bind/bind.hpp"
#include "integrators/variational_rollout.hpp"

namespace torsor {
namespace {

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
    const VariationalScene scene({m, options.forces}, options.variational->rule, options.variational->h);
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
    const VariationalScene scene({m, options.forces}, options.variational->rule, options.variational->h);
    const int nv = m.nv, s = scene.rule.s;
    S* xi = arena.get<S>(s * nv);
    for (int c = 1; c <= s; ++c) chart(m, in[0], in[0] + c * m.nq, xi + (c - 1) * nv);
    const Action<S> action = evaluate_action<S>(scene, arena, in[0], xi, *in[2], {in[1], 1}, in[3]);
    const StepEnd<S> end = end_of(scene, arena, xi, action);
    TreeSystem system(m, ActionBlocks::length(scene.rule), ActionBlocks::length(scene.rule),
                      ActionBlocks::copies(scene.rule, false));
    ActionBlocks blocks(scene, false, system);
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
  VariationalStep step({m, nullptr}, *variational_scheme(scheme));
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
  def_kernel<DiscreteEulerLagrange>(module, "discrete_euler_lagrange");
  def_kernel<NewtonSystem>(module, "variational_newton_system");
}

}  // namespace torsor
