// Motions of all bodies and of the columns of all joints, and sums of inertias and forces over subtrees: the input of
// derivatives and forces.
//
// Spatial quantities in the world's axes about one point for each tree: the origin of its first body with mass now, so
// that nothing loses digits far from the world's origin. A velocity k has a column S_k with
//   Psidot_k, Psiddot_k   first and second time derivative of the column as if it moved with the parent body
//   Sdot_k                time derivative of the column
// For joints with S(q), Psidot = Sdot and Psiddot = Sddot, and dtau_j/dq_k gains R_jk . f for j, k in one joint, where
// R_jk is the derivative of the child's column j along k (docs/derivations/joints_with_S_of_q.md).
#pragma once
#include "tree/column_path.hpp"
#include "tree/poses.hpp"

namespace torsor {

template <class S>
struct DerivativeBody {
  Mat3<S> R;       // axes
  Vec3<S> p;       // origin, seen from the tree's point
  Vec3<S> origin;  // the tree's point, in the world
  Motion<S> v, a;
  RigidInertia<S> I;     // of the subtree, from the backward pass on
  CoriolisInertia<S> B;  // 2 B of the subtree
  Force<S> f;            // of the subtree
  // A motion in the body's frame, in the world's axes about the tree's point.
  TORSOR_INLINE Motion<S> world(const Motion<S>& x) const { return shift(Motion<S>{R * x.w, R * x.v}, -p); }
};
template <class S>
struct DerivativeColumn {
  Motion<S> S_, Psidot, Psiddot, Vdot;  // Vdot = Psidot + Sdot
};
template <class S>
struct DerivativeGeneral : GeneralState<S> {
  Motion<S> d2s[216];
};

// Rates of the columns of a joint with constant S.
template <class S>
TORSOR_INLINE void column_rates(int nv, const DerivativeBody<S>* p, const DerivativeBody<S>& b,
                                DerivativeColumn<S>* columns) {
  for (int k = 0; k < nv; ++k) {
    auto& c = columns[k];
    c.Psidot = cross(p->v, c.S_);
    c.Psiddot = cross(p->a, c.S_) + cross(p->v, c.Psidot);
    c.Vdot = c.Psidot + cross(b.v, c.S_);
  }
}
// Columns and, if asked for, their rates for a joint with constant S.
template <class S, class Joint, class Body>
TORSOR_INLINE void constant_columns(const Joint& joint, const Body& body, const DerivativeBody<S>* p, const S* v,
                                    const S* a, bool rates, DerivativeBody<S>& b, DerivativeColumn<S>* columns) {
  Motion<S> Sv = zero_motion<S>(), Sa = zero_motion<S>();
  for (int k = 0; k < joint.nv; ++k) {
    auto& c = columns[body.iv + k];
    c.S_ = shift(joint.column(b.R, k), -b.p);
    Sv = mul_add(v[body.iv + k], c.S_, Sv);
    Sa = mul_add(a[body.iv + k], c.S_, Sa);
  }
  b.v = p->v + Sv;
  b.a = p->a + Sa + cross(p->v, Sv);
  if (rates) column_rates(joint.nv, p, b, columns + body.iv);
}

// The same for a joint with S(q), whose ds and d2s are known.
template <class S, class Body>
void general_columns(const DerivativeGeneral<S>& g, int n, const Body& body, const DerivativeBody<S>* p, const S* v,
                     const S* a, DerivativeBody<S>& b, DerivativeColumn<S>* columns) {
  const S *vj = v + body.iv, *aj = a + body.iv;
  Motion<S> s1[6], s2[6];  // first and second rate in the child's frame
  Motion<S> Sv = zero_motion<S>(), Sa = zero_motion<S>(), bias = zero_motion<S>();
  for (int j = 0; j < n; ++j) {
    s1[j] = s2[j] = zero_motion<S>();
    for (int k = 0; k < n; ++k) {
      s1[j] = mul_add(vj[k], g.ds[n * j + k], s1[j]);
      s2[j] = mul_add(aj[k], g.ds[n * j + k], s2[j]);
      for (int l = 0; l < n; ++l) s2[j] = mul_add(vj[k] * vj[l], g.d2s[n * (n * j + k) + l], s2[j]);
    }
    auto& c = columns[body.iv + j];
    c.S_ = b.world(g.s[j]);
    Sv = mul_add(vj[j], c.S_, Sv);
    Sa = mul_add(aj[j], c.S_, Sa);
    bias = mul_add(vj[j], s1[j], bias);
  }
  b.v = p->v + Sv;
  b.a = p->a + Sa + cross(b.v, Sv) + b.world(bias);
  for (int j = 0; j < n; ++j) {
    auto& c = columns[body.iv + j];
    const Motion<S> own = b.world(s1[j]);
    c.Psidot = cross(b.v, c.S_) + own;
    c.Psiddot = cross(b.a, c.S_) + cross(b.v, c.Psidot + own) + b.world(s2[j]);
    c.Vdot = c.Psidot + c.Psidot;
  }
}

// External wrenches of a subtree that do not rotate with it: given in the world's frame (1), or in the world's axes at
// the bodies' origins (2). When the subtree moves with a column S, a co-rotating wrench F changes by S x* F. The change
// of these differs from it by -lag(S), with lag(S) =
//   1: S x* F      2: (K w, w x f), linear in the angular part w of S
template <class S>
struct WorldWrench {
  Force<S> F;
  Mat3<S> K;  // sum of (p.f) 1 - f p^T - [n] over wrenches (n, f) at p
  TORSOR_INLINE WorldWrench& operator+=(const WorldWrench& b) {
    F += b.F;
    K.x += b.K.x;
    K.y += b.K.y;
    K.z += b.K.z;
    return *this;
  }
  TORSOR_INLINE Force<S> lag(int axes, const Motion<S>& c) const {
    if (axes == 1) return cross(c, F);
    return {K * c.w, cross(c.w, F.f)};
  }
  // y with y.c = r.lag(c) for all columns c
  TORSOR_INLINE Force<S> transposed_lag(int axes, const Motion<S>& r) const {
    if (axes == 1) {
      const Force<S> x = cross(r, F);
      return {-x.n, -x.f};
    }
    return {cross_add(F.f, r.v, transposed(K, r.w)), zero3<S>()};
  }
};
// F at p; n its moment about p.
template <class S>
WorldWrench<S> world_wrench(const Vec3<S>& n, const Vec3<S>& f, const Vec3<S>& p) {
  const S pf = dot(p, f);
  return {{cross_add(p, f, n), f},
          {{mul_add(-p.x, f.x, pf), mul_add(-p.x, f.y, -n.z), mul_add(-p.x, f.z, n.y)},
           {mul_add(-p.y, f.x, n.z), mul_add(-p.y, f.y, pf), mul_add(-p.y, f.z, -n.x)},
           {mul_add(-p.z, f.x, -n.y), mul_add(-p.z, f.y, n.x), mul_add(-p.z, f.z, pf)}}};
}

// Motion of all bodies and of all columns. Gravity is an acceleration of the world, if asked for; the rates of columns
// may be left out until add_rates.
template <class S>
struct Motions {
  DerivativeBody<S>* bodies;  // bodies[-1] is the world
  DerivativeColumn<S>* columns;
  DerivativeGeneral<S>* general;
  const S* armature = nullptr;                        // of the model, by velocity; null if there is none
  const Model::Frame* frames = nullptr;               // the user's bodies, if they are the same in all lanes,
  const typename ModelT<S>::Frame* varied = nullptr;  // or if not
  // The pose of a user's body in the one that carries it, or in the world; -1: of the world itself.
  using Constant = std::conditional_t<(Lanes<S>::value > 1), S, double>;
  TORSOR_INLINE SE3<Constant> pose(int frame) const {
    if (frame < 0) return {identity3<Constant>(), zero3<Constant>()};
    if constexpr (Lanes<S>::value > 1)
      if (varied != nullptr) return varied[frame].pose;
    return lift<Constant>(frames[frame].pose);
  }
};
// Axes of a body on a joint with S(q), and its origin as seen from its parent's, like `place`. The joint is evaluated
// into g, up to `level`.
template <class S, class C>
TORSOR_INLINE SE3<S> place_general(const ModelT<C>& m, const typename ModelT<C>::Body& body, const Mat3<S>* parent,
                                   const S* q, int level, DerivativeGeneral<S>& g) {
  evaluate(m.general[body.general], q + body.iq, level, GeneralTerms<S>{g.T, g.s, g.ds, g.d2s});
  return parent ? SE3<S>{*parent * body.M.R, *parent * body.M.p} * g.T : body.M * g.T;
}

// From the origin of a massless root to that of the first body with mass, if that is carried by massless ones alone.
template <class S, class C>
Vec3<S> to_first_mass(const ModelT<C>& m, int root, const S* q, const Coordinates<S>& x,
                      DerivativeGeneral<S>* general) {
  const auto pose = [&](int i, const Mat3<S>* axes) -> SE3<S> {
    const auto& body = m.bodies[i];
    if (body.general >= 0) return place_general(m, body, axes, q, 1, general[body.general]);
    SE3<S> X;
    visit_constant<S>(body, [&](auto joint) TORSOR_INLINE_LAMBDA { X = place<S>(joint, body, axes, x); });
    return X;
  };
  Vec3<S> r = zero3<S>();
  Mat3<S> axes = pose(root, nullptr).R;
  for (int i = root; m.bodies[i].massless && i + 1 < m.n() && m.bodies[i + 1].parent == i && m.bodies[i + 1].last_child;
       ++i) {
    const SE3<S> X = pose(i + 1, &axes);
    r += X.p;
    axes = X.R;
  }
  return r;
}

template <class S, class C>
const S* lifted_armature(const ModelT<C>& m, Arena& arena) {
  if (m.armature.empty()) return nullptr;
  S* armature = arena.get<S>(m.nv);
  for (int k = 0; k < m.nv; ++k) armature[k] = S(m.armature[k]);
  return armature;
}

template <class S, class C>
Motions<S> motions(const ModelT<C>& m, Arena& arena, const S* q, const S* v, const S* a, bool gravity = true,
                   bool rates = true) {
  const int n = m.n();
  auto* bodies = arena.get<DerivativeBody<S>>(n + 1) + 1;
  auto* columns = arena.get<DerivativeColumn<S>>(m.nv);
  auto* general = arena.get<DerivativeGeneral<S>>(m.general.size());
  const auto x = coordinates(m, arena, q);
  bodies[-1].v = bodies[-1].a = zero_motion<S>();
  if (gravity) bodies[-1].a = {zero3<S>(), {S(-m.gravity.x), S(-m.gravity.y), S(-m.gravity.z)}};
  for (int i = 0; i < n; ++i) {
    const auto& body = m.bodies[i];
    auto& b = bodies[i];
    const auto* p = bodies + body.parent;
    const Mat3<S>* axes = body.parent >= 0 ? &p->R : nullptr;
    const auto set_pose = [&](const SE3<S>& X) TORSOR_INLINE_LAMBDA {
      b.R = X.R;
      if (body.parent >= 0) {
        b.p = p->p + X.p;
        b.origin = p->origin;
      } else {
        const Vec3<S> r = body.massless ? to_first_mass(m, i, q, x, general) : zero3<S>();
        b.p = -r;
        b.origin = X.p + r;
      }
    };
    if (body.general >= 0) {
      auto& g = general[body.general];
      set_pose(place_general(m, body, axes, q, 3, g));
      general_columns(g, body.nv, body, p, v, a, b, columns);
    } else {
      visit_constant<S>(body, [&](auto joint) TORSOR_INLINE_LAMBDA {
        set_pose(place<S>(joint, body, axes, x));
        constant_columns(joint, body, p, v, a, rates, b, columns);
      });
    }
  }
  Motions<S> all{bodies, columns, general, lifted_armature<S>(m, arena)};
  if constexpr (std::is_same_v<C, double>)
    all.frames = m.frames.data();
  else if constexpr (std::is_same_v<C, S>)
    all.varied = m.frames.data();
  return all;
}

template <class S, class C>
void add_rates(const ModelT<C>& m, const Motions<S>& all) {
  for (int i = 0; i < m.n(); ++i) {
    const auto& body = m.bodies[i];
    if (body.general < 0) column_rates(body.nv, all.bodies + body.parent, all.bodies[i], all.columns + body.iv);
  }
}

// External wrenches of all subtrees that do not rotate with the bodies, f_ext being given in the world's frame (axes 1)
// or in the world's axes at the bodies' origins (2).
template <class S, class C>
WorldWrench<S>* world_wrenches(const ModelT<C>& m, Arena& arena, const DerivativeBody<S>* bodies, const S* f_ext,
                               int axes) {
  auto* wrenches = arena.get<WorldWrench<S>>(m.n());
  for (int i = 0; i < m.n(); ++i) wrenches[i] = world_wrench(zero3<S>(), zero3<S>(), zero3<S>());
  for (int b : m.order) {
    const int i = m.frames[b].body;
    if (i < 0) continue;
    const Force<S> F = read_force(f_ext + 6 * b);
    const Vec3<S> at = axes == 1 ? -bodies[i].origin : bodies[i].p + bodies[i].R * m.frames[b].pose.p;
    wrenches[i] += world_wrench(F.n, F.f, at);
  }
  return wrenches;
}

// I, 2 B and f of each body by itself.
template <class S, class C>
void body_terms(const ModelT<C>& m, DerivativeBody<S>* bodies) {
  for (int i = 0; i < m.n(); ++i) {
    const auto& body = m.bodies[i];
    auto& b = bodies[i];
    if (body.massless) {
      b.I = zero_inertia<S>();
      b.B = {b.I.J, b.I.h, b.I.h};
      b.f = zero_force<S>();
    } else {
      b.I = shift_back(rotate(b.R, body.I), b.p);
      b.B = coriolis_inertia(b.I, b.v);
      b.f = b.I * b.a + cross(b.v, Force<S>{b.B.n, b.B.f});
    }
  }
}
// Sums of them over subtrees, and of wrenches that do not rotate with the bodies, if any.
template <class S, class C>
void add_to_parents(const ModelT<C>& m, DerivativeBody<S>* bodies, WorldWrench<S>* wrenches) {
  for (int i = m.n() - 1; i >= 0; --i) {
    const int p = m.links[i].parent;
    if (p < 0) continue;
    bodies[p].I += bodies[i].I;
    bodies[p].B += bodies[i].B;
    bodies[p].f += bodies[i].f;
    if (wrenches != nullptr) wrenches[p] += wrenches[i];
  }
}

// I, 2 B and f of all subtrees into their bodies. f_ext (may be null) in the bodies' frames, moving with them (axes 0),
// in the world's frame (1) or in the world's axes at the bodies' origins (2). The wrenches that do not rotate with the
// bodies are returned, if any.
template <class S, class C>
WorldWrench<S>* sum_subtrees(const ModelT<C>& m, Arena& arena, DerivativeBody<S>* bodies, const S* f_ext, int axes) {
  body_terms(m, bodies);
  WorldWrench<S>* wrenches = nullptr;
  if (f_ext != nullptr && axes == 0) {
    for_each_wrench(m, f_ext, [&](int i, const Force<S>& F) {
      const Vec3<S> f = bodies[i].R * F.f;
      bodies[i].f.n -= cross_add(bodies[i].p, f, bodies[i].R * F.n);
      bodies[i].f.f -= f;
    });
  } else if (f_ext != nullptr) {
    wrenches = world_wrenches(m, arena, bodies, f_ext, axes);
    for (int i = 0; i < m.n(); ++i) {
      bodies[i].f.n -= wrenches[i].F.n;
      bodies[i].f.f -= wrenches[i].F.f;
    }
  }
  add_to_parents(m, bodies, wrenches);
  return wrenches;
}

// Adds joint accelerations a to motions and to the sums over subtrees.
template <class S>
void accelerate(const Model& m, Arena& arena, const Motions<S>& all, const S* a) {
  const int n = m.n();
  auto* A = arena.get<Motion<S>>(n + 1) + 1;  // added to the body's acceleration
  auto* F = arena.get<Force<S>>(n);           // sum over the subtree of I (A - A of the parent)
  A[-1] = zero_motion<S>();
  for (int i = 0; i < n; ++i) {
    const Model::Body& body = m.bodies[i];
    Motion<S> Sa = zero_motion<S>();
    for (int k = body.iv; k < body.iv + body.nv; ++k) Sa = mul_add(a[k], all.columns[k].S_, Sa);
    A[i] = A[body.parent] + Sa;
    all.bodies[i].a += A[i];
    F[i] = all.bodies[i].I * Sa;
    const Motion<S>& along = A[body.general >= 0 ? i : body.parent];
    for (int j = 0; j < body.nv; ++j) {
      auto& c = all.columns[body.iv + j];
      c.Psiddot += cross(along, c.S_);
      if (body.general < 0) continue;
      const auto& b = all.bodies[i];
      const auto* ds = all.general[body.general].ds + body.nv * j;
      Motion<S> own = zero_motion<S>();
      for (int k = 0; k < body.nv; ++k) own = mul_add(a[body.iv + k], ds[k], own);
      c.Psiddot += b.world(own);
    }
  }
  for (int i = n - 1; i >= 0; --i) {
    const int p = m.links[i].parent;
    if (p >= 0) F[p] += F[i];
    all.bodies[i].f += F[i] + all.bodies[i].I * A[p];
  }
}

}  // namespace torsor
