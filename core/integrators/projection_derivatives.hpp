// Derivatives of rows of constraints at a node, and of projections onto them
//   M x + G^T kappa = 0,   G y + ... = 0    (docs/derivations/constraints.md, 5):
// of velocities, x = v1 - v^, y = v1, G v1 + g_t = 0; and of a configuration, x = y = d, G d + g = 0.
#pragma once
#include "derivatives/inverse_dynamics_vjp.hpp"
#include "integrators/stage_rows.hpp"

namespace torsor {

// Products with the inverse of the mass matrix at a configuration.
template <class S>
class MassAt {
 public:
  MassAt(StepContext<S>& at, const S* q) : m_(at.scene.m), factor_(factor_mass_at(at, q)) {}
  void solve(S* x, int stride = 1) const { solve_mass(m_, factor_, x, x, stride); }

 private:
  const Model& m_;
  MassFactor<S> factor_;
};

// Adds the gradients of x0.g + x1.gdot at (q, v); either may be null. `still`: x1.(G v), v being a virtual velocity.
template <class S>
void add_row_gradient(StepContext<S>& at, const StageRows<S>& rows, const S* q, const S* v, double t, bool still,
                      const S* x0, const S* x1, const ConstraintGradients<S>& out) {
  with_model<S>(at.scene, [&](const auto& m) {
    const Motions<S> all = motions<S>(m, at.arena, q, v, at.zero, false, true);
    add_constraint_gradients<S>(m, rows.state(all, q, v, at.zero, t, still), x0, x1, nullptr, out);
  });
}

// A projection at the configuration q and the time t.
template <class S>
struct Projection {
  const S *q, *x, *y;
  double t;
  bool displaces;  // of the configuration
};
// Of the velocities of a node, from `free`.
template <class S>
Projection<S> velocity_projection(StepContext<S>& at, const S* free, int node, double t) {
  const int nv = at.scene.m.nv;
  const S* v1 = at.nodes.v(node);
  S* x = at.arena.template get<S>(nv);
  for (int k = 0; k < nv; ++k) x[k] = v1[k] - free[k];
  return {at.nodes.q(node), x, v1, t, false};
}

// Adds the gradients of al.(M x + G^T kappa) + be.(G y + g_t), or be.(G y + g), by q, by placements and parameters of
// constraints, and by inertias.
template <class S>
void add_projection_gradient(StepContext<S>& at, const StageRows<S>& rows, const Projection<S>& done, const S* al,
                             const S* be, const ConstraintGradients<S>& out,
                             const InertialGradients<S>& inertial = {}) {
  const int nv = at.scene.m.nv, bodies = at.scene.m.nframes();
  const S *q = done.q, *x = done.x;
  S *by_q = at.arena.template get<S>(nv), *by_armature = at.arena.template get<S>(nv);
  S *by_inertia = at.arena.template get<S>(10 * bodies), *by_placement = at.arena.template get<S>(6 * bodies);
  const Gradients<S> of{out.q == nullptr ? nullptr : by_q,
                        nullptr,
                        nullptr,
                        nullptr,
                        inertial.inertia == nullptr ? nullptr : by_inertia,
                        out.placement == nullptr ? nullptr : by_placement,
                        nullptr,
                        by_armature};
  with_model<S>(at.scene,
                [&](const auto& m) { inverse_dynamics_vjp<S>(m, at.arena, q, at.zero, x, al, nullptr, 0, of, false); });
  if (out.q != nullptr) add_scaled(nv, S(1.0), by_q, out.q);
  if (inertial.inertia != nullptr) {
    add_scaled(10 * bodies, S(1.0), by_inertia, inertial.inertia);
    add_scaled(nv, S(1.0), by_armature, inertial.armature);
  }
  if (out.placement != nullptr) add_scaled(6 * bodies, S(1.0), by_placement, out.placement);
  add_row_gradient<S>(at, rows, q, al, done.t, true, nullptr, rows.kappa, out);
  add_row_gradient<S>(at, rows, q, done.y, done.t, done.displaces, done.displaces ? be : nullptr, be, out);
}

// The matrices of a projection: R = d(M x + G^T kappa)/dq (nv x nv) and d(G y + g_t)/dq, or d(G y + g)/dq (rows x nv).
template <class S>
void projection_matrices(StepContext<S>& at, const StageRows<S>& rows, const Projection<S>& of, S* R, S* by_q) {
  const Model& model = at.scene.m;
  const int nv = model.nv;
  std::fill_n(R, nv * nv, S(0.0));
  with_model<S>(at.scene, [&](const auto& m) {
    const Motions<S> all = motions<S>(m, at.arena, of.q, at.zero, of.x, false);
    body_terms(m, all.bodies);
    add_to_parents<S>(m, all.bodies, nullptr);
    pair_columns<S>(model, at.arena, all, nullptr, 0, R, nullptr, nullptr, nv);
    const Motions<S> moving = motions<S>(m, at.arena, of.q, of.y, at.zero, false);
    const ConstraintState<S> state = rows.state(moving, of.q, of.y, at.zero, of.t, of.displaces);
    add_constraint_stiffness<S>(state, rows.kappa, S(1.0), R, nv);
    constraint_derivatives<S>(state, by_q, nullptr, nullptr, nv);
  });
  if (of.displaces) rows.add_position_jacobian(S(1.0), by_q);
}

}  // namespace torsor
