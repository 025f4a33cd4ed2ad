// Single steps: code that the kernels of all integrators share.
#pragma once
#include "bind/kernel.hpp"
#include "integrators/rollout.hpp"

namespace torsor {

inline int parameter_count(const Options& options) {
  return options.forces == nullptr ? 0 : options.forces->parameters;
}

[[noreturn]] inline void fail(Outcome outcome, const Shortfall& shortfall) {
  throw StepFailed(static_cast<int>(outcome), shortfall.error, shortfall.allowed);
}
[[noreturn]] inline void fail_at(int joint) { fail(Outcome::singular, {static_cast<double>(joint), 0.0}); }

// Copies the nv columns of a matrix that start at column `block` nv.
template <class S>
void put_block(const S* from, int nv, int stride, int block, S* to) {
  for (int r = 0; r < nv; ++r) std::copy_n(from + std::size_t(r) * stride + block * nv, nv, to + r * nv);
}

// The kernels Step and StepDerivatives (steps.cpp) for variational integrators, for doubles and packs. They return the
// lanes that are done; a single state fails otherwise.
template <class S>
Mask<S> variational_step(const Scene& scene, const VariationalScheme& scheme, const S* const* in, S* const* out);
template <class S>
Mask<S> variational_step_derivatives(const Scene& scene, const VariationalScheme& scheme, const S* const* in,
                                     S* const* out);

// The same with hard contact, of single states; of several, none is done.
Mask<double> hard_step(const Scene& scene, const HardScheme& scheme, const double* const* in, double* const* out);
Mask<double> hard_step_derivatives(const Scene& scene, const HardScheme& scheme, const double* const* in,
                                   double* const* out);
template <class S>
Mask<S> hard_step(const Scene&, const HardScheme&, const S* const*, S* const*) {
  return no_lane<S>();
}
template <class S>
Mask<S> hard_step_derivatives(const Scene&, const HardScheme&, const S* const*, S* const*) {
  return no_lane<S>();
}

// For tests: the solution of H x = -r of Newton's method at the end of an implicit Euler step from (q, v) along xi with
// c = 1 / h, by each of the three solvers: rows of `out` (3 x nv) for the tree, for branches, dense; NaN where a solver
// does not apply.
void newton_forms(const Scene& scene, const double* p, const double* q, const double* v, const double* xi, double c,
                  double* out);
// For benchmarks: seconds for assembling and solving the system of Newton's method at control coordinates xi, densely
// or over the tree.
double variational_newton_time(const Model& m, const VariationalScheme& scheme, const std::vector<double>& q0,
                               const std::vector<double>& xi, int repeats, bool dense);

}  // namespace torsor
