// Vector-Jacobian products: from weights w on the torques, the gradients of L = w . ID(q, v, a) with respect to
// everything, in O(n).
//
// L is the power of the bodies' forces f on the virtual velocities u due to w. Per body, with 2 B of Singh 2022, (6):
//   f = I a + v x* I v - f_ext,   g = 2 B^T u,   h = I u,
// summed over the subtree that a joint moves; and for a column S with its rates and Theta = u_p x S (the rate of the
// column under the virtual motion, its own included if S depends on q):
//   dL/dq = Theta.f + Psidot.g + Psiddot.h,   dL/dv = S.g + Vdot.h,   dL/da = S.h.
// A placement moves its subtree like a joint whose column is any twist; a body's ten parameters enter linearly
// (docs/derivations/reverse.md).
#pragma once
#include "derivatives/inverse_dynamics_derivatives.hpp"
#include "dynamics/forward_dynamics.hpp"
#include "dynamics/jacobians.hpp"
#include "dynamics/mass_solve.hpp"

namespace torsor {

// The gradients; any may be null.
template <class S>
struct Gradients {
  S *q, *v, *a;           // nv each
  S* f_ext;               // nbodies x 6, in the frame in which the wrenches are given
  S* inertia;             // nbodies x 10: m, h, Jxx, Jxy, Jyy, Jxz, Jyz, Jzz
  S* placement;           // nbodies x 6: twist in the joint's frame
  S* gravity;             // 3
  S* armature = nullptr;  // nv
};

// Those by inertias of bodies and by armature alone.
template <class S>
struct InertialGradients {
  S *inertia = nullptr, *armature = nullptr;
};

template <class S>
struct VirtualSubtree {
  Force<S> f, h, lag;
  Vec3<S> g;  // a moment alone
  TORSOR_INLINE VirtualSubtree& operator+=(const VirtualSubtree& b) {
    f += b.f;
    h += b.h;
    lag += b.lag;
    g += b.g;
    return *this;
  }
  // About the world's origin, from the point of the tree.
  VirtualSubtree about_world(const Vec3<S>& point) const {
    return {shift_back(f, point), shift_back(h, point), shift_back(lag, point), g};
  }
};
// Velocity, acceleration and virtual velocity of a body, in its own frame.
template <class S>
struct LocalMotion {
  Motion<S> v, a, u;
  template <class C>
  TORSOR_INLINE LocalMotion seen_from(const SE3<C>& X) const {
    return {X.act_inverse(v), X.act_inverse(a), X.act_inverse(u)};
  }
};
// The contribution of a body to the sums, about the origin of the axes in which X is its pose.
template <class S, class C>
TORSOR_INLINE VirtualSubtree<S> virtual_forces(const RigidInertia<C>& I, const LocalMotion<S>& local, const SE3<S>& X) {
  const CoriolisInertia<S> B = coriolis_inertia(lift<S>(I), local.v);
  const Force<S> f = I * local.a + cross(local.v, Force<S>{B.n, B.f});
  return {X.act(f), X.act(I * local.u), zero_force<S>(), X.R * transposed(B, local.u)};
}

// Derivatives of u.(I a + v x* I v), everything in one frame, with respect to the ten parameters of I. The acceleration
// enters as that of the origin, acc = a.v + w x v.
template <class S>
TORSOR_INLINE void inertia_gradient(const Motion<S>& u, const Vec3<S>& w, const Vec3<S>& wdot, const Vec3<S>& acc,
                                    S* out) {
  const Vec3<S> s = cross(u.w, w);
  // Omega^T u.v + acc x u.w with Omega = [wdot] + [w]^2
  const Vec3<S> h = cross_add(w, cross(w, u.v), cross_add(acc, u.w, cross(u.v, wdot)));
  const auto pair = [&](const S& ui, const S& uj, const S& ai, const S& aj, const S& si, const S& sj, const S& wi,
                        const S& wj) { return mul_add(sj, wi, mul_add(si, wj, mul_add(uj, ai, ui * aj))); };
  out[0] = dot(u.v, acc);
  write3(h, out + 1);
  out[4] = mul_add(s.x, w.x, u.w.x * wdot.x);
  out[5] = pair(u.w.x, u.w.y, wdot.x, wdot.y, s.x, s.y, w.x, w.y);
  out[6] = mul_add(s.y, w.y, u.w.y * wdot.y);
  out[7] = pair(u.w.x, u.w.z, wdot.x, wdot.z, s.x, s.z, w.x, w.z);
  out[8] = pair(u.w.y, u.w.z, wdot.y, wdot.z, s.y, s.z, w.y, w.z);
  out[9] = mul_add(s.z, w.z, u.w.z * wdot.z);
}

// The gradient with respect to the placement of one of the user's bodies, from the motions of its parent (with the
// virtual velocity u) and the sums over its own subtree; X: the pose of its joint's frame. All about one point.
template <class S>
Force<S> placement_gradient_of(const DerivativeBody<S>& parent, const Motion<S>& u, const VirtualSubtree<S>& t,
                               const SE3<S>& X) {
  const Force<S> g{t.g, zero3<S>()};
  Force<S> G = cross(parent.v, cross(parent.v, t.h)) + t.lag;
  for (const Force<S>& x : {cross(u, t.f), cross(parent.v, g), cross(parent.a, t.h)}) {
    G.n -= x.n;
    G.f -= x.f;
  }
  return X.act_inverse(G);
}

// Gradients with respect to placements: each moves its subtree, as a joint with any column would. For bodies on joints
// that move, the sums are known; for those that are fixed to others they are computed here, about the point of the tree
// or, for bodies fixed to the world, about the world's origin.
template <class S, class C, class Apply>
void placement_gradient(const ModelT<C>& m, Arena& arena, const DerivativeBody<S>* bodies, const Motion<S>* u,
                        const LocalMotion<S>* local, const VirtualSubtree<S>* sums, const Apply& apply, bool wrenches,
                        S* out) {
  const int frames = m.nframes();
  auto* fixed = arena.get<VirtualSubtree<S>>(frames);
  const auto moves = [&](int b) { return m.frames[b].body >= 0 && m.bodies[m.frames[b].body].joint == b; };
  const auto pose = [&](int b) {
    const auto& frame = m.frames[b];
    if (frame.body < 0) return lift<S>(frame.pose);
    const auto& body = bodies[frame.body];
    const SE3<S> X{body.R, body.p};
    return frame.same ? X : X * frame.pose;
  };
  const auto parent_body = [&](int b) { return m.frames[b].parent >= 0 ? m.frames[m.frames[b].parent].body : -1; };
  for (int b = 0; b < frames; ++b) {
    if (moves(b)) continue;
    fixed[b] = {zero_force<S>(), zero_force<S>(), zero_force<S>(), zero3<S>()};
    const auto& frame = m.frames[b];
    if (frame.body < 0) continue;
    if (!frame.massless) fixed[b] = virtual_forces(frame.I, local[frame.body].seen_from(frame.pose), pose(b));
    if (wrenches) apply(b, fixed[b]);
  }
  for (auto at = m.order.rbegin(); at != m.order.rend(); ++at) {  // children before parents
    const int b = *at, p = m.frames[b].parent, i = m.frames[b].body;
    const VirtualSubtree<S>& t = moves(b) ? sums[i] : fixed[b];
    if (p >= 0 && !moves(p)) {
      if (i >= 0 && m.frames[p].body < 0) {  // to the world's origin
        fixed[p] += t.about_world(bodies[i].origin);
      } else {
        fixed[p] += t;
      }
    }
    const int above = parent_body(b);
    SE3<S> X = p >= 0 ? pose(p) * m.frames[b].placement : lift<S>(m.frames[b].placement);
    if (above < 0 && i >= 0) X.p -= bodies[i].origin;
    write(placement_gradient_of(bodies[above], u[above], t, X), out + 6 * b);
  }
}

// Virtual velocities u of bodies (u[-1] = 0), motions of bodies with mass in their own frames, and the contribution of
// each body to the sums.
template <class S>
struct VirtualBodies {
  Motion<S>* u;
  LocalMotion<S>* local;
  VirtualSubtree<S>* sums;
};
template <class S, class C>
VirtualBodies<S> virtual_bodies(const ModelT<C>& m, Arena& arena, const Motions<S>& all, const S* w,
                                const Motion<S>* twists) {
  const int n = m.n();
  auto* u = arena.get<Motion<S>>(n + 1) + 1;
  auto* local = arena.get<LocalMotion<S>>(n);
  auto* sums = arena.get<VirtualSubtree<S>>(n);
  u[-1] = zero_motion<S>();
  for (int i = 0; i < n; ++i) {
    const auto& body = m.bodies[i];
    u[i] = u[body.parent];
    for (int k = body.iv; k < body.iv + body.nv; ++k) u[i] = mul_add(w[k], all.columns[k].S_, u[i]);
    if (twists != nullptr) u[i] += twists[i];
    if (body.massless) {
      sums[i] = {zero_force<S>(), zero_force<S>(), zero_force<S>(), zero3<S>()};
    } else {
      const auto& b = all.bodies[i];
      const SE3<S> X{b.R, b.p};
      local[i] = LocalMotion<S>{b.v, b.a, u[i]}.seen_from(X);
      sums[i] = virtual_forces(body.I, local[i], X);
    }
  }
  return {u, local, sums};
}

// A wrench on one of the user's bodies, as part of f and of the lag. body, u: of the body that carries it.
template <class S, class Frame>
void apply_wrench(const Frame& frame, const DerivativeBody<S>& body, const Motion<S>& u, const Force<S>& F, int axes,
                  VirtualSubtree<S>& t) {
  const SE3<S> X = SE3<S>{body.R, body.p} * frame.pose;
  if (axes == 0) {
    const Force<S> G = X.act(F);
    t.f.n -= G.n;
    t.f.f -= G.f;
  } else {
    const auto wrench = world_wrench(F.n, F.f, axes == 1 ? -body.origin : X.p);
    t.f.n -= wrench.F.n;
    t.f.f -= wrench.F.f;
    t.lag += wrench.transposed_lag(axes, u);
  }
}

// Gradients with respect to q, v and a, from the sums over subtrees.
template <class S, class C>
void velocity_gradients(const ModelT<C>& m, const Motions<S>& all, const Motion<S>* u, const VirtualSubtree<S>* sums,
                        const S* w, const Gradients<S>& out) {
  for (int i = 0; i < m.n(); ++i) {
    const auto& body = m.bodies[i];
    const auto& t = sums[i];
    for (int k = 0; k < body.nv; ++k) {
      const auto& c = all.columns[body.iv + k];
      if (out.q != nullptr) {
        Motion<S> Theta = cross(u[body.parent], c.S_);
        for (int j = 0; body.general >= 0 && j < body.nv; ++j)
          Theta = mul_add(w[body.iv + j], all.bodies[i].world(all.general[body.general].ds[body.nv * j + k]), Theta);
        out.q[body.iv + k] = dot(Theta, t.f) + dot_add(c.Psidot.w, t.g, dot(c.Psiddot, t.h)) + dot(c.S_, t.lag);
      }
      if (out.v != nullptr) out.v[body.iv + k] = dot_add(c.S_.w, t.g, dot(c.Vdot, t.h));
      if (out.a != nullptr) out.a[body.iv + k] = dot(c.S_, t.h);
    }
  }
  for (int k = 0; out.a != nullptr && all.armature != nullptr && k < m.nv; ++k)
    out.a[k] = mul_add(all.armature[k], w[k], out.a[k]);
}

// Gradients with respect to the inertia of the user's body b and to the wrench on it. x: its motion in its own frame;
// body, u: of the body that carries it.
template <class S, class Frame>
void body_gradients_of(const Frame& frame, int b, const DerivativeBody<S>& body, const Motion<S>& u,
                       const LocalMotion<S>& x, int axes, const Gradients<S>& out) {
  if (out.inertia != nullptr) inertia_gradient(x.u, x.v.w, x.a.w, cross_add(x.v.w, x.v.v, x.a.v), out.inertia + 10 * b);
  if (out.f_ext != nullptr) {
    Motion<S> g = x.u;  // body
    if (axes == 1) g = shift(u, -body.origin);
    if (axes == 2) g = shift(u, body.p + body.R * frame.pose.p);
    write(Motion<S>{-g.w, -g.v}, out.f_ext + 6 * b);
  }
}
// The same for all of the user's bodies.
template <class S, class C>
void body_gradients(const ModelT<C>& m, const DerivativeBody<S>* bodies, const VirtualBodies<S>& virtuals, int axes,
                    const Gradients<S>& out) {
  const Motion<S>* u = virtuals.u;
  for (int b = 0; b < m.nframes(); ++b) {
    const auto& frame = m.frames[b];
    const int i = frame.body;
    if (i < 0) {
      for (int k = 0; out.inertia != nullptr && k < 10; ++k) out.inertia[10 * b + k] = S(0.0);
      for (int k = 0; out.f_ext != nullptr && k < 6; ++k) out.f_ext[6 * b + k] = S(0.0);
      continue;
    }
    const auto& body = bodies[i];
    LocalMotion<S> x = virtuals.local[i];
    if (m.bodies[i].massless) x = LocalMotion<S>{body.v, body.a, u[i]}.seen_from(SE3<S>{body.R, body.p});
    if (!frame.same) x = x.seen_from(frame.pose);
    body_gradients_of(frame, b, body, u[i], x, axes, out);
  }
}

// The gradient by armature from the derivatives by the armature of each velocity. A free joint has none; those of a
// spherical joint are one number, of whose derivative each has a third: a step along the gradient keeps them equal.
template <class S, class C>
void restrict_armature(const ModelT<C>& m, S* armature) {
  for (const auto& body : m.bodies) {
    S* at = armature + body.iv;
    if (body.kind == Kind::free) std::fill_n(at, body.nv, S(0.0));
    if (body.kind == Kind::spherical) std::fill_n(at, 3, (at[0] + at[1] + at[2]) * S(1.0 / 3.0));
  }
}

// Gradients of w . ID(q, v, a), with gravity or without. twists (may be null): in the virtual motion, bodies move by
// them relative to those that carry them, beyond their joints, which adds the wrenches through the joints with these
// weights; gradients by q are then not valid.
template <class S, class C>
void inverse_dynamics_vjp(const ModelT<C>& m, Arena& arena, const S* q, const S* v, const S* a, const S* w,
                          const S* f_ext, int axes, const Gradients<S>& out, bool gravity = true,
                          const Motion<S>* twists = nullptr) {
  const int n = m.n();
  const Motions<S> all = motions(m, arena, q, v, a, gravity);
  const VirtualBodies<S> virtuals = virtual_bodies(m, arena, all, w, twists);
  VirtualSubtree<S>* sums = virtuals.sums;  // over subtrees from here on, about the point of the tree
  const auto apply = [&](int b, VirtualSubtree<S>& t) {
    const int i = m.frames[b].body;
    apply_wrench(m.frames[b], all.bodies[i], virtuals.u[i], read_force(f_ext + 6 * b), axes, t);
  };
  if (f_ext != nullptr)
    for (int b : m.order)
      if (m.frames[b].body >= 0) apply(b, sums[m.frames[b].body]);
  for (int i = n - 1; i >= 0; --i)
    if (m.links[i].parent >= 0) sums[m.links[i].parent] += sums[i];

  velocity_gradients(m, all, virtuals.u, sums, w, out);
  if (out.armature != nullptr) {
    for (int k = 0; k < m.nv; ++k) out.armature[k] = w[k] * a[k];
    restrict_armature(m, out.armature);
  }
  if (out.gravity != nullptr) {
    Vec3<S> sum = zero3<S>();
    for (int i = 0; i < n; ++i)
      if (m.links[i].parent < 0) sum -= sums[i].h.f;
    write3(sum, out.gravity);
  }
  if (out.inertia != nullptr || out.f_ext != nullptr) body_gradients(m, all.bodies, virtuals, axes, out);
  if (out.placement != nullptr)
    placement_gradient(m, arena, all.bodies, virtuals.u, virtuals.local, sums, apply, f_ext != nullptr, out.placement);
}

// Gradients of wa . a + wtau . tau over the results of hybrid dynamics (forward dynamics without prescribed
// velocities). With f the velocities of given torque and p the prescribed ones, the multiplier lambda_p = wtau_p, M_ff
// lambda_f = -wa_f - M_fp wtau_p makes them those of lambda . ID at the accelerations found, and
//   d/da_p = wa_p + (M lambda)_p,   d/dtau_f = wtau_f - lambda_f.
// a, tau: as for hybrid_dynamics, overwritten. Gradients with respect to inputs that are not read are zero.
template <class S>
void hybrid_dynamics_vjp(const Model& m, Arena& arena, const S* q, const S* v, const S* f_ext, int axes,
                         const unsigned char* prescribed, S* a, S* tau, const S* wa, const S* wtau,
                         const Gradients<S>& out, S* out_tau) {
  const int nv = m.nv;
  const auto given = [&](int k) { return prescribed != nullptr && prescribed[k] != 0; };
  hybrid_dynamics(m, arena, q, v, body_wrenches(m, arena, q, axes, f_ext), prescribed, a, tau);
  S* lambda = arena.get<S>(nv);
  for (int k = 0; k < nv; ++k) lambda[k] = given(k) ? wtau[k] : -wa[k];
  solve_mass(m, factor_mass<S>(m, arena, q, nullptr, nullptr, prescribed), lambda, lambda);
  inverse_dynamics_vjp(m, arena, q, v, a, lambda, f_ext, axes, out);
  for (int k = 0; k < nv; ++k) {
    if (out.a != nullptr) out.a[k] = given(k) ? wa[k] + out.a[k] : S(0.0);
    if (out_tau != nullptr) out_tau[k] = given(k) ? S(0.0) : (wtau != nullptr ? wtau[k] : S(0.0)) - lambda[k];
  }
}

// Y (nv x 10 nbodies) with tau = Y pi, pi the parameters of all bodies.
template <class S>
void inertial_regressor(const Model& m, Arena& arena, const S* q, const S* v, const S* a, S* Y) {
  const Motions<S> all = motions(m, arena, q, v, a);
  const auto* bodies = all.bodies;
  const int width = 10 * m.nframes();
  for (int k = 0; k < m.nv * width; ++k) Y[k] = S(0.0);
  for (int b = 0; b < m.nframes(); ++b) {
    const int i = m.frames[b].body;
    if (i < 0) continue;
    const SE3<S> X = SE3<S>{bodies[i].R, bodies[i].p} * m.frames[b].pose;
    const Motion<S> V = X.act_inverse(bodies[i].v), A = X.act_inverse(bodies[i].a);
    const Vec3<S> acc = cross_add(V.w, V.v, A.v);
    const auto* c = all.columns;
    for_each_velocity_above(
        m, i, [&](int k, int) { inertia_gradient(X.act_inverse(c[k].S_), V.w, A.w, acc, Y + k * width + 10 * b); });
  }
}

}  // namespace torsor
