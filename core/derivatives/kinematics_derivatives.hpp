// First derivatives of twists, accelerations, Jacobians and momentum. docs/derivations/kinematics.md.
//
// World's axes about the origin of each tree's root, columns S, Psidot, Psiddot, Sdot as in
// derivatives/inverse_dynamics_derivatives.hpp. D_k is the derivative along direction k minus the rigid motion with
// S_k: the derivative in a frame that moves with the bodies that k moves. For these bodies l and their columns j
//   D_k v_l = Psidot_k,   D_k a_l = Psiddot_k - v_l x Psidot_k,
//   D_k S_j = S_j x S_k (k below j),   R_jk (in one joint),   0 (k above j).
#pragma once
#include "derivatives/inverse_dynamics_derivatives.hpp"
#include "dynamics/jacobians.hpp"

namespace torsor {

// Motions without gravity. v and a may be null: at rest.
template <class S>
Motions<S> free_motions(const Model& m, Arena& arena, const S* q, const S* v, const S* a) {
  S* rest = arena.get<S>(m.nv);
  for (int k = 0; k < m.nv; ++k) rest[k] = S(0.0);
  return motions<S>(m, arena, q, v == nullptr ? rest : v, a == nullptr ? rest : a, false);
}

// Pose of one of the user's bodies, its origin relative to the root's.
template <class S>
SE3<S> frame_pose(const Model::Frame& frame, const DerivativeBody<S>& b) {
  const SE3<S> X{b.R, b.p};
  return frame.same ? X : X * frame.pose;
}

template <class S>
void fill_zero(S* x, int64_t count) {
  for (int64_t k = 0; x != nullptr && k < count; ++k) x[k] = S(0.0);
}
// Writes y, a motion or a force, as column k of the six rows of `stride` entries that start at `rows`, which may be
// null.
template <template <class> class Spatial, class S>
TORSOR_INLINE void put(const Spatial<S>& y, S* rows, int64_t stride, int64_t k) {
  if (rows == nullptr) return;
  S column[6];
  write(y, column);
  for (int r = 0; r < 6; ++r) rows[r * stride + k] = column[r];
}
template <class S>
TORSOR_INLINE S* at(S* x, int64_t k) {
  return x == nullptr ? nullptr : x + k;
}

// Derivatives (nframes x 6 x nv) of body_velocities and body_accelerations. J is that of velocities with respect to v
// and of accelerations with respect to a. Any may be null; a too, if accelerations are not asked for. Axes 0: the
// body's; 1: the world's frame; 2: the world's axes at the body's origin, with the acceleration of that point.
template <class S>
void body_motion_derivatives(const Model& m, Arena& arena, const S* q, const S* v, const S* a, int axes, S* J, S* dV_dq,
                             S* dA_dq, S* dA_dv) {
  const auto t = free_motions(m, arena, q, v, a);
  const int nv = m.nv;
  for (S* out : {J, dV_dq, dA_dq, dA_dv}) fill_zero(out, int64_t(6) * nv * m.nframes());
  for (int f = 0; f < m.nframes(); ++f) {
    const int body = m.frames[f].body;
    if (body < 0) continue;
    const auto& b = t.bodies[body];
    const SE3<S> X = frame_pose(m.frames[f], b);
    const Vec3<S> to = axes == 1 ? -b.origin : X.p;
    const Motion<S> V = shift(b.v, X.p), A = shift(b.a, X.p);
    const Vec3<S> point = cross_add(V.w, V.v, A.v);  // acceleration of the origin
    const auto write_column = [&](const Motion<S>& y, S* out, int k) {
      put(axes == 0 ? Motion<S>{transposed(X.R, y.w), transposed(X.R, y.v)} : y, out + int64_t(6) * nv * f, nv, k);
    };
    for_each_velocity_above(m, body, [&](int k, int) {
      const auto& c = t.columns[k];
      const Motion<S> s = shift(c.S_, to), r = shift(c.Psidot, to);
      if (J != nullptr) write_column(s, J, k);
      if (dV_dq != nullptr) {
        Motion<S> y = r;
        if (axes == 1) y += shift(cross(c.S_, b.v), to);
        if (axes == 2) y = {cross_add(s.w, V.w, y.w), cross_add(s.w, V.v, y.v)};
        write_column(y, dV_dq, k);
      }
      if (dA_dq != nullptr) {
        Motion<S> y = c.Psiddot + cross(c.Psidot, b.v);
        if (axes == 1) y += cross(c.S_, b.a);
        y = shift(y, to);
        if (axes == 2)
          y = {cross_add(s.w, A.w, y.w), cross_add(s.w, point, cross_add(V.w, r.v, cross_add(r.w, V.v, y.v)))};
        write_column(y, dA_dq, k);
      }
      if (dA_dv != nullptr) {
        Motion<S> y = shift(c.Vdot + cross(c.S_, b.v), to);
        if (axes == 2) y.v = cross_add(V.w, s.v, cross_add(s.w, V.v, y.v));
        write_column(y, dA_dv, k);
      }
    });
  }
}

// R_jk of a joint with S(q) and, if v (of the whole model) is not null, its rate v_i x R_jk + sum_m R_jmk v_m.
template <class S>
struct JointHessian {
  Motion<S> R, Rdot;
};
template <class S>
JointHessian<S> joint_hessian(const DerivativeGeneral<S>& g, const Model::Body& body, const DerivativeBody<S>& b, int j,
                              int k, const S* v) {
  const int n = body.nv;
  JointHessian<S> h{b.world(g.ds[n * j + k]), zero_motion<S>()};
  if (v == nullptr) return h;
  for (int l = 0; l < n; ++l) h.Rdot = mul_add(v[body.iv + l], g.d2s[n * (n * j + l) + k], h.Rdot);
  h.Rdot = b.world(h.Rdot) + cross(b.v, h.R);
  return h;
}

// Of the maximal-reduced Jacobian: Jdot (6 nframes x nv), and dJ, dJdot (6 nframes x nv x nv: row, column, direction).
// Sueda 2021, Alg. 11, with products of columns in each body's frame in place of derivatives of adjoint matrices. Any
// output may be null; v too, if dJ alone is asked for.
template <class S>
void maximal_jacobian_derivatives(const Model& m, Arena& arena, const S* q, const S* v, S* dJ, S* Jdot, S* dJdot) {
  const auto t = free_motions<S>(m, arena, q, v, nullptr);
  const int nv = m.nv;
  const int64_t nv2 = int64_t(nv) * nv;
  fill_zero(dJ, 6 * nv2 * m.nframes());
  fill_zero(Jdot, int64_t(6) * nv * m.nframes());
  fill_zero(dJdot, 6 * nv2 * m.nframes());
  struct Column {
    Motion<S> J, Jdot, Jpsi;  // of S, Sdot - v_l x S, Psidot - v_l x S
  };
  auto* columns = arena.get<Column>(nv);
  for (int f = 0; f < m.nframes(); ++f) {
    const int body = m.frames[f].body;
    if (body < 0) continue;
    const Motion<S>& V = t.bodies[body].v;
    const SE3<S> X = frame_pose(m.frames[f], t.bodies[body]);
    S *first = at(dJ, 6 * nv2 * f), *first_dot = at(dJdot, 6 * nv2 * f);
    for_each_velocity_above(m, body, [&](int k, int) {
      const auto& c = t.columns[k];
      const Motion<S> turn = cross(c.S_, V), Sdot{c.Vdot.w - c.Psidot.w, c.Vdot.v - c.Psidot.v};
      columns[k] = {X.act_inverse(c.S_), X.act_inverse(Sdot + turn), X.act_inverse(c.Psidot + turn)};
      put(columns[k].Jdot, at(Jdot, int64_t(6) * nv * f), nv, k);
    });
    // Column j against directions k of its own joint and of those between it and the body.
    for_each_velocity_above(m, body, [&](int j, int i) {
      const auto& c = columns[j];
      for (int l = body; l != i; l = m.bodies[l].parent)
        for (int k = m.bodies[l].iv; k < m.bodies[l].iv + m.bodies[l].nv; ++k) {
          const auto& d = columns[k];
          put(cross(c.J, d.J), first, nv2, int64_t(nv) * j + k);
          if (dJdot != nullptr) put(cross(c.Jdot, d.J) + cross(c.J, d.Jpsi), first_dot, nv2, int64_t(nv) * j + k);
        }
      const Model::Body& own = m.bodies[i];
      for (int k = own.iv; own.general >= 0 && k < own.iv + own.nv; ++k) {
        const auto h = joint_hessian(t.general[own.general], own, t.bodies[i], j - own.iv, k - own.iv, v);
        put(X.act_inverse(h.R), first, nv2, int64_t(nv) * j + k);
        if (dJdot != nullptr) put(X.act_inverse(h.Rdot + cross(h.R, V)), first_dot, nv2, int64_t(nv) * j + k);
      }
    });
  }
}

// Derivatives H (3 x nv x nv: row, column, direction) of the Jacobians of points fixed in the user's bodies `frames`.
// With S_j = (w_j, v_j) at the point, column j changes along k by w_j x v_k if k is below j, by w_k x v_j if it is
// above.
template <class S>
void point_hessians(const Model& m, Arena& arena, const S* q, const std::vector<int>& frames, const S* points, S* H) {
  const auto t = free_motions<S>(m, arena, q, nullptr, nullptr);
  const int nv = m.nv;
  const int64_t nv2 = int64_t(nv) * nv;
  auto* columns = arena.get<Motion<S>>(nv);
  fill_zero(H, 3 * nv2 * static_cast<int64_t>(frames.size()));
  for (std::size_t p = 0; p < frames.size(); ++p) {
    const int body = m.frames[frames[p]].body;
    if (body < 0) continue;
    const SE3<S> X = frame_pose(m.frames[frames[p]], t.bodies[body]);
    const Vec3<S> point = mul_add(X.R, read3(points + 3 * p), X.p);
    S* first = H + 3 * nv2 * static_cast<int64_t>(p);
    const auto put3 = [&](const Vec3<S>& y, int j, int k) {
      S* entry = first + int64_t(nv) * j + k;
      entry[0] = y.x;
      entry[nv2] = y.y;
      entry[2 * nv2] = y.z;
    };
    for_each_velocity_above(m, body, [&](int k, int) { columns[k] = shift(t.columns[k].S_, point); });
    for_each_velocity_above(m, body, [&](int j, int i) {
      for (int l = body; l != i; l = m.bodies[l].parent)
        for (int k = m.bodies[l].iv; k < m.bodies[l].iv + m.bodies[l].nv; ++k) {
          const Vec3<S> y = cross(columns[j].w, columns[k].v);
          put3(y, j, k);
          put3(y, k, j);
        }
      const Model::Body& own = m.bodies[i];
      for (int k = own.iv; k < own.iv + own.nv; ++k) {
        Vec3<S> y = cross(columns[k].w, columns[j].v);
        if (own.general >= 0) {
          const auto h = joint_hessian<S>(t.general[own.general], own, t.bodies[i], j - own.iv, k - own.iv, nullptr);
          y += shift(h.R, point).v;
        }
        put3(y, j, k);
      }
    });
  }
}

// Derivatives (6 x nv) of momentum h and of its rate hdot, about the centre of mass (axes 0) or the world's origin (1);
// h_v is also that of hdot with respect to a. Any may be null; a too, if those of hdot are. With I, 2B, f and h of the
// subtree of k,
//   dh/dq_k = I Psidot_k + S_k x* h,   dh/dv_k = I S_k,
//   dhdot/dq_k = I Psiddot_k + 2B Psidot_k + S_k x* f,   dhdot/dv_k = 2B S_k + I (Psidot_k + Sdot_k).
template <class S>
void momentum_derivatives(const Model& m, Arena& arena, const S* q, const S* v, const S* a, int axes, S* h_q, S* h_v,
                          S* hdot_q, S* hdot_v) {
  const auto t = free_motions(m, arena, q, v, a);
  const int n = m.n(), nv = m.nv;
  for (int i = 0; i < n; ++i) {
    auto& b = t.bodies[i];
    b.I = shift_back(rotate(b.R, m.bodies[i].I), b.p);
    b.B = coriolis_inertia(b.I, b.v);
    b.f = b.I * b.a + cross(b.v, Force<S>{b.B.n, b.B.f});
  }
  for (int i = n - 1; i >= 0; --i) {
    if (m.bodies[i].parent < 0) continue;
    auto &b = t.bodies[i], &p = t.bodies[m.bodies[i].parent];
    p.I += b.I;
    p.B += b.B;
    p.f += b.f;
  }
  // Totals, and the centre of mass as seen from the first root.
  S mass(0.0);
  Vec3<S> moment = zero3<S>(), momentum = zero3<S>(), force = zero3<S>();
  for (int i = 0; i < n; ++i) {
    if (m.bodies[i].parent >= 0) continue;
    const auto& b = t.bodies[i];
    mass += b.I.m;
    moment += mul_add(b.I.m, b.origin - t.bodies[0].origin, b.I.h);
    momentum += b.B.f;
    force += b.f.f;
  }
  const S inverse_mass = S(1.0) / mass;
  for (int i = 0; i < n; ++i) {
    const auto& b = t.bodies[i];
    const Vec3<S> from = axes == 1 ? b.origin : b.origin - t.bodies[0].origin - inverse_mass * moment;
    for (int k = m.bodies[i].iv; k < m.bodies[i].iv + m.bodies[i].nv; ++k) {
      const auto& c = t.columns[k];
      const Force<S> IS = b.I * c.S_;
      // `total` is the linear part of the quantity that is differentiated: its moment changes as the centre of mass
      // moves along k.
      const auto about = [&](const Force<S>& F, const Vec3<S>* total) {
        Force<S> G = shift_back(F, from);
        if (axes == 0 && total != nullptr) G.n += cross(*total, inverse_mass * IS.f);
        return Motion<S>{G.n, G.f};
      };
      if (h_v != nullptr) put(about(IS, nullptr), h_v, nv, k);
      if (h_q != nullptr) put(about(b.I * c.Psidot + cross(c.S_, Force<S>{b.B.n, b.B.f}), &momentum), h_q, nv, k);
      if (hdot_q != nullptr) put(about(b.I * c.Psiddot + b.B * c.Psidot + cross(c.S_, b.f), &force), hdot_q, nv, k);
      if (hdot_v != nullptr) put(about(b.B * c.S_ + b.I * c.Vdot, nullptr), hdot_v, nv, k);
    }
  }
}

}  // namespace torsor
