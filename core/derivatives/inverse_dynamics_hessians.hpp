// Second derivatives of inverse dynamics, contracted with weights on the torques and dense.
// docs/derivations/second_order.md.
//
// L = w . ID is the power of the bodies' forces on the virtual velocities u due to w
// (derivatives/inverse_dynamics_vjp.hpp). Its gradient differentiated once more has, for a velocity j and a velocity k
// of the same joint or of one above it, with sums over the subtree of j and Theta = u_p x S, 2 Bu = 2 B[u], g = 2 B^T
// u, h = I u,
//   A = S x* f + 2 B Psidot + I Psiddot     V = 2 B S + I Vdot                                U = I S
//   C = I Theta + S x* h                    B = 2 B^T Theta - 2 Bu^T Psidot + S x* g          D = -2 Bu^T S
//   d/dq_k dL/dq_j = Theta_k.A + Psidot_k.B + Psiddot_k.C      d/dv_j dL/dq_k = Theta_k.V + Psidot_k.D
//   d/dv_k dL/dq_j = S_k.B + Vdot_k.C                          d/dv_k dL/dv_j = S_k.D
//   d/dq_k dL/da_j = Theta_k.U                                 d/dq_j dL/da_k = S_k.C
// B and D are moments alone. Dense tensors are the case w = e_i, one slab for each i, with u = S_i at and beyond joint
// i.
#pragma once
#include <algorithm>
#include <cstddef>

#include "derivatives/inverse_dynamics_derivatives.hpp"

namespace torsor {

// nv x nv each, row-major; any may be null. qq[j][k] = d/dq_k dL/dq_j, qv[j][k] = d/dv_k dL/dq_j, aq[j][k] = d/dq_k
// dL/da_j.
template <class S>
struct Hessians {
  S *qq, *qv, *vv, *aq;
};

// Wrenches (n, f) that do not rotate with a subtree, on virtual velocities u: the part of d/dq_k (u.lag(c)) that is
// bilinear in the columns c and S_k is -c^T [[P, G], [G, 0]] S_k, P = n u_w^T + f u_v^T and G = f u_w^T, both less
// their traces, in the world's frame; in the world's axes n and u_v are those at the bodies' origins, and G is 0.
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
    const Motion<S> own = b.world(r1);
    c.R = b.world(g.ds[jk]);
    c.Rdot = cross(b.v, c.R) + own;
    if (second) c.Rddot = cross(b.a, c.R) + cross(b.v, c.Rdot + own) + b.world(r2);
  }
}

// The input of second derivatives: motions, sums over subtrees, wrenches that do not rotate with the bodies (or null),
// pseudo-columns.
template <class S>
struct SecondOrder {
  Motions<S> all;
  const WorldWrench<S>* wrenches;
  int axes;
  PseudoColumn<S>* pseudo;  // 36 for each joint with S(q)
  bool lags() const { return wrenches != nullptr; }
};
template <class S>
SecondOrder<S> second_order(const Model& m, Arena& arena, const Motions<S>& all, const WorldWrench<S>* wrenches,
                            int axes, const S* q, const S* v, const S* a, bool wants_qq) {
  SecondOrder<S> s{all, wrenches, axes, arena.get<PseudoColumn<S>>(36 * m.general.size())};
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    if (body.general >= 0)
      pseudo_columns(m, arena, body, all.bodies[i], all.general[body.general], q, v, a, wants_qq,
                     s.pseudo + 36 * body.general);
  }
  return s;
}

// The vectors of a velocity in its pairs with velocities of its own joint and of those above: with weights,
template <class S>
struct VirtualRow {
  Force<S> C, W;  // W from the lag of wrenches: d/dq_k dL/dq_j gains S_k.W
  Vec3<S> B, D;
};
// and without.
template <class S>
struct FixedRow {
  Force<S> A, V, U;
};
// The same for several columns at a time.
template <class S>
TORSOR_INLINE decltype(auto) lifted(const FixedRow<S>& r) {
  using V = Wide<S>;
  if constexpr (std::is_same_v<V, S>)
    return (r);
  else
    return FixedRow<V>{lift<V>(r.A), lift<V>(r.V), lift<V>(r.U)};
}
template <class S>
TORSOR_INLINE decltype(auto) lifted(const VirtualRow<S>& r, bool lags) {
  using V = Wide<S>;
  if constexpr (std::is_same_v<V, S>)
    return (r);
  else
    return VirtualRow<V>{lift<V>(r.C), lags ? lift<V>(r.W) : zero_force<V>(), lift<V>(r.B), lift<V>(r.D)};
}
template <class S>
FixedRow<S> fixed_row(const SecondOrder<S>& s, int i, int j) {
  const auto& b = s.all.bodies[i];
  const auto& c = s.all.columns[j];
  FixedRow<S> r{cross(c.S_, b.f) + b.B * c.Psidot + b.I * c.Psiddot, b.B * c.S_ + b.I * c.Vdot, b.I * c.S_};
  if (s.lags()) r.A += s.wrenches[i].lag(s.axes, c.S_);
  return r;
}

// Columns on the path to a body.
template <class S>
struct Above {
  Path<DerivativeColumn, S> columns;
  int* root;  // by body: how many columns of its path are of a spherical or free joint on the world
  Above(const Model& m, Arena& arena, const DerivativeColumn<S>* columns)
      : columns(m, arena, columns), root(arena.get<int>(m.n())) {
    for (int i = 0; i < m.n(); ++i) {
      const Model::Link& link = m.links[i];
      root[i] = link.parent >= 0 ? root[link.parent] : m.bodies[i].general < 0 && link.nv > 1 ? link.nv : 0;
    }
  }
};

// The motion of columns above a row: on the world (Theta = Psidot = 0 and Psiddot linear), without virtual velocity
// below them (Theta = 0), or arbitrary.
enum class Moves { root, still, any };

// Entries of row j and columns k of the path, several columns at a time: d/dq_k dL/dq_j and so on.
template <class V>
struct PairEntries {
  V qq, qv, vq, vv, aq, qa;
};
// Of columns c, at t on the path. turn(t, c): the factor of A, V and U of the row for them.
template <bool own, Moves moves, class V, class Turn>
TORSOR_INLINE PairEntries<V> pair_entries(const FixedRow<V>& fixed, const VirtualRow<V>& row,
                                          const DerivativeColumn<V>& c, int t, const Turn& turn, bool lags) {
  const auto& [C, W, B, D] = row;
  PairEntries<V> e{V(0.0), V(0.0), V(0.0), dot(c.S_.w, D), V(0.0), V(0.0)};
  if constexpr (moves == Moves::root)
    e.qq = dot(c.Psiddot.v, C.f);
  else
    e.qq = dot_add(c.Psidot.w, B, dot(c.Psiddot, C));
  if (lags) e.qq += dot(c.S_, W);
  if constexpr (!own) {
    e.qv = dot_add(c.S_.w, B, dot(c.Vdot, C));
    e.qa = dot(c.S_, C);
  }
  if constexpr (moves == Moves::still) e.vq = dot(c.Psidot.w, D);
  if constexpr (moves == Moves::any) {
    const Motion<V> Theta = turn(t, c);
    e.qq += dot(Theta, fixed.A);
    e.vq = dot_add(c.Psidot.w, D, dot(Theta, fixed.V));
    e.aq = dot(Theta, fixed.U);
  }
  return e;
}

// Writes those of one column k, into row j and column j. `all`: no matrix is null.
template <bool own, Moves moves, class S>
TORSOR_INLINE void put_entries(const PairEntries<S>& e, std::size_t nv, std::size_t j, std::size_t k, bool all,
                               const Hessians<S>& H) {
  const std::size_t jk = j * nv + k, kj = k * nv + j;
  if (all || H.qq != nullptr) {
    H.qq[jk] = e.qq;
    if (!own) H.qq[kj] = e.qq;
  }
  if (all || H.qv != nullptr) {
    if (!own) H.qv[jk] = e.qv;
    if (moves != Moves::root) H.qv[kj] = e.vq;
  }
  if (all || H.vv != nullptr) {
    H.vv[jk] = e.vv;
    if (!own) H.vv[kj] = e.vv;
  }
  if (all || H.aq != nullptr) {
    if (moves == Moves::any) H.aq[jk] = e.aq;
    if (!own) H.aq[kj] = e.qa;
  }
}
// Those of consecutive columns from k on, which are not of the row's own joint.
template <Moves moves, class S, class V>
TORSOR_INLINE void put_consecutive(const PairEntries<V>& e, std::size_t nv, std::size_t j, std::size_t k, bool all,
                                   const Hessians<S>& H) {
  constexpr int width = sizeof(V) / sizeof(S);
  const std::size_t jk = j * nv + k;
  const auto put_column = [&](const V& x, S* X) TORSOR_INLINE_LAMBDA {
    S* column = X + k * nv + j;
#pragma GCC unroll 8
    for (int l = 0; l < width; ++l, column += nv) *column = reinterpret_cast<const S*>(&x)[l];
  };
  if (all || H.qq != nullptr) {
    store(e.qq, H.qq + jk);
    put_column(e.qq, H.qq);
  }
  if (all || H.qv != nullptr) {
    store(e.qv, H.qv + jk);
    if (moves != Moves::root) put_column(e.vq, H.qv);
  }
  if (all || H.vv != nullptr) {
    store(e.vv, H.vv + jk);
    put_column(e.vv, H.vv);
  }
  if (all || H.aq != nullptr) {
    if (moves == Moves::any) store(e.aq, H.aq + jk);
    put_column(e.qa, H.aq);
  }
}

// Row j against columns `from` to `to` of the path: of its own joint, or of those above. In the joint itself each pair
// has two orders, and d/dv_k dL/dv_j is the mean of what is written here for both.
template <bool own, Moves moves, class S, class Turn>
TORSOR_INLINE void pair_row(const FixedRow<Wide<S>>& fixed, const VirtualRow<Wide<S>>& row, const Above<S>& above,
                            const Turn& turn, int from, int to, bool lags, std::size_t nv, int j, const Hessians<S>& H,
                            bool all) {
  using V = Wide<S>;
  if (from >= to) return;
  const auto& path = above.columns;
  for (int t = from / path.width * path.width; t < to; t += path.width) {
    const PairEntries<V> e = pair_entries<own, moves>(fixed, row, path.at(t), t, turn, lags);
    const bool whole = path.width == 1 || (t >= from && t + path.width <= to);
    if (!own && path.width > 1 && whole && path.consecutive(t)) {
      put_consecutive<moves>(e, nv, j, path.velocity(t), all, H);
      continue;
    }
    S x[6][Path<DerivativeColumn, S>::width];
    store(e.qq, x[0]);
    store(e.qv, x[1]);
    store(e.vq, x[2]);
    store(e.vv, x[3]);
    store(e.aq, x[4]);
    store(e.qa, x[5]);
    const auto put = [&](int l) TORSOR_INLINE_LAMBDA {
      const PairEntries<S> one{x[0][l], x[1][l], x[2][l], x[3][l], x[4][l], x[5][l]};
      put_entries<own, moves>(one, nv, j, path.velocity(t + l), all, H);
    };
    if (whole) {
#pragma GCC unroll 8
      for (int l = 0; l < path.width; ++l) put(l);
    } else {
      for (int l = std::max(0, from - t); l < std::min(path.width, to - t); ++l) put(l);
    }
  }
}

// All entries of the rows of body i with its own joint and with those above. Columns of the path before `turning` have
// Theta = 0. Entries that are zero by structure are not written.
template <class S, class Turn>
void fill_rows(const Model& m, int i, const FixedRow<S>* fixed, const VirtualRow<S>* rows, const Above<S>& above,
               const Turn& turn, int turning, bool lags, const Hessians<S>& H) {
  const std::size_t nv = m.nv;
  const Model::Link& link = m.links[i];
  const bool all = H.qq != nullptr && H.qv != nullptr && H.vv != nullptr && H.aq != nullptr;
  const bool on_world = link.parent < 0 && above.root[i] > 0, turns = link.above >= turning;
  const bool single = link.nv == 1;  // the formulas for two joints hold for a pair with itself
  const int end = link.above + link.nv, last = single ? end : link.above;
  const int root = std::min(above.root[i], last), still = std::max(root, std::min(turning, last));
  for (int j = 0; j < link.nv; ++j) {
    const auto& f = lifted(fixed[j]);
    const auto& r = lifted(rows[j], lags);
    const int row = link.iv + j;
    if (on_world)
      pair_row<true, Moves::root>(f, r, above, turn, last, end, lags, nv, row, H, all);
    else if (!turns)
      pair_row<true, Moves::still>(f, r, above, turn, last, end, lags, nv, row, H, all);
    else
      pair_row<true, Moves::any>(f, r, above, turn, last, end, lags, nv, row, H, all);
    pair_row<false, Moves::root>(f, r, above, turn, 0, root, lags, nv, row, H, all);
    pair_row<false, Moves::still>(f, r, above, turn, root, still, lags, nv, row, H, all);
    pair_row<false, Moves::any>(f, r, above, turn, still, last, lags, nv, row, H, all);
    if (single && !turns && H.aq != nullptr) H.aq[row * nv + row] = S(0.0);
  }
  if (H.vv != nullptr && link.nv > 1)
    for (std::size_t j = link.iv; j < std::size_t(link.iv + link.nv); ++j)
      for (std::size_t k = link.iv; k < j; ++k)
        H.vv[j * nv + k] = H.vv[k * nv + j] = S(0.5) * (H.vv[j * nv + k] + H.vv[k * nv + j]);
}

// The terms that a joint with S(q) adds to the pairs within it: its gradient with R_jk in place of S_j. f, g, h, y:
// sums over its subtree. u: virtual velocity of its body, and w: weights of its velocities, each null if zero.
template <class S>
void fill_general(const Model& m, int i, const SecondOrder<S>& s, const Vec3<S>& g, const Force<S>& h,
                  const Force<S>* y, const Motion<S>* u, const S* w, const Hessians<S>& H) {
  const Model::Body& body = m.bodies[i];
  const int n = body.nv;
  const std::size_t nv = m.nv;
  const DerivativeBody<S>& b = s.all.bodies[i];
  const PseudoColumn<S>* pseudo = s.pseudo + 36 * body.general;
  const Motion<S>* d2s = s.all.general[body.general].d2s;
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

// Products of a subtree with virtual velocities u: 2 B[u], whose n and f are h = I u, and g = 2 B^T u.
template <class S>
struct VirtualProducts {
  CoriolisInertia<S> Bu;
  Vec3<S> g;
  TORSOR_INLINE VirtualProducts& operator+=(const VirtualProducts& b) {
    Bu += b.Bu;
    g += b.g;
    return *this;
  }
};
template <class S>
TORSOR_INLINE VirtualProducts<S> virtual_products(const DerivativeBody<S>& b, const Motion<S>& u) {
  return {coriolis_inertia(b.I, u), transposed(b.B, u)};
}
// And of the wrenches on it that do not rotate with it.
template <class S>
struct VirtualLag {
  VirtualWrench<S> wrench;
  Force<S> y;
  TORSOR_INLINE VirtualLag& operator+=(const VirtualLag& b) {
    wrench += b.wrench;
    y += b.y;
    return *this;
  }
};
template <class S>
VirtualLag<S> virtual_lag(int axes, const WorldWrench<S>& wrench, const Motion<S>& u) {
  return {virtual_wrench(axes, wrench, u), wrench.transposed_lag(axes, u)};
}

// Virtual velocities u of bodies (u[-1] = 0) and Theta of columns, for weights w on the torques; and for each subtree
// its products with the contribution of its joint to u.
template <class S>
struct VirtualMotions {
  Motion<S>*u, *Theta;
  VirtualProducts<S>* products;
  VirtualLag<S>* lags;  // if wrenches do not rotate with the bodies
};
template <class S>
VirtualMotions<S> virtual_motions(const Model& m, Arena& arena, const SecondOrder<S>& s, const S* w) {
  const int n = m.n();
  VirtualMotions<S> t;
  t.u = arena.get<Motion<S>>(n + 1) + 1;
  t.products = arena.get<VirtualProducts<S>>(n);
  t.lags = arena.get<VirtualLag<S>>(s.lags() ? n : 0);
  t.Theta = arena.get<Motion<S>>(m.nv);
  t.u[-1] = zero_motion<S>();
  for (int i = 0; i < n; ++i) {
    const Model::Body& body = m.bodies[i];
    const Motion<S>& up = t.u[body.parent];
    Motion<S> added = zero_motion<S>();
    for (int k = body.iv; k < body.iv + body.nv; ++k) {
      added = mul_add(w[k], s.all.columns[k].S_, added);
      t.Theta[k] = cross(up, s.all.columns[k].S_);
    }
    if (body.general >= 0)
      for (int j = 0; j < body.nv; ++j)
        for (int k = 0; k < body.nv; ++k)
          t.Theta[body.iv + k] =
              mul_add(w[body.iv + j], s.pseudo[36 * body.general + body.nv * j + k].R, t.Theta[body.iv + k]);
    t.u[i] = up + added;
    t.products[i] = virtual_products(s.all.bodies[i], added);
    if (s.lags()) t.lags[i] = virtual_lag(s.axes, s.wrenches[i], added);
  }
  return t;
}

// Second derivatives of w . ID(q, v, a), and its gradients dq, dv, da (nv each, may be null) on the way.
template <class S>
void contracted_hessians(const Model& m, Arena& arena, const SecondOrder<S>& s, const S* w, const Hessians<S>& H, S* dq,
                         S* dv, S* da) {
  const auto* bodies = s.all.bodies;
  const auto* columns = s.all.columns;
  const VirtualMotions<S> virtuals = virtual_motions(m, arena, s, w);
  clear(H, std::size_t(m.nv) * m.nv);
  Above<S> above(m, arena, columns);
  Path<Motion, S> turns(m, arena, virtuals.Theta);
  const auto turn = [&](int t, const auto&) TORSOR_INLINE_LAMBDA { return turns.at(t); };
  for (int i = m.n() - 1; i >= 0; --i) {
    const Model::Body& body = m.bodies[i];
    const DerivativeBody<S>& b = bodies[i];
    // The sum over the subtree of the products of bodies with u equals the sum of the products of subtrees with the
    // contributions of their joints to u, plus the product with u of the parent.
    if (body.parent >= 0) {
      const Motion<S>& up = virtuals.u[body.parent];
      virtuals.products[body.parent] += virtuals.products[i];
      virtuals.products[i] += virtual_products(b, up);
      if (s.lags()) {
        virtuals.lags[body.parent] += virtuals.lags[i];
        virtuals.lags[i] += virtual_lag(s.axes, s.wrenches[i], up);
      }
    }
    const VirtualProducts<S>& t = virtuals.products[i];
    const Force<S> h{t.Bu.n, t.Bu.f};
    FixedRow<S> fixed[6];
    VirtualRow<S> rows[6];
    for (int j = 0; j < body.nv; ++j) {
      const auto& c = columns[body.iv + j];
      const Motion<S>& Theta = virtuals.Theta[body.iv + j];
      auto& r = rows[j];
      fixed[j] = fixed_row(s, i, body.iv + j);
      r.C = b.I * Theta + cross(c.S_, h);
      r.B = cross_add(c.S_.w, t.g, transposed(b.B, Theta) - transposed(t.Bu, c.Psidot));
      r.D = -transposed(t.Bu, c.S_);
      if (s.lags()) r.W = s.wrenches[i].transposed_lag(s.axes, Theta) + virtuals.lags[i].wrench.across(c.S_);
      if (dq != nullptr) {
        S x = dot_add(c.Psidot.w, t.g, dot_add(Theta.v, b.f.f, dot_add(Theta.w, b.f.n, dot(c.Psiddot, h))));
        if (s.lags()) x += dot(c.S_, virtuals.lags[i].y);
        dq[body.iv + j] = x;
      }
      if (dv != nullptr) dv[body.iv + j] = dot_add(c.S_.w, t.g, dot(c.Vdot, h));
      if (da != nullptr) {
        da[body.iv + j] = dot(c.S_, h);
        if (s.all.armature != nullptr)
          da[body.iv + j] = mul_add(s.all.armature[body.iv + j], w[body.iv + j], da[body.iv + j]);
      }
    }
    above.columns.enter(i);
    turns.enter(i);
    fill_rows(m, i, fixed, rows, above, turn, 0, s.lags(), H);
    if (body.general >= 0)
      fill_general(m, i, s, t.g, h, s.lags() ? &virtuals.lags[i].y : nullptr, &virtuals.u[i], w + body.iv, H);
  }
}

// y with S.y = (u x S).F for all S
template <class S>
TORSOR_INLINE Force<S> turned_back(const Motion<S>& u, const Force<S>& F) {
  const Force<S> x = cross(u, F);
  return {-x.n, -x.f};
}

// The rows of a body against the columns of one joint whose Theta are R, which were left out before. below: whether the
// body is beyond the joint.
template <class S>
void add_turns(std::size_t nv, const Model::Link& rows, const Model::Link& joint, const PseudoColumn<S>* R,
               const FixedRow<S>* fixed, bool below, const Hessians<S>& H) {
  for (int r = 0; r < rows.nv; ++r)
    for (int c = 0; c < joint.nv; ++c) {
      const std::size_t j = rows.iv + r, k = joint.iv + c, jk = j * nv + k, kj = k * nv + j;
      if (H.qq != nullptr) H.qq[jk] += dot(R[c].R, fixed[r].A);
      if (H.qq != nullptr && below) H.qq[kj] = H.qq[jk];
      if (H.qv != nullptr) H.qv[kj] += dot(R[c].R, fixed[r].V);
      if (H.aq != nullptr) H.aq[jk] += dot(R[c].R, fixed[r].U);
    }
}

// The quantities of all velocities that do not depend on the torque that is differentiated: A, V, U, g = 2 B^T S, E = 2
// B[S], and N, the derivative of 2 B along the velocity.
template <class S>
struct FixedTerms {
  struct Products {
    Vec3<S> g;
    CoriolisInertia<S> E, N;
  };
  FixedRow<S>* rows;
  Products* products;
};
template <class S>
FixedTerms<S> fixed_terms(const Model& m, Arena& arena, const SecondOrder<S>& s) {
  FixedTerms<S> t{arena.get<FixedRow<S>>(m.nv), arena.get<typename FixedTerms<S>::Products>(m.nv)};
  for (int i = m.n() - 1; i >= 0; --i) {
    const Model::Link& link = m.links[i];
    const DerivativeBody<S>& b = s.all.bodies[i];
    for (int j = link.iv; j < link.iv + link.nv; ++j) {
      const auto& c = s.all.columns[j];
      auto& d = t.products[j];
      t.rows[j] = fixed_row(s, i, j);
      d.g = transposed(b.B, c.S_);
      d.E = coriolis_inertia(b.I, c.S_);
      d.N = coriolis_inertia(b.I, c.Psidot);
      d.N.T += coriolis_inertia(RigidInertia<S>{S(0.0), b.B.f, b.B.T}, c.S_).T;
      const Force<S> turned = cross(c.S_, Force<S>{b.B.n, b.B.f});
      d.N.n += turned.n;
      d.N.f += turned.f;
    }
  }
  return t;
}

// A torque i that is differentiated: L = tau_i, with virtual velocities u = S_i at and beyond joint I.
template <class S>
struct TorqueSlab {
  int i, I;
  Motion<S> u;
  const PseudoColumn<S>* R;  // R_ik of the columns k of joint I, if it has S(q), or null
  int turning;               // columns of the path to joint I: those beyond have Theta = u x S
};
// The factor of A, V and U of a row beyond joint I, where Theta.A = (u x S).A = S.(-u x* A).
struct ColumnTurn {
  template <class Column>
  TORSOR_INLINE auto operator()(int, const Column& c) const {
    return c.S_;
  }
};

// The rows of joint I and of those above it. Theta_k = R_ik in joint I itself, and zero above.
template <class S>
void fill_above(const Model& m, const SecondOrder<S>& s, const FixedTerms<S>& terms, const TorqueSlab<S>& slab,
                Above<S>& above, const Hessians<S>& H) {
  const auto& [i, I, u, R, turning] = slab;
  const bool lags = s.lags();
  const int axes = s.axes;
  const auto& e = terms.products[i];
  const Force<S>& U = terms.rows[i].U;
  VirtualRow<S> rows[6];
  Force<S> y;
  VirtualWrench<S> wrench;
  if (lags) {
    y = s.wrenches[I].transposed_lag(axes, u);
    wrench = virtual_wrench(axes, s.wrenches[I], u);
  }
  above.columns.enter(I);
  for (int J = I; J >= 0; J = m.links[J].parent) {
    const Model::Link& link = m.links[J];
    for (int j = 0; j < link.nv; ++j) {
      const auto& c = s.all.columns[link.iv + j];
      auto& r = rows[j];
      r.C = cross(c.S_, U);
      r.B = cross(c.S_.w, e.g) - transposed(e.E, c.Psidot);
      r.D = -transposed(e.E, c.S_);
      if (lags) r.W = wrench.across(c.S_);
      if (J == I && R != nullptr) {
        const DerivativeBody<S>& b = s.all.bodies[I];
        r.C += b.I * R[j].R;
        r.B += transposed(b.B, R[j].R);
        if (lags) r.W += s.wrenches[I].transposed_lag(axes, R[j].R);
      }
    }
    fill_rows(m, J, terms.rows + link.iv, rows, above, ColumnTurn(), turning, lags, H);
    if (m.bodies[J].general < 0) continue;
    S w[6] = {};  // weights of this joint
    if (J == I) w[i - link.iv] = S(1.0);
    fill_general<S>(m, J, s, e.g, U, lags ? &y : nullptr, J == I ? &u : nullptr, J == I ? w : nullptr, H);
  }
  if (R != nullptr) add_turns(m.nv, m.links[I], m.links[I], R, terms.rows + m.links[I].iv, false, H);
}

// The rows of the joints beyond I, the last of which is `end` - 1.
template <class S>
void fill_beyond(const Model& m, const SecondOrder<S>& s, const FixedTerms<S>& terms, const TorqueSlab<S>& slab,
                 int end, Above<S>& above, const Hessians<S>& H) {
  const auto& [i, I, u, R, turning] = slab;
  const bool lags = s.lags();
  const int axes = s.axes;
  for (int J = I + 1; J < end; ++J) {
    const Model::Link& link = m.links[J];
    FixedRow<S> turned[6];
    VirtualRow<S> rows[6];
    VirtualWrench<S> wrench;
    if (lags) wrench = virtual_wrench(axes, s.wrenches[J], u);
    for (int j = 0; j < link.nv; ++j) {
      const auto& c = s.all.columns[link.iv + j];
      const auto& d = terms.products[link.iv + j];
      const FixedRow<S>& f = terms.rows[link.iv + j];
      auto& r = rows[j];
      turned[j] = {turned_back(u, f.A), turned_back(u, f.V), turned_back(u, f.U)};
      r.C = {cross_add(d.E.f, u.v, d.E.T * u.w), cross(u.w, d.E.f)};
      r.B = transposed(d.N, u);
      r.D = transposed(d.E, u);
      if (lags) r.W = s.wrenches[J].transposed_lag(axes, cross(u, c.S_)) + wrench.across(c.S_);
    }
    above.columns.enter(J);
    fill_rows(m, J, turned, rows, above, ColumnTurn(), turning, lags, H);
    if (R != nullptr) add_turns(m.nv, link, m.links[I], R, terms.rows + link.iv, true, H);
    if (m.bodies[J].general >= 0) {
      const DerivativeBody<S>& b = s.all.bodies[J];
      Force<S> y;
      if (lags) y = s.wrenches[J].transposed_lag(axes, u);
      fill_general<S>(m, J, s, transposed(b.B, u), b.I * u, lags ? &y : nullptr, &u, nullptr, H);
    }
  }
}

// Second derivatives of ID(q, v, a): H for each torque in turn, nv x nv, then next(H), which may move the pointers on.
template <class S, class Next>
void dense_hessians(const Model& m, Arena& arena, const SecondOrder<S>& s, Hessians<S>& H, Next&& next) {
  const int n = m.n(), nv = m.nv;
  const FixedTerms<S> terms = fixed_terms(m, arena, s);
  int* end = arena.get<int>(n);  // of the subtree
  int* carrier = arena.get<int>(nv);
  for (int i = n - 1; i >= 0; --i) {
    end[i] = i + 1;
    while (end[i] < n && m.links[end[i]].parent >= i) end[i] = end[end[i]];
    for (int j = m.links[i].iv; j < m.links[i].iv + m.links[i].nv; ++j) carrier[j] = i;
  }
  Above<S> above(m, arena, s.all.columns);
  for (int i = 0; i < nv; ++i) {
    const int I = carrier[i], general = m.bodies[I].general;
    const Model::Link& link = m.links[I];
    const PseudoColumn<S>* R = general >= 0 ? s.pseudo + 36 * general + link.nv * (i - link.iv) : nullptr;
    const TorqueSlab<S> slab{i, I, s.all.columns[i].S_, R, link.above + link.nv};
    clear(H, std::size_t(nv) * nv);
    fill_above(m, s, terms, slab, above, H);
    fill_beyond(m, s, terms, slab, end[I], above, H);
    next(H);
  }
}

// The input of both, for a state.
template <class S>
SecondOrder<S> second_order(const Model& m, Arena& arena, const S* q, const S* v, const S* a, const S* f_ext, int axes,
                            bool wants_qq) {
  const Motions<S> all = motions(m, arena, q, v, a);
  const auto* wrenches = sum_subtrees(m, arena, all.bodies, f_ext, axes);
  return second_order(m, arena, all, wrenches, axes, q, v, a, wants_qq);
}

}  // namespace torsor
