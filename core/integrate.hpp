// Time integration. Every implicit integrator is a list of stages of one form (docs/derivations/implicit_steps.md): with
// q1 = q0 (+) xi in the chart at q0 and x = the chart's coordinates of another node,
//   s = c (xi - z x),   v1 = J(xi) s,   a1 = c (v1 - w v0 - w' v'),   r(q1) = ID(q1, v1, a1) - tau_f - u = 0,
// solved by Newton's method with the matrix H = A_q + (A_v + c M) V1, V1 = dv1/dq1. Explicit integrators are stages of a kind of
// their own. A step of which Newton's method fails is divided.
#pragma once
#include <algorithm>
#include <limits>

#include "batch.hpp"
#include "inverse_dynamics.hpp"
#include "mass_solve.hpp"
#include "newton_matrix.hpp"
#include "undetermined.hpp"

namespace torsor {

enum class Method : int { symplectic_euler, linearly_implicit_euler, bdf1, bdf2, sdirk2 };

struct Scheme {
  Method method;
  double h;
  double tolerance;  // of Newton's method: estimated error of v that remains, relative to 1 + |v|
  int iterations;    // corrections that may be tried in a stage
  int substeps;      // into which a step may be divided
  bool is_explicit() const { return method == Method::symplectic_euler || method == Method::linearly_implicit_euler; }
};

// What moves, and what is known about it beforehand.
struct Scene {
  const Model& m;
  const ForceSet* forces = nullptr;
  std::vector<int> quaternions = quaternion_bodies(m);
  bool held = holds(forces);                                        // whether some forces are held in the world's axes
  bool branched = forces == nullptr || keeps_branches(m, *forces);  // whether H is zero between branches
  bool places = forces != nullptr && depends_on_place(*forces);
  bool local = forces == nullptr || on_single_bodies(*forces);  // whether H is a system over the tree
  bool tall = local && is_tall(m);                              // and solved as one

  // Where that is faster than along paths: measured, chains cross between 20 and 28 links, and balanced trees nowhere.
  static bool is_tall(const Model& m) { return m.depth >= 24; }

  static bool holds(const ForceSet* set) {
    if (set == nullptr) return false;
    for (const BodyLaw& law : set->bodies)
      if (law.kind == BodyLaw::aligned) return true;
    return !set->points.empty();
  }
};

// States on the way of a step. Node 0 is the row before, 1 the one that the step starts from.
class Nodes {
 public:
  Nodes(const Model& m, Arena& memory) : nq_(m.nq), nv_(m.nv), memory_(memory) { resize(4); }
  void resize(int count) {
    if (count <= count_) return;
    double* data = memory_.get<double>(count * size());
    std::copy_n(data_, count_ * size(), data);
    data_ = data;
    count_ = count;
  }
  double* q(int node) { return data_ + node * size(); }
  double* v(int node) { return q(node) + nq_; }
  double* a(int node) { return v(node) + nv_; }

 private:
  std::size_t size() const { return nq_ + 2 * nv_; }
  int nq_, nv_;
  Arena& memory_;
  int count_ = 0;
  double* data_ = nullptr;
};

struct Stage {
  bool implicit;
  int to, from;     // the new node and the one in whose chart it is found
  int other;        // another one in the formulas, or -1
  double c;         // explicit: 1 / h
  double z;         // of `other`
  double w, w_of;   // of `from` and `other`
  double fraction;  // of the step, at which forces and controls are taken
};

constexpr double kAlpha = 0.29289321881345254;  // (2 - sqrt 2) / 2

// The stages of one step divided into `count`; `previous`: whether node 0 is there. Returns the last node.
inline int list_stages(const Scheme& scheme, int count, bool previous, std::vector<Stage>& stages) {
  stages.clear();
  const double h = scheme.h / count;
  int at = 1;
  for (int i = 0; i < count; ++i) {
    const double begin = double(i) / count, end = double(i + 1) / count;
    if (scheme.is_explicit()) {
      stages.push_back({false, at + 1, at, -1, 1.0 / h, 0.0, 1.0, 0.0, begin});
      at += 1;
    } else if (scheme.method == Method::bdf1) {
      stages.push_back({true, at + 1, at, -1, 1.0 / h, 0.0, 1.0, 0.0, end});
      at += 1;
    } else if (scheme.method == Method::bdf2 && previous && count == 1) {
      stages.push_back({true, 2, 1, 0, 1.5 / h, -1.0 / 3.0, 4.0 / 3.0, -1.0 / 3.0, end});
      at += 1;
    } else {
      const double c = 1.0 / (kAlpha * h), z = (1.0 - kAlpha) / kAlpha;
      stages.push_back({true, at + 1, at, -1, c, 0.0, 1.0, 0.0, count == 1 ? kAlpha : (i + kAlpha) / count});
      stages.push_back({true, at + 2, at, at + 1, c, z, 1.0 - z, z, end});
      at += 2;
    }
  }
  return at;
}

// Controls of one step: one row for all of it, or two, at kAlpha and at its end, and the line through them between.
struct Controls {
  const double* rows;  // null: none
  int count;
  double weight(double fraction) const { return count == 1 ? 0.0 : (fraction - kAlpha) / (1.0 - kAlpha); }
};

// Memory of one thread. `memory` lasts as long as this, `arena` until the next evaluation.
struct Worker {
  explicit Worker(const Scene& scene) : scene(scene), nodes(scene.m, fresh(*lease)), H(scene.m, memory) {
    const std::size_t n = scene.m.nv;
    for (double** vector :
         {&xi, &x, &s, &r, &before, &delta, &trial, &correction, &u, &work, &zero, &guess, &last, &older})
      std::fill_n(*vector = memory.get<double>(n), n, 0.0);
    q = memory.get<double>(scene.m.nq);
    for (auto* diagonal : {&V1, &V0, &V, &inverse}) diagonal->blocks.resize(scene.quaternions.size());
    stages.reserve(2);
  }
  // Room for nv x nv matrices, where they are used.
  void need_matrices() {
    const std::size_t n = std::size_t(scene.m.nv) * scene.m.nv;
    for (double** matrix : {&Aq, &Av, &M, &dense, &K, &D})
      if (*matrix == nullptr) *matrix = memory.get<double>(n);
  }
  const Scene& scene;
  Lease lease, scratch;
  Arena &memory = *lease, &arena = *scratch;
  Nodes nodes;
  NewtonMatrix H;
  std::vector<Stage> stages;
  double *Aq = nullptr, *Av = nullptr, *M = nullptr, *dense = nullptr;
  double *K = nullptr, *D = nullptr;  // of the forces
  double *xi, *x, *s, *r, *before, *delta, *trial, *correction, *u, *work, *zero, *guess, *last, *older, *q;
  const double* p = nullptr;          // parameters of the forces
  BlockDiagonal V1, V0, V, inverse;   // dv1/dq1, dv1/dq0, dv1/dq' of a stage; J^-1
  double error = 0.0, allowed = 0.0;  // of Newton's method, where it stopped
  bool singular = false;              // whether the mass matrix was, where the steps began

 private:
  static Arena& fresh(Arena& memory) {
    memory.reset();
    return memory;
  }
};

// The residual ID - tau_f - u at a state, and the motions there: of bodies, their I and the sums of f over subtrees are known.
struct Evaluation {
  Motions<double> all;
  WorldWrench<double>* held;
  const double *q, *v;
  double t;
};
inline Evaluation evaluate_residual(Worker& w, const double* q, const double* v, const double* a, double t,
                                    const double* u, double* r) {
  const Scene& scene = w.scene;
  const Model& m = scene.m;
  w.arena.reset();
  const Motions<double> all = motions(m, w.arena, q, v, a, true, false);
  for (int i = 0; i < m.n(); ++i) {
    auto& b = all.bodies[i];
    b.I = m.bodies[i].massless ? zero_inertia<double>() : shift_back(rotate(b.R, m.bodies[i].I), b.p);
    b.f = m.bodies[i].massless ? zero_force<double>() : b.I * b.a + cross(b.v, b.I * b.v);
  }
  ForceSums<double> sums{nullptr, nullptr, nullptr};
  if (scene.forces != nullptr) {
    sums = force_sums(m, *scene.forces, w.arena, all, q, v, t, w.p);
    subtract_wrenches(m, all.bodies, sums);
    if (!scene.held) sums.held = nullptr;
  }
  for (int i = m.n() - 1; i >= 0; --i) {
    const Model::Link& link = m.links[i];
    for (int k = link.iv; k < link.iv + link.nv; ++k) {
      r[k] = dot(all.columns[k].S_, all.bodies[i].f) - u[k];
      if (sums.tau != nullptr) r[k] -= sums.tau[k];
    }
    if (link.parent >= 0) all.bodies[link.parent].f += all.bodies[i].f;
  }
  return {all, sums.held, q, v, t};
}

// What derivatives need of an evaluation besides: rates of the columns and 2 B of the bodies; and sums of I, 2 B and wrenches over
// subtrees.
inline void add_rates(const Model& m, const Evaluation& e) {
  add_rates(m, e.all);
  for (int i = 0; i < m.n(); ++i) e.all.bodies[i].B = coriolis_inertia(e.all.bodies[i].I, e.all.bodies[i].v);
}
inline void add_to_parents(const Model& m, const Evaluation& e) {
  for (int i = m.n() - 1; i >= 0; --i) {
    const int p = m.links[i].parent;
    if (p < 0) continue;
    e.all.bodies[p].I += e.all.bodies[i].I;
    e.all.bodies[p].B += e.all.bodies[i].B;
    if (e.held != nullptr) e.held[p] += e.held[i];
  }
}
inline void complete(const Model& m, const Evaluation& e) {
  add_rates(m, e);
  add_to_parents(m, e);
}

// A_q, A_v and M of the residual, from a complete evaluation.
inline void linearise(Worker& w, const Evaluation& e) {
  const Model& m = w.scene.m;
  w.need_matrices();
  for (double* matrix : {w.Aq, w.Av, w.M}) std::fill_n(matrix, m.nv * m.nv, 0.0);
  pair_columns(m, w.arena, e.all, e.held, 2, w.Aq, w.Av, w.M, m.nv);
  if (w.scene.forces != nullptr)
    linearise_forces(m, *w.scene.forces, w.arena, e.all, e.q, e.v, e.t, w.p, w.Aq, w.Av, m.nv);
}

// Control at a fraction of the step.
inline void read_control(Worker& w, const Controls& controls, double fraction) {
  const int nv = w.scene.m.nv;
  const double weight = controls.weight(fraction);
  for (int k = 0; k < nv; ++k) {
    double u = controls.rows != nullptr ? controls.rows[k] : 0.0;
    if (controls.rows != nullptr && controls.count == 2) u = mul_add(weight, controls.rows[nv + k], (1.0 - weight) * u);
    w.u[k] = u;
  }
}

// V1, J^-1 and, if asked for, V0 and V of a stage at xi and x; s too. With dxi = J^-1 delta1 - B delta0 and the same for x:
//   V1 = (c J + T) J^-1,   V0 = -(c J + T) B + c z J B(x),   V = -c z J J^-1(x).
inline void stage_terms(Worker& w, const Stage& stage, bool history) {
  const Model& m = w.scene.m;
  const double c = stage.c, z = stage.z;
  w.V1.scalar = c;
  w.V0.scalar = c * (z - 1.0);
  w.V.scalar = -c * z;
  w.inverse.scalar = 1.0;
  for (std::size_t b = 0; b < w.scene.quaternions.size(); ++b) {
    const Model::Body& body = m.bodies[w.scene.quaternions[b]];
    const int n = body.nv;
    const ChartTerms at = chart_terms(body.kind, &w.xi[body.iv], &w.s[body.iv]);
    Block cJT;
    for (int k = 0; k < n * n; ++k) cJT.x[k] = mul_add(c, at.J.x[k], at.T.x[k]);
    multiply(n, 1.0, cJT, at.inverse, w.V1.blocks[b], false);
    w.inverse.blocks[b] = at.inverse;
    if (!history) continue;
    multiply(n, -1.0, cJT, at.B, w.V0.blocks[b], false);
    if (stage.other < 0) continue;
    const ChartTerms other = chart_terms(body.kind, &w.x[body.iv], nullptr);
    multiply(n, c * z, at.J, other.B, w.V0.blocks[b], true);
    multiply(n, -c * z, at.J, other.inverse, w.V.blocks[b], false);
  }
}

// s, and the new node's q, v and a, from xi. False if it turns too far.
inline bool place_node(Worker& w, const Stage& stage) {
  const Model& m = w.scene.m;
  Nodes& nodes = w.nodes;
  double *v = nodes.v(stage.to), *a = nodes.a(stage.to);
  const bool good = retract(m, nodes.q(stage.from), w.xi, nodes.q(stage.to));
  for (int k = 0; k < m.nv; ++k) v[k] = w.s[k] = stage.c * (stage.other < 0 ? w.xi[k] : w.xi[k] - stage.z * w.x[k]);
  for (int i : w.scene.quaternions) {
    const Model::Body& body = m.bodies[i];
    const int n = body.nv;
    const ChartTerms at = chart_terms(body.kind, &w.xi[body.iv], nullptr);
    for (int r = 0; r < n; ++r) {
      double sum = 0.0;
      for (int k = 0; k < n; ++k) sum = mul_add(at.J.x[n * r + k], w.s[body.iv + k], sum);
      v[body.iv + r] = sum;
    }
  }
  const double *v0 = nodes.v(stage.from), *vo = stage.other < 0 ? nullptr : nodes.v(stage.other);
  for (int k = 0; k < m.nv; ++k)
    a[k] = stage.c * (vo == nullptr ? v[k] - v0[k] : v[k] - stage.w * v0[k] - stage.w_of * vo[k]);
  return good;
}

// The largest of n numbers by size; infinite if one is not finite.
inline double largest(int n, const double* x) {
  double most = 0.0, sum = 0.0;
  for (int k = 0; k < n; ++k) {
    most = std::max(most, std::fabs(x[k]));
    sum += std::fabs(x[k]);
  }
  return std::isfinite(sum) ? most : std::numeric_limits<double>::infinity();
}

// Error in v that is small enough: the tolerance, and what rounding of q and v makes of it anyway.
inline double allowance(Worker& w, const Scheme& scheme, const Stage& stage) {
  const Model& m = w.scene.m;
  double speed = 0.0, reach = 1.0;
  for (int k = 0; k < m.nv; ++k) speed = std::max(speed, std::fabs(w.nodes.v(stage.to)[k]));
  for (int k = 0; k < m.nq; ++k) reach = std::max(reach, std::fabs(w.nodes.q(stage.to)[k]));
  return scheme.tolerance * (1.0 + speed) + 4e-16 * stage.c * reach;
}

// r . M^-1 r: the square of what is missing in the accelerations, in the measure of kinetic energy. Infinite if the mass matrix
// is singular.
inline double missing_acceleration(Worker& w, const double* q, const double* r) {
  const Model& m = w.scene.m;
  w.arena.singular_joint = -1;
  solve_mass(m, factor_mass<double>(m, w.arena, q, nullptr, nullptr), r, w.work);
  const bool singular = w.arena.singular_joint >= 0;
  w.arena.singular_joint = -1;
  double sum = 0.0;
  for (int k = 0; k < m.nv; ++k) sum = mul_add(r[k], w.work[k], sum);
  return singular ? std::numeric_limits<double>::infinity() : sum;
}

// The factors of the dense matrix.
inline bool factor_dense(Worker& w) {
  if (w.scene.branched) {
    w.H.paths.read(w.dense);
    if (w.H.factor_paths()) return true;
  }
  return w.H.factor_dense(w.dense);
}

// G = A_v + c M (in Av) and the factors of H = A_q + G V1, from A_q, A_v and M. False if H is singular.
inline bool factor_stage(Worker& w, const Stage& stage) {
  const Model& m = w.scene.m;
  const int size = m.nv * m.nv;
  add_scaled(size, stage.c, w.M, w.Av);
  std::copy_n(w.Aq, size, w.dense);
  add_product(m, w.scene.quaternions, w.Av, w.V1, w.dense);
  return factor_dense(w);
}

// The factors of H at an evaluation with rates, over the tree. False if there is no such form, or an unknown cannot be found.
inline bool factor_over_tree(Worker& w, const Stage& stage, const Evaluation& e) {
  const Scene& scene = w.scene;
  if (!scene.local) return false;
  TreeSystem& H = w.H.tree(scene.places);
  stage_system(scene.m, w.arena, e.all, scene.quaternions, w.V1, stage.c, scene.places, H);
  if (scene.forces != nullptr)
    add_forces(scene.m, *scene.forces, w.arena, e.all, e.q, e.v, e.t, w.p, scene.quaternions, w.V1, scene.places, H);
  return w.H.factor_tree();
}
// The same along paths, at a complete evaluation.
inline bool factor_along_paths(Worker& w, const Stage& stage, const Evaluation& e) {
  const Scene& scene = w.scene;
  if (!scene.branched) return false;
  stage_matrix(scene.m, w.arena, e.all, e.held, scene.quaternions, w.V1, stage.c, w.H.paths);
  if (scene.forces != nullptr) {
    w.need_matrices();
    add_forces(scene.m, *scene.forces, w.arena, e.all, e.q, e.v, e.t, w.p, scene.quaternions, w.V1, w.K, w.D,
               w.H.paths);
  }
  return w.H.factor_paths();
}

// The correction of Newton's method where an evaluation was made, with new factors. Returns its size in v, infinite if there is
// none.
inline double correct(Worker& w, const Stage& stage, const Evaluation& e) {
  const Model& m = w.scene.m;
  stage_terms(w, stage, false);
  add_rates(m, e);
  bool good = w.scene.tall && !w.singular && factor_over_tree(w, stage, e);
  if (!good) {
    add_to_parents(m, e);
    good = factor_along_paths(w, stage, e);
  }
  if (!good) {
    linearise(w, e);
    if (!factor_stage(w, stage)) return std::numeric_limits<double>::infinity();
  }
  for (int k = 0; k < m.nv; ++k) w.delta[k] = -w.r[k];
  w.H.solve(w.delta);
  return stage.c * largest(m.nv, w.delta);
}

inline Evaluation evaluate_stage(Worker& w, const Stage& stage, double t) {
  Nodes& nodes = w.nodes;
  return evaluate_residual(w, nodes.q(stage.to), nodes.v(stage.to), nodes.a(stage.to), t, w.u, w.r);
}

// The residual alone, without forces: by a recursion that is faster than that of derivatives.
inline void evaluate_bare(Worker& w, const Stage& stage) {
  const Model& m = w.scene.m;
  Nodes& nodes = w.nodes;
  w.arena.reset();
  inverse_dynamics<double>(m, w.arena, nodes.q(stage.to), nodes.v(stage.to), nodes.a(stage.to), nullptr, w.r);
  for (int k = 0; k < m.nv; ++k) w.r[k] -= w.u[k];
}

// Puts the node `stage.to` where accelerations `guess` lead or, if that is null, where the step begins, and returns the size of
// the correction there.
inline double begin_stage(Worker& w, const Stage& stage, double t, const double* guess) {
  Nodes& nodes = w.nodes;
  for (int k = 0; k < w.scene.m.nv; ++k) {
    w.xi[k] = 0.0;
    if (guess == nullptr) continue;
    double v = stage.w * nodes.v(stage.from)[k] + guess[k] / stage.c;
    if (stage.other >= 0) v += stage.w_of * nodes.v(stage.other)[k];
    w.xi[k] = v / stage.c + (stage.other >= 0 ? stage.z * w.x[k] : 0.0);
  }
  if (!place_node(w, stage)) return std::numeric_limits<double>::infinity();
  return correct(w, stage, evaluate_stage(w, stage, t));
}

// Solves an implicit stage for the node `stage.to` by Newton's method, from where begin_stage put it, `norm` being what that
// returned; with at most `left` corrections, of which it takes its own off. A correction is good if the simplified
// correction after it is smaller (Deuflhard's natural monotonicity test, which no scaling of equations changes) or if the missing
// accelerations are; others are halved once. The factors are kept while corrections shrink fast.
inline bool iterate(Worker& w, const Scheme& scheme, const Stage& stage, double t, double norm, int& left) {
  const Model& m = w.scene.m;
  Nodes& nodes = w.nodes;
  const int nv = m.nv;
  const bool bare = w.scene.forces == nullptr;
  double missing = -1.0;  // acceleration at the last point, if known
  while (true) {
    w.error = norm;
    w.allowed = allowance(w, scheme, stage);
    if (!std::isfinite(norm)) return false;
    const auto move = [&](double length, const double* delta) {
      apply(m, w.scene.quaternions, w.inverse, false, delta, w.work);
      for (int k = 0; k < nv; ++k) w.xi[k] = mul_add(length, w.work[k], w.trial[k]);
      return place_node(w, stage);
    };
    std::copy_n(w.xi, nv, w.trial);
    if (norm <= 1e-3 * w.allowed) return move(1.0, w.delta);
    std::copy_n(w.r, nv, w.before);
    std::copy_n(nodes.q(stage.to), m.nq, w.q);
    double after = 0.0, length = 1.0, now = -1.0;
    Evaluation e{};
    for (;; length *= 0.5) {
      if (length < 0.5 || left-- <= 0) return false;
      if (!move(length, w.delta)) continue;
      if (bare)
        evaluate_bare(w, stage);
      else
        e = evaluate_stage(w, stage, t);
      for (int k = 0; k < nv; ++k) w.correction[k] = -w.r[k];
      w.H.solve(w.correction);
      after = stage.c * largest(nv, w.correction);
      const double less = 1.0 - 0.25 * length;
      if (after <= less * norm) break;
      if (length == 1.0 && norm <= w.allowed) return true;  // rounding is all that is left
      if (missing < 0.0) missing = missing_acceleration(w, w.q, w.before);
      now = missing_acceleration(w, nodes.q(stage.to), w.r);
      if (now < less * less * missing) break;
      now = -1.0;
    }
    missing = now;
    // What remains after this correction too is its share of itself, or several times that: a share can be small by chance.
    const double rate = after / norm;
    w.error = after;
    if (length == 1.0 && 10.0 * rate * after <= w.allowed) {
      std::copy_n(w.xi, nv, w.trial);
      return move(1.0, w.correction);
    }
    if (length < 1.0 || rate > 0.02) {
      norm = correct(w, stage, bare ? evaluate_stage(w, stage, t) : e);
    } else {
      std::copy_n(w.correction, nv, w.delta);
      norm = after;
    }
  }
}

// Accelerations (nv) with ID(q, v, a) = tau_f + u at a node. False if the mass matrix is singular.
inline bool accelerate_node(Worker& w, int node, double t, double* a) {
  const Model& m = w.scene.m;
  Nodes& nodes = w.nodes;
  w.arena.singular_joint = -1;
  if (w.scene.forces == nullptr) {
    w.arena.reset();
    hybrid_dynamics<double>(m, w.arena, nodes.q(node), nodes.v(node), nullptr, nullptr, a, w.u);
  } else {
    evaluate_residual(w, nodes.q(node), nodes.v(node), w.zero, t, w.u, w.r);
    for (int k = 0; k < m.nv; ++k) w.r[k] = -w.r[k];
    solve_mass(m, factor_mass<double>(m, w.arena, nodes.q(node), nullptr, nullptr), w.r, a);
  }
  return w.arena.singular_joint < 0;
}

// Solves a stage by following its solution from short steps to the whole one: with c / s in place of c, s from 0, where the
// accelerations are those of forward dynamics, to 1; each time from the line through the two before.
inline bool follow(Worker& w, const Scheme& scheme, const Stage& stage, double t, int& left) {
  const int nv = w.scene.m.nv;
  if (!accelerate_node(w, stage.from, t, w.last)) std::copy_n(w.zero, nv, w.last);
  double at = 0.0, before = 0.0;
  for (double step = 1.0; step > 0.01 && left > 0;) {
    const double s = std::min(1.0, at + step), further = at > 0.0 ? (s - at) / (at - before) : 0.0;
    for (int k = 0; k < nv; ++k) w.guess[k] = mul_add(further, w.last[k] - w.older[k], w.last[k]);
    Stage part = stage;
    part.c = stage.c / s;
    Scheme rough = scheme;
    if (s < 1.0) rough.tolerance = std::max(scheme.tolerance, 1e-5);
    int few = std::min(left, 12);
    left -= few;
    const double norm = begin_stage(w, part, t, w.guess);
    const bool good = iterate(w, rough, part, t, norm, few);
    left += few;
    if (good && s == 1.0) return true;
    step *= good ? 1.5 : 0.5;
    if (!good) continue;
    std::copy_n(w.last, nv, w.older);
    std::copy_n(w.nodes.a(stage.to), nv, w.last);
    before = at;
    at = s;
  }
  return false;
}

// Solves an implicit stage from the accelerations `guess`, from where it begins, or by following it.
inline bool solve_stage(Worker& w, const Scheme& scheme, const Stage& stage, double t, const double* guess) {
  Nodes& nodes = w.nodes;
  if (stage.other >= 0) chart(w.scene.m, nodes.q(stage.from), nodes.q(stage.other), w.x);
  double norm = begin_stage(w, stage, t, guess), speed = 0.0, added = 0.0;
  const double moved = stage.c * largest(w.scene.m.nv, w.xi);
  for (int k = 0; k < w.scene.m.nv; ++k) {
    added = std::max(added, std::fabs(guess[k] / stage.c));
    speed = std::max(speed, std::fabs(nodes.v(stage.from)[k]));
    if (stage.other >= 0) speed = std::max(speed, std::fabs(nodes.v(stage.other)[k]));
  }
  // Stiff forces have solutions everywhere, and that one is meant which is near. A guess is doubtful if it adds much to the
  // velocities, or if the first correction leads half the way back; it is dropped if the step begins much nearer to a solution.
  if (moved > 0.0 && (added > 4.0 * speed || norm > 0.5 * moved)) {
    const double other = begin_stage(w, stage, t, nullptr);
    norm = other < 0.25 * std::max(norm, moved) ? other : begin_stage(w, stage, t, guess);
  }
  int left = scheme.iterations;
  return iterate(w, scheme, stage, t, norm, left) || follow(w, scheme, stage, t, left);
}

// K = dtau/dq and D = dtau/dv of the forces at a node, and M - h D - h^2 K (dense) from the M that is there.
inline void force_matrices(Worker& w, int node, double t, double h) {
  const Model& m = w.scene.m;
  generalized_forces_derivatives<double>(m, *w.scene.forces, w.arena, w.nodes.q(node), w.nodes.v(node), t, w.p, w.K,
                                         w.D);
  std::copy_n(w.M, m.nv * m.nv, w.dense);
  add_scaled(m.nv * m.nv, -h, w.D, w.dense);
  add_scaled(m.nv * m.nv, -h * h, w.K, w.dense);
}

// Accelerations with which linearly implicit Euler leaves a node: (M - h D - h^2 K) a = f + h K v. Sueda 2021, (2.86), solved for
// the change of v; K here has the change of lever arms too.
inline bool accelerate_implicitly(Worker& w, int node, double t, double h) {
  const Model& m = w.scene.m;
  Nodes& nodes = w.nodes;
  w.need_matrices();
  const Evaluation e = evaluate_residual(w, nodes.q(node), nodes.v(node), w.zero, t, w.u, w.r);
  complete(m, e);
  std::fill_n(w.M, m.nv * m.nv, 0.0);
  pair_columns<double>(m, w.arena, e.all, nullptr, 2, nullptr, nullptr, w.M, m.nv);
  force_matrices(w, node, t, h);
  for (int k = 0; k < m.nv; ++k) {
    double sum = 0.0;
    for (int j = 0; j < m.nv; ++j) sum = mul_add(w.K[k * m.nv + j], nodes.v(node)[j], sum);
    nodes.a(node)[k] = h * sum - w.r[k];
  }
  if (!factor_dense(w)) return false;
  w.H.solve(nodes.a(node));
  return true;
}

// v1 = v0 + h a0, q1 = q0 (+) h v1.
inline bool explicit_stage(Worker& w, const Scheme& scheme, const Stage& stage, double t) {
  const Model& m = w.scene.m;
  Nodes& nodes = w.nodes;
  const bool implicitly = scheme.method == Method::linearly_implicit_euler && w.scene.forces != nullptr;
  if (!(implicitly ? accelerate_implicitly(w, stage.from, t, scheme.h)
                   : accelerate_node(w, stage.from, t, w.nodes.a(stage.from))))
    return false;
  for (int k = 0; k < m.nv; ++k) {
    const double v = nodes.v(stage.from)[k] + nodes.a(stage.from)[k] / stage.c;
    nodes.v(stage.to)[k] = v;
    w.xi[k] = v / stage.c;
  }
  return retract(m, nodes.q(stage.from), w.xi, nodes.q(stage.to)) && std::isfinite(largest(m.nv, w.xi));
}

// One step from node 1 (and node 0, if `previous`) at time t. Divided into `count`, or if that is 0 into as few as Newton's method
// needs. `settled`: whether node 1 has accelerations that the integrator made. Returns into how many it was divided, 0 if all
// failed; the last node is that of list_stages.
inline int take_step(Worker& w, const Scheme& scheme, int count, bool previous, bool settled, double t,
                     const Controls& controls) {
  const int most = scheme.is_explicit() ? 1 : scheme.substeps;
  for (int n = count > 0 ? count : 1; n <= (count > 0 ? count : most); n *= 2) {
    w.nodes.resize(list_stages(scheme, n, previous, w.stages) + 1);
    bool good = true;
    for (const Stage& stage : w.stages) {
      const double at = t + stage.fraction * scheme.h;
      read_control(w, controls, stage.fraction);
      const double* guess = stage.other > stage.from    ? w.nodes.a(stage.other)
                            : stage.from > 1 || settled ? w.nodes.a(stage.from)
                                                        : w.zero;
      good = stage.implicit ? solve_stage(w, scheme, stage, at, guess) : explicit_stage(w, scheme, stage, at);
      if (!good) break;
    }
    if (good) return n;
  }
  return 0;
}

// A joint whose coordinates must be changed in time. Sueda 2021, 2.5.5, 2.5.8.
struct ChartLimit {
  int iq;
  int kind;  // 0: |cos q1| < 1/2; 1: |sin q1| < 1/2; 2: |q| > pi
  bool reached(const double* q) const {
    const double* x = q + iq;
    if (kind == 2) return x[0] * x[0] + x[1] * x[1] + x[2] * x[2] > M_PI * M_PI;
    return std::fabs(kind == 0 ? std::cos(x[1]) : std::sin(x[1])) < 0.5;
  }
};

// One trajectory: rows of q, v, a for steps + 1 times, of controls for steps (null: none), of divisions for steps.
struct Track {
  double *q, *v, *a;
  const double* u;
  int u_rows;
  int* divisions;
  const double *previous_q, *previous_v;  // instead of the row before the first step, if not null
  int64_t start = 0;                      // number of the first row within the whole trajectory
};
enum class Outcome : int { finished, chart, failed, singular };  // singular: `error` has the user's joint

// The user's joint whose motion from node 1 neither masses nor forces determine; -1 if there is none, or if the integrator solves for
// accelerations alone.
inline int undetermined_joint(Worker& w, const Scheme& scheme, double t) {
  if (scheme.method == Method::symplectic_euler) return -1;
  return undetermined_joint(w.scene.m, w.scene.forces, w.arena, w.nodes.q(1), w.nodes.v(1), t, w.p, 1.0 / scheme.h);
}

// Steps from row `first` to row `last`, or to the first at which a chart is to be changed, or to the last good one.
struct Progress {
  Outcome outcome;
  int64_t row;
};
inline Progress run(Worker& w, const Scheme& scheme, double t0, int64_t first, int64_t last, const Track& track,
                    const std::vector<ChartLimit>& limits) {
  const Model& m = w.scene.m;
  Nodes& nodes = w.nodes;
  const auto load = [&](int node, int64_t row) {
    std::copy_n(track.q + row * m.nq, m.nq, nodes.q(node));
    std::copy_n(track.v + row * m.nv, m.nv, nodes.v(node));
    std::copy_n(track.a + row * m.nv, m.nv, nodes.a(node));
  };
  const auto controls = [&](int64_t step) {
    return Controls{track.u == nullptr ? nullptr : track.u + step * track.u_rows * m.nv, track.u_rows};
  };
  for (int64_t step = first; step < last; ++step) {
    const int64_t number = track.start + step;
    const double t = t0 + number * scheme.h;
    load(1, step);
    if (number == 0 && !scheme.is_explicit()) {
      read_control(w, controls(0), 0.0);
      if (!accelerate_node(w, 1, t, nodes.a(1)))
        std::fill_n(nodes.a(1), m.nv, std::numeric_limits<double>::quiet_NaN());
      std::copy_n(nodes.a(1), m.nv, track.a);
    }
    if (number > 0 && step == first && track.previous_q != nullptr) {
      std::copy_n(track.previous_q, m.nq, nodes.q(0));
      std::copy_n(track.previous_v, m.nv, nodes.v(0));
    } else if (step > 0) {
      load(0, step - 1);
    }
    if (step == first) {
      w.arena.reset();
      w.arena.singular_joint = -1;
      if (m.has_weak) factor_mass<double>(m, w.arena, nodes.q(1), nullptr, nullptr);
      w.singular = w.arena.singular_joint >= 0;
    }
    w.arena.singular_joint = w.singular ? undetermined_joint(w, scheme, t) : -1;
    const bool determined = w.arena.singular_joint < 0;
    const int count = determined ? take_step(w, scheme, 0, number > 0, number > 0, t, controls(step)) : 0;
    if (count == 0 && w.arena.singular_joint >= 0 && (scheme.is_explicit() || !determined)) {
      w.error = w.arena.singular_joint;
      return {Outcome::singular, step};
    }
    if (count == 0) return {Outcome::failed, step};
    const int end = w.stages.back().to;
    track.divisions[step] = count;
    std::copy_n(nodes.q(end), m.nq, track.q + (step + 1) * m.nq);
    std::copy_n(nodes.v(end), m.nv, track.v + (step + 1) * m.nv);
    if (scheme.is_explicit()) {
      std::copy_n(nodes.a(1), m.nv, track.a + step * m.nv);
      if (step + 1 == last && accelerate_node(w, end, t + scheme.h, nodes.a(end)))
        std::copy_n(nodes.a(end), m.nv, track.a + last * m.nv);
    } else {
      std::copy_n(nodes.a(end), m.nv, track.a + (step + 1) * m.nv);
    }
    for (const ChartLimit& limit : limits)
      if (limit.reached(track.q + (step + 1) * m.nq)) return {Outcome::chart, step + 1};
  }
  return {Outcome::finished, last};
}

}  // namespace torsor
