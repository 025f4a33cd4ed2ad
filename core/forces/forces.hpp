// All forces of a scene at a state whose motions are known: their sums for the recursions, their derivatives by q and v beyond
// those of the wrenches' own motion, their energies, and the gradient by their parameters.
//
// A wrench is about the point of its tree, in the world's axes, as everything in derivatives/inverse_dynamics_derivatives.hpp. With the
// column S_k of a velocity, a point x of a body has dx/dq_k = [S_k]_x = S_k.v + S_k.w x x and
// dxdot/dq_k = S_k.w x xdot + [Psidot_k]_x; a body's twist in its own frame has the derivatives Psidot_k and S_k.
#pragma once
#include "forces/joint_forces.hpp"
#include "forces/point_forces.hpp"

namespace torsor {

template <class S>
struct ForceSums {
  S* tau;                // by velocity: torques at the joints
  Force<S>* carried;     // by body: wrenches that move with it
  WorldWrench<S>* held;  // by body: forces at its points, held in the world's axes
};

// The points of a law.
template <class S>
ForcePoint<S>* force_points(const PointLaw& law, Arena& arena, const Motions<S>& all, const S* p) {
  auto* points = arena.get<ForcePoint<S>>(law.points.size());
  for (std::size_t i = 0; i < law.points.size(); ++i) points[i] = force_point(law.points[i], all, p);
  return points;
}

// Where a wrench on a body is given, seen from the point of the tree.
template <class S>
SE3<S> wrench_frame(const BodyLaw& law, const DerivativeBody<S>& b) {
  if (law.kind == BodyLaw::world) return {identity3<S>(), -b.origin};
  const Vec3<S> p = mul_add(b.R, lift<S>(law.pose.p), b.p);
  if (law.kind == BodyLaw::aligned) return {identity3<S>(), p};
  return {b.R * law.pose.R, p};
}
// The wrench of a law, in the frame in which it is given.
template <class S>
Force<S> given_wrench(const BodyLaw& law, const SE3<S>& X, const Motion<S>& V, const S* p, double t) {
  const auto at = law.values.place(t);
  S x[6], twist[6];
  for (int k = 0; k < 6; ++k) x[k] = Table::value(at, p, k);
  if (law.kind == BodyLaw::damper) {
    write(X.act_inverse(V), twist);
    for (int k = 0; k < 6; ++k) x[k] = -x[k] * twist[k];
  }
  return read_force(x);
}

// p: parameters of all forces. Of motions, accelerations are not read.
template <class S>
ForceSums<S> force_sums(const Model& m, const ForceSet& set, Arena& arena, const Motions<S>& all, const S* q,
                        const S* v, double t, const S* p) {
  const ForceSums<S> sums{arena.get<S>(m.nv), arena.get<Force<S>>(m.n()), arena.get<WorldWrench<S>>(m.n())};
  for (int k = 0; k < m.nv; ++k) sums.tau[k] = S(0.0);
  for (int i = 0; i < m.n(); ++i) {
    sums.carried[i] = zero_force<S>();
    sums.held[i] = world_wrench(zero3<S>(), zero3<S>(), zero3<S>());
  }
  for (const JointLaw& law : set.joints) joint_torque(JointForce<S>(m, law, q, v, p), sums.tau);
  for (const TorqueLaw& law : set.torques) {
    const auto at = law.torque.place(t);
    for (int k = 0; k < law.torque.size; ++k) sums.tau[law.iv + k] += Table::value(at, p, k);
  }
  for (const BodyLaw& law : set.bodies) {
    const auto& b = all.bodies[law.body];
    const SE3<S> X = wrench_frame(law, b);
    const Force<S> F = given_wrench(law, X, b.v, p, t);
    if (law.kind == BodyLaw::aligned)
      sums.held[law.body] += world_wrench(F.n, F.f, X.p);
    else
      sums.carried[law.body] += X.act(F);
  }
  for (const PointLaw& law : set.points) {
    const auto* points = force_points(law, arena, all, p);
    auto* F = arena.get<Vec3<S>>(law.points.size());
    point_forces<S>(law, arena, points, p, t, F, nullptr, nullptr);
    for (std::size_t i = 0; i < law.points.size(); ++i)
      if (points[i].body >= 0) sums.held[points[i].body] += world_wrench(zero3<S>(), F[i], points[i].x);
  }
  for (const CustomLaw& law : set.customs) {
    S* tau = arena.get<S>(m.nv);
    law.custom->value(q, v, t, p + law.offset, tau);
    for (int k = 0; k < m.nv; ++k) sums.tau[k] += tau[k];
  }
  return sums;
}

// Takes the wrenches off the bodies' f. With add_to_parents(m, bodies, sums.held) after it and pair_columns(..., sums.held, 2, ...)
// derivatives then know the wrenches, but for what linearise_forces adds.
template <class S>
void subtract_wrenches(const Model& m, DerivativeBody<S>* bodies, const ForceSums<S>& sums) {
  for (int i = 0; i < m.n(); ++i) {
    const Force<S> F = sums.carried[i] + sums.held[i].F;
    bodies[i].f.n -= F.n;
    bodies[i].f.f -= F.f;
  }
}

// Aq -= dtau/dq and Av -= dtau/dv as far as the forces themselves change: joint torques wholly, wrenches without what
// pair_columns knows of them. Rows `stride` apart.
template <class S>
void linearise_forces(const Model& m, const ForceSet& set, Arena& arena, const Motions<S>& all, const S* q, const S* v,
                      double t, const S* p, S* Aq, S* Av, int stride) {
  for (const JointLaw& law : set.joints) {
    const int own = m.bodies[law.body].iv * (stride + 1);
    linearise_joint(JointForce<S>(m, law, q, v, p), Aq + own, Av + own, stride);
  }
  // Over the velocities k that move body i, tips first.
  const auto for_each_velocity = [&](int i, auto&& f) {
    for (; i >= 0; i = m.links[i].parent)
      for (int k = m.links[i].iv; k < m.links[i].iv + m.links[i].nv; ++k) f(k);
  };
  for (const BodyLaw& law : set.bodies) {
    const auto& b = all.bodies[law.body];
    const SE3<S> X = wrench_frame(law, b);
    if (law.kind == BodyLaw::damper) {
      for_each_velocity(law.body, [&](int k) {
        const auto drag = [&](const Motion<S>& V) { return X.act(given_wrench(law, X, V, p, t)); };
        const Force<S> by_q = drag(all.columns[k].Psidot), by_v = drag(all.columns[k].S_);
        for_each_velocity(law.body, [&](int j) {
          Aq[j * stride + k] -= dot(all.columns[j].S_, by_q);
          Av[j * stride + k] -= dot(all.columns[j].S_, by_v);
        });
      });
    } else if (law.kind == BodyLaw::world) {  // it was taken for one that moves with the body
      const Force<S> F = X.act(given_wrench(law, X, b.v, p, t));
      for_each_velocity(law.body, [&](int k) {
        const Force<S> moved = cross(all.columns[k].S_, F);
        for_each_velocity(law.body, [&](int j) { Aq[j * stride + k] += dot(all.columns[j].S_, moved); });
      });
    }
  }
  int* column = arena.get<int>(m.nv);  // of a velocity among those that move the points of a law, or -1
  int* velocity = arena.get<int>(m.nv);
  for (int k = 0; k < m.nv; ++k) column[k] = -1;
  for (const PointLaw& law : set.points) {
    const int n = static_cast<int>(law.points.size());
    const auto* points = force_points(law, arena, all, p);
    auto* F = arena.get<Vec3<S>>(n);
    auto *Fx = arena.get<Mat3<S>>(n * n), *Fv = arena.get<Mat3<S>>(n * n);
    if (!point_forces(law, arena, points, p, t, F, Fx, Fv)) continue;
    int count = 0;
    for (int i = 0; i < n; ++i)
      for_each_velocity(points[i].body, [&](int k) {
        if (column[k] >= 0) return;
        column[k] = count;
        velocity[count++] = k;
      });
    // dx/dq and dxdot/dq of all points by all of these velocities
    auto *J = arena.get<Vec3<S>>(n * count), *G = arena.get<Vec3<S>>(n * count);
    for (int i = 0; i < n * count; ++i) J[i] = G[i] = zero3<S>();
    for (int i = 0; i < n; ++i)
      for_each_velocity(points[i].body, [&](int k) {
        const auto& c = all.columns[k];
        J[i * count + column[k]] = cross_add(c.S_.w, points[i].x, c.S_.v);
        G[i * count + column[k]] = cross_add(c.S_.w, points[i].xdot, cross_add(c.Psidot.w, points[i].x, c.Psidot.v));
      });
    for (int c = 0; c < count; ++c)
      for (int i = 0; i < n; ++i) {
        if (points[i].body < 0) continue;
        Vec3<S> by_q = zero3<S>(), by_v = zero3<S>();
        for (int j = 0; j < n; ++j) {
          by_q = mul_add(Fx[n * i + j], J[j * count + c], mul_add(Fv[n * i + j], G[j * count + c], by_q));
          by_v = mul_add(Fv[n * i + j], J[j * count + c], by_v);
        }
        for_each_velocity(points[i].body, [&](int k) {
          Aq[k * stride + velocity[c]] -= dot(J[i * count + column[k]], by_q);
          Av[k * stride + velocity[c]] -= dot(J[i * count + column[k]], by_v);
        });
      }
    for (int c = 0; c < count; ++c) column[velocity[c]] = -1;
  }
  for (const CustomLaw& law : set.customs) {
    S *K = arena.get<S>(m.nv * m.nv), *D = arena.get<S>(m.nv * m.nv);
    law.custom->derivatives(q, v, t, p + law.offset, K, D);
    for (int j = 0; j < m.nv; ++j)
      for (int k = 0; k < m.nv; ++k) {
        Aq[j * stride + k] -= K[j * m.nv + k];
        Av[j * stride + k] -= D[j * m.nv + k];
      }
  }
}

// tau = the torques of all forces.
template <class S>
void generalized_forces(const Model& m, const ForceSet& set, Arena& arena, const S* q, const S* v, double t, const S* p,
                        S* tau) {
  S* rest = arena.get<S>(m.nv);
  for (int k = 0; k < m.nv; ++k) rest[k] = S(0.0);
  const Motions<S> all = motions(m, arena, q, v, rest, false);
  const ForceSums<S> sums = force_sums(m, set, arena, all, q, v, t, p);
  for (int i = m.n() - 1; i >= 0; --i) {
    const Model::Link& link = m.links[i];
    sums.carried[i] += sums.held[i].F;
    for (int k = link.iv; k < link.iv + link.nv; ++k) tau[k] = sums.tau[k] + dot(all.columns[k].S_, sums.carried[i]);
    if (link.parent >= 0) sums.carried[link.parent] += sums.carried[i];
  }
}

// K = dtau/dq and D = dtau/dv, nv x nv, both whole. The motions are returned.
template <class S>
Motions<S> generalized_forces_derivatives(const Model& m, const ForceSet& set, Arena& arena, const S* q, const S* v,
                                          double t, const S* p, S* K, S* D) {
  S* rest = arena.get<S>(m.nv);
  for (int k = 0; k < m.nv; ++k) rest[k] = 0.0;
  for (int k = 0; k < m.nv * m.nv; ++k) K[k] = D[k] = 0.0;
  const Motions<S> all = motions(m, arena, q, v, rest, false);
  const ForceSums<S> sums = force_sums(m, set, arena, all, q, v, t, p);
  for (int i = 0; i < m.n(); ++i) {  // a tree without inertia, so that the residual is -tau
    auto& b = all.bodies[i];
    b.I = zero_inertia<S>();
    b.B = {b.I.J, b.I.h, b.I.h};
    b.f = zero_force<S>();
  }
  subtract_wrenches(m, all.bodies, sums);
  add_to_parents(m, all.bodies, sums.held);
  pair_columns<S>(m, arena, all, sums.held, 2, K, nullptr, nullptr, m.nv);
  linearise_forces(m, set, arena, all, q, v, t, p, K, D, m.nv);
  for (int k = 0; k < m.nv * m.nv; ++k) {
    K[k] = -K[k];
    D[k] = -D[k];
  }
  return all;
}

// The energy of each force; 0 for those without one.
template <class S>
void force_energies(const Model& m, const ForceSet& set, Arena& arena, const Motions<S>& all, const S* q, const S* v,
                    double t, const S* p, S* energies) {
  for (int i = 0; i < set.forces; ++i) energies[i] = S(0.0);
  for (const JointLaw& law : set.joints) energies[law.force] += joint_energy(JointForce<S>(m, law, q, v, p));
  for (const PointLaw& law : set.points)
    energies[law.force] += point_energy(law, arena, force_points(law, arena, all, p), p, t);
  for (const CustomLaw& law : set.customs) energies[law.force] += law.custom->energy(q, t, p + law.offset);
}
inline double force_energy(const Model& m, const ForceSet& set, Arena& arena, const Motions<double>& all,
                           const double* q, const double* v, double t, const double* p) {
  double* energies = arena.get<double>(set.forces);
  force_energies(m, set, arena, all, q, v, t, p, energies);
  double sum = 0.0;
  for (int i = 0; i < set.forces; ++i) sum += energies[i];
  return sum;
}

// gradient += the gradient of w.tau by all parameters. w.tau is the power of the forces when the joints move with w.
template <class S>
void force_parameter_gradient(const Model& m, const ForceSet& set, Arena& arena, const Motions<S>& all, const S* q,
                              const S* v, double t, const S* p, const S* w, S* gradient) {
  auto* W = arena.get<Motion<S>>(m.n() + 1) + 1;  // twists of the bodies
  W[-1] = zero_motion<S>();
  for (int i = 0; i < m.n(); ++i) {
    const Model::Link& link = m.links[i];
    W[i] = W[link.parent];
    for (int k = link.iv; k < link.iv + link.nv; ++k) W[i] = mul_add(w[k], all.columns[k].S_, W[i]);
  }
  for (const JointLaw& law : set.joints) joint_gradient(JointForce<S>(m, law, q, v, p), w, gradient);
  for (const TorqueLaw& law : set.torques) {
    const auto at = law.torque.place(t);
    for (int k = 0; k < law.torque.size; ++k) Table::add_gradient(at, w[law.iv + k], k, gradient);
  }
  for (const BodyLaw& law : set.bodies) {
    const auto at = law.values.place(t);
    const SE3<S> X = wrench_frame(law, all.bodies[law.body]);
    S moved[6], twist[6];
    write(X.act_inverse(W[law.body]), moved);
    write(X.act_inverse(all.bodies[law.body].v), twist);
    for (int k = 0; k < 6; ++k)
      Table::add_gradient(at, law.kind == BodyLaw::damper ? -moved[k] * twist[k] : moved[k], k, gradient);
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
    point_parameter_gradient(law, arena, points, p, t, u, gradient);
    // A point displaced by d in its body moves x by d, xdot by w x d and u by W.w x d.
    for (int i = 0; i < n; ++i) {
      Vec3<S> by_x = zero3<S>(), by_v = zero3<S>();
      for (int j = 0; j < n; ++j) {
        by_x += transposed(Fx[n * j + i], u[j]);
        by_v += transposed(Fv[n * j + i], u[j]);
      }
      const Attachment& at = law.points[i];
      if (at.body >= 0) {
        const auto& b = all.bodies[at.body];
        by_x = transposed(b.R, cross_add(by_v, b.v.w, cross_add(F[i], W[at.body].w, by_x)));
      }
      const Vec3<S> d = transposed(at.pose.R, by_x);
      write3(read3(gradient + at.offset) + d, gradient + at.offset);
    }
  }
  for (const CustomLaw& law : set.customs) {
    S* g = arena.get<S>(law.count);
    law.custom->gradient(q, v, t, p + law.offset, w, g);
    for (int k = 0; k < law.count; ++k) gradient[law.offset + k] += g[k];
  }
}

}  // namespace torsor
