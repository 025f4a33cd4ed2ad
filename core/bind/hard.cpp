// Steps with hard contact, and for tests the quadratic programs that they solve.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind/bind.hpp"
#include "bind/steps.hpp"
#include "integrators/hard_rollout.hpp"
#include "linear/dual_active_set.hpp"

namespace torsor {
namespace {

using Numbers = std::vector<double>;

// Status, x and multipliers of min x.H x / 2 + f.x with A x = b in the first rows and A x >= b in the others.
std::tuple<int, Numbers, Numbers> program(const Numbers& H, const Numbers& f, const Numbers& A, const Numbers& b,
                                          int equalities, int iterations) {
  const std::size_t n = f.size(), m = b.size();
  if (H.size() != n * n || A.size() != m * n || equalities < 0 || static_cast<std::size_t>(equalities) > m)
    throw std::invalid_argument("torsor: arguments of solve_program have the wrong length");
  Numbers x(n), a(m);
  const ProgramStatus status = solve_program(static_cast<int>(n), static_cast<int>(m), equalities, H.data(), f.data(),
                                             A.data(), b.data(), iterations, x.data(), a.data());
  return {static_cast<int>(status), x, a};
}

// Takes the step from (q, v), whose arguments are those of the kernel Step (bind/steps.cpp).
void take(HardStep& step, const double* const* in, double* const* out) {
  StepContext<double>& at = step.at;
  const Model& m = at.scene.m;
  at.p = in[4];
  plus(m, in[0], at.zero, at.nodes.q(1));  // makes quaternions of unit length
  std::copy_n(in[1], m.nv, at.nodes.v(1));
  if (in[2] != nullptr)
    std::copy_n(in[2], m.nv, at.u);
  else
    std::fill_n(at.u, m.nv, 0.0);
  if (!step.take(*in[3])) {
    if (step.is_singular()) fail_at(at.arena.singular_joint);
    fail(Outcome::failed, step.shortfall);
  }
  std::copy_n(at.nodes.q(2), m.nq, out[0]);
  std::copy_n(at.nodes.v(2), m.nv, out[1]);
}

}  // namespace

Mask<double> hard_step(const Scene& scene, const HardScheme& scheme, const double* const* in, double* const* out) {
  HardStep step(scene, scheme);
  take(step, in, out);
  return true;
}
// Row by row, as gradients of the components of q1 and v1.
Mask<double> hard_step_derivatives(const Scene& scene, const HardScheme& scheme, const double* const* in,
                                   double* const* out) {
  HardStep step(scene, scheme);
  take(step, in, out);
  if (!step.linearise(*in[3])) fail(Outcome::failed, {});
  const int nv = scene.m.nv;
  std::vector<double> unit(nv, 0.0), none(nv, 0.0);
  for (int k = 2; k < 8; ++k) std::fill_n(out[k], nv * nv, 0.0);
  for (int i = 0; i < nv; ++i) {
    unit[i] = 1.0;
    const auto row = [&](int k) { return out[k] + i * nv; };
    step.pull_back(*in[3], unit.data(), none.data(), row(2), row(3), row(4), {});
    step.pull_back(*in[3], none.data(), unit.data(), row(5), row(6), row(7), {});
    unit[i] = 0.0;
  }
  return true;
}

std::unique_ptr<Rollout> make_rollout(const Scene& scene, const HardScheme& scheme) {
  return std::make_unique<HardRollouts>(scene, scheme);
}

void bind_hard(nb::module_& module) {
  nb::enum_<ProgramStatus>(module, "ProgramStatus", nb::is_arithmetic())
      .value("solved", ProgramStatus::solved)
      .value("infeasible", ProgramStatus::infeasible)
      .value("exhausted", ProgramStatus::exhausted)
      .value("not_convex", ProgramStatus::not_convex);
  nb::class_<HardScheme>(module, "HardScheme")
      .def(
          "__init__",
          [](HardScheme* scheme, double h, double tolerance, int iterations) {
            IntegratorTable euler{StageKind::explicit_,
                                  {{1.0, 1.0, 0.0, {}}},
                                  std::nullopt,
                                  {0.0},
                                  h,
                                  tolerance,
                                  1,
                                  1,
                                  0.0,
                                  false,
                                  {},
                                  {}};
            euler.first = euler.later = list_stages(euler, 1, false);
            new (scheme) HardScheme{h, tolerance, iterations, std::move(euler)};
          },
          nb::arg("h"), nb::arg("tolerance"), nb::arg("iterations"));
  module.def("solve_program", program, nb::arg("H"), nb::arg("f"), nb::arg("A"), nb::arg("b"), nb::arg("equalities"),
             nb::arg("iterations"));
}

}  // namespace torsor
