// The action of a step of a variational integrator, and its derivatives: the discrete Euler-Lagrange equations. Fan
// 2018, proposition 1, for any quadrature and any joint; docs/derivations/variational.md.
//
// A step goes from q0 through control points q^k = q0 (+) xi^k, k = 1..s, in the chart at q0. With the polynomial
// through them, xi^a and its rate at the quadrature points a, q^a = q0 (+) xi^a and v^a = J(xi^a) xidot^a, the action
// and its virtual work are
//   sum_a h w_a L(q^a, v^a),   and its derivatives   D_0 (by q0 at fixed xi), D_k (by xi^k):
//   D = sum_a Phi_a^T (f_a, g_a),   f = h w (dL/dq + tau),   g = h w dL/dv,
//   (dq^a, dv^a) = Phi_a (dq0, dxi^1, ..., dxi^s).
// The momenta are p1 = J(xi^s)^-T D_s and p0 = Ad^T p1 - D_0, Ad being dq^s/dq0; the step solves
//   r_0 = p0 + D_0 - Ad^T p1 = 0,   r_k = D_k = 0, k = 1..s-1.
#pragma once
#include "integrators/scene.hpp"

namespace torsor {

// A polynomial through s + 1 control points, and a quadrature of m points.
struct Rule {
  int s, m;
  std::vector<double> nodes;   // s + 1: of the control points, from 0 to 1
  std::vector<double> c, w;    // m: of the quadrature
  std::vector<double> phi, b;  // m x (s + 1): Lagrange polynomials of the nodes and their derivatives at c
};

struct VariationalScheme {
  Rule rule;
  double h;
  double tolerance;  // of Newton's method: estimated error of v that remains, relative to 1 + |v|
  int iterations;    // evaluations of the residual in a step
};

// The scene of a variational step, with its quadrature rule.
struct VariationalScene : Scene {
  VariationalScene(const Scene& scene, const Rule& rule, double h) : Scene(scene), rule(rule), h(h) {}
  const Rule& rule;
  double h;

  double share(int a, int k) const { return rule.phi[a * (rule.s + 1) + k]; }   // of control point k at point a
  double rate(int a, int k) const { return rule.b[a * (rule.s + 1) + k] / h; }  // and of its velocity
};
// Gravity, and the motions of functions of forces (forces/forces.hpp), of the model or of those of the lanes.
template <class S>
Vec3<S> gravity_of(const Scene& scene) {
  return with_model<S>(scene, [](const auto& m) { return lift<S>(m.gravity); });
}
template <class S>
Motions<S> force_motions_at(const Scene& scene, Arena& arena, const S* q, const S* v) {
  return with_model<S>(scene, [&](const auto& m) { return force_motions(m, arena, q, v); });
}

// Controls of a step: a row for all of it, or one for each point of the quadrature; null: none.
template <class S>
struct StepControls {
  const S* rows;
  int count;
  const S* at(int a, int nv) const { return rows == nullptr ? nullptr : rows + (count == 1 ? 0 : a * nv); }
};

template <class S>
struct ActionPoint {
  double t, weight;  // weight: h w
  S *xi, *xidot, *q, *v;
  Motions<S> all;       // I of a body is its own, without its subtree
  Force<S>*mu, *Gamma;  // of subtrees: momentum; weight and, if they are local, other forces on bodies
  ChartColumns<S>* charts;
  S *f, *g;
  // With couplings: the point of the tree (without charts), how it depends on this one, and the curvature of f and g at
  // fixed covectors of the tree: phi''.f + phi'''[v].g, and phi''.g, nv x nv.
  ActionPoint* tree = nullptr;
  ChainedState<S>* state = nullptr;
  S *curve_f = nullptr, *curve_g = nullptr;
};
template <class S>
struct Action {
  std::vector<ActionPoint<S>> points;
  S* D;          // (s + 1) x nv
  Mask<S> good;  // no joint turns by half a turn
};

// Sets xi, xidot, q, v and the charts of point a; false in lanes where a joint turns by half a turn.
template <class S>
TORSOR_INLINE Mask<S> place_point(const VariationalScene& scene, Arena& arena, const S* q0, const S* xi, int a,
                                  ActionPoint<S>& at) {
  const Model& m = scene.m;
  const int nv = m.nv;
  for (S** vector : {&at.xi, &at.xidot, &at.v}) *vector = arena.get<S>(nv);
  at.q = arena.get<S>(m.nq);
  at.charts = arena.get<ChartColumns<S>>(scene.quaternions.size());
  for (int k = 0; k < nv; ++k) {
    at.xi[k] = at.xidot[k] = S(0.0);
    for (int c = 1; c <= scene.rule.s; ++c) {
      const S& x = xi[(c - 1) * nv + k];
      at.xi[k] = mul_add(S(scene.share(a, c)), x, at.xi[k]);
      at.xidot[k] = mul_add(S(scene.rate(a, c)), x, at.xidot[k]);
    }
    at.v[k] = at.xidot[k];
  }
  const Mask<S> good = retract<S>(m, q0, at.xi, at.q);
  for (std::size_t j = 0; j < scene.quaternions.size(); ++j) {
    const Model::Body& body = m.bodies[scene.quaternions[j]];
    chart_columns(body.kind, at.xi + body.iv, at.charts[j]);
    at.charts[j].apply(at.charts[j].s, at.xidot + body.iv, at.v + body.iv);
  }
  return good;
}

// Sets the motions of a point, mu and Gamma. Returns the joint torques of the forces; local forces on bodies are in
// Gamma instead.
template <class S>
TORSOR_INLINE S* sum_forces(const VariationalScene& scene, Arena& arena, const S* rest, const S* p,
                            ActionPoint<S>& at) {
  const Model& m = scene.tree;
  const int nv = m.nv, n = m.n();
  const Vec3<S> gravity = gravity_of<S>(scene);
  with_model<S>(scene, [&](const auto& numbers) {
    at.all = motions(numbers, arena, at.q, at.v, rest, false);
    for (int i = 0; i < n; ++i) {
      auto& b = at.all.bodies[i];
      b.I = m.bodies[i].massless ? zero_inertia<S>() : shift_back(rotate(b.R, numbers.bodies[i].I), b.p);
    }
  });
  at.mu = arena.get<Force<S>>(n);
  at.Gamma = arena.get<Force<S>>(n);
  for (int i = 0; i < n; ++i) {
    const auto& b = at.all.bodies[i];
    if (m.bodies[i].massless) {
      at.mu[i] = at.Gamma[i] = zero_force<S>();
    } else {
      at.mu[i] = b.I * b.v;
      at.Gamma[i] = {cross(b.I.h, gravity), b.I.m * gravity};
    }
  }
  S* tau = arena.get<S>(nv);
  for (int k = 0; k < nv; ++k) tau[k] = S(0.0);
  if (scene.forces != nullptr && scene.local) {
    const ForceSums<S> sums = force_sums(m, *scene.forces, arena, at.all, at.q, at.v, at.t, p);
    tau = sums.tau;
    for (int i = 0; i < n; ++i) at.Gamma[i] += sums.carried[i] + sums.held[i].F;
  } else if (scene.forces != nullptr) {
    generalized_forces(m, *scene.forces, arena, at.all, at.q, at.v, at.t, p, tau);
  }
  for (int i = n - 1; i >= 0; --i)
    if (const int parent = m.links[i].parent; parent >= 0) {
      at.mu[parent] += at.mu[i];
      at.Gamma[parent] += at.Gamma[i];
    }
  return tau;
}

// Sets f and g of a point of the tree, under torques u (null: none).
template <class S>
TORSOR_INLINE void set_covectors(const VariationalScene& scene, Arena& arena, const S* rest, const S* p, const S* u,
                                 ActionPoint<S>& at) {
  const Model& m = scene.tree;
  S* tau = sum_forces(scene, arena, rest, p, at);
  for (int k = 0; u != nullptr && k < m.nv; ++k) tau[k] += u[k];
  at.f = arena.get<S>(m.nv);
  at.g = arena.get<S>(m.nv);
  for (int i = 0; i < m.n(); ++i)
    for (int k = m.links[i].iv; k < m.links[i].iv + m.links[i].nv; ++k) {
      const auto& c = at.all.columns[k];
      at.f[k] = S(at.weight) * (dot(c.Psidot, at.mu[i]) + dot(c.S_, at.Gamma[i]) + tau[k]);
      at.g[k] = S(at.weight) * dot(c.S_, at.mu[i]);
      if (at.all.armature != nullptr) at.g[k] = mul_add(S(at.weight) * at.all.armature[k], at.v[k], at.g[k]);
    }
}
// The same with couplings: L_R(z, zdot) = L(phi(z), P zdot) has f_R = P^T f + Pdot^T g and g_R = P^T g.
template <class S>
void set_coupled_covectors(const VariationalScene& scene, Arena& arena, const S* rest, const S* p, const S* u,
                           ActionPoint<S>& at) {
  const int nr = scene.m.nv;
  at.state = new (arena.get<ChainedState<S>>(1))
      ChainedState<S>(chained_state<S>(scene.tree, arena, at.q, at.v, zeros<S>(arena, nr)));
  at.tree = new (arena.get<ActionPoint<S>>(1)) ActionPoint<S>{};
  at.tree->t = at.t;
  at.tree->weight = at.weight;
  at.tree->q = const_cast<S*>(at.state->tree.q);
  at.tree->v = const_cast<S*>(at.state->tree.v);
  set_covectors<S>(scene, arena, rest, p, nullptr, *at.tree);
  at.f = zeros<S>(arena, nr);
  at.g = zeros<S>(arena, nr);
  add_pulled(at.state->P, at.tree->f, at.f);
  add_pulled(at.state->Pdot, at.tree->g, at.f);
  add_pulled(at.state->P, at.tree->g, at.g);
  for (int k = 0; u != nullptr && k < nr; ++k) at.f[k] = mul_add(S(at.weight), u[k], at.f[k]);
  at.curve_f = zeros<S>(arena, nr * nr);
  at.curve_g = zeros<S>(arena, nr * nr);
  const BlockTerms<S>& terms = at.state->terms();
  add_curvature<S>(terms, arena, at.tree->f, at.curve_f);
  add_curvature<S>(terms, arena, 3, at.tree->g, at.v, nullptr, at.curve_f);
  add_curvature<S>(terms, arena, at.tree->g, at.curve_g);
}

// D += Phi_a^T (f, g).
template <class S>
TORSOR_INLINE void add_point(const VariationalScene& scene, int a, const ActionPoint<S>& at, S* D) {
  const Model& m = scene.m;
  const int nv = m.nv, s = scene.rule.s;
  for (int k = 0; k < nv; ++k) {
    D[k] += at.f[k];
    for (int c = 1; c <= s; ++c) {
      S& sum = D[c * nv + k];
      sum = mul_add(S(scene.share(a, c)), at.f[k], mul_add(S(scene.rate(a, c)), at.g[k], sum));
    }
  }
  for (std::size_t j = 0; j < scene.quaternions.size(); ++j) {
    const int iv = m.bodies[scene.quaternions[j]].iv;
    const ChartColumns<S>& chart = at.charts[j];
    const S *f = at.f + iv, *g = at.g + iv;
    const int size = chart.n;
    S J_f[6], J_g[6], Ad_f[6], T_g[6];  // transposed; T = d(J xidot)/dxi
    chart.apply_transposed(chart.s, f, J_f);
    chart.apply_transposed(chart.s, g, J_g);
    chart.apply_transposed(chart.Ad, f, Ad_f);
    const Force<S> G = chart.covector(g);
    for (int k = 0; k < size; ++k) {
      T_g[k] = S(0.0);
      for (int l = 0; l < size; ++l) T_g[k] = mul_add(at.xidot[iv + l], dot(chart.ds[size * l + k], G), T_g[k]);
    }
    for (int k = 0; k < size; ++k) {
      D[iv + k] += Ad_f[k] - f[k];
      for (int c = 1; c <= s; ++c)
        D[c * nv + iv + k] += S(scene.share(a, c)) * (J_f[k] + T_g[k] - f[k]) + S(scene.rate(a, c)) * (J_g[k] - g[k]);
    }
  }
}

// Derivatives of the action between q0 and the control coordinates xi (s x nv).
template <class S>
Action<S> evaluate_action(const VariationalScene& scene, Arena& arena, const S* q0, const S* xi, double t,
                          const StepControls<S>& controls, const S* p) {
  const Model& m = scene.m;
  const Rule& rule = scene.rule;
  const int nv = m.nv;
  Action<S> action;
  action.points.resize(rule.m);
  action.D = arena.get<S>((rule.s + 1) * nv);
  action.good = every_lane<S>();
  for (int k = 0; k < (rule.s + 1) * nv; ++k) action.D[k] = S(0.0);
  const S* rest = zeros<S>(arena, scene.tree.nv);
  for (int a = 0; a < rule.m; ++a) {
    ActionPoint<S>& at = action.points[a];
    at.t = t + rule.c[a] * scene.h;
    at.weight = scene.h * rule.w[a];
    action.good = action.good & place_point(scene, arena, q0, xi, a, at);
    if (scene.coupled)
      set_coupled_covectors<S>(scene, arena, rest, p, controls.at(a, nv), at);
    else
      set_covectors<S>(scene, arena, rest, p, controls.at(a, nv), at);
    add_point(scene, a, at, action.D);
  }
  return action;
}

// The charts at the end of a step, and the momentum there.
template <class S>
struct StepEnd {
  ChartColumns<S>* charts;
  S* p1;
};
template <class S>
StepEnd<S> end_of(const VariationalScene& scene, Arena& arena, const S* xi, const Action<S>& action) {
  const Model& m = scene.m;
  const int nv = m.nv, s = scene.rule.s;
  StepEnd<S> end{arena.get<ChartColumns<S>>(scene.quaternions.size()), arena.get<S>(nv)};
  for (int k = 0; k < nv; ++k) end.p1[k] = action.D[s * nv + k];
  for (std::size_t j = 0; j < scene.quaternions.size(); ++j) {
    const Model::Body& body = m.bodies[scene.quaternions[j]];
    chart_columns(body.kind, xi + (s - 1) * nv + body.iv, end.charts[j]);
    end.charts[j].solve_transposed(end.p1 + body.iv);
  }
  return end;
}
// out = Ad^T y: a covector at the end of the step, pulled back to its beginning.
template <class S>
void pull_to_start(const VariationalScene& scene, const StepEnd<S>& end, const S* y, S* out) {
  for (int k = 0; k < scene.m.nv; ++k) out[k] = y[k];
  for (std::size_t j = 0; j < scene.quaternions.size(); ++j) {
    const int iv = scene.m.bodies[scene.quaternions[j]].iv;
    end.charts[j].apply_transposed(end.charts[j].Ad, y + iv, out + iv);
  }
}

}  // namespace torsor
