// Accelerations of a state with forces that depend on them (forces/joint_loads.hpp), by Newton's method.
#pragma once
#include "integrators/residual.hpp"
#include "linear/lu.hpp"

namespace torsor {

// a (nv) with ID(q, v, a) = tau_f + u. False where the mass matrix is singular, or if the method does not converge.
template <class S>
Mask<S> accelerate_loaded(StepContext<S>& at, const S* q, const S* v, double t, S* a) {
  const int n = at.scene.m.nv;
  const std::size_t size = std::size_t(n) * n;
  std::vector<S> r(n), Aq(size), Av(size), M(size);
  std::vector<Pivot<S>> pivots(n);
  std::fill_n(a, n, S(0.0));
  Mask<S> good = every_lane<S>(), found = no_lane<S>();
  for (int iteration = 0; iteration < 50 && any(good & !found); ++iteration) {
    const Evaluation<S> e = evaluate_residual<S>(at, q, v, a, t, r.data());
    add_rates(at.scene.tree, e);
    sum_inertias(at.scene.tree, e);
    for (auto* matrix : {&Aq, &Av, &M}) std::fill(matrix->begin(), matrix->end(), S(0.0));
    add_residual_derivatives(at, e, Aq.data(), Av.data(), M.data());
    good = good & factor(n, M.data(), pivots.data());
    solve(n, M.data(), pivots.data(), r.data());
    const Mask<S> going = good & !found;
    for (int k = 0; k < n; ++k) a[k] = select(going, a[k] - r[k], a[k]);
    const S step = largest(n, r.data()), reach = largest(n, a);
    good = good & is_finite(step);
    found = found | less_equal(step, S(1e-13) * (S(1.0) + reach));
  }
  return good & found;
}

}  // namespace torsor
