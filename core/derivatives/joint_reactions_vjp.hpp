// Vector-Jacobian products of joint reactions: from weights w on the wrenches, the gradients of L = sum w . F with
// respect to everything, in O(n).
//
// L is the power of the bodies' forces on virtual velocities u, as in derivatives/inverse_dynamics_vjp.hpp; but here
// each of the user's bodies moves relative to its parent by any twist, its own w, on fixed joints too. The twists turn
// with the bodies, so that the rate of u under a column S is Theta = u_p x S for every joint, u_p that of the parent
// (docs/derivations/reverse.md).
#pragma once
#include "derivatives/inverse_dynamics_vjp.hpp"

namespace torsor {

template <class S>
void joint_reactions_vjp(const Model& m, Arena& arena, const S* q, const S* v, const S* a, const S* w, const S* f_ext,
                         int axes, const Gradients<S>& out) {
  const int frames = m.nframes();
  const Motions<S> all = motions(m, arena, q, v, a);
  auto* bodies = all.bodies;
  // Bodies that are fixed to the world are on it as others are on their bodies; their point is the world's origin.
  bodies[-1].R = identity3<S>();
  bodies[-1].p = bodies[-1].origin = zero3<S>();
  auto* u = arena.get<Motion<S>>(frames);
  auto* local = arena.get<LocalMotion<S>>(frames);
  auto* sums = arena.get<VirtualSubtree<S>>(frames);  // over subtrees after the second pass
  auto* X = arena.get<SE3<S>>(frames);
  // Of the parent of b, about the point of b.
  const auto parent_u = [&](int b) {
    const int p = m.frames[b].parent;
    if (p < 0) return zero_motion<S>();
    return m.frames[p].body < 0 && m.frames[b].body >= 0 ? shift(u[p], bodies[m.frames[b].body].origin) : u[p];
  };
  for (int b : m.order) {
    const Model::Frame& frame = m.frames[b];
    const auto& body = bodies[frame.body];
    X[b] = SE3<S>{body.R, body.p} * frame.pose;
    u[b] = parent_u(b) + X[b].act(read_motion(w + 6 * b));
    local[b] = LocalMotion<S>{body.v, body.a, u[b]}.seen_from(X[b]);
    sums[b] = {zero_force<S>(), zero_force<S>(), zero_force<S>(), zero3<S>()};
    if (!frame.massless) sums[b] = virtual_forces(frame.I, local[b], X[b]);
    if (f_ext != nullptr) apply_wrench(frame, body, u[b], read_force(f_ext + 6 * b), axes, sums[b]);
    body_gradients_of(frame, b, body, u[b], local[b], axes, out);
  }
  Vec3<S> weight = zero3<S>();
  for (auto at = m.order.rbegin(); at != m.order.rend(); ++at) {  // children before parents
    const int b = *at, p = m.frames[b].parent, i = m.frames[b].body;
    if (p < 0) {
      weight -= sums[b].h.f;
    } else {
      sums[p] += i >= 0 && m.frames[p].body < 0 ? sums[b].about_world(bodies[i].origin) : sums[b];
    }
    if (out.placement == nullptr) continue;
    SE3<S> joint = p >= 0 ? X[p] * m.frames[b].placement : lift<S>(m.frames[b].placement);
    const int above = p >= 0 ? m.frames[p].body : -1;
    if (above < 0 && i >= 0) joint.p -= bodies[i].origin;
    write(placement_gradient_of(bodies[above], parent_u(b), sums[b], joint), out.placement + 6 * b);
  }
  if (out.gravity != nullptr) write3(weight, out.gravity);
  if (out.armature != nullptr) std::fill_n(out.armature, m.nv, S(0.0));  // a drive acts along the joint's axes alone
  for (const Model::Body& body : m.bodies) {
    const VirtualSubtree<S>& t = sums[body.joint];
    const Motion<S> above = parent_u(body.joint);
    for (int k = body.iv; k < body.iv + body.nv; ++k) {
      const auto& c = all.columns[k];
      if (out.q != nullptr)
        out.q[k] = dot(cross(above, c.S_), t.f) + dot_add(c.Psidot.w, t.g, dot(c.Psiddot, t.h)) + dot(c.S_, t.lag);
      if (out.v != nullptr) out.v[k] = dot_add(c.S_.w, t.g, dot(c.Vdot, t.h));
      if (out.a != nullptr) out.a[k] = dot(c.S_, t.h);
    }
  }
}

}  // namespace torsor
