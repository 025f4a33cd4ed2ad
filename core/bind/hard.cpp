// Steps with hard contact, and for tests the quadratic programs that they solve.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind/bind.hpp"
#include "bind/complex.hpp"
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

// Takes the step from (q, v), whose first arguments are those of the kernel Step (bind/steps.cpp).
bool take(HardStep& step, const double* const* in) {
  StepContext<double>& at = step.at;
  const Model& m = at.scene.m;
  at.p = in[4];
  plus(m, in[0], at.zero, at.nodes.q(1));  // makes quaternions of unit length
  std::copy_n(in[1], m.nv, at.nodes.v(1));
  if (in[2] != nullptr)
    std::copy_n(in[2], m.nv, at.u);
  else
    std::fill_n(at.u, m.nv, 0.0);
  return step.take(*in[3]);
}
void take(HardStep& step, const double* const* in, double* const* out) {
  StepContext<double>& at = step.at;
  const Model& m = at.scene.m;
  if (!take(step, in)) {
    if (step.is_singular()) fail_at(at.arena.singular_joint);
    fail(Outcome::failed, step.shortfall);
  }
  std::copy_n(at.nodes.q(2), m.nq, out[0]);
  std::copy_n(at.nodes.v(2), m.nv, out[1]);
}

// The forces at all places of contact in the step from (q, v); NaN if it fails.
struct HardContactForces {
  static constexpr int inputs = 5, outputs = 1;
  static constexpr bool has_options = true, has_complex = false, has_lanes = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    in[0] = {"q", 1, {manifold(m).nq}};
    in[1] = {"v", 1, {manifold(m).nv}};
    in[2] = {"u", 1, {manifold(m).nv}, true};
    in[3] = {"t", 0, {}};
    in[4] = {"parameters", 1, {parameter_count(options)}};
    out[0] = {"force", 2, {static_cast<int64_t>(contact_forces(*options.forces).size()), 3}};
  }
  template <class S>
  static void run(const Model& m, Arena&, const Options& options, const S* const* in, S* const* out) {
    const Scene scene{m, options.forces, options.constraints};
    HardStep step(scene, *options.hard);
    if (take(step, in))
      step.put_contact_forces(out[0]);
    else
      std::fill_n(out[0], 3 * contact_forces(*options.forces).size(), std::numeric_limits<double>::quiet_NaN());
  }
};

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

void bind_hard_steps(Kernels& kernels) {
  kernels.add<HardContactForces>("hard_contact_forces");
  kernels.add_coupled<HardContactForces>("hard_contact_forces");
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
