// Variational integrators. Fan 2018, propositions 1 and 3, for any quadrature and any joint; docs/derivations/variational.md.
//
// A step goes from q0 through control points q^k = q0 (+) xi^k, k = 1..s, in the chart at q0. With the polynomial through them,
// xi^a and its rate at the quadrature points a, q^a = q0 (+) xi^a and v^a = J(xi^a) xidot^a, the action and its virtual work are
//   sum_a h w_a L(q^a, v^a),   and its derivatives   D_0 (by q0 at fixed xi), D_k (by xi^k):
//   D = sum_a Phi_a^T (f_a, g_a),   f = h w (dL/dq + tau),   g = h w dL/dv,   (dq^a, dv^a) = Phi_a (dq0, dxi^1, ..., dxi^s).
// The momenta are p1 = J(xi^s)^-T D_s and p0 = Ad^T p1 - D_0, Ad being dq^s/dq0; the step solves
//   r_0 = p0 + D_0 - Ad^T p1 = 0,   r_k = D_k = 0, k = 1..s-1.
#pragma once
#include <limits>

#include "body_forces.hpp"
#include "charts.hpp"
#include "inverse_dynamics.hpp"
#include "mass_solve.hpp"
#include "tree_system.hpp"

namespace torsor {

// A polynomial through s + 1 control points, and a quadrature of m points.
struct Rule {
  int s, m;
  std::vector<double> nodes;   // s + 1: of the control points, from 0 to 1
  std::vector<double> c, w;    // m: of the quadrature
  std::vector<double> phi, b;  // m x (s + 1): Lagrange polynomials of the nodes and their derivatives at c
};

// The columns s of J in the chart of a joint with a quaternion, v = sum of s_k xidot_k, with their derivatives by xi; the step X
// itself, and what becomes of a displacement before it: Ad of X^-1. Of a rotation, the linear parts are zero.
template <class S>
struct ChartColumns {
  int n;
  SE3<S> X;
  Motion<S> s[6], ds[36], d2s[216], Ad[6];
  Mat3<S> inverse;  // of the angular part of J

  // Of all below: covectors and vectors of n numbers, as wrenches and twists.
  Force<S> covector(const S* y) const { return {read3(y), n == 6 ? read3(y + 3) : zero3<S>()}; }
  void apply(const Motion<S>* columns, const S* x, S* out) const {  // sum of columns_k x_k
    Motion<S> sum = zero_motion<S>();
    for (int k = 0; k < n; ++k) sum = mul_add(x[k], columns[k], sum);
    write3(sum.w, out);
    if (n == 6) write3(sum.v, out + 3);
  }
  void apply_transposed(const Motion<S>* columns, const S* y, S* out) const {
    const Force<S> f = covector(y);
    for (int k = 0; k < n; ++k) out[k] = dot(columns[k], f);
  }
  void solve(S* x) const {  // x <- J^-1 x
    write3(inverse * read3(x), x);
    if (n == 6) write3(X.R * read3(x + 3), x + 3);
  }
  void solve_transposed(S* y) const {  // y <- J^-T y
    write3(transposed(inverse, read3(y)), y);
    if (n == 6) write3(transposed(X.R, read3(y + 3)), y + 3);
  }
};
template <class S>
void chart_columns(Kind kind, const S* xi, ChartColumns<S>& out) {
  SE3<S> E;
  Motion<S> s[3], ds[9], d2s[27];
  evaluate_exponential(xi, 3, GeneralTerms<S>{E, s, ds, d2s});
  const int n = out.n = kind == Kind::free ? 6 : 3;
  out.X = {E.R, n == 6 ? read3(xi + 3) : zero3<S>()};
  for (int k = 0; k < n * n; ++k) out.ds[k] = zero_motion<S>();
  for (int k = 0; k < n * n * n; ++k) out.d2s[k] = zero_motion<S>();
  for (int j = 0; j < 3; ++j) {
    out.s[j] = s[j];
    for (int k = 0; k < 3; ++k) {
      out.ds[n * j + k] = ds[3 * j + k];
      for (int l = 0; l < 3; ++l) out.d2s[n * (n * j + k) + l] = d2s[9 * j + 3 * k + l];
    }
  }
  const Mat3<S> unit = identity3<S>();
  for (int j = 0; n == 6 && j < 3; ++j) {  // R^T e_j, which turns with -J dxi
    const Vec3<S> e = transposed(E.R, unit.column(j));
    out.s[3 + j] = {zero3<S>(), e};
    for (int k = 0; k < 3; ++k) {
      out.ds[n * (3 + j) + k].v = cross(e, s[k].w);
      for (int l = 0; l < 3; ++l)
        out.d2s[n * (n * (3 + j) + k) + l].v = cross(cross(e, s[l].w), s[k].w) + cross(e, ds[3 * k + l].w);
    }
  }
  for (int j = 0; j < n; ++j) {
    const Motion<S> e = j < 3 ? Motion<S>{unit.column(j), zero3<S>()} : Motion<S>{zero3<S>(), unit.column(j - 3)};
    out.Ad[j] = out.X.act_inverse(e);
  }
  const Vec3<S> a = cross(s[1].w, s[2].w), b = cross(s[2].w, s[0].w), c = cross(s[0].w, s[1].w);
  const S d = S(1.0) / dot(s[0].w, a);
  out.inverse = {{d * a.x, d * b.x, d * c.x}, {d * a.y, d * b.y, d * c.y}, {d * a.z, d * b.z, d * c.z}};
}

struct VariationalScheme {
  Rule rule;
  double h;
  double tolerance;  // of Newton's method: estimated error of v that remains, relative to 1 + |v|
  int iterations;    // evaluations of the residual in a step
};

// What moves in a variational step, and what acts.
struct VariationalScene {
  const Model& m;
  const ForceSet* forces;
  const Rule& rule;
  double h;
  std::vector<int> quaternions = quaternion_bodies(m);
  bool local = forces == nullptr || on_single_bodies(*forces);  // whether forces fit into the systems over trees

  double share(int a, int k) const { return rule.phi[a * (rule.s + 1) + k]; }   // of control point k at point a
  double rate(int a, int k) const { return rule.b[a * (rule.s + 1) + k] / h; }  // and of its velocity
};
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
  Motions<S> all;       // of bodies, I is that of each alone
  Force<S>*mu, *Gamma;  // of subtrees: momentum; weight and, if they are local, other forces on bodies
  ChartColumns<S>* charts;
  S *f, *g;
};
template <class S>
struct Action {
  std::vector<ActionPoint<S>> points;
  S* D;       // (s + 1) x nv
  bool good;  // no joint turns by half a turn
};

// Derivatives of the action between q0 and the control coordinates xi (s x nv).
template <class S>
Action<S> evaluate_action(const VariationalScene& scene, Arena& arena, const S* q0, const S* xi, double t,
                          const StepControls<S>& controls, const S* p) {
  const Model& m = scene.m;
  const Rule& rule = scene.rule;
  const int nv = m.nv, n = m.n(), s = rule.s;
  Action<S> action;
  action.points.resize(rule.m);
  action.D = arena.get<S>((s + 1) * nv);
  action.good = true;
  for (int k = 0; k < (s + 1) * nv; ++k) action.D[k] = S(0.0);
  S* rest = arena.get<S>(nv);
  for (int k = 0; k < nv; ++k) rest[k] = S(0.0);
  const Vec3<S> gravity = lift<S>(m.gravity);
  for (int a = 0; a < rule.m; ++a) {
    ActionPoint<S>& at = action.points[a];
    at.t = t + rule.c[a] * scene.h;
    at.weight = scene.h * rule.w[a];
    for (S** vector : {&at.xi, &at.xidot, &at.v, &at.f, &at.g}) *vector = arena.get<S>(nv);
    at.q = arena.get<S>(m.nq);
    at.charts = arena.get<ChartColumns<S>>(scene.quaternions.size());
    for (int k = 0; k < nv; ++k) {
      at.xi[k] = at.xidot[k] = S(0.0);
      for (int c = 1; c <= s; ++c) {
        const S& x = xi[(c - 1) * nv + k];
        at.xi[k] = mul_add(S(scene.share(a, c)), x, at.xi[k]);
        at.xidot[k] = mul_add(S(scene.rate(a, c)), x, at.xidot[k]);
      }
      at.v[k] = at.xidot[k];
    }
    action.good = retract(m, q0, at.xi, at.q) && action.good;
    for (std::size_t j = 0; j < scene.quaternions.size(); ++j) {
      const Model::Body& body = m.bodies[scene.quaternions[j]];
      chart_columns(body.kind, at.xi + body.iv, at.charts[j]);
      at.charts[j].apply(at.charts[j].s, at.xidot + body.iv, at.v + body.iv);
    }
    at.all = motions(m, arena, at.q, at.v, rest, false);
    at.mu = arena.get<Force<S>>(n);
    at.Gamma = arena.get<Force<S>>(n);
    for (int i = 0; i < n; ++i) {
      auto& b = at.all.bodies[i];
      if (m.bodies[i].massless) {
        b.I = zero_inertia<S>();
        at.mu[i] = at.Gamma[i] = zero_force<S>();
      } else {
        b.I = shift_back(rotate(b.R, m.bodies[i].I), b.p);
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
      generalized_forces(m, *scene.forces, arena, at.q, at.v, at.t, p, tau);
    }
    for (int i = n - 1; i >= 0; --i)
      if (const int parent = m.links[i].parent; parent >= 0) {
        at.mu[parent] += at.mu[i];
        at.Gamma[parent] += at.Gamma[i];
      }
    if (const S* u = controls.at(a, nv))
      for (int k = 0; k < nv; ++k) tau[k] += u[k];
    for (int i = 0; i < n; ++i)
      for (int k = m.links[i].iv; k < m.links[i].iv + m.links[i].nv; ++k) {
        const auto& c = at.all.columns[k];
        at.f[k] = S(at.weight) * (dot(c.Psidot, at.mu[i]) + dot(c.S_, at.Gamma[i]) + tau[k]);
        at.g[k] = S(at.weight) * dot(c.S_, at.mu[i]);
      }
    // D += Phi^T (f, g)
    for (int k = 0; k < nv; ++k) {
      action.D[k] += at.f[k];
      for (int c = 1; c <= s; ++c) {
        S& sum = action.D[c * nv + k];
        sum = mul_add(S(scene.share(a, c)), at.f[k], mul_add(S(scene.rate(a, c)), at.g[k], sum));
      }
    }
    for (std::size_t j = 0; j < scene.quaternions.size(); ++j) {
      const Model::Body& body = m.bodies[scene.quaternions[j]];
      const ChartColumns<S>& chart = at.charts[j];
      const S *f = at.f + body.iv, *g = at.g + body.iv;
      const int size = chart.n;
      S by_q[6], by_v[6], first[6], plain[6];
      chart.apply_transposed(chart.s, f, by_q);
      chart.apply_transposed(chart.s, g, by_v);
      chart.apply_transposed(chart.Ad, f, first);
      const Force<S> G = chart.covector(g);
      for (int k = 0; k < size; ++k) {  // T^T g, T = d(J xidot)/dxi
        plain[k] = S(0.0);
        for (int l = 0; l < size; ++l)
          plain[k] = mul_add(at.xidot[body.iv + l], dot(chart.ds[size * l + k], G), plain[k]);
      }
      for (int k = 0; k < size; ++k) {
        action.D[body.iv + k] += first[k] - f[k];
        for (int c = 1; c <= s; ++c)
          action.D[c * nv + body.iv + k] +=
              S(scene.share(a, c)) * (by_q[k] + plain[k] - f[k]) + S(scene.rate(a, c)) * (by_v[k] - g[k]);
      }
    }
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
// out = Ad^T y: a covector at the end of the step, as one at its beginning.
template <class S>
void pull_to_start(const VariationalScene& scene, const StepEnd<S>& end, const S* y, S* out) {
  for (int k = 0; k < scene.m.nv; ++k) out[k] = y[k];
  for (std::size_t j = 0; j < scene.quaternions.size(); ++j) {
    const int iv = scene.m.bodies[scene.quaternions[j]].iv;
    end.charts[j].apply_transposed(end.charts[j].Ad, y + iv, out + iv);
  }
}

// Fills the blocks of a system over the tree at a point of the quadrature after another. `whole`: all derivatives of D by
// (q0, xi^1, ..., xi^s), copies 0..s; else those of r by xi^1, ..., xi^s.
class ActionBlocks {
 public:
  ActionBlocks(const VariationalScene& scene, bool whole)
      : scene_(scene),
        whole_(whole),
        copies_(scene.rule.s + (whole ? 1 : 0)),
        system(scene.m, 12 * scene.rule.m, 12 * scene.rule.m, copies_) {
    const std::size_t square = 36 * (scene.rule.s + 1);
    for (auto* maps : {&q_, &v_, &row_q_, &row_v_}) maps->resize(square);
    block_.resize(36 * (scene.rule.s + 1) * (scene.rule.s + 1));
    system.clear();
    for (int a = 0; a < scene.rule.m; ++a)
      for (int k = 0; k < 6; ++k) {
        system.set_range(12 * a + k, 12 * a + 6, 12 * a + 12);
        system.set_range(12 * a + 6 + k, 12 * a, 12 * a + (on_bodies_ ? 12 : 3));
      }
  }

  // Blocks of all but forces that couple joints.
  void fill(const Action<double>& action, const StepEnd<double>& end, Arena& arena, const double* p) {
    const Model& m = scene_.m;
    if (on_bodies_)
      for (int i = 0; i < m.n(); ++i)
        for (int y = 0; y < 12 * scene_.rule.m; ++y) std::fill_n(system.P(i, y), 12 * scene_.rule.m, 0.0);
    std::size_t next = 0;
    for (int i = 0; i < m.n(); ++i) {
      const bool quaternion = next < scene_.quaternions.size() && scene_.quaternions[next] == i;
      const int j = quaternion ? static_cast<int>(next++) : -1;
      std::fill_n(system.N(i), system.unknowns(i) * system.unknowns(i), 0.0);
      for (int a = 0; a < scene_.rule.m; ++a) fill_point(action.points[a], a, i, j, end);
      if (j >= 0 && !whole_) add_end(i, end.charts[j], end.p1 + m.links[i].iv);
    }
    if (scene_.forces != nullptr && scene_.local) add_local_forces(action, end, arena, p);
  }
  // The matrix of the system, after `fill`: copies nv x copies nv.
  void assemble(const Action<double>& action, const StepEnd<double>& end, Arena& arena, const double* p, double* H) {
    const int size = copies_ * scene_.m.nv;
    std::fill_n(H, size * size, 0.0);
    system.assemble(H, size);
    if (scene_.forces != nullptr && !scene_.local) add_coupling_forces(action, end, arena, p, H);
  }
  int size() const { return copies_ * scene_.m.nv; }

 private:
  const VariationalScene& scene_;
  bool whole_;
  bool on_bodies_ =
      scene_.forces != nullptr && scene_.local && !(scene_.forces->bodies.empty() && scene_.forces->points.empty());
  int copies_;

 public:
  TreeSystem system;

 private:
  // Phi of joint i at a point, as matrices n x n for each column: of dq into q_, of dv into v_; and the combinations of them that
  // the rows are: r_0 belongs to Phi_0 - Phi_s B, B = J^-1 Ad at the end.
  void map_joint(const ActionPoint<double>& at, int a, int i, int j, const StepEnd<double>& end) {
    const Model::Link& link = scene_.m.links[i];
    const int n = link.nv, s = scene_.rule.s, square = n * n;
    std::fill_n(q_.begin(), square * (s + 1), 0.0);
    std::fill_n(v_.begin(), square * (s + 1), 0.0);
    if (j < 0) {
      for (int c = 0; c <= s; ++c)
        for (int k = 0; k < n; ++k) {
          q_[c * square + k * (n + 1)] = c == 0 ? 1.0 : scene_.share(a, c);
          v_[c * square + k * (n + 1)] = c == 0 ? 0.0 : scene_.rate(a, c);
        }
    } else {
      const ChartColumns<double>& chart = at.charts[j];
      for (int k = 0; k < n; ++k) {
        double J[6], T[6], Ad[6], unit[6] = {};
        unit[k] = 1.0;
        chart.apply(chart.s, unit, J);
        chart.apply(chart.Ad, unit, Ad);
        Motion<double> turned[6];
        for (int l = 0; l < n; ++l) turned[l] = chart.ds[n * l + k];
        chart.apply(turned, at.xidot + link.iv, T);
        for (int r = 0; r < n; ++r) {
          q_[r * n + k] = Ad[r];
          for (int c = 1; c <= s; ++c) {
            q_[c * square + r * n + k] = scene_.share(a, c) * J[r];
            v_[c * square + r * n + k] = scene_.share(a, c) * T[r] + scene_.rate(a, c) * J[r];
          }
        }
      }
    }
    row_q_ = q_;
    row_v_ = v_;
    if (whole_) return;
    const double *last_q = &q_[s * square], *last_v = &v_[s * square];
    for (int k = 0; k < n; ++k) {
      double B[6] = {};
      B[k] = 1.0;
      if (j >= 0) {
        double unit[6] = {};
        unit[k] = 1.0;
        end.charts[j].apply(end.charts[j].Ad, unit, B);
        end.charts[j].solve(B);
      }
      for (int r = 0; r < n; ++r)
        for (int l = 0; l < n; ++l) {
          row_q_[r * n + k] -= last_q[r * n + l] * B[l];
          row_v_[r * n + k] -= last_v[r * n + l] * B[l];
        }
    }
  }
  // N += R^T [[qq, qv], [vq, 0]] C for native blocks n x n, R and C being the maps of rows and columns.
  void add_native(int i, const double* qq, const double* qv, const double* vq) {
    const int n = scene_.m.links[i].nv, square = n * n, size = system.unknowns(i);
    const int skip = whole_ ? 0 : 1;  // columns begin with xi^1
    double* N = system.N(i);
    for (int c = 0; c < copies_; ++c)
      for (int k = 0; k < n; ++k) {
        double by_q[6], by_v[6];  // the native blocks times a column
        for (int r = 0; r < n; ++r) {
          by_q[r] = by_v[r] = 0.0;
          for (int l = 0; l < n; ++l) {
            const double dq = q_[(c + skip) * square + l * n + k], dv = v_[(c + skip) * square + l * n + k];
            by_q[r] += qq[r * n + l] * dq + (qv == nullptr ? 0.0 : qv[r * n + l] * dv);
            if (vq != nullptr) by_v[r] += vq[r * n + l] * dq;
          }
        }
        for (int row = 0; row < copies_; ++row)
          for (int l = 0; l < n; ++l) {
            double sum = 0.0;
            for (int r = 0; r < n; ++r)
              sum += row_q_[row * square + r * n + l] * by_q[r] + row_v_[row * square + r * n + l] * by_v[r];
            N[(row * n + l) * size + c * n + k] += sum;
          }
      }
  }

  void fill_point(const ActionPoint<double>& at, int a, int i, int j, const StepEnd<double>& end) {
    const Model& m = scene_.m;
    const Model::Link& link = m.links[i];
    const Model::Body& body = m.bodies[i];
    const auto& b = at.all.bodies[i];
    const auto* columns = at.all.columns + link.iv;
    const Motion<double>& v_parent = at.all.bodies[link.parent].v;
    const Force<double>&mu = at.mu[i], &Gamma = at.Gamma[i];
    const int n = link.nv, square = n * n, skip = whole_ ? 0 : 1, o = 12 * a;
    const double weight = at.weight;
    if (!body.massless) {
      // dmu = I dv, dGamma = I (g x eta)
      const RigidInertia<double>& I = b.I;
      const Vec3<double>&h = I.h, &g = m.gravity;
      const double rigid[6][6] = {{I.J.xx, I.J.xy, I.J.xz, 0.0, -h.z, h.y}, {I.J.xy, I.J.yy, I.J.yz, h.z, 0.0, -h.x},
                                  {I.J.xz, I.J.yz, I.J.zz, -h.y, h.x, 0.0}, {0.0, h.z, -h.y, I.m, 0.0, 0.0},
                                  {-h.z, 0.0, h.x, 0.0, I.m, 0.0},          {h.y, -h.x, 0.0, 0.0, 0.0, I.m}};
      for (int r = 0; r < 6; ++r) std::copy_n(rigid[r], 6, system.P(i, o + r) + o + 6);
      const Mat3<double> unit = identity3<double>();
      for (int c = 0; c < 3; ++c) {
        const Vec3<double> turned = cross(g, unit.column(c));
        double column[6];
        write(Force<double>{cross(h, turned), I.m * turned}, column);
        for (int r = 0; r < 6; ++r) system.P(i, o + 6 + r)[o + c] = column[r];
      }
    }
    map_joint(at, a, i, j, end);
    // The columns of A and C, and the rows of L and E: eta = S dq, and the change R dq + S dv of the velocity.
    const auto directions = [&](const double* dq, const double* dv, Motion<double>& eta, Motion<double>& rate) {
      eta = rate = zero_motion<double>();
      for (int r = 0; r < n; ++r) {
        eta = mul_add(dq[r * n], columns[r].S_, eta);
        rate = mul_add(dq[r * n], columns[r].Psidot, mul_add(dv[r * n], columns[r].S_, rate));
      }
    };
    for (int c = 0; c < copies_; ++c)
      for (int k = 0; k < n; ++k) {
        Motion<double> eta, rate;
        directions(&q_[(c + skip) * square + k], &v_[(c + skip) * square + k], eta, rate);
        double *A = system.A(i, c * n + k) + o, *C = system.C(i, c * n + k) + o;
        write(eta, A);
        write(rate, A + 6);
        const Force<double> x = cross(eta, mu), y = cross(eta, Gamma);
        write(Force<double>{-x.n, -x.f}, C);
        write(Force<double>{-y.n, -y.f}, C + 6);
        directions(&row_q_[c * square + k], &row_v_[c * square + k], eta, rate);
        double *L = system.L(i, c * n + k) + o, *E = system.E(i, c * n + k) + o;
        write(weight * rate, L);
        write(weight * eta, L + 6);
        write(cross(weight * eta, mu), E + 6);
      }
    // How the joint's own rows change with its own columns.
    double qq[36], qv[36] = {}, vq[36] = {};
    for (int r = 0; r < n; ++r)
      for (int k = 0; k < n; ++k)
        qq[r * n + k] = -weight * dot(cross(cross(columns[k].S_, v_parent), columns[r].S_), mu);
    if (body.general >= 0) {
      const auto& general = at.all.general[body.general];
      const auto world = [&](const Motion<double>& x) { return shift(Motion<double>{b.R * x.w, b.R * x.v}, -b.p); };
      for (int r = 0; r < n; ++r)
        for (int k = 0; k < n; ++k) {
          const Motion<double> ds = world(general.ds[n * r + k]);
          Motion<double> bent = zero_motion<double>();
          for (int l = 0; l < n; ++l) bent = mul_add(at.v[link.iv + l], general.d2s[n * (n * l + r) + k], bent);
          qq[r * n + k] += weight * (dot(cross(v_parent, ds) + world(bent), mu) + dot(ds, Gamma));
          vq[r * n + k] = weight * dot(ds, mu);
          qv[k * n + r] = vq[r * n + k];
        }
    }
    add_native(i, qq, body.general >= 0 ? qv : nullptr, body.general >= 0 ? vq : nullptr);
    if (j >= 0) add_chart(at, a, i, at.charts[j], end.charts[j]);
  }

  // How Phi changes, under f and g.
  void add_chart(const ActionPoint<double>& at, int a, int i, const ChartColumns<double>& chart,
                 const ChartColumns<double>& last) {
    const int iv = scene_.m.links[i].iv, n = chart.n, s = scene_.rule.s, whole = (s + 1) * n;
    const Force<double> f = chart.covector(at.f + iv), g = chart.covector(at.g + iv);
    std::fill_n(block_.begin(), whole * whole, 0.0);
    for (int r = 0; r < n; ++r)
      for (int k = 0; k < n; ++k) {
        double curved = dot(chart.ds[n * r + k], f);
        for (int l = 0; l < n; ++l) curved += at.xidot[iv + l] * dot(chart.d2s[n * (n * l + r) + k], g);
        const double own = dot(chart.ds[n * r + k], g), other = dot(chart.ds[n * k + r], g);
        const double start = dot(cross(chart.Ad[r], chart.s[k]), f);
        for (int c = 1; c <= s; ++c) {
          block_[r * whole + c * n + k] = scene_.share(a, c) * start;
          for (int row = 1; row <= s; ++row)
            block_[(row * n + r) * whole + c * n + k] = scene_.share(a, row) * scene_.share(a, c) * curved +
                                                        scene_.share(a, row) * scene_.rate(a, c) * other +
                                                        scene_.rate(a, row) * scene_.share(a, c) * own;
        }
      }
    double* N = system.N(i);
    const int size = system.unknowns(i), skip = whole_ ? 0 : n;
    for (int row = 0; row < size; ++row)
      for (int k = 0; k < size; ++k) N[row * size + k] += block_[row * whole + k + skip];
    if (whole_) return;
    for (int r = 0; r < n; ++r) {  // r_0 has -B^T times the last row
      double unit[6] = {}, B[6];
      unit[r] = 1.0;
      last.apply(last.Ad, unit, B);
      last.solve(B);
      for (int l = 0; l < n; ++l)
        for (int k = 0; k < size; ++k) N[r * size + k] -= B[l] * block_[(s * n + l) * whole + k + skip];
    }
  }
  // How -Ad^T p1 changes with xi^s, but for D_s.
  void add_end(int i, const ChartColumns<double>& chart, const double* p1) {
    const int n = chart.n, s = scene_.rule.s, size = system.unknowns(i);
    const Force<double> P = chart.covector(p1);
    double* N = system.N(i);
    for (int r = 0; r < n; ++r) {
      double unit[6] = {}, B[6];
      unit[r] = 1.0;
      chart.apply(chart.Ad, unit, B);
      chart.solve(B);
      for (int k = 0; k < n; ++k) {
        double sum = -dot(cross(chart.Ad[r], chart.s[k]), P);
        for (int l = 0; l < n; ++l) sum += B[l] * dot(chart.ds[n * l + k], P);
        N[r * size + (s - 1) * n + k] += sum;
      }
    }
  }
  void add_local_forces(const Action<double>& action, const StepEnd<double>& end, Arena& arena, const double* p) {
    const Model& m = scene_.m;
    double *K = arena.get<double>(36), *D = arena.get<double>(36);
    for (const JointLaw& law : scene_.forces->joints) {
      const int i = law.body, n = m.links[i].nv;
      const int j = quaternion_of(i);
      for (int a = 0; a < scene_.rule.m; ++a) {
        const ActionPoint<double>& at = action.points[a];
        std::fill_n(K, n * n, 0.0);
        std::fill_n(D, n * n, 0.0);
        linearise_joint(JointForce<double>(m, law, at.q, at.v, p), K, D, n);
        for (int k = 0; k < n * n; ++k) {
          K[k] *= -at.weight;
          D[k] *= -at.weight;
        }
        map_joint(at, a, i, j, end);
        add_native(i, K, D, nullptr);
      }
    }
    for (int a = 0; on_bodies_ && a < scene_.rule.m; ++a) {
      const ActionPoint<double>& at = action.points[a];
      for_each_body_force<double>(*scene_.forces, arena, at.all, at.t, p,
                                  [&](int i, const WrenchChange<double>& change) {
                                    for (int r = 0; r < 6; ++r)
                                      add_scaled(12, 1.0, change.x[r], system.P(i, 12 * a + 6 + r) + 12 * a);
                                  });
    }
  }

  // Of the joint with a quaternion that body i has, if it has one: its number, else -1.
  int quaternion_of(int i) const {
    const auto found = std::find(scene_.quaternions.begin(), scene_.quaternions.end(), i);
    return found == scene_.quaternions.end() ? -1 : static_cast<int>(found - scene_.quaternions.begin());
  }
  // H += R^T h w (K Q + D V), R, Q and V being the maps of rows and columns of all joints.
  void add_coupling_forces(const Action<double>& action, const StepEnd<double>& end, Arena& arena, const double* p,
                           double* H) {
    const Model& m = scene_.m;
    const int nv = m.nv, size = copies_ * nv, skip = whole_ ? 0 : 1;
    double *K = arena.get<double>(nv * nv), *D = arena.get<double>(nv * nv), *X = arena.get<double>(nv * size);
    for (int a = 0; a < scene_.rule.m; ++a) {
      const ActionPoint<double>& at = action.points[a];
      generalized_forces_derivatives<double>(m, *scene_.forces, arena, at.q, at.v, at.t, p, K, D);
      for (int i = 0; i < m.n(); ++i) {
        const Model::Link& link = m.links[i];
        const int n = link.nv;
        map_joint(at, a, i, quaternion_of(i), end);
        for (int r = 0; r < nv; ++r)
          for (int c = 0; c < copies_; ++c)
            for (int k = 0; k < n; ++k) {
              double sum = 0.0;
              for (int l = 0; l < n; ++l)
                sum += K[r * nv + link.iv + l] * q_[((c + skip) * n + l) * n + k] +
                       D[r * nv + link.iv + l] * v_[((c + skip) * n + l) * n + k];
              X[r * size + c * nv + link.iv + k] = at.weight * sum;
            }
      }
      for (int i = 0; i < m.n(); ++i) {
        const Model::Link& link = m.links[i];
        const int n = link.nv;
        map_joint(at, a, i, quaternion_of(i), end);
        for (int c = 0; c < copies_; ++c)
          for (int k = 0; k < n; ++k)
            for (int l = 0; l < n; ++l)
              add_scaled(size, row_q_[(c * n + l) * n + k], X + (link.iv + l) * size,
                         H + (c * nv + link.iv + k) * size);
      }
    }
  }

  std::vector<double> q_, v_, row_q_, row_v_, block_;
};

// Memory of one thread, and the step that it is at.
class VariationalStep {
 public:
  VariationalStep(const Model& m, const ForceSet* forces, const VariationalScheme& scheme)
      : scheme(scheme), scene{m, forces, scheme.rule, scheme.h}, blocks(scene, false) {
    const int nv = scene.m.nv, size = blocks.size();
    for (auto* vector : {&xi, &r, &delta, &correction, &trial, &guess, &last, &older}) vector->resize(size);
    for (auto* vector : {&p0, &v0, &a0, &p1, &v1, &a1}) vector->resize(nv);
    for (auto* vector : {&q0, &q1}) vector->resize(scene.m.nq);
  }
  VariationalStep(const VariationalStep&) = delete;
  const VariationalScheme& scheme;
  VariationalScene scene;
  Arena arena;
  const double* p = nullptr;  // parameters of the forces
  std::vector<double> q0, p0, v0, a0, q1, p1, v1, a1;
  std::vector<double> xi;             // control coordinates
  double error = 0.0, allowed = 0.0;  // of Newton's method, where it stopped

  // Whether systems are solved densely: always where forces couple joints, and where that is faster.
  bool dense() const { return !scene.local || scene.m.nv < (scene.rule.s == 1 ? kTree : kTreeOfSeveral); }

  // v = M(q)^-1 p, and a of forward dynamics under forces and controls u (null: none). False if the mass matrix is singular.
  bool velocities(const double* q, const double* momentum, double t, const double* u, double* v, double* a) {
    const Model& m = scene.m;
    arena.reset();
    arena.singular_joint = -1;
    const MassFactor<double> mass = factor_mass<double>(m, arena, q, nullptr, nullptr);
    solve_mass(m, mass, momentum, v);
    if (arena.singular_joint >= 0) return false;
    double *rest = arena.get<double>(m.nv), *tau = arena.get<double>(m.nv), *bias = arena.get<double>(m.nv);
    std::fill_n(rest, m.nv, 0.0);
    std::fill_n(tau, m.nv, 0.0);
    if (scene.forces != nullptr) generalized_forces(m, *scene.forces, arena, q, v, t, p, tau);
    inverse_dynamics<double>(m, arena, q, v, rest, nullptr, bias);
    for (int k = 0; k < m.nv; ++k) tau[k] += (u == nullptr ? 0.0 : u[k]) - bias[k];
    solve_mass(m, mass, tau, a);
    return true;
  }

  // From q0, p0 with the guess of v0, a0 to q1, p1; t: at the beginning. By Newton's method from the guess or, if that fails,
  // following the solution from short steps to the whole one, each time from the line through the two before.
  bool take(double t, const StepControls<double>& controls) {
    const int nv = scene.m.nv, s = scene.rule.s;
    t_ = t;
    controls_ = controls;
    int left = scheme.iterations;
    for (int c = 0; c < s; ++c) std::copy_n(a0.begin(), nv, last.begin() + c * nv);
    begin(last);
    if (iterate(scheme.tolerance, left)) return finish();
    double at = 0.0, before = 0.0;
    bool good = false;
    for (double further = 1.0; further > 0.01 && left > 0 && !(good && at == 1.0);) {
      const double part = std::min(1.0, at + further), ratio = at > 0.0 ? (part - at) / (at - before) : 0.0;
      scene.h = part * scheme.h;
      for (std::size_t k = 0; k < last.size(); ++k) guess[k] = mul_add(ratio, last[k] - older[k], last[k]);
      begin(guess);
      int few = std::min(left, 12);
      left -= few;
      good = iterate(part < 1.0 ? std::max(scheme.tolerance, 1e-5) : scheme.tolerance, few);
      left += few;
      further *= good ? 1.5 : 0.5;
      if (!good) continue;
      older = last;
      for (int c = 1; c <= s; ++c)
        for (int k = 0; k < nv; ++k) {
          const double time = scene.rule.nodes[c] * scene.h;
          last[(c - 1) * nv + k] = 2.0 * (xi[(c - 1) * nv + k] / time - v0[k]) / time;
        }
      before = at;
      at = part;
    }
    scene.h = scheme.h;
    return good && at == 1.0 && finish();
  }

  const Action<double>& action() const { return action_; }
  const StepEnd<double>& end() const { return end_; }
  double start() const { return t_; }
  const StepControls<double>& controls() const { return controls_; }

  // r at xi. False if a joint turns too far.
  bool evaluate() {
    const int nv = scene.m.nv;
    arena.reset();
    action_ = evaluate_action<double>(scene, arena, q0.data(), xi.data(), t_, controls_, p);
    end_ = end_of(scene, arena, xi.data(), action_);
    std::copy_n(action_.D, blocks.size(), r.begin());
    double* pulled = arena.get<double>(nv);
    pull_to_start(scene, end_, end_.p1, pulled);
    for (int k = 0; k < nv; ++k) r[k] += p0[k] - pulled[k];
    return action_.good;
  }
  // Factors the derivative of r, for one right-hand side or, in `columns`, for one from each velocity.
  bool factor(bool columns = false) { return factor_system(dense() || (columns && scene.m.nv < kTreeOfColumns)); }
  // The direction of Newton's method, found densely or over the tree.
  const std::vector<double>& direction(bool dense) {
    if (factor_system(dense)) solve(delta);
    return delta;
  }
  bool solved_densely() const { return dense_; }
  void solve_columns(double* X, int columns) {  // X <- J^-1 X, columns a multiple of the lanes
    if (dense_)
      torsor::solve(blocks.size(), H_.data(), pivots_.data(), X, columns);
    else
      blocks.system.solve_columns(X, columns);
  }
  void solve_transposed(double* y) {  // y <- J^-T y
    if (dense_)
      torsor::solve_transposed(blocks.size(), H_.data(), pivots_.data(), y);
    else
      blocks.system.solve_transposed(y);
  }

 private:
  // Control coordinates that accelerations (s x nv) lead to.
  void begin(const std::vector<double>& accelerations) {
    const int nv = scene.m.nv;
    for (int c = 1; c <= scene.rule.s; ++c)
      for (int k = 0; k < nv; ++k) {
        const double time = scene.rule.nodes[c] * scene.h;
        xi[(c - 1) * nv + k] = time * (v0[k] + 0.5 * time * accelerations[(c - 1) * nv + k]);
      }
  }
  // Newton's method from the control coordinates that are there, with at most `left` corrections: each is halved until the
  // simplified correction after it is smaller (Deuflhard's natural monotonicity test); the factors are kept while these shrink
  // fast.
  bool iterate(double tolerance, int& left) {
    error = std::numeric_limits<double>::infinity();
    allowed = tolerance;
    if (!evaluate()) return false;
    double norm = 0.0;
    bool fresh = true, close = false;
    while (true) {
      if (fresh) {
        if (!factor()) return false;
        solve(delta);
        norm = largest(delta);
      }
      error = norm;
      allowed = allowance(tolerance);
      if (!std::isfinite(norm)) return false;
      trial = xi;
      const auto move = [&](double length, const std::vector<double>& along) {
        for (std::size_t k = 0; k < xi.size(); ++k) xi[k] = mul_add(length, along[k], trial[k]);
        return evaluate();
      };
      if (norm <= 1e-3 * allowed) return move(1.0, delta);
      double after = 0.0, length = 1.0;
      for (;; length *= 0.5) {
        if (length < 0.1 || left-- <= 0) return false;
        if (!move(length, delta)) continue;
        solve(correction);
        after = largest(correction);
        if (after <= (1.0 - 0.25 * length) * norm) break;
        if (length == 1.0 && (close || norm <= allowed)) return true;  // rounding is all that is left
      }
      const double rate = after / norm;
      error = after;
      if (length == 1.0 && rate * after <= allowed) {
        trial = xi;
        if (!move(1.0, correction)) return false;
        // The rate may have been small by chance: whether that was enough, the next correction tells.
        solve(delta);
        error = norm = largest(delta);
        if (norm <= allowed) return true;
        close = true;
        fresh = norm > 0.02 * after;
        continue;
      }
      fresh = length < 1.0 || rate > 0.02;
      if (!fresh) {
        delta = correction;
        norm = after;
      }
    }
  }
  bool factor_system(bool dense) {
    blocks.fill(action_, end_, arena, p);
    dense_ = dense || !blocks.system.factor();
    if (!dense_) return true;
    const int size = blocks.size();
    H_.resize(std::size_t(size) * size);
    pivots_.resize(size);
    blocks.assemble(action_, end_, arena, p, H_.data());
    return torsor::factor(size, H_.data(), pivots_.data());
  }
  void solve(std::vector<double>& out) {  // -J^-1 r
    for (std::size_t k = 0; k < r.size(); ++k) out[k] = -r[k];
    if (dense_)
      torsor::solve(blocks.size(), H_.data(), pivots_.data(), out.data());
    else
      blocks.system.solve(out.data());
  }
  // Of a correction, as an error of velocities.
  double largest(const std::vector<double>& x) const {
    double most = 0.0;
    for (double value : x) {
      if (!std::isfinite(value)) return std::numeric_limits<double>::infinity();
      most = std::max(most, std::fabs(value));
    }
    return most / scene.h;
  }
  double allowance(double tolerance) const {
    double speed = 0.0, reach = 1.0;
    for (int k = 0; k < scene.m.nv; ++k) speed = std::max(speed, std::fabs(xi[k]) / scene.h);
    for (double value : q0) reach = std::max(reach, std::fabs(value));
    return tolerance * (1.0 + speed) + 4e-16 * reach / scene.h;
  }
  bool finish() {
    const int nv = scene.m.nv;
    std::copy_n(end_.p1, nv, p1.begin());
    return retract(scene.m, q0.data(), xi.data() + (scene.rule.s - 1) * nv, q1.data());
  }

  // Velocities from which on systems over the tree are faster: with one unknown each, with several, and with many right-hand sides.
  static constexpr int kTree = 4, kTreeOfSeveral = 10, kTreeOfColumns = 128;
  ActionBlocks blocks;
  std::vector<double> r, delta, correction, trial, guess, last, older, H_;
  std::vector<int> pivots_;
  bool dense_ = true;
  double t_ = 0.0;
  StepControls<double> controls_{nullptr, 1};
  Action<double> action_;
  StepEnd<double> end_{};
};

}  // namespace torsor
