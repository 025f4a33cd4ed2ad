// Time integration. Every implicit integrator is a list of stages of one form (docs/derivations/implicit_steps.md): with
// q1 = q0 (+) xi in the chart at q0 and x = the chart's coordinates of another node,
//   s = c (xi - z x),   v1 = J(xi) s,   a1 = c (v1 - w v0 - w' v'),   r(q1) = ID(q1, v1, a1) - tau_f - u = 0,
// solved by Newton's method with the matrix H = A_q + (A_v + c M) V1, V1 = dv1/dq1. Explicit integrators are stages of a kind of
// their own. A step of which Newton's method fails is divided.
#pragma once
#include <algorithm>
#include <optional>

#include "dynamics/inverse_dynamics.hpp"
#include "dynamics/mass_solve.hpp"
#include "forces/energy_balance.hpp"
#include "integrators/newton.hpp"
#include "integrators/newton_matrix.hpp"
#include "integrators/undetermined.hpp"

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
  bool local = forces == nullptr || on_single_bodies(*forces);    // whether H is a system over the tree
  bool tall = local && is_tall(m);                                // and solved as one
  bool balanced = forces != nullptr && forces->given != nullptr;  // whether gains of energy can be told

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
    energies.resize(count);
  }
  double* q(int node) { return data_ + node * size(); }
  double* v(int node) { return q(node) + nq_; }
  double* a(int node) { return v(node) + nv_; }
  std::vector<std::optional<Energies>> energies;  // where they are known

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
  double begin;     // that of `from`
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
      stages.push_back({false, at + 1, at, -1, 1.0 / h, 0.0, 1.0, 0.0, begin, begin});
      at += 1;
    } else if (scheme.method == Method::bdf1) {
      stages.push_back({true, at + 1, at, -1, 1.0 / h, 0.0, 1.0, 0.0, end, begin});
      at += 1;
    } else if (scheme.method == Method::bdf2 && previous && count == 1) {
      stages.push_back({true, 2, 1, 0, 1.5 / h, -1.0 / 3.0, 4.0 / 3.0, -1.0 / 3.0, end, begin});
      at += 1;
    } else {
      const double c = 1.0 / (kAlpha * h), z = (1.0 - kAlpha) / kAlpha;
      stages.push_back({true, at + 1, at, -1, c, 0.0, 1.0, 0.0, count == 1 ? kAlpha : (i + kAlpha) / count, begin});
      stages.push_back({true, at + 2, at, at + 1, c, z, 1.0 - z, z, end, begin});
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
  const double* p = nullptr;         // parameters of the forces
  BlockDiagonal V1, V0, V, inverse;  // dv1/dq1, dv1/dq0, dv1/dq' of a stage; J^-1
  Shortfall shortfall;               // of the last attempt that failed
  bool gained = false;               // whether it failed because solutions gain energy
  bool singular = false;             // whether the mass matrix was, where the steps began

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
  double kinetic, gravity;  // energies
};
inline Evaluation evaluate_residual(Worker& w, const double* q, const double* v, const double* a, double t,
                                    const double* u, double* r) {
  const Scene& scene = w.scene;
  const Model& m = scene.m;
  w.arena.reset();
  const Motions<double> all = motions(m, w.arena, q, v, a, true, false);
  double kinetic = 0.0, gravity = 0.0;
  for (int i = 0; i < m.n(); ++i) {
    auto& b = all.bodies[i];
    b.I = zero_inertia<double>();
    b.f = zero_force<double>();
    if (m.bodies[i].massless) continue;
    b.I = shift_back(rotate(b.R, m.bodies[i].I), b.p);
    const Force<double> momentum = b.I * b.v;
    b.f = b.I * b.a + cross(b.v, momentum);
    kinetic += 0.5 * dot(b.v, momentum);
    gravity -= dot(m.gravity, mul_add(b.I.m, b.origin, b.I.h));
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
  return {all, sums.held, q, v, t, kinetic, gravity};
}

inline Energies energies_of(Worker& w, const Evaluation& e) {
  return {e.kinetic, e.gravity, stored_energy(w.scene.m, *w.scene.forces, w.arena, e.all, e.q, e.v, e.t, w.p)};
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

// M^-1 r (in w.work): the accelerations that are missing. False if the mass matrix is singular.
inline bool missing_accelerations(Worker& w, const double* q, const double* r) {
  const Model& m = w.scene.m;
  w.arena.singular_joint = -1;
  solve_mass(m, factor_mass<double>(m, w.arena, q, nullptr, nullptr), r, w.work);
  const bool singular = w.arena.singular_joint >= 0;
  w.arena.singular_joint = -1;
  return !singular;
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

// The equations of an implicit stage for the node `stage.to`, as integrators/newton.hpp takes them. Corrections are tangents of its configuration.
class StageSystem {
 public:
  StageSystem(Worker& w, const Stage& stage, double t)
      : delta(w.delta),
        correction(w.correction),
        guess(w.guess),
        last(w.last),
        older(w.older),
        w_(w),
        m_(w.scene.m),
        whole_(stage),
        stage_(stage),
        t_(t) {}
  double *delta, *correction, *guess, *last, *older;

  int size() const { return m_.nv; }
  void mark() {
    std::copy_n(w_.xi, m_.nv, w_.trial);
    std::copy_n(w_.r, m_.nv, w_.before);
    std::copy_n(q(), m_.nq, w_.q);
    marked_merit_ = merit_;
  }
  bool place(double length, const double* along) {
    apply(m_, w_.scene.quaternions, w_.inverse, false, along, w_.work);
    for (int k = 0; k < m_.nv; ++k) w_.xi[k] = mul_add(length, w_.work[k], w_.trial[k]);
    merit_ = -1.0;
    return place_node(w_, stage_);
  }
  bool finish(const double* along) { return place(1.0, along); }
  // Without forces, the residual alone is found by a recursion that is faster than that of derivatives.
  bool evaluate() {
    linearisable_ = w_.scene.forces != nullptr;
    if (linearisable_) {
      evaluation_ = evaluate_residual(w_, q(), v(), a(), t_, w_.u, w_.r);
      return true;
    }
    w_.arena.reset();
    inverse_dynamics<double>(m_, w_.arena, q(), v(), a(), nullptr, w_.r);
    for (int k = 0; k < m_.nv; ++k) w_.r[k] -= w_.u[k];
    return true;
  }
  bool factor() {
    if (!linearisable_) evaluation_ = evaluate_residual(w_, q(), v(), a(), t_, w_.u, w_.r);
    linearisable_ = false;  // the sums below overwrite it
    stage_terms(w_, stage_, false);
    add_rates(m_, evaluation_);
    if (w_.scene.tall && !w_.singular && factor_over_tree(w_, stage_, evaluation_)) return true;
    add_to_parents(m_, evaluation_);
    if (factor_along_paths(w_, stage_, evaluation_)) return true;
    linearise(w_, evaluation_);
    return factor_stage(w_, stage_);
  }
  void solve(double* out) const {
    for (int k = 0; k < m_.nv; ++k) out[k] = -w_.r[k];
    w_.H.solve(out);
  }
  double measure(const double* x) const { return stage_.c * largest(m_.nv, x); }
  // The tolerance, and what rounding of q makes of v anyway.
  double allowance(double tolerance) const {
    return tolerance * (1.0 + largest(m_.nv, v())) + 4e-16 * stage_.c * std::max(1.0, largest(m_.nq, q()));
  }
  // H^-1 times the last digits of what r is the sum of, with signs that alternate along chains, which is what these resist least; a
  // few times what is allowed at most.
  double rounding(double allowed) {
    constexpr double eps = std::numeric_limits<double>::epsilon();
    std::vector<double> size(m_.nv), moments(m_.n(), 0.0), forces(m_.n(), 0.0);
    const Motions<double> all = motions(m_, w_.arena, q(), v(), a(), true, false);
    for (int i = m_.n() - 1; i >= 0; --i) {
      if (!m_.bodies[i].massless) {
        const auto& b = all.bodies[i];
        const auto I = shift_back(rotate(b.R, m_.bodies[i].I), b.p);
        for (const Force<double>& f : {I * b.a, cross(b.v, I * b.v)}) {
          moments[i] += std::sqrt(dot(f.n, f.n));
          forces[i] += std::sqrt(dot(f.f, f.f));
        }
      }
      const Model::Link& link = m_.links[i];
      for (int k = link.iv; k < link.iv + link.nv; ++k) {
        const Motion<double>& S = all.columns[k].S_;
        size[k] =
            std::sqrt(dot(S.w, S.w)) * moments[i] + std::sqrt(dot(S.v, S.v)) * forces[i] + 2.0 * std::fabs(w_.u[k]);
      }
      if (link.parent < 0) continue;
      moments[link.parent] += moments[i];
      forces[link.parent] += forces[i];
    }
    for (int k = 0; k < m_.nv; ++k) w_.work[k] = (k % 2 == 0 ? eps : -eps) * size[k];
    w_.H.solve(w_.work);
    return std::min(measure(w_.work), 5.0 * allowed);
  }
  // H is about c^2 M and what forces add to it, which make it stiffer.
  bool bounded(double allowed, double moved) {
    if (moved > 0.1 * (1.0 + largest(m_.nv, v()))) return false;
    return missing_accelerations(w_, q(), w_.r) && largest(m_.nv, w_.work) <= stage_.c * allowed;
  }
  bool improves(double factor) {
    if (marked_merit_ < 0.0) marked_merit_ = merit(w_.q, w_.before);
    merit_ = merit(q(), w_.r);
    return merit_ < factor * factor * marked_merit_;
  }
  bool extrapolates() const { return w_.scene.forces == nullptr; }
  double curvature(double size) const { return size * size / (stage_.c * stage_.c); }

  void begin_path() {
    if (!accelerate_node(w_, stage_.from, t_, last)) std::fill_n(last, m_.nv, 0.0);
  }
  // To where accelerations lead or, if these are null, where the step begins. A part of the step has c / part in place of c.
  double begin(double part, const double* accelerations) {
    stage_.c = whole_.c / part;
    for (int k = 0; k < m_.nv; ++k) w_.xi[k] = accelerations == nullptr ? 0.0 : led_to(accelerations, k);
    merit_ = -1.0;
    linearisable_ = false;
    return place_node(w_, stage_) ? correct(*this) : kInfinity;
  }
  void accelerations(double, double* out) const { std::copy_n(a(), m_.nv, out); }
  const Evaluation& evaluation() const { return evaluation_; }  // of the point, with forces

 private:
  double* q() const { return w_.nodes.q(stage_.to); }
  double* v() const { return w_.nodes.v(stage_.to); }
  double* a() const { return w_.nodes.a(stage_.to); }
  // xi of a velocity where accelerations lead.
  double led_to(const double* accelerations, int k) const {
    double v = stage_.w * w_.nodes.v(stage_.from)[k] + accelerations[k] / stage_.c;
    if (stage_.other < 0) return v / stage_.c;
    v += stage_.w_of * w_.nodes.v(stage_.other)[k];
    return v / stage_.c + stage_.z * w_.x[k];
  }
  // r . M^-1 r: the square of the missing accelerations, in the measure of kinetic energy.
  double merit(const double* q, const double* r) {
    if (!missing_accelerations(w_, q, r)) return kInfinity;
    double sum = 0.0;
    for (int k = 0; k < m_.nv; ++k) sum = mul_add(r[k], w_.work[k], sum);
    return sum;
  }

  Worker& w_;
  const Model& m_;
  const Stage& whole_;
  Stage stage_;
  double t_;
  Evaluation evaluation_{};
  bool linearisable_ = false;                  // whether the evaluation is that of the point, and has what factors need
  double merit_ = -1.0, marked_merit_ = -1.0;  // where known
};

// Solves an implicit stage from the accelerations `guess`, from where it begins, or by following it.
inline bool solve_stage(Worker& w, const Scheme& scheme, const Stage& stage, double t, const double* guess) {
  Nodes& nodes = w.nodes;
  if (stage.other >= 0) chart(w.scene.m, nodes.q(stage.from), nodes.q(stage.other), w.x);
  StageSystem system(w, stage, t);
  double norm = system.begin(1.0, guess), speed = 0.0, added = 0.0;
  const double moved = stage.c * largest(w.scene.m.nv, w.xi);
  for (int k = 0; k < w.scene.m.nv; ++k) {
    added = std::max(added, std::fabs(guess[k] / stage.c));
    speed = std::max(speed, std::fabs(nodes.v(stage.from)[k]));
    if (stage.other >= 0) speed = std::max(speed, std::fabs(nodes.v(stage.other)[k]));
  }
  // Stiff forces have solutions everywhere, and that one is meant which is near. A guess is doubtful if it adds much to the
  // velocities, or if the first correction leads half the way back; it is dropped if the step begins much nearer to a solution.
  if (moved > 0.0 && (added > 4.0 * speed || norm > 0.5 * moved)) {
    const double other = system.begin(1.0, nullptr);
    norm = other < 0.25 * std::max(norm, moved) ? other : system.begin(1.0, guess);
  }
  int left = scheme.iterations;
  const bool good =
      iterate(system, scheme.tolerance, norm, left, w.shortfall) || follow(system, scheme.tolerance, left, w.shortfall);
  // Products may have overflowed on the way.
  if (!good || !std::isfinite(largest(w.scene.m.nv, nodes.a(stage.to))) ||
      turns_too_far(w.scene.m, nodes.q(stage.from), nodes.q(stage.to)))
    return false;
  if (w.scene.balanced) nodes.energies[stage.to] = energies_of(w, system.evaluation());
  return true;
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

// Tells whether a step gains more than the part `gain` of the energy that there is, work of given forces apart, or one of its stages
// ten times that.
class EnergyGuard {
 public:
  EnergyGuard(Worker& w, const Scheme& scheme, double gain) : w_(w), h_(scheme.h), gain_(gain) {}
  // After a stage was solved for the time t. `ends`: whether a part of the step ends with it.
  bool objects(const Stage& stage, bool ends, double t) {
    if (!std::isfinite(gain_)) return false;
    const double h = h_ * (stage.fraction - stage.begin);
    Energies before = at(stage.from, t - h);
    const Energies after = at(stage.to, t);
    const bool stored = before.stored != 0.0 || after.stored != 0.0;  // else no spring was there to gain from
    if (stage.other == 0) {  // a step from two rows has the energy of both to go by
      const Energies older = at(stage.other, t - 2.0 * h);
      if (older.total() > before.total()) before = older;
    }
    if (stage.from == 1) start_ = before;
    const double work = most_work(stage, h, t);
    if (ends) work_ += work;
    return stored && (exceeds(before, after, work, 10.0 * gain_) || (ends && exceeds(start_, after, work_, gain_)));
  }

 private:
  const Energies& at(int node, double t) {
    std::optional<Energies>& energies = w_.nodes.energies[node];
    if (!energies)
      energies =
          energies_of(w_, evaluate_residual(w_, w_.nodes.q(node), w_.nodes.v(node), w_.zero, t, w_.u, w_.correction));
    return *energies;
  }
  // At most the work that given forces and controls do in a stage: power times time, and force times displacement.
  double most_work(const Stage& stage, double h, double t) {
    const Model& m = w_.scene.m;
    const ForceSet& given = *w_.scene.forces->given;
    const bool any = !given.torques.empty() || !given.bodies.empty() || !given.points.empty();
    double work = 0.0;
    for (const int node : {stage.from, stage.to}) {
      std::copy_n(w_.u, m.nv, w_.work);
      if (any) {
        w_.arena.reset();
        generalized_forces(m, given, w_.arena, w_.nodes.q(node), w_.nodes.v(node), node == stage.to ? t : t - h, w_.p,
                           w_.work);
        add_scaled(m.nv, 1.0, w_.u, w_.work);
      }
      double power = 0.0, along = 0.0;
      for (int k = 0; k < m.nv; ++k) {
        power += w_.work[k] * w_.nodes.v(node)[k];
        along += w_.work[k] * w_.xi[k];
      }
      work += h * std::max(power, 0.0) + std::fabs(along);
    }
    return work;
  }
  static bool exceeds(const Energies& before, const Energies& after, double work, double gain) {
    return !(after.total() - before.total() <= work + gain * (before.size() + after.size()));
  }
  Worker& w_;
  const double h_, gain_;
  Energies start_{};
  double work_ = 0.0;
};

// One step from node 1 (and node 0, if `previous`) at time t, divided into n. `settled`: whether node 1 has accelerations that the
// integrator made; `gain`: as EnergyGuard has it. The last node is that of list_stages.
inline bool take_divided_step(Worker& w, const Scheme& scheme, int n, bool previous, bool settled, double t,
                              const Controls& controls, double gain) {
  w.nodes.resize(list_stages(scheme, n, previous, w.stages) + 1);
  EnergyGuard guard(w, scheme, gain);
  for (std::size_t k = 0; k < w.stages.size(); ++k) {
    const Stage& stage = w.stages[k];
    const double at = t + stage.fraction * scheme.h;
    read_control(w, controls, stage.fraction);
    const double* guess = stage.other > stage.from    ? w.nodes.a(stage.other)
                          : stage.from > 1 || settled ? w.nodes.a(stage.from)
                                                      : w.zero;
    w.gained = false;
    if (!(stage.implicit ? solve_stage(w, scheme, stage, at, guess) : explicit_stage(w, scheme, stage, at)))
      return false;
    w.gained = guard.objects(stage, k + 1 == w.stages.size() || w.stages[k + 1].from == stage.to, at);
    if (w.gained) return false;
  }
  return true;
}

// A step divided into as few parts as need be. Returns into how many, 0 if all failed. Solutions that gain energy are not the ones
// that are meant: a hundredth of it may be the error of a step, a tenth is taken where no division helps.
inline int take_step(Worker& w, const Scheme& scheme, bool previous, bool settled, double t, const Controls& controls) {
  const int most = scheme.is_explicit() ? 1 : scheme.substeps;
  const bool guarded = w.scene.balanced && most > 1;
  for (const double gain : {guarded ? 0.01 : kInfinity, 0.1}) {
    bool gained = false;
    for (int n = 1; n <= most; n *= 2) {
      if (take_divided_step(w, scheme, n, previous, settled, t, controls, gain)) return n;
      gained = gained || w.gained;
    }
    if (!gained) break;
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

// Parameters of the forces that have a value of their own for each step: `count` columns of all, and a row of values for each step.
struct Signals {
  const double* rows = nullptr;
  const int64_t* columns = nullptr;
  int64_t count = 0;
};
// The parameters of the forces at each step.
class StepParameters {
 public:
  StepParameters(const double* p, const ForceSet* forces, const Signals& signals) : p_(p), signals_(signals) {
    if (signals.count > 0) step_.assign(p, p + forces->parameters);
  }
  const double* at(int64_t step) {
    if (signals_.count == 0) return p_;
    for (int64_t k = 0; k < signals_.count; ++k) step_[signals_.columns[k]] = signals_.rows[step * signals_.count + k];
    return step_.data();
  }

 private:
  const double* p_;
  Signals signals_;
  std::vector<double> step_;
};

// One trajectory: rows of q, v, a for steps + 1 times, of controls for steps (null: none), of divisions for steps.
struct Track {
  double *q, *v, *a;
  const double* u;
  int u_rows;
  int* divisions;
  const double *previous_q, *previous_v;  // instead of the row before the first step, if not null
  int64_t start = 0;                      // number of the first row within the whole trajectory
  Signals signals{};
  // Of controls that a policy gave, du/dq and du/dv at the beginning of each step (nv x nv); null for those that were given.
  const double *feedback_q = nullptr, *feedback_v = nullptr;
};
enum class Outcome : int {
  finished,
  chart,
  failed,
  singular,
  gained
};  // singular: `shortfall.error` is the user's joint

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
  std::optional<Energies> reached;  // of the row before
  const bool keeps_energies = w.scene.balanced && track.signals.count == 0;
  StepParameters parameters(w.p, w.scene.forces, track.signals);
  for (int64_t step = first; step < last; ++step) {
    if (step % 64 == 0) poll();  // and each iteration of Newton's method does
    const int64_t number = track.start + step;
    const double t = t0 + number * scheme.h;
    w.p = parameters.at(step);
    load(1, step);
    if (w.scene.balanced) {
      nodes.energies[0] = keeps_energies && step > first ? nodes.energies[1] : std::nullopt;
      nodes.energies[1] = keeps_energies && step > first ? reached : std::nullopt;
    }
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
    const int count = determined ? take_step(w, scheme, number > 0, number > 0, t, controls(step)) : 0;
    if (count == 0 && w.arena.singular_joint >= 0 && (scheme.is_explicit() || !determined)) {
      w.shortfall.error = w.arena.singular_joint;
      return {Outcome::singular, step};
    }
    if (count == 0) return {w.gained ? Outcome::gained : Outcome::failed, step};
    const int end = w.stages.back().to;
    if (w.scene.balanced) reached = nodes.energies[end];
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
