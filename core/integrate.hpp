// Time integration. Every implicit integrator is a list of stages of one form (docs/derivations/implicit_steps.md): with
// q1 = q0 (+) xi in the chart at q0 and x = the chart's coordinates of another node,
//   s = c (xi - z x),   v1 = J(xi) s,   a1 = c (v1 - w v0 - w' v'),   r(q1) = ID(q1, v1, a1) - tau_f - u = 0,
// solved by Newton's method with the matrix H = A_q + (A_v + c M) V1, V1 = dv1/dq1. Explicit integrators are stages of a kind of
// their own. A step of which Newton's method fails is divided.
#pragma once
#include <algorithm>
#include <limits>

#include "charts.hpp"
#include "forces.hpp"
#include "mass_solve.hpp"

namespace torsor {

enum class Method : int { symplectic_euler, linearly_implicit_euler, bdf1, bdf2, sdirk2 };

struct Scheme {
  Method method;
  double h;
  double tolerance;  // of Newton's method: estimated error of v that remains, relative to 1 + |v|
  int iterations;    // evaluations of the residual in a stage
  int substeps;      // into which a step may be divided
  bool is_explicit() const { return method == Method::symplectic_euler || method == Method::linearly_implicit_euler; }
};

// What moves, and what is known about it beforehand.
struct Scene {
  const Model& m;
  const ForceSet* forces = nullptr;
  std::vector<int> quaternions = quaternion_bodies(m);
  bool held = holds(forces);  // whether some forces are held in the world's axes

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
  explicit Nodes(const Model& m) : nq_(m.nq), nv_(m.nv) { resize(2); }
  void resize(int count) {
    if (data_.size() < std::size_t(count) * size()) data_.resize(std::size_t(count) * size());
  }
  double* q(int node) { return data_.data() + std::size_t(node) * size(); }
  double* v(int node) { return q(node) + nq_; }
  double* a(int node) { return v(node) + nv_; }

 private:
  std::size_t size() const { return nq_ + 2 * nv_; }
  int nq_, nv_;
  std::vector<double> data_;
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

// Memory of one thread.
struct Worker {
  explicit Worker(const Scene& scene) : scene(scene), nodes(scene.m) {
    const std::size_t n = scene.m.nv;
    for (auto* matrix : {&Aq, &Av, &M, &H, &K, &D}) matrix->resize(n * n);
    for (auto* vector : {&xi, &x, &s, &r, &delta, &trial, &correction, &u, &work, &zero}) vector->resize(n);
    pivots.resize(n);
    for (auto* diagonal : {&V1, &V0, &V, &inverse}) diagonal->blocks.resize(scene.quaternions.size());
  }
  const Scene& scene;
  Arena arena;
  Nodes nodes;
  std::vector<Stage> stages;
  std::vector<double> Aq, Av, M, H, K, D;  // K, D: of the forces, for LinearlyImplicitEuler
  std::vector<double> xi, x, s, r, delta, trial, correction, u, work, zero;
  std::vector<int> pivots;
  const double* p = nullptr;          // parameters of the forces
  BlockDiagonal V1, V0, V, inverse;   // dv1/dq1, dv1/dq0, dv1/dq' of a stage; J^-1
  double error = 0.0, allowed = 0.0;  // of Newton's method, where it stopped
};

// The motions at a state, and the residual ID - tau_f - u there.
struct Evaluation {
  Motions<double> all;
  const WorldWrench<double>* held;
  const double *q, *v;
  double t;
};
inline Evaluation evaluate_residual(Worker& w, const double* q, const double* v, const double* a, double t,
                                    const double* u, double* r) {
  const Scene& scene = w.scene;
  const Model& m = scene.m;
  w.arena.reset();
  const Motions<double> all = motions(m, w.arena, q, v, a);
  body_terms(m, all.bodies);
  ForceSums<double> sums{nullptr, nullptr, nullptr};
  if (scene.forces != nullptr) {
    sums = force_sums(m, *scene.forces, w.arena, all, q, v, t, w.p);
    subtract_wrenches(m, all.bodies, sums);
    if (!scene.held) sums.held = nullptr;
  }
  add_to_parents(m, all.bodies, sums.held);
  for (int i = 0; i < m.n(); ++i)
    for (int k = m.links[i].iv; k < m.links[i].iv + m.links[i].nv; ++k) {
      r[k] = dot(all.columns[k].S_, all.bodies[i].f) - u[k];
      if (sums.tau != nullptr) r[k] -= sums.tau[k];
    }
  return {all, sums.held, q, v, t};
}

// A_q, A_v and M of the residual.
inline void linearise(Worker& w, const Evaluation& e) {
  const Model& m = w.scene.m;
  for (auto* matrix : {&w.Aq, &w.Av, &w.M}) std::fill(matrix->begin(), matrix->end(), 0.0);
  pair_columns(m, w.arena, e.all, e.held, 2, w.Aq.data(), w.Av.data(), w.M.data(), m.nv);
  if (w.scene.forces != nullptr)
    linearise_forces(m, *w.scene.forces, w.arena, e.all, e.q, e.v, e.t, w.p, w.Aq.data(), w.Av.data(), m.nv);
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
  const bool good = retract(m, nodes.q(stage.from), w.xi.data(), nodes.q(stage.to));
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

inline double largest(const std::vector<double>& x, double scale = 1.0) {
  double most = 0.0;
  for (double value : x) {
    if (!std::isfinite(value)) return std::numeric_limits<double>::infinity();
    most = std::max(most, std::fabs(scale * value));
  }
  return most;
}

// Error in v that is small enough: the tolerance, and what rounding of q and v makes of it anyway.
inline double allowance(Worker& w, const Scheme& scheme, const Stage& stage) {
  const Model& m = w.scene.m;
  double speed = 0.0, reach = 1.0;
  for (int k = 0; k < m.nv; ++k) speed = std::max(speed, std::fabs(w.nodes.v(stage.to)[k]));
  for (int k = 0; k < m.nq; ++k) reach = std::max(reach, std::fabs(w.nodes.q(stage.to)[k]));
  return scheme.tolerance * (1.0 + speed) + 4e-16 * stage.c * reach;
}

// Solves an implicit stage for the node `stage.to` by Newton's method from the accelerations `guess` or, if that is null, from no
// motion at all: damped until the simplified correction shrinks (Deuflhard's
// natural monotonicity test, which no scaling of equations changes), with the factors kept while it shrinks fast.
inline bool solve_stage(Worker& w, const Scheme& scheme, const Stage& stage, double t, const double* guess) {
  const Model& m = w.scene.m;
  Nodes& nodes = w.nodes;
  const int nv = m.nv;
  if (stage.other >= 0) chart(m, nodes.q(stage.from), nodes.q(stage.other), w.x.data());
  for (int k = 0; k < nv; ++k) {
    double v = guess == nullptr ? 0.0 : stage.w * nodes.v(stage.from)[k] + guess[k] / stage.c;
    if (guess != nullptr && stage.other >= 0) v += stage.w_of * nodes.v(stage.other)[k];
    w.xi[k] = v / stage.c + (stage.other >= 0 ? stage.z * w.x[k] : 0.0);
  }
  const auto evaluate = [&] {
    return evaluate_residual(w, nodes.q(stage.to), nodes.v(stage.to), nodes.a(stage.to), t, w.u.data(), w.r.data());
  };
  w.error = std::numeric_limits<double>::infinity();
  w.allowed = scheme.tolerance;
  if (!place_node(w, stage)) return false;
  Evaluation e = evaluate();
  int left = scheme.iterations;
  double norm = 0.0;
  bool fresh = true;  // whether the factors are to be made anew
  while (true) {
    if (fresh) {
      linearise(w, e);
      stage_terms(w, stage, false);
      // H = A_q + (A_v + c M) V1
      add_scaled(nv * nv, stage.c, w.M.data(), w.Av.data());
      w.H = w.Aq;
      add_product(m, w.scene.quaternions, w.Av.data(), w.V1, w.H.data());
      if (!factor(nv, w.H.data(), w.pivots.data())) return false;
      for (int k = 0; k < nv; ++k) w.delta[k] = -w.r[k];
      solve(nv, w.H.data(), w.pivots.data(), w.delta.data());
      norm = largest(w.delta, stage.c);
    }
    w.error = norm;
    w.allowed = allowance(w, scheme, stage);
    if (!std::isfinite(norm)) return false;
    const auto move = [&](double length, const std::vector<double>& delta) {
      apply(m, w.scene.quaternions, w.inverse, false, delta.data(), w.work.data());
      for (int k = 0; k < nv; ++k) w.xi[k] = mul_add(length, w.work[k], w.trial[k]);
      return place_node(w, stage);
    };
    w.trial = w.xi;
    if (norm <= 1e-3 * w.allowed) return move(1.0, w.delta);
    double after = 0.0, length = 1.0;
    for (;; length *= 0.5) {
      if (length < 1e-3 || left-- <= 0) return false;
      if (!move(length, w.delta)) continue;
      e = evaluate();
      for (int k = 0; k < nv; ++k) w.correction[k] = -w.r[k];
      solve(nv, w.H.data(), w.pivots.data(), w.correction.data());
      after = largest(w.correction, stage.c);
      if (after <= (1.0 - 0.25 * length) * norm) break;
      if (length == 1.0 && norm <= w.allowed) return true;  // rounding is all that is left
    }
    // What remains after this correction too is its share of itself.
    const double rate = after / norm;
    w.error = after;
    if (length == 1.0 && rate * after <= w.allowed) {
      w.trial = w.xi;
      return move(1.0, w.correction);
    }
    fresh = length < 1.0 || rate > 0.02;
    if (!fresh) {
      w.delta = w.correction;
      norm = after;
    }
  }
}

// Accelerations (nv) with ID(q, v, a) = tau_f + u. False if the mass matrix is singular.
inline bool accelerate_node(Worker& w, int node, double t) {
  const Model& m = w.scene.m;
  Nodes& nodes = w.nodes;
  evaluate_residual(w, nodes.q(node), nodes.v(node), w.zero.data(), t, w.u.data(), w.r.data());
  for (int k = 0; k < m.nv; ++k) w.r[k] = -w.r[k];
  w.arena.singular_joint = -1;
  solve_mass(m, factor_mass<double>(m, w.arena, nodes.q(node), nullptr, nullptr), w.r.data(), nodes.a(node));
  return w.arena.singular_joint < 0;
}

// K = dtau/dq and D = dtau/dv of the forces at a node, and H = M - h D - h^2 K from the M that is there.
inline void force_matrices(Worker& w, int node, double t, double h) {
  const Model& m = w.scene.m;
  generalized_forces_derivatives<double>(m, *w.scene.forces, w.arena, w.nodes.q(node), w.nodes.v(node), t, w.p,
                                         w.K.data(), w.D.data());
  w.H = w.M;
  add_scaled(m.nv * m.nv, -h, w.D.data(), w.H.data());
  add_scaled(m.nv * m.nv, -h * h, w.K.data(), w.H.data());
}

// Accelerations with which linearly implicit Euler leaves a node: (M - h D - h^2 K) a = f + h K v. Sueda 2021, (2.86), solved for
// the change of v; K here has the change of lever arms too.
inline bool accelerate_implicitly(Worker& w, int node, double t, double h) {
  const Model& m = w.scene.m;
  Nodes& nodes = w.nodes;
  const Evaluation e = evaluate_residual(w, nodes.q(node), nodes.v(node), w.zero.data(), t, w.u.data(), w.r.data());
  std::fill(w.M.begin(), w.M.end(), 0.0);
  pair_columns<double>(m, w.arena, e.all, nullptr, 2, nullptr, nullptr, w.M.data(), m.nv);
  force_matrices(w, node, t, h);
  for (int k = 0; k < m.nv; ++k) {
    double sum = 0.0;
    for (int j = 0; j < m.nv; ++j) sum = mul_add(w.K[k * m.nv + j], nodes.v(node)[j], sum);
    nodes.a(node)[k] = h * sum - w.r[k];
  }
  if (!factor(m.nv, w.H.data(), w.pivots.data())) return false;
  solve(m.nv, w.H.data(), w.pivots.data(), nodes.a(node));
  return true;
}

// v1 = v0 + h a0, q1 = q0 (+) h v1.
inline bool explicit_stage(Worker& w, const Scheme& scheme, const Stage& stage, double t) {
  const Model& m = w.scene.m;
  Nodes& nodes = w.nodes;
  const bool implicitly = scheme.method == Method::linearly_implicit_euler && w.scene.forces != nullptr;
  if (!(implicitly ? accelerate_implicitly(w, stage.from, t, scheme.h) : accelerate_node(w, stage.from, t)))
    return false;
  for (int k = 0; k < m.nv; ++k) {
    const double v = nodes.v(stage.from)[k] + nodes.a(stage.from)[k] / stage.c;
    nodes.v(stage.to)[k] = v;
    w.xi[k] = v / stage.c;
  }
  return retract(m, nodes.q(stage.from), w.xi.data(), nodes.q(stage.to)) && std::isfinite(largest(w.xi));
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
                                                        : w.zero.data();
      good = stage.implicit ? solve_stage(w, scheme, stage, at, guess) || solve_stage(w, scheme, stage, at, nullptr)
                            : explicit_stage(w, scheme, stage, at);
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
enum class Outcome : int { finished, chart, failed, singular };

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
      if (!accelerate_node(w, 1, t)) std::fill_n(nodes.a(1), m.nv, std::numeric_limits<double>::quiet_NaN());
      std::copy_n(nodes.a(1), m.nv, track.a);
    }
    if (number > 0 && step == first && track.previous_q != nullptr) {
      std::copy_n(track.previous_q, m.nq, nodes.q(0));
      std::copy_n(track.previous_v, m.nv, nodes.v(0));
    } else if (step > 0) {
      load(0, step - 1);
    }
    const int count = take_step(w, scheme, 0, number > 0, number > 0, t, controls(step));
    if (count == 0)
      return {w.arena.singular_joint >= 0 && scheme.is_explicit() ? Outcome::singular : Outcome::failed, step};
    const int end = w.stages.back().to;
    track.divisions[step] = count;
    std::copy_n(nodes.q(end), m.nq, track.q + (step + 1) * m.nq);
    std::copy_n(nodes.v(end), m.nv, track.v + (step + 1) * m.nv);
    if (scheme.is_explicit()) {
      std::copy_n(nodes.a(1), m.nv, track.a + step * m.nv);
      if (step + 1 == last && accelerate_node(w, end, t + scheme.h))
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
