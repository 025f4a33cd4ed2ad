// Gradient of the power w.tau of forces with respect to the placements of all bodies, in O(n).
//
// A placement moves its subtree like a joint whose column is any twist X on a parent that moves with v and, virtually,
// with W. A force F at a point x with velocity xdot and virtual velocity u, and the gradients g and h of the power by x
// and xdot, then give
//   dx = [X]_x,  dxdot = X.w x xdot + [v x X]_x,  du = X.w x u + [W x X]_x,
//   d(w.tau) = X.A + (v x X).H + (W x X).P,   A = (g at x) + (xdot x h + u x F, 0),  H = (h at x),  P = (F at x),
// sums over the subtree (docs/derivations/implicit_steps.md). A wrench that moves with its body contributes to P only.
#pragma once
#include "forces/forces.hpp"

namespace torsor {

// gradient (user's bodies x 6, twists in the joints' frames) += the gradient of w.tau. twists: as of virtual_motion.
template <class S, class C>
void force_placement_gradient(const ModelT<C>& m, const ForceSet& set, Arena& arena, const Motions<S>& all, double t,
                              const S* p, const S* w, S* gradient, const Motion<S>* twists = nullptr) {
  const VirtualMotion<S> motion = virtual_motion(m, arena, all, w, twists);
  auto* sums = arena.get<PlacementSums<S>>(m.nplaces());
  for (int b = 0; b < m.nplaces(); ++b) sums[b] = {zero_force<S>(), zero_force<S>(), zero_force<S>()};
  const BodyState<S> at{arena, all, t, p};
  set.for_each([&](const auto& law) { law.add_placement_sums(at, motion, sums); });
  add_frames_to_bodies(m, sums);

  const auto pose = [&](int b) {
    const auto& frame = m.frames[b];
    if (frame.body < 0) return lift<S>(frame.pose);
    return SE3<S>{all.bodies[frame.body].R, all.bodies[frame.body].p} * frame.pose;
  };
  for (auto it = m.order.rbegin(); it != m.order.rend(); ++it) {  // children before parents
    const int b = *it, parent = m.frames[b].parent, i = m.frames[b].body;
    const int above = parent >= 0 ? m.frames[parent].body : -1;
    PlacementSums<S> sum = sums[b];
    const auto subtract = [&](const Force<S>& x) {
      sum.A.n -= x.n;
      sum.A.f -= x.f;
    };
    subtract(cross(all.bodies[above].v, sum.H));
    subtract(cross(motion.W[above], sum.P));
    SE3<S> X = parent >= 0 ? pose(parent) * m.frames[b].placement : lift<S>(m.frames[b].placement);
    if (above < 0 && i >= 0) X.p -= all.bodies[i].origin;
    S twist[6];
    write(X.act_inverse(sum.A), twist);
    for (int k = 0; k < 6; ++k) gradient[6 * b + k] += twist[k];
    if (parent < 0) continue;
    if (above < 0 && i >= 0) {  // to the world's origin
      const Vec3<S>& o = all.bodies[i].origin;
      sums[parent] += {shift_back(sums[b].A, o), shift_back(sums[b].H, o), shift_back(sums[b].P, o)};
    } else {
      sums[parent] += sums[b];
    }
  }
}

}  // namespace torsor
