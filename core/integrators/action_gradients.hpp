// Derivatives of the covectors f and g of a point of the action, in reverse.
#pragma once
#include "integrators/action.hpp"

namespace torsor {

// The displacement of a quadrature point that corresponds to the weights: of configuration and velocity.
template <class S>
struct Displacement {
  S *q, *v;
};

// Gradients by q and v of a point, nv each.
template <class S>
struct PointGradients {
  S *q, *v;
};

// Gradients of the terms of a joint i with S(q): section 3 of the derivation.
template <class S>
TORSOR_INLINE void add_own_terms(const Model::Body& body, const ActionPoint<S>& at, int i, const Motion<S>& v_parent,
                                 const Displacement<S>& d, const PointGradients<S>& out) {
  const auto& b = at.all.bodies[i];
  const auto& general = at.all.general[body.general];
  const Force<S>&mu = at.mu[i], &Gamma = at.Gamma[i];
  const S weight(at.weight);
  const int size = body.nv;
  for (int k = 0; k < size; ++k)
    for (int r = 0; r < size; ++r) {
      const Motion<S> ds = b.world(general.ds[size * r + k]);
      Motion<S> d2s_v = zero_motion<S>();
      for (int l = 0; l < size; ++l) d2s_v = mul_add(at.v[body.iv + l], general.d2s[size * (size * l + r) + k], d2s_v);
      const S direct = dot(cross(v_parent, ds) + b.world(d2s_v), mu) + dot(ds, Gamma);
      out.q[body.iv + k] += weight * (d.q[body.iv + r] * direct + d.v[body.iv + r] * dot(ds, mu));
      out.v[body.iv + r] += weight * d.q[body.iv + k] * dot(ds, mu);
    }
}

// Gradients of h w (dq.(dL/dq + tau) + dv.dL/dv) at fixed (dq, dv) = d, tau being that of weights and of local forces
// on bodies: the transpose of section 3 of the derivation. From root to tips Y, the weights on dmu and dGamma of each
// body; from tips to root X, their gradients by its x = (eta, dv).
template <class S>
TORSOR_INLINE PointGradients<S> sweep_tree(const VariationalScene& scene, Arena& arena, const ActionPoint<S>& at,
                                           const S* p, const Displacement<S>& d) {
  const Model& m = scene.tree;
  const int n = m.n();
  const S weight(at.weight);
  const Vec3<S> gravity = gravity_of<S>(scene);
  const PointGradients<S> out{arena.get<S>(m.nv), arena.get<S>(m.nv)};
  auto *Y_mu = arena.get<Motion<S>>(n + 1) + 1, *Y_Gamma = arena.get<Motion<S>>(n + 1) + 1;
  auto* eta = arena.get<Motion<S>>(n);  // S dq of each joint
  auto *X_eta = arena.get<Force<S>>(n), *X_v = arena.get<Force<S>>(n);
  Y_mu[-1] = Y_Gamma[-1] = zero_motion<S>();
  for (int i = 0; i < n; ++i) {
    const Model::Link& link = m.links[i];
    Motion<S> rate = zero_motion<S>();
    eta[i] = zero_motion<S>();
    for (int k = link.iv; k < link.iv + link.nv; ++k) {
      const auto& c = at.all.columns[k];
      eta[i] = mul_add(d.q[k], c.S_, eta[i]);
      rate = mul_add(d.q[k], c.Psidot, mul_add(d.v[k], c.S_, rate));
    }
    Y_mu[i] = mul_add(weight, rate, Y_mu[link.parent]);
    Y_Gamma[i] = mul_add(weight, eta[i], Y_Gamma[link.parent]);
    const auto& I = at.all.bodies[i].I;
    X_v[i] = I * Y_mu[i];
    X_eta[i] = {cross((I * Y_Gamma[i]).f, gravity), zero3<S>()};
  }
  if (scene.forces != nullptr && scene.local)
    for_each_body_force<S>(*scene.forces, arena, at.all, at.t, p, [&](int i, const WrenchChange<S>& change) {
      S weights[6], back[12];
      write(Y_Gamma[i], weights);
      for (int k = 0; k < 12; ++k) {
        back[k] = S(0.0);
        for (int r = 0; r < 6; ++r) back[k] = mul_add(weights[r], change.x[r][k], back[k]);
      }
      X_eta[i] += read_force(back);
      X_v[i] += read_force(back + 6);
    });
  for (int i = n - 1; i >= 0; --i) {
    const Model::Link& link = m.links[i];
    const Force<S>&mu = at.mu[i], &Gamma = at.Gamma[i];
    const Motion<S>& v_parent = at.all.bodies[link.parent].v;
    for (int k = link.iv; k < link.iv + link.nv; ++k) {
      const auto& c = at.all.columns[k];
      out.q[k] = dot(c.S_, X_eta[i]) + dot(c.Psidot, X_v[i]) + dot(Y_mu[link.parent], cross(c.S_, mu)) +
                 dot(Y_Gamma[link.parent], cross(c.S_, Gamma)) - weight * dot(cross(cross(c.S_, v_parent), eta[i]), mu);
      out.v[k] = dot(c.S_, X_v[i]);
      if (at.all.armature != nullptr) out.v[k] = mul_add(weight * at.all.armature[k], d.v[k], out.v[k]);
    }
    if (m.bodies[i].general >= 0) add_own_terms(m.bodies[i], at, i, v_parent, d, out);
    if (link.parent >= 0) {
      X_eta[link.parent] += X_eta[i];
      X_v[link.parent] += X_v[i] + cross(weight * eta[i], mu);
    }
  }
  return out;
}

// Adds the gradients of h w dq.tau, tau being the torques of local forces on joints, or of all forces if they couple
// bodies.
template <class S>
TORSOR_INLINE void add_force_terms(const VariationalScene& scene, Arena& arena, const ActionPoint<S>& at, const S* p,
                                   const S* dq, const PointGradients<S>& out) {
  const Model& m = scene.tree;
  const int nv = m.nv;
  const S weight(at.weight);
  if (scene.forces != nullptr && scene.local) {
    for_each_joint_force<S>(m, *scene.forces, at.q, at.v, p, [&](int i, const S* K, const S* D) {
      const int iv = m.links[i].iv, size = m.links[i].nv;
      for (int r = 0; r < size; ++r)
        for (int k = 0; k < size; ++k) {
          out.q[iv + k] -= weight * dq[iv + r] * K[size * r + k];
          out.v[iv + k] -= weight * dq[iv + r] * D[size * r + k];
        }
    });
  } else if (scene.forces != nullptr) {
    S *K = arena.get<S>(nv * nv), *D = arena.get<S>(nv * nv);
    generalized_forces_derivatives(m, *scene.forces, arena, force_motions_at(scene, arena, at.q, at.v), at.q, at.v,
                                   at.t, p, K, D);
    for (int r = 0; r < nv; ++r)
      for (int k = 0; k < nv; ++k) {
        out.q[k] += weight * dq[r] * K[nv * r + k];
        out.v[k] += weight * dq[r] * D[nv * r + k];
      }
  }
}

// P x of a point with couplings.
template <class S>
S* tree_velocity(const VariationalScene& scene, Arena& arena, const ActionPoint<S>& at, const S* x) {
  S* out = zeros<S>(arena, scene.tree.nv);
  add_applied(at.state->P, x, out);
  return out;
}
// A displacement of the tree: P dq, and P dv + Pdot dq.
template <class S>
Displacement<S> tree_displacement(const VariationalScene& scene, Arena& arena, const ActionPoint<S>& at,
                                  const Displacement<S>& d) {
  const Displacement<S> out{tree_velocity<S>(scene, arena, at, d.q), tree_velocity<S>(scene, arena, at, d.v)};
  add_applied<S>(at.state->Pdot, d.q, out.v);
  return out;
}
// Gradients of dq.f + dv.g at fixed (dq, dv) = d.
template <class S>
TORSOR_INLINE PointGradients<S> point_gradients(const VariationalScene& scene, Arena& arena, const ActionPoint<S>& at,
                                                const S* p, const Displacement<S>& d) {
  const ActionPoint<S>& point = scene.coupled ? *at.tree : at;
  const Displacement<S> moved = scene.coupled ? tree_displacement(scene, arena, at, d) : d;
  const PointGradients<S> grad = sweep_tree(scene, arena, point, p, moved);
  add_force_terms<S>(scene, arena, point, p, moved.q, grad);
  if (!scene.coupled) return grad;
  const int nr = scene.m.nv;
  const PointGradients<S> out{zeros<S>(arena, nr), zeros<S>(arena, nr)};
  add_pulled<S>(at.state->P, grad.q, out.q);
  add_pulled<S>(at.state->Pdot, grad.v, out.q);
  add_pulled<S>(at.state->P, grad.v, out.v);
  for (int k = 0; k < nr; ++k) {
    add_scaled(nr, d.q[k], at.curve_f + k * nr, out.q);
    add_scaled(nr, d.v[k], at.curve_g + k * nr, out.q);
    add_scaled(nr, d.q[k], at.curve_g + k * nr, out.v);
  }
  return out;
}

}  // namespace torsor
