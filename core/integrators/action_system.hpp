// Second derivatives of the action of a step, as a system over the tree: the matrix of Newton's method for its
// equations, and that of all derivatives by all control points. Fan 2018, proposition 3;
// docs/derivations/variational.md.
#pragma once
#include "integrators/action_gradients.hpp"
#include "linear/tree_system.hpp"

namespace torsor {

// Fills the blocks of a system over the tree, one quadrature point after another. `whole`: all derivatives of D by (q0,
// xi^1, ..., xi^s), copies 0..s; otherwise those of r by xi^1, ..., xi^s.
template <class S>
class ActionBlocks {
 public:
  // Fills `system`, whose size is given by `copies` and `length`.
  ActionBlocks(const VariationalScene& scene, bool whole, TreeSystem<S>& system)
      : scene_(scene), whole_(whole), copies_(copies(scene.rule, whole)), system(system) {
    const std::size_t square = 36 * (scene.rule.s + 1);
    for (auto* maps : {&q_, &v_, &row_q_, &row_v_}) maps->resize(square);
    block_.resize(36 * (scene.rule.s + 1) * (scene.rule.s + 1));
    for (int a = 0; a < scene.rule.m; ++a)
      for (int k = 0; k < 6; ++k) {
        system.set_range(12 * a + k, 12 * a + 6, 12 * a + 12);
        system.set_range(12 * a + 6 + k, 12 * a, 12 * a + (on_bodies_ ? 12 : 3));
      }
    for (int y = length(scene.rule); y < system.sums(); ++y) system.set_range(y, 0, 0);  // of constraints
  }

  static int copies(const Rule& rule, bool whole) { return rule.s + (whole ? 1 : 0); }  // of unknowns
  static int length(const Rule& rule) { return 12 * rule.m; }                           // of states and sums

  // All blocks except those of forces that couple joints.
  void fill(const Action<S>& action, const StepEnd<S>& end, Arena& arena, const S* p) {
    const Model& m = scene_.m;
    if (scene_.coupled) return fill_charts(action, end);
    if (on_bodies_)
      for (int i = 0; i < m.n(); ++i)
        for (int y = 0; y < 12 * scene_.rule.m; ++y) std::fill_n(system.P(i, y), 12 * scene_.rule.m, S(0.0));
    std::size_t next = 0;
    for (int i = 0; i < m.n(); ++i) {
      const bool quaternion = next < scene_.quaternions.size() && scene_.quaternions[next] == i;
      const int j = quaternion ? static_cast<int>(next++) : -1;
      std::fill_n(system.N(i), system.unknowns(i) * system.unknowns(i), S(0.0));
      for (int a = 0; a < scene_.rule.m; ++a) fill_point(action.points[a], a, i, j, end);
      if (j >= 0 && !whole_) add_end(i, end.charts[j], end.p1 + m.links[i].iv);
    }
    if (scene_.forces != nullptr && scene_.local) add_local_forces(action, end, arena, p);
  }
  // The matrix of the system, after `fill`: copies nv x copies nv.
  void assemble(const Action<S>& action, const StepEnd<S>& end, Arena& arena, const S* p, S* H) {
    const int size = copies_ * scene_.m.nv;
    std::fill_n(H, size * size, S(0.0));
    system.assemble(H, size);
    if (scene_.coupled)
      add_points(action, end, arena, p, H);
    else if (scene_.forces != nullptr && !scene_.local)
      add_coupling_forces(action, end, arena, p, H);
  }
  int size() const { return copies_ * scene_.m.nv; }

 private:
  const VariationalScene& scene_;
  bool whole_;
  bool on_bodies_ = scene_.forces != nullptr && scene_.local && acts_on_bodies(*scene_.forces);
  int copies_;

 public:
  TreeSystem<S>& system;

 private:
  // Phi of joint i at a point, as matrices n x n for each column: of dq into q_, of dv into v_; and the combinations of
  // them for the rows: that of r_0 is Phi_0 - Phi_s B, B = J^-1 Ad at the end.
  void map_joint(const ActionPoint<S>& at, int a, int i, int j, const StepEnd<S>& end) {
    const Model::Link& link = scene_.m.links[i];
    const int n = link.nv, s = scene_.rule.s, square = n * n;
    std::fill_n(q_.begin(), square * (s + 1), S(0.0));
    std::fill_n(v_.begin(), square * (s + 1), S(0.0));
    if (j < 0) {
      for (int c = 0; c <= s; ++c)
        for (int k = 0; k < n; ++k) {
          q_[c * square + k * (n + 1)] = S(c == 0 ? 1.0 : scene_.share(a, c));
          v_[c * square + k * (n + 1)] = S(c == 0 ? 0.0 : scene_.rate(a, c));
        }
    } else {
      const ChartColumns<S>& chart = at.charts[j];
      for (int k = 0; k < n; ++k) {
        S J[6], T[6], Ad[6], unit[6] = {};
        unit[k] = S(1.0);
        chart.apply(chart.s, unit, J);
        chart.apply(chart.Ad, unit, Ad);
        Motion<S> turned[6];
        for (int l = 0; l < n; ++l) turned[l] = chart.ds[n * l + k];
        chart.apply(turned, at.xidot + link.iv, T);
        for (int r = 0; r < n; ++r) {
          q_[r * n + k] = Ad[r];
          for (int c = 1; c <= s; ++c) {
            q_[c * square + r * n + k] = S(scene_.share(a, c)) * J[r];
            v_[c * square + r * n + k] = S(scene_.share(a, c)) * T[r] + S(scene_.rate(a, c)) * J[r];
          }
        }
      }
    }
    row_q_ = q_;
    row_v_ = v_;
    if (whole_) return;
    const S *last_q = &q_[s * square], *last_v = &v_[s * square];
    for (int k = 0; k < n; ++k) {
      S B[6] = {};
      B[k] = S(1.0);
      if (j >= 0) {
        S unit[6] = {};
        unit[k] = S(1.0);
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
  // N += R^T [[qq, qv], [vq, vv]] C for native blocks n x n, R and C being the maps of rows and columns; vv (n) is
  // diagonal. Null: zero.
  void add_native(int i, const S* qq, const S* qv, const S* vq, const S* vv) {
    const int n = scene_.m.links[i].nv, square = n * n, size = system.unknowns(i);
    const int skip = whole_ ? 0 : 1;  // columns begin with xi^1
    S* N = system.N(i);
    for (int c = 0; c < copies_; ++c)
      for (int k = 0; k < n; ++k) {
        S by_q[6], by_v[6];  // the native blocks times a column
        for (int r = 0; r < n; ++r) {
          by_q[r] = by_v[r] = S(0.0);
          for (int l = 0; l < n; ++l) {
            const S dq = q_[(c + skip) * square + l * n + k], dv = v_[(c + skip) * square + l * n + k];
            by_q[r] += qq[r * n + l] * dq + (qv == nullptr ? S(0.0) : qv[r * n + l] * dv);
            if (vq != nullptr) by_v[r] += vq[r * n + l] * dq;
          }
          if (vv != nullptr) by_v[r] += vv[r] * v_[(c + skip) * square + r * n + k];
        }
        for (int row = 0; row < copies_; ++row)
          for (int l = 0; l < n; ++l) {
            S sum(0.0);
            for (int r = 0; r < n; ++r)
              sum += row_q_[row * square + r * n + l] * by_q[r] + row_v_[row * square + r * n + l] * by_v[r];
            N[(row * n + l) * size + c * n + k] += sum;
          }
      }
  }

  void fill_point(const ActionPoint<S>& at, int a, int i, int j, const StepEnd<S>& end) {
    const Model& m = scene_.m;
    const Model::Link& link = m.links[i];
    const Model::Body& body = m.bodies[i];
    const auto& b = at.all.bodies[i];
    const auto* columns = at.all.columns + link.iv;
    const Motion<S>& v_parent = at.all.bodies[link.parent].v;
    const Force<S>&mu = at.mu[i], &Gamma = at.Gamma[i];
    const int n = link.nv, square = n * n, skip = whole_ ? 0 : 1, o = 12 * a;
    const S weight(at.weight);
    if (!body.massless) {
      // dmu = I dv, dGamma = I (g x eta)
      const RigidInertia<S>& I = b.I;
      const Vec3<S>& h = I.h;
      const Vec3<S> g = gravity_of<S>(scene_);
      const S zero(0.0);
      const S rigid[6][6] = {{I.J.xx, I.J.xy, I.J.xz, zero, -h.z, h.y}, {I.J.xy, I.J.yy, I.J.yz, h.z, zero, -h.x},
                             {I.J.xz, I.J.yz, I.J.zz, -h.y, h.x, zero}, {zero, h.z, -h.y, I.m, zero, zero},
                             {-h.z, zero, h.x, zero, I.m, zero},        {h.y, -h.x, zero, zero, zero, I.m}};
      for (int r = 0; r < 6; ++r) std::copy_n(rigid[r], 6, system.P(i, o + r) + o + 6);
      const Mat3<S> unit = identity3<S>();
      for (int c = 0; c < 3; ++c) {
        const Vec3<S> turned = cross(g, unit.column(c));
        S column[6];
        write(Force<S>{cross(h, turned), I.m * turned}, column);
        for (int r = 0; r < 6; ++r) system.P(i, o + 6 + r)[o + c] = column[r];
      }
    }
    map_joint(at, a, i, j, end);
    // The columns of A and C, and the rows of L and E: eta = S dq, and the change R dq + S dv of the velocity.
    const auto directions = [&](const S* dq, const S* dv, Motion<S>& eta, Motion<S>& rate) {
      eta = rate = zero_motion<S>();
      for (int r = 0; r < n; ++r) {
        eta = mul_add(dq[r * n], columns[r].S_, eta);
        rate = mul_add(dq[r * n], columns[r].Psidot, mul_add(dv[r * n], columns[r].S_, rate));
      }
    };
    for (int c = 0; c < copies_; ++c)
      for (int k = 0; k < n; ++k) {
        Motion<S> eta, rate;
        directions(&q_[(c + skip) * square + k], &v_[(c + skip) * square + k], eta, rate);
        S *A = system.A(i, c * n + k) + o, *C = system.C(i, c * n + k) + o;
        write(eta, A);
        write(rate, A + 6);
        const Force<S> x = cross(eta, mu), y = cross(eta, Gamma);
        write(Force<S>{-x.n, -x.f}, C);
        write(Force<S>{-y.n, -y.f}, C + 6);
        directions(&row_q_[c * square + k], &row_v_[c * square + k], eta, rate);
        S *L = system.L(i, c * n + k) + o, *E = system.E(i, c * n + k) + o;
        write(weight * rate, L);
        write(weight * eta, L + 6);
        write(cross(weight * eta, mu), E + 6);
      }
    // Derivatives of the joint's rows by its own columns.
    S qq[36], qv[36] = {}, vq[36] = {};
    for (int r = 0; r < n; ++r)
      for (int k = 0; k < n; ++k)
        qq[r * n + k] = -weight * dot(cross(cross(columns[k].S_, v_parent), columns[r].S_), mu);
    if (body.general >= 0) {
      const auto& general = at.all.general[body.general];
      for (int r = 0; r < n; ++r)
        for (int k = 0; k < n; ++k) {
          const Motion<S> ds = b.world(general.ds[n * r + k]);
          Motion<S> bent = zero_motion<S>();
          for (int l = 0; l < n; ++l) bent = mul_add(at.v[link.iv + l], general.d2s[n * (n * l + r) + k], bent);
          qq[r * n + k] += weight * (dot(cross(v_parent, ds) + b.world(bent), mu) + dot(ds, Gamma));
          vq[r * n + k] = weight * dot(ds, mu);
          qv[k * n + r] = vq[r * n + k];
        }
    }
    S vv[6];  // of armature
    for (int k = 0; at.all.armature != nullptr && k < n; ++k) vv[k] = weight * at.all.armature[link.iv + k];
    add_native(i, qq, body.general >= 0 ? qv : nullptr, body.general >= 0 ? vq : nullptr,
               at.all.armature != nullptr ? vv : nullptr);
    if (j >= 0) add_chart(at, a, i, at.charts[j], end.charts[j]);
  }

  // Derivatives of Phi^T (f, g) at fixed f and g.
  void add_chart(const ActionPoint<S>& at, int a, int i, const ChartColumns<S>& chart, const ChartColumns<S>& last) {
    const int iv = scene_.m.links[i].iv, n = chart.n, s = scene_.rule.s, whole = (s + 1) * n;
    const Force<S> f = chart.covector(at.f + iv), g = chart.covector(at.g + iv);
    std::fill_n(block_.begin(), whole * whole, S(0.0));
    for (int r = 0; r < n; ++r)
      for (int k = 0; k < n; ++k) {
        S curved = dot(chart.ds[n * r + k], f);
        for (int l = 0; l < n; ++l) curved += at.xidot[iv + l] * dot(chart.d2s[n * (n * l + r) + k], g);
        const S own = dot(chart.ds[n * r + k], g), other = dot(chart.ds[n * k + r], g);
        const S start = dot(cross(chart.Ad[r], chart.s[k]), f);
        for (int c = 1; c <= s; ++c) {
          block_[r * whole + c * n + k] = S(scene_.share(a, c)) * start;
          for (int row = 1; row <= s; ++row)
            block_[(row * n + r) * whole + c * n + k] = S(scene_.share(a, row)) * S(scene_.share(a, c)) * curved +
                                                        S(scene_.share(a, row)) * S(scene_.rate(a, c)) * other +
                                                        S(scene_.rate(a, row)) * S(scene_.share(a, c)) * own;
        }
      }
    S* N = system.N(i);
    const int size = system.unknowns(i), skip = whole_ ? 0 : n;
    for (int row = 0; row < size; ++row)
      for (int k = 0; k < size; ++k) N[row * size + k] += block_[row * whole + k + skip];
    if (whole_) return;
    for (int r = 0; r < n; ++r) {  // r_0 has -B^T times the last row
      S unit[6] = {}, B[6];
      unit[r] = S(1.0);
      last.apply(last.Ad, unit, B);
      last.solve(B);
      for (int l = 0; l < n; ++l)
        for (int k = 0; k < size; ++k) N[r * size + k] -= B[l] * block_[(s * n + l) * whole + k + skip];
    }
  }
  // Derivatives of -Ad^T p1 by xi^s at fixed D_s.
  void add_end(int i, const ChartColumns<S>& chart, const S* p1) {
    const int n = chart.n, s = scene_.rule.s, size = system.unknowns(i);
    const Force<S> P = chart.covector(p1);
    S* N = system.N(i);
    for (int r = 0; r < n; ++r) {
      S unit[6] = {}, B[6];
      unit[r] = S(1.0);
      chart.apply(chart.Ad, unit, B);
      chart.solve(B);
      for (int k = 0; k < n; ++k) {
        S sum = -dot(cross(chart.Ad[r], chart.s[k]), P);
        for (int l = 0; l < n; ++l) sum += B[l] * dot(chart.ds[n * l + k], P);
        N[r * size + (s - 1) * n + k] += sum;
      }
    }
  }
  void add_local_forces(const Action<S>& action, const StepEnd<S>& end, Arena& arena, const S* p) {
    const Model& m = scene_.m;
    scene_.forces->for_each([&](const auto& law) {
      for (int a = 0; a < scene_.rule.m; ++a) {
        const ActionPoint<S>& at = action.points[a];
        law.on_joint(m, at.q, at.v, p, [&](int i, S* K, S* D) {
          for (int k = 0; k < m.links[i].nv * m.links[i].nv; ++k) {
            K[k] *= -at.weight;
            D[k] *= -at.weight;
          }
          map_joint(at, a, i, quaternion_of(i), end);
          add_native(i, K, D, nullptr, nullptr);
        });
      }
    });
    for (int a = 0; on_bodies_ && a < scene_.rule.m; ++a) {
      const ActionPoint<S>& at = action.points[a];
      for_each_body_force<S>(*scene_.forces, arena, at.all, at.t, p, [&](int i, const WrenchChange<S>& change) {
        for (int r = 0; r < 6; ++r) add_scaled(12, S(1.0), change.x[r], system.P(i, 12 * a + 6 + r) + 12 * a);
      });
    }
  }

  // With couplings: blocks of joints that derivatives of their charts give, at fixed f and g.
  void fill_charts(const Action<S>& action, const StepEnd<S>& end) {
    const Model& m = scene_.m;
    const int length = 12 * scene_.rule.m;
    std::size_t next = 0;
    for (int i = 0; i < m.n(); ++i) {
      const bool quaternion = next < scene_.quaternions.size() && scene_.quaternions[next] == i;
      std::fill_n(system.N(i), system.unknowns(i) * system.unknowns(i), S(0.0));
      for (int y = 0; y < length; ++y) std::fill_n(system.P(i, y), length, S(0.0));
      for (int k = 0; k < system.unknowns(i); ++k)
        for (S* part : {system.A(i, k), system.C(i, k), system.L(i, k), system.E(i, k)})
          std::fill_n(part, length, S(0.0));
      if (!quaternion) continue;
      for (int a = 0; a < scene_.rule.m; ++a)
        add_chart(action.points[a], a, i, action.points[a].charts[next], end.charts[next]);
      if (!whole_) add_end(i, end.charts[next], end.p1 + m.links[i].iv);
      ++next;
    }
  }
  // With couplings: H += R^T (f_q Q + f_v V, g_q Q + g_v V), R, Q and V being the maps of rows and columns of all
  // joints.
  void add_points(const Action<S>& action, const StepEnd<S>& end, Arena& arena, const S* p, S* H) {
    const Model& m = scene_.m;
    const int nv = m.nv, size = copies_ * nv, skip = whole_ ? 0 : 1;
    S *by_q = arena.get<S>(2 * nv * nv), *by_v = arena.get<S>(2 * nv * nv), *X = arena.get<S>(2 * nv * size);
    const Displacement<S> unit{arena.get<S>(nv), arena.get<S>(nv)};
    for (int a = 0; a < scene_.rule.m; ++a) {
      const ActionPoint<S>& at = action.points[a];
      for (int r = 0; r < 2 * nv; ++r) {
        for (int k = 0; k < nv; ++k) {
          unit.q[k] = S(r == k ? 1.0 : 0.0);
          unit.v[k] = S(r == nv + k ? 1.0 : 0.0);
        }
        const PointGradients<S> grad = point_gradients(scene_, arena, at, p, unit);
        std::copy_n(grad.q, nv, by_q + r * nv);
        std::copy_n(grad.v, nv, by_v + r * nv);
      }
      for (int i = 0; i < m.n(); ++i) {
        const Model::Link& link = m.links[i];
        const int n = link.nv;
        map_joint(at, a, i, quaternion_of(i), end);
        for (int r = 0; r < 2 * nv; ++r)
          for (int c = 0; c < copies_; ++c)
            for (int k = 0; k < n; ++k) {
              S sum(0.0);
              for (int l = 0; l < n; ++l)
                sum += by_q[r * nv + link.iv + l] * q_[((c + skip) * n + l) * n + k] +
                       by_v[r * nv + link.iv + l] * v_[((c + skip) * n + l) * n + k];
              X[r * size + c * nv + link.iv + k] = sum;
            }
      }
      for (int i = 0; i < m.n(); ++i) {
        const Model::Link& link = m.links[i];
        const int n = link.nv;
        map_joint(at, a, i, quaternion_of(i), end);
        for (int c = 0; c < copies_; ++c)
          for (int k = 0; k < n; ++k)
            for (int l = 0; l < n; ++l) {
              S* to = H + (c * nv + link.iv + k) * size;
              add_scaled(size, row_q_[(c * n + l) * n + k], X + (link.iv + l) * size, to);
              add_scaled(size, row_v_[(c * n + l) * n + k], X + (nv + link.iv + l) * size, to);
            }
      }
    }
  }

  // The index of body i among those with quaternions, or -1.
  int quaternion_of(int i) const {
    const auto found = std::find(scene_.quaternions.begin(), scene_.quaternions.end(), i);
    return found == scene_.quaternions.end() ? -1 : static_cast<int>(found - scene_.quaternions.begin());
  }
  // H += R^T h w (K Q + D V), R, Q and V being the maps of rows and columns of all joints.
  void add_coupling_forces(const Action<S>& action, const StepEnd<S>& end, Arena& arena, const S* p, S* H) {
    const Model& m = scene_.m;
    const int nv = m.nv, size = copies_ * nv, skip = whole_ ? 0 : 1;
    S *K = arena.get<S>(nv * nv), *D = arena.get<S>(nv * nv), *X = arena.get<S>(nv * size);
    for (int a = 0; a < scene_.rule.m; ++a) {
      const ActionPoint<S>& at = action.points[a];
      generalized_forces_derivatives(m, *scene_.forces, arena, force_motions_at(scene_, arena, at.q, at.v), at.q, at.v,
                                     at.t, p, K, D);
      for (int i = 0; i < m.n(); ++i) {
        const Model::Link& link = m.links[i];
        const int n = link.nv;
        map_joint(at, a, i, quaternion_of(i), end);
        for (int r = 0; r < nv; ++r)
          for (int c = 0; c < copies_; ++c)
            for (int k = 0; k < n; ++k) {
              S sum(0.0);
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

  std::vector<S> q_, v_, row_q_, row_v_, block_;
};

}  // namespace torsor
