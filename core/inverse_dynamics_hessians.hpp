// Second derivatives of inverse dynamics, contracted with weights on the torques and dense. docs/derivations/second_order.md.
//
// L = w . ID is the power of the bodies' forces on the virtual velocities u that w gives them (inverse_dynamics_vjp.hpp). Its
// gradient differentiated once more has, for a velocity j and a velocity k of the same joint or of one above it, with sums over the
// subtree of j and Theta = u_p x S, 2 Bu = 2 B[u], g = 2 B^T u, h = I u,
//   A = S x* f + 2 B Psidot + I Psiddot     V = 2 B S + I Vdot                                U = I S
//   C = I Theta + S x* h                    B = 2 B^T Theta - 2 Bu^T Psidot + S x* g          D = -2 Bu^T S
//   d/dq_k dL/dq_j = Theta_k.A + Psidot_k.B + Psiddot_k.C      d/dv_j dL/dq_k = Theta_k.V + Psidot_k.D
//   d/dv_k dL/dq_j = S_k.B + Vdot_k.C                          d/dv_k dL/dv_j = S_k.D
//   d/dq_k dL/da_j = Theta_k.U                                 d/dq_j dL/da_k = S_k.C
// B and D are moments alone. Dense tensors are the case w = e_i, one slab for each i, with u = S_i at and beyond joint i.
#pragma once
#include <cstddef>

#include "inverse_dynamics_derivatives.hpp"

namespace torsor {

// nv x nv each, row-major; any may be null. qq[j][k] = d/dq_k dL/dq_j, qv[j][k] = d/dv_k dL/dq_j, aq[j][k] = d/dq_k dL/da_j.
template <class S>
struct Hessians {
  S *qq, *qv, *vv, *aq;
};

// Wrenches (n, f) that do not turn with a subtree, on virtual velocities u: the part of d/dq_k (u.lag(c)) that is bilinear in the
// columns c and S_k is -c^T [[P, G], [G, 0]] S_k, P = n u_w^T + f u_v^T and G = f u_w^T, both less their traces, in the world's
// frame; in the world's axes n and u_v are those at the bodies' origins, and G is 0.
template <class S>
struct VirtualWrench {
  Mat3<S> P, G;
  TORSOR_INLINE VirtualWrench& operator+=(const VirtualWrench& b) {
    P.x += b.P.x, P.y += b.P.y, P.z += b.P.z;
    G.x += b.G.x, G.y += b.G.y, G.z += b.G.z;
    return *this;
  }
  // y with y.S_k that part
  TORSOR_INLINE Force<S> across(const Motion<S>& c) const {
    return {-(transposed(P, c.w) + transposed(G, c.v)), -transposed(G, c.w)};
  }
};
template <class S>
VirtualWrench<S> virtual_wrench(int axes, const WorldWrench<S>& wrench, const Motion<S>& u) {
  const Force<S>& F = wrench.F;
  const auto outer = [](const Vec3<S>& a, const Vec3<S>& b) -> Mat3<S> { return {b.x * a, b.y * a, b.z * a}; };
  const auto less_trace = [](Mat3<S> m) {
    const S trace = m.x.x + m.y.y + m.z.z;
    m.x.x -= trace;
    m.y.y -= trace;
    m.z.z -= trace;
    return m;
  };
  const auto sum = [](const Mat3<S>& a, const Mat3<S>& b) -> Mat3<S> { return {a.x + b.x, a.y + b.y, a.z + b.z}; };
  if (axes == 1) return {less_trace(sum(outer(F.n, u.w), outer(F.f, u.v))), less_trace(outer(F.f, u.w))};
  // From K and the moment about the tree's point: the moment n about the origins, and X = sum of f p^T
  const Mat3<S>& K = wrench.K;
  const Vec3<S> n{K.z.y - K.y.z - F.n.x, K.x.z - K.z.x - F.n.y, K.y.x - K.x.y - F.n.z};
  const S half = S(0.5) * (K.x.x + K.y.y + K.z.z), o(0.0);
  const Mat3<S> X{{half - K.x.x, -K.x.y - n.z, n.y - K.x.z},
                  {n.z - K.y.x, half - K.y.y, -K.y.z - n.x},
                  {-K.z.x - n.y, n.x - K.z.y, half - K.z.z}};
  // of bodies at p, u_v + u_w x p
  const Mat3<S> lever{X * Vec3<S>{o, -u.w.z, u.w.y}, X * Vec3<S>{u.w.z, o, -u.w.x}, X * Vec3<S>{-u.w.y, u.w.x, o}};
  return {less_trace(sum(lever, sum(outer(n, u.w), outer(F.f, u.v)))), {zero3<S>(), zero3<S>(), zero3<S>()}};
}

// Derivative of column j of a joint with S(q) along velocity k, R_jk, and its first and second rate.
template <class S>
struct PseudoColumn {
  Motion<S> R, Rdot, Rddot;
};
// Those of one joint, n x n; Rddot only if asked for: it has third derivatives of S, twice along the velocity.
template <class S>
void pseudo_columns(const Model& m, Arena& arena, const Model::Body& body, const DerivativeBody<S>& b,
                    const DerivativeGeneral<S>& g, const S* q, const S* v, const S* a, bool second,
                    PseudoColumn<S>* columns) {
  const int n = body.nv;
  const S *vj = v + body.iv, *aj = a + body.iv;
  DerivativeGeneral<Dual<S>>* along = nullptr;  // and its derivative along v
  if (second) {
    Dual<S> x[6];
    for (int k = 0; k < n; ++k) x[k] = {q[body.iq + k], vj[k]};
    along = arena.get<DerivativeGeneral<Dual<S>>>(1);
    evaluate(m.general[body.general], x, 3, GeneralTerms<Dual<S>>{along->T, along->s, along->ds, along->d2s});
  }
  const auto world = [&](const Motion<S>& x) { return shift(Motion<S>{b.R * x.w, b.R * x.v}, -b.p); };
  const auto tangent = [](const Motion<Dual<S>>& x) -> Motion<S> {
    return {{x.w.x.d, x.w.y.d, x.w.z.d}, {x.v.x.d, x.v.y.d, x.v.z.d}};
  };
  for (int jk = 0; jk < n * n; ++jk) {
    Motion<S> r1 = zero_motion<S>(), r2 = zero_motion<S>();
    for (int l = 0; l < n; ++l) {
      r1 = mul_add(vj[l], g.d2s[n * jk + l], r1);
      if (second) r2 = mul_add(aj[l], g.d2s[n * jk + l], mul_add(vj[l], tangent(along->d2s[n * jk + l]), r2));
    }
    auto& c = columns[jk];
    const Motion<S> own = world(r1);
    c.R = world(g.ds[jk]);
    c.Rdot = cross(b.v, c.R) + own;
    if (second) c.Rddot = cross(b.a, c.R) + cross(b.v, c.Rdot + own) + world(r2);
  }
}

// What second derivatives are made of, beyond the motions: I, 2 B, f and wrenches of bodies, and pseudo-columns by joint.
template <class S>
struct SecondOrder {
  DerivativeBody<S>* bodies;
  DerivativeColumn<S>* columns;
  DerivativeGeneral<S>* general;
  WorldWrench<S>* wrenches;
  PseudoColumn<S>* pseudo;  // 36 for each joint with S(q)
};
template <class S>
SecondOrder<S> second_order(const Model& m, Arena& arena, const S* q, const S* v, const S* a, const S* f_ext, int axes,
                            bool wants_qq) {
  const auto [bodies, columns, general] = motions(m, arena, q, v, a);
  SecondOrder<S> s{bodies, columns, general, body_forces(m, arena, bodies, f_ext, axes), nullptr};
  s.pseudo = arena.get<PseudoColumn<S>>(36 * m.general.size());
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    if (body.general >= 0)
      pseudo_columns(m, arena, body, bodies[i], general[body.general], q, v, a, wants_qq, s.pseudo + 36 * body.general);
  }
  return s;
}

// What a velocity brings to its pairs with velocities of its own joint and of those above.
template <class S>
struct HessianRow {
  Force<S> A, V, U, C;
  Force<S> W;  // lag of wrenches: d/dq_k dL/dq_j gains S_k.W
  Vec3<S> B, D;
};
template <class S>
TORSOR_INLINE void first_order_row(const DerivativeBody<S>& b, const DerivativeColumn<S>& c, HessianRow<S>& r) {
  r.A = cross(c.S_, b.f) + b.B * c.Psidot + b.I * c.Psiddot;
  r.V = b.B * c.S_ + b.I * c.Vdot;
  r.U = b.I * c.S_;
}

// How the columns above a row move: with the world's joint (Theta = Psidot = 0, Psiddot linear), without virtual velocity below
// them (Theta = 0), or in any way.
enum class Moves { root, still, any };

// Row j against column k of a joint above.
template <Moves moves, class S>
TORSOR_INLINE void pair(const HessianRow<S>& r, const DerivativeColumn<S>& c, const Motion<S>& Theta, bool lags,
                        const Hessians<S>& H, std::size_t jk, std::size_t kj) {
  if (H.qq != nullptr) {
    S x = moves == Moves::root ? dot(c.Psiddot.v, r.C.f) : dot_add(c.Psidot.w, r.B, dot(c.Psiddot, r.C));
    if constexpr (moves == Moves::any) x += dot(Theta, r.A);
    if (lags) x += dot(c.S_, r.W);
    H.qq[jk] = H.qq[kj] = x;
  }
  if (H.qv != nullptr) {
    H.qv[jk] = dot_add(c.S_.w, r.B, dot(c.Vdot, r.C));
    if constexpr (moves == Moves::still) H.qv[kj] = dot(c.Psidot.w, r.D);
    if constexpr (moves == Moves::any) H.qv[kj] = dot_add(c.Psidot.w, r.D, dot(Theta, r.V));
  }
  if (H.vv != nullptr) H.vv[jk] = H.vv[kj] = dot(c.S_.w, r.D);
  if (H.aq != nullptr) {
    H.aq[kj] = dot(c.S_, r.C);
    if constexpr (moves == Moves::any) H.aq[jk] = dot(Theta, r.U);
  }
}

// All entries of the rows of body i, which has the rows given, with its own joint and those above; joints of bodies before `turning`
// have Theta = 0. Entries that are zero by structure are not written.
template <class S>
TORSOR_INLINE void fill(const Model& m, int i, const HessianRow<S>* rows, const DerivativeColumn<S>* columns,
                        const Motion<S>* Theta, int turning, bool lags, const Hessians<S>& H) {
  const std::size_t nv = m.nv;
  const Model::Link own = m.links[i];
  for (int j = 0; j < own.nv; ++j) {
    const HessianRow<S>& r = rows[j];
    const std::size_t row = own.iv + j;
    for (int k = 0; k < own.nv; ++k) {
      const std::size_t column = own.iv + k, jk = row * nv + column, kj = column * nv + row;
      const auto& c = columns[column];
      const bool turns = i >= turning;
      if (H.qq != nullptr) {
        S x = dot_add(c.Psidot.w, r.B, dot(c.Psiddot, r.C));
        if (turns) x += dot(Theta[column], r.A);
        if (lags) x += dot(c.S_, r.W);
        H.qq[jk] = x;
      }
      if (H.qv != nullptr) {
        S x = dot(c.Psidot.w, r.D);
        if (turns) x += dot(Theta[column], r.V);
        H.qv[kj] = x;
      }
      if (H.vv != nullptr && k <= j)
        H.vv[jk] = H.vv[kj] = S(0.5) * dot_add(columns[row].S_.w, rows[k].D, dot(c.S_.w, r.D));
      if (H.aq != nullptr && turns) H.aq[jk] = dot(Theta[column], r.U);
    }
    for (int b = own.parent; b >= 0; b = m.links[b].parent) {
      const Model::Link& link = m.links[b];
      const auto each = [&](auto&& with) TORSOR_INLINE_LAMBDA {
        for (std::size_t k = link.iv; k < std::size_t(link.iv + link.nv); ++k)
          with(columns[k], Theta[k], row * nv + k, k * nv + row);
      };
      if (link.parent < 0 && m.bodies[b].general < 0)
        each([&](const auto& c, const auto& t, std::size_t jk, std::size_t kj)
                 TORSOR_INLINE_LAMBDA { pair<Moves::root>(r, c, t, lags, H, jk, kj); });
      else if (b < turning)
        each([&](const auto& c, const auto& t, std::size_t jk, std::size_t kj)
                 TORSOR_INLINE_LAMBDA { pair<Moves::still>(r, c, t, lags, H, jk, kj); });
      else
        each([&](const auto& c, const auto& t, std::size_t jk, std::size_t kj)
                 TORSOR_INLINE_LAMBDA { pair<Moves::any>(r, c, t, lags, H, jk, kj); });
    }
  }
}

// What a joint with S(q) adds to the pairs within it: its gradient with R_jk in the place of S_j. f, g, h, y: sums over its
// subtree. u: virtual velocity of its body, and w: weights of its velocities, each null if zero.
template <class S>
void fill_general(const Model& m, int i, const SecondOrder<S>& s, const Vec3<S>& g, const Force<S>& h,
                  const Force<S>* y, const Motion<S>* u, const S* w, const Hessians<S>& H) {
  const Model::Body& body = m.bodies[i];
  const int n = body.nv;
  const std::size_t nv = m.nv;
  const DerivativeBody<S>& b = s.bodies[i];
  const PseudoColumn<S>* pseudo = s.pseudo + 36 * body.general;
  const Motion<S>* d2s = s.general[body.general].d2s;
  const Force<S> f{transposed(b.R, cross_add(b.f.f, b.p, b.f.n)), transposed(b.R, b.f.f)};  // in the child's frame
  for (int j = 0; j < n; ++j)
    for (int k = 0; k < n; ++k) {
      const PseudoColumn<S>& c = pseudo[n * j + k];
      const std::size_t jk = (body.iv + j) * nv + body.iv + k, kj = (body.iv + k) * nv + body.iv + j;
      if (H.qq != nullptr) {
        S x = dot_add(c.Rdot.w, g, dot(c.Rddot, h));
        if (u != nullptr) x += dot(cross(*u, c.R), b.f);
        if (w != nullptr)
          for (int l = 0; l < n; ++l) x = mul_add(w[l], dot(d2s[n * (n * j + k) + l], f), x);
        if (y != nullptr) x += dot(c.R, *y);
        H.qq[jk] += x;
      }
      const S Rh = dot(c.R, h);
      if (H.qv != nullptr) H.qv[kj] += dot_add(c.R.w, g, S(2.0) * dot(c.Rdot, h));
      if (H.vv != nullptr) H.vv[jk] += Rh + dot(pseudo[n * k + j].R, h);
      if (H.aq != nullptr) H.aq[jk] += Rh;
    }
}

template <class S>
void clear(const Hessians<S>& H, std::size_t size) {
  for (S* x : {H.qq, H.qv, H.vv, H.aq})
    if (x != nullptr)
      for (std::size_t k = 0; k < size; ++k) x[k] = S(0.0);
}

// Second derivatives of w . ID(q, v, a), and its gradients dq, dv, da (nv each, may be null) on the way.
template <class S>
void contracted_hessians(const Model& m, Arena& arena, const S* q, const S* v, const S* a, const S* w, const S* f_ext,
                         int axes, const Hessians<S>& H, S* dq, S* dv, S* da) {
  const int n = m.n();
  const SecondOrder<S> s = second_order(m, arena, q, v, a, f_ext, axes, H.qq != nullptr);
  const auto* bodies = s.bodies;
  const auto* columns = s.columns;
  const bool lags = s.wrenches != nullptr;
  struct Virtual {
    Motion<S> u;
    CoriolisInertia<S> Bu;  // its n and f are h
    Vec3<S> g;
  };
  struct VirtualLag {
    VirtualWrench<S> wrench;
    Force<S> y;
  };
  auto* virtuals = arena.get<Virtual>(n + 1) + 1;
  auto* virtual_lags = arena.get<VirtualLag>(lags ? n : 0);
  auto* Theta = arena.get<Motion<S>>(m.nv);
  virtuals[-1].u = zero_motion<S>();
  for (int i = 0; i < n; ++i) {
    const Model::Body& body = m.bodies[i];
    const DerivativeBody<S>& b = bodies[i];
    const Motion<S>& up = virtuals[body.parent].u;
    auto& t = virtuals[i];
    t.u = up;
    for (int k = body.iv; k < body.iv + body.nv; ++k) {
      t.u = mul_add(w[k], columns[k].S_, t.u);
      Theta[k] = cross(up, columns[k].S_);
    }
    if (body.general >= 0)
      for (int j = 0; j < body.nv; ++j)
        for (int k = 0; k < body.nv; ++k)
          Theta[body.iv + k] =
              mul_add(w[body.iv + j], s.pseudo[36 * body.general + body.nv * j + k].R, Theta[body.iv + k]);
    if (body.massless) {
      const Vec3<S> o = zero3<S>();
      t.Bu = {{o.x, o.x, o.x, o.x, o.x, o.x}, o, o};
      t.g = o;
    } else {
      t.Bu = coriolis_inertia(b.I, t.u);
      t.g = transposed(b.B, t.u);
    }
    if (lags) virtual_lags[i] = {virtual_wrench(axes, s.wrenches[i], t.u), s.wrenches[i].transposed_lag(axes, t.u)};
  }
  clear(H, std::size_t(m.nv) * m.nv);
  for (int i = n - 1; i >= 0; --i) {
    const Model::Body& body = m.bodies[i];
    const DerivativeBody<S>& b = bodies[i];
    const Virtual& t = virtuals[i];
    const Force<S> h{t.Bu.n, t.Bu.f};
    HessianRow<S> rows[6];
    for (int j = 0; j < body.nv; ++j) {
      const auto& c = columns[body.iv + j];
      const Motion<S>& theta = Theta[body.iv + j];
      auto& r = rows[j];
      first_order_row(b, c, r);
      r.C = b.I * theta + cross(c.S_, h);
      r.B = cross_add(c.S_.w, t.g, transposed(b.B, theta) - transposed(t.Bu, c.Psidot));
      r.D = -transposed(t.Bu, c.S_);
      if (lags) {
        r.A += s.wrenches[i].lag(axes, c.S_);
        r.W = s.wrenches[i].transposed_lag(axes, theta) + virtual_lags[i].wrench.across(c.S_);
      }
      if (dq != nullptr) {
        S x = dot_add(c.Psidot.w, t.g, dot_add(theta.v, b.f.f, dot_add(theta.w, b.f.n, dot(c.Psiddot, h))));
        if (lags) x += dot(c.S_, virtual_lags[i].y);
        dq[body.iv + j] = x;
      }
      if (dv != nullptr) dv[body.iv + j] = dot_add(c.S_.w, t.g, dot(c.Vdot, h));
      if (da != nullptr) da[body.iv + j] = dot(c.S_, h);
    }
    fill(m, i, rows, columns, Theta, 0, lags, H);
    if (body.general >= 0) fill_general(m, i, s, t.g, h, lags ? &virtual_lags[i].y : nullptr, &t.u, w + body.iv, H);
    if (body.parent >= 0) {
      auto& p = s.bodies[body.parent];
      p.I += b.I;
      p.B += b.B;
      p.f += b.f;
      auto& tp = virtuals[body.parent];
      tp.Bu += t.Bu;
      tp.g += t.g;
      if (lags) {
        s.wrenches[body.parent] += s.wrenches[i];
        virtual_lags[body.parent].wrench += virtual_lags[i].wrench;
        virtual_lags[body.parent].y += virtual_lags[i].y;
      }
    }
  }
}

// Second derivatives of ID(q, v, a): H for each torque in turn, nv x nv, then next(H), which may move the pointers on.
template <class S, class Next>
void inverse_dynamics_hessians(const Model& m, Arena& arena, const S* q, const S* v, const S* a, const S* f_ext,
                               int axes, Hessians<S>& H, Next&& next) {
  const int n = m.n(), nv = m.nv;
  const SecondOrder<S> s = second_order(m, arena, q, v, a, f_ext, axes, H.qq != nullptr);
  const auto* bodies = s.bodies;
  const auto* columns = s.columns;
  const bool lags = s.wrenches != nullptr;
  // Sums over subtrees, and of each velocity what does not depend on the torque that is differentiated: A, V, U,
  // g = 2 B^T S, 2 E = 2 B[S], and N, the derivative of 2 B along it.
  struct Fixed {
    HessianRow<S> row;
    Vec3<S> g;
    CoriolisInertia<S> E, N;
  };
  auto* fixed = arena.get<Fixed>(nv);
  int* end = arena.get<int>(n);  // of the subtree
  int* carrier = arena.get<int>(nv);
  for (int i = 0; i < n; ++i) end[i] = i + 1;
  for (int i = n - 1; i >= 0; --i) {
    const Model::Body& body = m.bodies[i];
    const DerivativeBody<S>& b = bodies[i];
    for (int j = body.iv; j < body.iv + body.nv; ++j) {
      const auto& c = columns[j];
      Fixed& d = fixed[j];
      carrier[j] = i;
      first_order_row(b, c, d.row);
      if (lags) d.row.A += s.wrenches[i].lag(axes, c.S_);
      d.g = transposed(b.B, c.S_);
      d.E = coriolis_inertia(b.I, c.S_);
      d.N = coriolis_inertia(b.I, c.Psidot);
      d.N.T += coriolis_inertia(RigidInertia<S>{S(0.0), b.B.f, b.B.T}, c.S_).T;
      const Force<S> turned = cross(c.S_, Force<S>{b.B.n, b.B.f});
      d.N.n += turned.n;
      d.N.f += turned.f;
    }
    if (body.parent >= 0) {
      auto& p = s.bodies[body.parent];
      p.I += b.I;
      p.B += b.B;
      p.f += b.f;
      if (lags) s.wrenches[body.parent] += s.wrenches[i];
      if (end[body.parent] < end[i]) end[body.parent] = end[i];
    }
  }
  auto* Theta = arena.get<Motion<S>>(nv);
  S* w = arena.get<S>(nv);
  for (int k = 0; k < nv; ++k) w[k] = S(0.0);
  for (int i = 0; i < nv; ++i) {
    const int I = carrier[i];
    const Motion<S>& u = columns[i].S_;
    const Fixed& e = fixed[i];
    const bool own_turns = m.bodies[I].general >= 0;
    const int turning = own_turns ? I : I + 1;
    clear(H, std::size_t(nv) * nv);
    HessianRow<S> rows[6];
    Force<S> y;
    VirtualWrench<S> wrench;
    if (lags) {
      y = s.wrenches[I].transposed_lag(axes, u);
      wrench = virtual_wrench(axes, s.wrenches[I], u);
    }
    // Joints at and above i: Theta is 0, but R_ik in the joint of i itself
    for (int J = I; J >= 0; J = m.links[J].parent) {
      const Model::Link link = m.links[J];
      for (int j = 0; j < link.nv; ++j) {
        const auto& c = columns[link.iv + j];
        auto& r = rows[j];
        r = fixed[link.iv + j].row;
        r.C = cross(c.S_, e.row.U);
        r.B = cross(c.S_.w, e.g) - transposed(e.E, c.Psidot);
        r.D = -transposed(e.E, c.S_);
        if (lags) r.W = wrench.across(c.S_);
        if (J == I && own_turns) {
          const Motion<S>& R = s.pseudo[36 * m.bodies[I].general + link.nv * (i - link.iv) + j].R;
          Theta[link.iv + j] = R;
          r.C += bodies[I].I * R;
          r.B += transposed(bodies[I].B, R);
          if (lags) r.W += s.wrenches[I].transposed_lag(axes, R);
        }
      }
      fill(m, J, rows, columns, Theta, turning, lags, H);
      if (m.bodies[J].general >= 0) {
        const Force<S>* lag = lags ? &y : nullptr;
        w[i] = S(1.0);
        if (J == I)
          fill_general(m, J, s, e.g, e.row.U, lag, &u, w + link.iv, H);
        else
          fill_general<S>(m, J, s, e.g, e.row.U, lag, nullptr, nullptr, H);
        w[i] = S(0.0);
      }
    }
    // Joints beyond i
    for (int J = I + 1; J < end[I]; ++J) {
      const Model::Link link = m.links[J];
      if (lags) wrench = virtual_wrench(axes, s.wrenches[J], u);
      for (int j = 0; j < link.nv; ++j) {
        const auto& c = columns[link.iv + j];
        const Fixed& d = fixed[link.iv + j];
        auto& r = rows[j];
        const Motion<S> theta = Theta[link.iv + j] = cross(u, c.S_);
        r = d.row;
        r.C = {cross_add(d.E.f, u.v, d.E.T * u.w), cross(u.w, d.E.f)};
        r.B = transposed(d.N, u);
        r.D = transposed(d.E, u);
        if (lags) r.W = s.wrenches[J].transposed_lag(axes, theta) + wrench.across(c.S_);
      }
      fill(m, J, rows, columns, Theta, turning, lags, H);
      if (m.bodies[J].general >= 0) {
        if (lags) y = s.wrenches[J].transposed_lag(axes, u);
        fill_general<S>(m, J, s, transposed(bodies[J].B, u), bodies[J].I * u, lags ? &y : nullptr, &u, nullptr, H);
      }
    }
    next(H);
  }
}

}  // namespace torsor
