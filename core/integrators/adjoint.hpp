// Exact derivatives of steps: forward, as matrices, and in reverse, over whole trajectories (the adjoint method). Both are written
// once over stages (docs/derivations/implicit_steps.md; Sueda 2021, 3.5, with the stage alpha of (3.98), (3.103) included).
#pragma once
#include "derivatives/inverse_dynamics_vjp.hpp"
#include "forces/force_placements.hpp"
#include "integrators/integrate.hpp"

namespace torsor {

// Everything that the derivatives of an implicit stage need, at its solution: A_q, M, G = A_v + c M (in Av), V1, V0, V, and H
// factored.
inline bool linearise_stage(Worker& w, const Stage& stage, double t) {
  const Model& m = w.scene.m;
  Nodes& nodes = w.nodes;
  const int nv = m.nv;
  chart(m, nodes.q(stage.from), nodes.q(stage.to), w.xi);
  if (stage.other >= 0) chart(m, nodes.q(stage.from), nodes.q(stage.other), w.x);
  for (int k = 0; k < nv; ++k) w.s[k] = stage.c * (stage.other < 0 ? w.xi[k] : w.xi[k] - stage.z * w.x[k]);
  const Evaluation e = evaluate_residual(w, nodes.q(stage.to), nodes.v(stage.to), nodes.a(stage.to), t, w.u, w.r);
  complete(m, e);
  linearise(w, e);
  stage_terms(w, stage, true);
  return factor_stage(w, stage);
}

// A node moved by an imaginary amount along (v1, a0), the direction of a step: what is linear in that direction has its derivative
// in the imaginary part, divided by kStep.
constexpr double kStep = 1e-30;
struct ComplexNode {
  std::vector<Complex> q, v, p;
  ComplexNode(const Worker& w, const double* q0, const double* v0, const double* v1, const double* a0, int parameters)
      : q(w.scene.m.nq), v(w.scene.m.nv), p(w.p, w.p + parameters) {
    const Model& m = w.scene.m;
    std::vector<Complex> from(q0, q0 + m.nq), along(m.nv);
    for (int k = 0; k < m.nv; ++k) {
      along[k] = Complex(0.0, kStep * v1[k]);
      v[k] = Complex(v0[k], kStep * a0[k]);
    }
    plus(m, from.data(), along.data(), q.data());
  }
};

// A_q and A_v of linearly implicit Euler, whose residual has h (K v1 + D a0) more. Its derivatives are those of K and D along the
// step; q exp(delta) exp(s v1) = q exp(s v1) exp(delta - s [v1, delta]) for joints on groups. dense = M - h D - h^2 K.
inline void linearise_along(Worker& w, const Stage& stage, double t) {
  const Model& m = w.scene.m;
  const int nv = m.nv;
  const double h = 1.0 / stage.c;
  force_matrices(w, stage.from, t, h);
  const ComplexNode at(w, w.nodes.q(stage.from), w.nodes.v(stage.from), w.nodes.v(stage.to), w.nodes.a(stage.from),
                       w.scene.forces->parameters);
  std::vector<Complex> K(nv * nv), D(nv * nv);
  generalized_forces_derivatives<Complex>(m, *w.scene.forces, w.arena, at.q.data(), at.v.data(), t, at.p.data(),
                                          K.data(), D.data());
  for (int k = 0; k < nv * nv; ++k) {
    w.Aq[k] -= h * K[k].imag() / kStep;
    w.Av[k] -= h * (w.K[k] + D[k].imag() / kStep);
  }
  for (int i : w.scene.quaternions) {
    const Model::Body& body = m.bodies[i];
    const double* x = w.nodes.v(stage.to) + body.iv;
    for (int c = 0; c < body.nv; ++c) {
      double unit[6] = {}, bracket[6] = {};
      unit[c] = 1.0;
      if (body.kind == Kind::free)
        write(cross(read_motion(x), read_motion(unit)), bracket);
      else
        write3(cross(read3(x), read3(unit)), bracket);
      for (int r = 0; r < nv; ++r)
        for (int k = 0; k < body.nv; ++k) w.Aq[r * nv + body.iv + c] += h * w.K[r * nv + body.iv + k] * bracket[k];
    }
  }
}

// The same for an explicit one: A_q, A_v, the matrix of the accelerations factored, and with xi = h v1 the derivatives of q1,
// V1 = h J(xi) with respect to v1 and V0 = J B with respect to q0.
inline bool linearise_explicit(Worker& w, const Scheme& scheme, const Stage& stage, double t) {
  const Model& m = w.scene.m;
  Nodes& nodes = w.nodes;
  const int nv = m.nv;
  const Evaluation e = evaluate_residual(w, nodes.q(stage.from), nodes.v(stage.from), nodes.a(stage.from), t, w.u, w.r);
  complete(m, e);
  linearise(w, e);
  std::copy_n(w.M, nv * nv, w.dense);
  if (scheme.method == Method::linearly_implicit_euler && w.scene.forces != nullptr) linearise_along(w, stage, t);
  for (int k = 0; k < nv; ++k) w.xi[k] = nodes.v(stage.to)[k] / stage.c;
  w.V1.scalar = 1.0 / stage.c;
  w.V0.scalar = 1.0;
  for (std::size_t b = 0; b < w.scene.quaternions.size(); ++b) {
    const Model::Body& body = m.bodies[w.scene.quaternions[b]];
    const ChartTerms at = chart_terms(body.kind, &w.xi[body.iv], nullptr);
    for (int k = 0; k < body.nv * body.nv; ++k) w.V1.blocks[b].x[k] = at.J.x[k] / stage.c;
    multiply(body.nv, 1.0, at.J, at.B, w.V0.blocks[b], false);
  }
  return factor_dense(w);
}

// Forward -----------------------------------------------------------------------------------------------------------

// Y (nv x columns) += D X
inline void add_product(const Model& m, const std::vector<int>& quaternions, const BlockDiagonal& D, const double* X,
                        double* Y, int columns) {
  std::size_t b = 0;
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    const bool block = b < quaternions.size() && quaternions[b] == i;
    for (int r = 0; r < body.nv; ++r)
      for (int k = block ? 0 : r; k < (block ? body.nv : r + 1); ++k)
        add_scaled(columns, block ? D.blocks[b].x[body.nv * r + k] : D.scalar, X + (body.iv + k) * columns,
                   Y + (body.iv + r) * columns);
    b += block ? 1 : 0;
  }
}
// Y += s A X, A nv x nv
inline void add_product(int nv, double s, const double* A, const double* X, double* Y, int columns) {
  for (int i = 0; i < nv; ++i)
    for (int k = 0; k < nv; ++k)
      if (A[i * nv + k] != 0.0) add_scaled(columns, s * A[i * nv + k], X + k * columns, Y + i * columns);
}
// Adds D to nv columns of Y.
inline void add_blocks(const Model& m, const std::vector<int>& quaternions, const BlockDiagonal& D, double* Y,
                       int columns) {
  std::size_t b = 0;
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    const bool block = b < quaternions.size() && quaternions[b] == i;
    for (int r = 0; r < body.nv; ++r)
      for (int k = block ? 0 : r; k < (block ? body.nv : r + 1); ++k)
        Y[(body.iv + r) * columns + body.iv + k] += block ? D.blocks[b].x[body.nv * r + k] : D.scalar;
    b += block ? 1 : 0;
  }
}
// nv columns of Y = s A
inline void put_scaled(int nv, double s, const double* A, double* Y, int columns) {
  for (int r = 0; r < nv; ++r)
    for (int k = 0; k < nv; ++k) Y[r * columns + k] = s * A[r * nv + k];
}
// nv columns of Y = -G D; `work`: nv x nv
inline void put_product(const Model& m, const std::vector<int>& quaternions, const double* G, const BlockDiagonal& D,
                        double* work, double* Y, int columns) {
  if (quaternions.empty()) return put_scaled(m.nv, -D.scalar, G, Y, columns);
  std::fill_n(work, m.nv * m.nv, 0.0);
  add_product(m, quaternions, G, D, work);
  put_scaled(m.nv, -1.0, work, Y, columns);
}

// Tangents of a node: of q and v by (q0, v0, one row of controls or two; then the row before, if it counts), nv x columns each.
struct Tangents {
  double *q = nullptr, *v = nullptr;
};

// Derivatives of the step just taken: tangents of the last node, whose rows are `columns` apart, a multiple of the lanes. False
// if a matrix is singular.
inline bool step_derivatives(Worker& w, const Scheme& scheme, double t, const Controls& controls, bool previous,
                             Tangents& result, int& columns) {
  const Model& m = w.scene.m;
  const std::vector<int>& quaternions = w.scene.quaternions;
  const int nv = m.nv, before = (2 + controls.count) * nv;  // where the columns of the row before begin
  columns = PathMatrix::rounded(before + (previous ? 2 * nv : 0));
  const std::size_t size = std::size_t(nv) * columns;
  const int last = w.stages.back().to;
  Tangents* nodes = w.memory.get<Tangents>(last + 1);
  for (int node = 0; node <= last; ++node) {
    nodes[node] = {w.memory.get<double>(size), w.memory.get<double>(size)};
    if (node <= 1 && w.stages.size() == 1 && w.stages[0].implicit) continue;  // nobody asks
    std::fill_n(nodes[node].q, size, 0.0);
    std::fill_n(nodes[node].v, size, 0.0);
    for (int k = 0; node <= 1 && k < nv && (node == 1 || previous); ++k) {
      const int at = k * columns + k + (node == 1 ? 0 : before);
      nodes[node].q[at] = nodes[node].v[at + nv] = 1.0;
    }
  }
  double* b = w.stages.size() > 1 ? w.memory.get<double>(size) : nullptr;
  const auto add_control = [&](double fraction, double* X) {  // du
    const double weight = controls.weight(fraction);
    for (int k = 0; k < nv; ++k) {
      X[k * columns + 2 * nv + k] += 1.0 - weight;
      if (controls.count == 2) X[k * columns + 3 * nv + k] += weight;
    }
  };
  for (const Stage& stage : w.stages) {
    const double at = t + stage.fraction * scheme.h;
    read_control(w, controls, stage.fraction);
    const Tangents &from = nodes[stage.from], &to = nodes[stage.to],
                   *other = stage.other < 0 ? nullptr : nodes + stage.other;
    if (!stage.implicit) {
      if (!linearise_explicit(w, scheme, stage, at)) return false;
      // M da = -A_q dq0 - A_v dv0 + du;  dv1 = dv0 + h da;  dq1 = V0 dq0 + V1 dv1
      add_product(nv, -1.0, w.Aq, from.q, to.v, columns);
      add_product(nv, -1.0, w.Av, from.v, to.v, columns);
      add_control(stage.fraction, to.v);
      w.H.solve(to.v, columns);
      for (std::size_t k = 0; k < size; ++k) to.v[k] = from.v[k] + to.v[k] / stage.c;
      add_product(m, quaternions, w.V0, from.q, to.q, columns);
      add_product(m, quaternions, w.V1, to.v, to.q, columns);
      continue;
    }
    if (!linearise_stage(w, stage, at)) return false;
    // b = V0 dq0 + V dq';  H dq1 = -G b + c M (w dv0 + w' dv') + du;  dv1 = V1 dq1 + b
    if (stage.from == 1 && stage.other <= 0) {  // from nodes whose tangents are units
      put_product(m, quaternions, w.Av, w.V0, w.dense, to.q, columns);
      put_scaled(nv, stage.c * stage.w, w.M, to.q + nv, columns);
      for (int r = 0; r < nv; ++r) std::fill(to.q + r * columns + 2 * nv, to.q + (r + 1) * columns, 0.0);
      add_control(stage.fraction, to.q);
      if (other != nullptr) {
        put_product(m, quaternions, w.Av, w.V, w.dense, to.q + before, columns);
        put_scaled(nv, stage.c * stage.w_of, w.M, to.q + before + nv, columns);
      }
      w.H.solve(to.q, columns);
      std::fill_n(to.v, size, 0.0);
      add_blocks(m, quaternions, w.V0, to.v, columns);
      if (other != nullptr) add_blocks(m, quaternions, w.V, to.v + before, columns);
    } else {
      add_product(m, quaternions, w.V0, from.q, to.v, columns);
      for (std::size_t k = 0; k < size; ++k) b[k] = stage.c * stage.w * from.v[k];
      if (other != nullptr) {
        add_product(m, quaternions, w.V, other->q, to.v, columns);
        add_scaled(static_cast<int>(size), stage.c * stage.w_of, other->v, b);
      }
      add_product(nv, -1.0, w.Av, to.v, to.q, columns);
      add_product(nv, 1.0, w.M, b, to.q, columns);
      add_control(stage.fraction, to.q);
      w.H.solve(to.q, columns);
    }
    add_product(m, quaternions, w.V1, to.q, to.v, columns);
  }
  result = nodes[last];
  return true;
}

// Reverse -----------------------------------------------------------------------------------------------------------

// Where gradients go; those of parameters are added up and may be null.
struct Sensitivities {
  double *q, *v;  // steps + 1 rows of nv: of the loss on each row; then of all that follows
  double* u;      // as the controls; may be null
  double *inertia, *placement, *gravity, *forces;
  double* signals;                  // a row for each step, as Signals has them; their columns of `forces` stay zero
  double *previous_q, *previous_v;  // of what stood for the row before the first step, if anything did
};

inline void add_transposed_product(int n, double s, const double* A, const double* x, double* y) {  // y += s A^T x
  for (int i = 0; i < n; ++i) add_scaled(n, s * x[i], A + i * n, y);
}

// What a step leaves to do when its gradients are known: parameters that have a value of their own for each step get theirs, and
// the row that a policy saw gets what went through the controls.
inline void finish_step(int nv, const Track& track, int64_t row, const Sensitivities& out) {
  for (int64_t k = 0; k < track.signals.count && out.signals != nullptr; ++k) {
    double& sum = out.forces[track.signals.columns[k]];
    out.signals[row * track.signals.count + k] += sum;
    sum = 0.0;
  }
  if (track.feedback_q == nullptr) return;
  add_transposed_product(nv, 1.0, track.feedback_q + row * nv * nv, out.u + row * nv, out.q + row * nv);
  add_transposed_product(nv, 1.0, track.feedback_v + row * nv * nv, out.u + row * nv, out.v + row * nv);
}

// Adds lambda . dtau/dp of the forces at a node; `along` a step of linearly implicit Euler, that of tau + h (K v1 + D a0).
inline void add_force_parameters(Worker& w, const double* q, const double* v, const double* a, double t,
                                 const double* lambda, const Sensitivities& out) {
  const Model& m = w.scene.m;
  const Motions<double> all = motions(m, w.arena, q, v, a);
  force_parameter_gradient(m, *w.scene.forces, w.arena, all, q, v, t, w.p, lambda, out.forces);
  force_placement_gradient(m, *w.scene.forces, w.arena, all, t, w.p, lambda, out.placement);
}
inline void add_force_parameters_along(Worker& w, const Stage& stage, double t, const double* lambda,
                                       const Sensitivities& out) {
  const Model& m = w.scene.m;
  const ForceSet& set = *w.scene.forces;
  const ComplexNode at(w, w.nodes.q(stage.from), w.nodes.v(stage.from), w.nodes.v(stage.to), w.nodes.a(stage.from),
                       set.parameters);
  const std::vector<Complex> power(lambda, lambda + m.nv), rest(m.nv, 0.0);
  std::vector<Complex> parameters(set.parameters, 0.0), placements(6 * m.nframes(), 0.0);
  const Motions<Complex> all = motions(m, w.arena, at.q.data(), at.v.data(), rest.data());
  force_parameter_gradient<Complex>(m, set, w.arena, all, at.q.data(), at.v.data(), t, at.p.data(), power.data(),
                                    parameters.data());
  force_placement_gradient<Complex>(m, set, w.arena, all, t, at.p.data(), power.data(), placements.data());
  const double h = 1.0 / stage.c;
  for (std::size_t k = 0; k < parameters.size(); ++k)
    out.forces[k] += parameters[k].real() + h * parameters[k].imag() / kStep;
  for (std::size_t k = 0; k < placements.size(); ++k)
    out.placement[k] += placements[k].real() + h * placements[k].imag() / kStep;
}

// Adds -lambda . dr/dp of a stage, t being the time there.
inline void add_parameters(Worker& w, const Scheme& scheme, const Stage& stage, double t, const double* lambda,
                           const Sensitivities& out) {
  if (out.inertia == nullptr) return;
  const Model& m = w.scene.m;
  const int bodies = m.nframes(), node = stage.implicit ? stage.to : stage.from;
  const double *q = w.nodes.q(node), *v = w.nodes.v(node), *a = w.nodes.a(node);
  w.arena.reset();
  double *inertia = w.arena.get<double>(10 * bodies), *placement = w.arena.get<double>(6 * bodies),
         *gravity = w.arena.get<double>(3);
  inverse_dynamics_vjp<double>(m, w.arena, q, v, a, lambda, nullptr, 0,
                               {nullptr, nullptr, nullptr, nullptr, inertia, placement, gravity});
  add_scaled(10 * bodies, -1.0, inertia, out.inertia);
  add_scaled(6 * bodies, -1.0, placement, out.placement);
  add_scaled(3, -1.0, gravity, out.gravity);
  if (w.scene.forces == nullptr) return;
  if (scheme.method == Method::linearly_implicit_euler)
    add_force_parameters_along(w, stage, t, lambda, out);
  else
    add_force_parameters(w, q, v, a, t, lambda, out);
}

// From row `last` back to row `first`. `track` as it was run. False if a step cannot be repeated or a matrix is singular; `row`
// then says which.
inline bool reverse(Worker& w, const Scheme& scheme, double t0, int64_t first, int64_t last, const Track& track,
                    const Sensitivities& out, int64_t& row) {
  const Model& m = w.scene.m;
  Nodes& nodes = w.nodes;
  const int nv = m.nv;
  std::vector<double> cotangents, lambda(nv), mu(nv), force(nv);
  StepParameters parameters(w.p, w.scene.forces, track.signals);
  for (row = last - 1; row >= first; --row) {
    poll();
    w.p = parameters.at(row);
    const bool later = track.start + row > 0;
    const double t = t0 + (track.start + row) * scheme.h;
    const auto load = [&](int node, int64_t at) {
      std::copy_n(track.q + at * m.nq, m.nq, nodes.q(node));
      std::copy_n(track.v + at * nv, nv, nodes.v(node));
      std::copy_n(track.a + at * nv, nv, nodes.a(node));
    };
    const Controls controls{track.u == nullptr ? nullptr : track.u + row * track.u_rows * nv, track.u_rows};
    const bool replaced = later && row == first && track.previous_q != nullptr;
    load(1, row);
    if (replaced) {
      std::copy_n(track.previous_q, m.nq, nodes.q(0));
      std::copy_n(track.previous_v, nv, nodes.v(0));
    } else if (row > 0) {
      load(0, row - 1);
    }
    // The nodes between: a step of several stages is taken once more.
    const int count = track.divisions[row], end = list_stages(scheme, count, later, w.stages);
    nodes.resize(end + 1);
    if (w.stages.size() > 1 && !take_divided_step(w, scheme, count, later, later, t, controls, kInfinity)) return false;
    load(end, row + 1);
    cotangents.assign(std::size_t(2) * nv * (end + 1), 0.0);
    const auto q_of = [&](int node) { return cotangents.data() + 2 * nv * node; };
    const auto v_of = [&](int node) { return q_of(node) + nv; };
    std::copy_n(out.q + (row + 1) * nv, nv, q_of(end));
    std::copy_n(out.v + (row + 1) * nv, nv, v_of(end));
    for (auto stage = w.stages.rbegin(); stage != w.stages.rend(); ++stage) {
      const double at = t + stage->fraction * scheme.h;
      read_control(w, controls, stage->fraction);
      double *q1 = q_of(stage->to), *v1 = v_of(stage->to), *q0 = q_of(stage->from), *v0 = v_of(stage->from);
      if (stage->implicit) {
        if (!linearise_stage(w, *stage, at)) return false;
        // H^T lambda = gq1 + V1^T gv1;  mu = gv1 - G^T lambda
        std::copy_n(q1, nv, lambda.data());
        apply(m, w.scene.quaternions, w.V1, true, v1, lambda.data(), true);
        w.H.solve_transposed(lambda.data());
        std::copy_n(v1, nv, mu.data());
        add_transposed_product(nv, -1.0, w.Av, lambda.data(), mu.data());
        std::fill(force.begin(), force.end(), 0.0);
        add_transposed_product(nv, stage->c, w.M, lambda.data(), force.data());
        apply(m, w.scene.quaternions, w.V0, true, mu.data(), q0, true);
        add_scaled(nv, stage->w, force.data(), v0);
        if (stage->other >= 0) {
          apply(m, w.scene.quaternions, w.V, true, mu.data(), q_of(stage->other), true);
          add_scaled(nv, stage->w_of, force.data(), v_of(stage->other));
        }
      } else {
        if (!linearise_explicit(w, scheme, *stage, at)) return false;
        // gv1 += V1^T gq1;  M lambda = h gv1;  gq0 += V0^T gq1 - A_q^T lambda;  gv0 += gv1 - A_v^T lambda
        apply(m, w.scene.quaternions, w.V1, true, q1, v1, true);
        for (int k = 0; k < nv; ++k) lambda[k] = v1[k] / stage->c;
        w.H.solve_transposed(lambda.data());
        apply(m, w.scene.quaternions, w.V0, true, q1, q0, true);
        add_transposed_product(nv, -1.0, w.Aq, lambda.data(), q0);
        add_scaled(nv, 1.0, v1, v0);
        add_transposed_product(nv, -1.0, w.Av, lambda.data(), v0);
      }
      add_parameters(w, scheme, *stage, at, lambda.data(), out);
      if (out.u != nullptr) {
        double* u = out.u + row * track.u_rows * nv;
        const double weight = controls.weight(stage->fraction);
        add_scaled(nv, 1.0 - weight, lambda.data(), u);
        if (track.u_rows == 2) add_scaled(nv, weight, lambda.data(), u + nv);
      }
    }
    add_scaled(nv, 1.0, q_of(1), out.q + row * nv);
    add_scaled(nv, 1.0, v_of(1), out.v + row * nv);
    if (row > 0 || replaced) {
      add_scaled(nv, 1.0, q_of(0), replaced ? out.previous_q : out.q + (row - 1) * nv);
      add_scaled(nv, 1.0, v_of(0), replaced ? out.previous_v : out.v + (row - 1) * nv);
    }
    finish_step(nv, track, row, out);
  }
  return true;
}

}  // namespace torsor
