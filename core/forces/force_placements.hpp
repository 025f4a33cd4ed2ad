// Gradient of the power w.tau of forces with respect to the placements of all bodies, in O(n).
//
// A placement moves its subtree like a joint whose column is any twist X on a parent that moves with v and, virtually, with W. A
// force F at a point x with velocity xdot and virtual velocity u, and the gradients g and h of the power by x and xdot, then give
//   dx = [X]_x,  dxdot = X.w x xdot + [v x X]_x,  du = X.w x u + [W x X]_x,
//   d(w.tau) = X.A + (v x X).H + (W x X).P,   A = (g at x) + (xdot x h + u x F, 0),  H = (h at x),  P = (F at x),
// sums over the subtree (docs/derivations/implicit_steps.md). A wrench that moves with its body is in P alone.
#pragma once
#include "forces/forces.hpp"

namespace torsor {

template <class S>
struct PlacementSums {
  Force<S> A, H, P;
  PlacementSums& operator+=(const PlacementSums& b) {
    A += b.A;
    H += b.H;
    P += b.P;
    return *this;
  }
};

// gradient (bodies of the user's x 6, twists in the joints' frames) += that of w.tau.
template <class S>
void force_placement_gradient(const Model& m, const ForceSet& set, Arena& arena, const Motions<S>& all, double t,
                              const S* p, const S* w, S* gradient) {
  const int frames = m.nframes();
  auto* W = arena.get<Motion<S>>(m.n() + 1) + 1;  // virtual twists of the bodies
  W[-1] = zero_motion<S>();
  for (int i = 0; i < m.n(); ++i) {
    const Model::Link& link = m.links[i];
    W[i] = W[link.parent];
    for (int k = link.iv; k < link.iv + link.nv; ++k) W[i] = mul_add(w[k], all.columns[k].S_, W[i]);
  }
  auto* sums = arena.get<PlacementSums<S>>(frames);
  for (int b = 0; b < frames; ++b) sums[b] = {zero_force<S>(), zero_force<S>(), zero_force<S>()};
  const auto at = [](const Vec3<S>& f, const Vec3<S>& x) -> Force<S> { return {cross(x, f), f}; };

  for (const BodyLaw& law : set.bodies) {
    const auto& b = all.bodies[law.body];
    auto& sum = sums[law.frame];
    const SE3<S> X = wrench_frame(law, b);
    const Force<S> given = given_wrench(law, X, b.v, p, t), F = X.act(given);
    sum.P += F;
    if (law.kind == BodyLaw::world) {
      sum.A += cross(W[law.body], F);
    } else if (law.kind == BodyLaw::aligned) {
      const Motion<S>& V = W[law.body];
      const Vec3<S> u = cross_add(V.w, X.p, V.v);
      sum.A.n += cross_add(u, given.f, cross(V.w, given.n));
    } else if (law.kind == BodyLaw::damper) {
      sum.H += X.act(given_wrench(law, X, W[law.body], p, t));
    }
  }
  for (const PointLaw& law : set.points) {
    const int n = static_cast<int>(law.points.size());
    const auto* points = force_points(law, arena, all, p);
    auto *F = arena.get<Vec3<S>>(n), *u = arena.get<Vec3<S>>(n);
    auto *Fx = arena.get<Mat3<S>>(n * n), *Fv = arena.get<Mat3<S>>(n * n);
    point_forces(law, arena, points, p, t, F, Fx, Fv);
    for (int i = 0; i < n; ++i) {
      const Motion<S>& V = W[points[i].body];
      u[i] = cross_add(V.w, points[i].x, V.v);
    }
    for (int i = 0; i < n; ++i) {
      if (law.points[i].frame < 0) continue;
      Vec3<S> g = zero3<S>(), h = zero3<S>();
      for (int j = 0; j < n; ++j) {
        g += transposed(Fx[n * j + i], u[j]);
        h += transposed(Fv[n * j + i], u[j]);
      }
      auto& sum = sums[law.points[i].frame];
      sum.A += at(g, points[i].x);
      sum.A.n += cross_add(points[i].xdot, h, cross(u[i], F[i]));
      sum.H += at(h, points[i].x);
      sum.P += at(F[i], points[i].x);
    }
  }

  const auto pose = [&](int b) {
    const Model::Frame& frame = m.frames[b];
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
    subtract(cross(W[above], sum.P));
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
