// Derivatives of rows of constraints at a node, and of projections onto them
//   M x + G^T kappa = 0,   G y + ... = 0    (docs/derivations/constraints.md, 5):
// of velocities, x = v1 - v^, y = v1, G v1 + g_t = 0; and of a configuration, x = y = d, G d + g = 0.
#pragma once
#include "integrators/stage_rows.hpp"

namespace torsor {

// Adds the gradients of x0.g + x1.gdot at (q, v); either may be null. `still`: x1.(G v), v being a virtual velocity.
template <class S>
void add_row_gradient(StepContext<S>& at, const StageRows<S>& rows, const S* q, const S* v, double t, bool still,
                      const S* x0, const S* x1, const ConstraintGradients<S>& out) {
  with_model<S>(at.scene, [&](const auto& m) {
    const Motions<S> all = row_motions<S>(at.scene, at.arena, q, v, at.zero);
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
// constraints, by numbers of couplings, and by inertias.
template <class S>
void add_projection_gradient(StepContext<S>& at, const StageRows<S>& rows, const Projection<S>& done, const S* al,
                             const S* be, const ConstraintGradients<S>& out,
                             const InertialGradients<S>& inertial = {}) {
  const int nv = at.scene.tree.nv, bodies = at.scene.tree.nframes();
  const S *q = done.q, *x = done.x;
  S *by_q = at.arena.template get<S>(at.scene.m.nv), *by_armature = at.arena.template get<S>(nv);
  S *by_inertia = at.arena.template get<S>(10 * bodies), *by_placement = at.arena.template get<S>(6 * bodies);
  momentum_gradients<S>(at.scene, at.arena, q, x, al,
                        {out.q == nullptr ? nullptr : by_q, nullptr, inertial.inertia == nullptr ? nullptr : by_inertia,
                         out.placement == nullptr ? nullptr : by_placement, by_armature, out.couplings});
  if (out.q != nullptr) add_scaled(at.scene.m.nv, S(1.0), by_q, out.q);
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
  const int nv = at.scene.m.nv;
  momentum_derivatives<S>(at.scene, at.arena, of.q, of.x, nullptr, R);
  const Motions<S> moving = row_motions<S>(at.scene, at.arena, of.q, of.y, at.zero);
  const ConstraintState<S> state = rows.state(moving, of.q, of.y, at.zero, of.t, of.displaces);
  add_constraint_stiffness<S>(state, rows.kappa, S(1.0), R, nv);
  constraint_derivatives<S>(state, by_q, nullptr, nullptr, nv);
  if (of.displaces) rows.add_position_jacobian(S(1.0), by_q);
}

}  // namespace torsor
