// Steps with hard contact, and for tests the quadratic programs that they solve.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind/bind.hpp"
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

}  // namespace

void bind_hard(nb::module_& module) {
  nb::enum_<ProgramStatus>(module, "ProgramStatus", nb::is_arithmetic())
      .value("solved", ProgramStatus::solved)
      .value("infeasible", ProgramStatus::infeasible)
      .value("exhausted", ProgramStatus::exhausted)
      .value("not_convex", ProgramStatus::not_convex);
  module.def("solve_program", program, nb::arg("H"), nb::arg("f"), nb::arg("A"), nb::arg("b"), nb::arg("equalities"),
             nb::arg("iterations"));
}

}  // namespace torsor
