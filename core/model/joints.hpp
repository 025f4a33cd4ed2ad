// The interface of joints for the recursions. Each has
//
//   nv                       number of velocities
//   angular, linear          whether columns of S have such parts at all; unit: whether their length is 1
//   constant                 whether S is constant in the child's frame
//   transform(M, x)          M T(q), the pose of the child's frame
//   move(wp, v, a, ...)      what the joint adds to velocity and acceleration, in the child's frame
//   project(F, tau)          tau = S^T F, in the child's frame
//   apply(x), rate(x, v)     S x and Sdot x = sum_jk d_k S_j x_j v_k, in the child's frame; rate is 0 if constant
//   column(R, k)             k-th column of S, turned into the axes R of the child's frame
//
// Accelerations are those of material points (Luh, Walker and Paul 1980), not spatial ones: they need no linear
// velocity.
#pragma once
#include <algorithm>

#include "model/general_joint.hpp"
#include "scalar/pack.hpp"

namespace torsor {

// q with the sines and cosines of its angles, computed in advance; for one state several at a time, in lanes.
template <class S>
struct Coordinates {
  const S *q, *sin, *cos;
  TORSOR_INLINE Coordinates operator+(int k) const { return {q + k, sin + k, cos + k}; }
};
template <class S, class C>
Coordinates<S> coordinates(const ModelT<C>& m, Arena& arena, const S* q) {
  using V = Wide<S>;
  constexpr int width = sizeof(V) / sizeof(S);
  // For one state vectors are stored as a whole, beyond the last coordinate too.
  S *sin = arena.get<S>(m.nq + width - 1), *cos = arena.get<S>(m.nq + width - 1);
  if constexpr (width > 1) {
    const int* angles = m.angles.data();
    const int count = static_cast<int>(m.angles.size());
    for (int first = 0; first < count; first += width, angles += width) {
      const int part = std::min(width, count - first), at = angles[0];
      V s, c;
      if (angles[part - 1] == at + part - 1) {  // side by side; single stores and then a load of the vector would stall
        sincos(load_part<V>(q + at, part), s, c);
        store(s, sin + at);  // angles that follow are written later
        store(c, cos + at);
      } else {
        typename V::Native x{};
        for (int l = 0; l < width; ++l) x[l] = q[angles[l < part ? l : 0]];
        sincos(V(x), s, c);
        for (int l = 0; l < part; ++l) {
          sin[angles[l]] = s.lane(l);
          cos[angles[l]] = c.lane(l);
        }
      }
    }
  } else {
    for (int k : m.angles) sincos(q[k], sin[k], cos[k]);
  }
  return {q, sin, cos};
}

// M times the turn about z; M constant or not.
template <class S, class A>
TORSOR_INLINE SE3<S> turn_z(const SE3<A>& M, const Coordinates<S>& x) {
  const S s = *x.sin, c = *x.cos;
  const Mat3<A>& R = M.R;
  return {{mul_add(s, R.y, c * R.x), mul_add(c, R.y, -(s * R.x)), {S(R.z.x), S(R.z.y), S(R.z.z)}},
          {S(M.p.x), S(M.p.y), S(M.p.z)}};
}

struct Revolute {  // about z
  static constexpr int nv = 1;
  static constexpr bool constant = true, unit = true, angular = true, linear = false;
  template <class S, class A>
  TORSOR_INLINE SE3<S> transform(const SE3<A>& M, const Coordinates<S>& x) const {
    return turn_z(M, x);
  }
  template <class S>
  TORSOR_INLINE void move(const Vec3<S>& wp, const S* v, const S* a, Vec3<S>& w, Vec3<S>& wdot, Vec3<S>&) const {
    w.z += *v;
    wdot.x = mul_add(wp.y, *v, wdot.x);
    wdot.y = mul_add(-wp.x, *v, wdot.y);
    wdot.z += *a;
  }
  template <class S>
  TORSOR_INLINE void project(const Force<S>& F, S* tau) const {
    *tau = F.n.z;
  }
  template <class S>
  TORSOR_INLINE Motion<S> column(const Mat3<S>& R, int) const {
    return {R.z, zero3<S>()};
  }
  template <class S>
  TORSOR_INLINE Motion<S> apply(const S* x) const {
    return {{S(0.0), S(0.0), *x}, zero3<S>()};
  }
};

struct Prismatic {  // along z
  static constexpr int nv = 1;
  static constexpr bool constant = true, unit = true, angular = false, linear = true;
  template <class S, class A>
  TORSOR_INLINE SE3<S> transform(const SE3<A>& M, const Coordinates<S>& x) const {
    const Mat3<A>& R = M.R;
    const Vec3<S> p{S(M.p.x), S(M.p.y), S(M.p.z)};
    return {{{S(R.x.x), S(R.x.y), S(R.x.z)}, {S(R.y.x), S(R.y.y), S(R.y.z)}, {S(R.z.x), S(R.z.y), S(R.z.z)}},
            mul_add(*x.q, R.z, p)};
  }
  template <class S>
  TORSOR_INLINE void move(const Vec3<S>& wp, const S* v, const S* a, Vec3<S>&, Vec3<S>&, Vec3<S>& acc) const {
    const S twice = *v + *v;
    acc.x = mul_add(wp.y, twice, acc.x);
    acc.y = mul_add(-wp.x, twice, acc.y);
    acc.z += *a;
  }
  template <class S>
  TORSOR_INLINE void project(const Force<S>& F, S* tau) const {
    *tau = F.f.z;
  }
  template <class S>
  TORSOR_INLINE Motion<S> column(const Mat3<S>& R, int) const {
    return {zero3<S>(), R.z};
  }
  template <class S>
  TORSOR_INLINE Motion<S> apply(const S* x) const {
    return {zero3<S>(), {S(0.0), S(0.0), *x}};
  }
};

template <class C>
struct Screw {  // about z, moving `pitch` along z per radian
  static constexpr int nv = 1;
  static constexpr bool constant = true, unit = false, angular = true, linear = true;
  C pitch;
  template <class S, class A>
  TORSOR_INLINE SE3<S> transform(const SE3<A>& M, const Coordinates<S>& x) const {
    SE3<S> T = turn_z(M, x);
    T.p = mul_add(pitch * *x.q, T.R.z, T.p);
    return T;
  }
  template <class S>
  TORSOR_INLINE void move(const Vec3<S>& wp, const S* v, const S* a, Vec3<S>& w, Vec3<S>& wdot, Vec3<S>& acc) const {
    const S pv = pitch * *v, pa = pitch * *a;
    Revolute().move(wp, v, a, w, wdot, acc);
    Prismatic().move(wp, &pv, &pa, w, wdot, acc);
  }
  template <class S>
  TORSOR_INLINE void project(const Force<S>& F, S* tau) const {
    *tau = mul_add(S(pitch), F.f.z, F.n.z);
  }
  template <class S>
  TORSOR_INLINE Motion<S> column(const Mat3<S>& R, int) const {
    return {R.z, pitch * R.z};
  }
  template <class S>
  TORSOR_INLINE Motion<S> apply(const S* x) const {
    return {{S(0.0), S(0.0), *x}, {S(0.0), S(0.0), pitch * *x}};
  }
};

struct Spherical {  // q: quaternion xyzw; v: angular velocity in the child's frame
  static constexpr int nv = 3;
  static constexpr bool constant = true, unit = true, angular = true, linear = false;
  template <class S, class A>
  TORSOR_INLINE SE3<S> transform(const SE3<A>& M, const Coordinates<S>& x) const {
    return {M.R * matrix(read_quaternion(x.q)), {S(M.p.x), S(M.p.y), S(M.p.z)}};
  }
  template <class S>
  TORSOR_INLINE void move(const Vec3<S>& wp, const S* v, const S* a, Vec3<S>& w, Vec3<S>& wdot, Vec3<S>&) const {
    const Vec3<S> wj = read3(v);
    w += wj;
    wdot = cross_add(wp, wj, wdot + read3(a));
  }
  template <class S>
  TORSOR_INLINE void project(const Force<S>& F, S* tau) const {
    write3(F.n, tau);
  }
  template <class S>
  TORSOR_INLINE Motion<S> column(const Mat3<S>& R, int k) const {
    return {R.column(k), zero3<S>()};
  }
  template <class S>
  TORSOR_INLINE Motion<S> apply(const S* x) const {
    return {read3(x), zero3<S>()};
  }
};

struct Free {  // q: position, quaternion xyzw; v: twist in the child's frame
  static constexpr int nv = 6;
  static constexpr bool constant = true, unit = false, angular = true, linear = true;
  template <class S, class A>
  TORSOR_INLINE SE3<S> transform(const SE3<A>& M, const Coordinates<S>& x) const {
    return M * SE3<S>{matrix(read_quaternion(x.q + 3)), read3(x.q)};
  }
  template <class S>
  TORSOR_INLINE void move(const Vec3<S>& wp, const S* v, const S* a, Vec3<S>& w, Vec3<S>& wdot, Vec3<S>& acc) const {
    const Motion<S> V = read_motion(v), A = read_motion(a);
    w += V.w;
    wdot = cross_add(wp, V.w, wdot + A.w);
    acc = cross_add(w + wp, V.v, acc + A.v);
  }
  template <class S>
  TORSOR_INLINE void project(const Force<S>& F, S* tau) const {
    write(F, tau);
  }
  template <class S>
  TORSOR_INLINE Motion<S> column(const Mat3<S>& R, int k) const {
    if (k < 3) return {R.column(k), zero3<S>()};
    return {zero3<S>(), R.column(k - 3)};
  }
  template <class S>
  TORSOR_INLINE Motion<S> apply(const S* x) const {
    return read_motion(x);
  }
};

template <class S>
struct GeneralState {
  SE3<S> T;
  Motion<S> s[6], ds[36];
};
template <class S, class C>
struct General {  // S(q): evaluated by transform, kept in `state` for the passes after it
  static constexpr bool constant = false, unit = false, angular = true, linear = true;
  const GeneralJointT<C>& joint;
  GeneralState<S>& state;
  const int nv = joint.nv;
  template <class A>
  SE3<S> transform(const SE3<A>& M, const Coordinates<S>& x) const {
    evaluate(joint, x.q, 2, GeneralTerms<S>{state.T, state.s, state.ds, nullptr});
    return M * state.T;
  }
  Motion<S> apply(const S* x) const {
    Motion<S> V = zero_motion<S>();
    for (int k = 0; k < nv; ++k) V = mul_add(x[k], state.s[k], V);
    return V;
  }
  Motion<S> rate(const S* x, const S* v) const {
    Motion<S> c = zero_motion<S>();
    for (int j = 0; j < nv; ++j)
      for (int k = 0; k < nv; ++k) c = mul_add(x[j] * v[k], state.ds[nv * j + k], c);
    return c;
  }
  Motion<S> column_rate(int j, const S* v) const {  // of the j-th column
    Motion<S> c = zero_motion<S>();
    for (int k = 0; k < nv; ++k) c = mul_add(v[k], state.ds[nv * j + k], c);
    return c;
  }
  void move(const Vec3<S>& wp, const S* v, const S* a, Vec3<S>& w, Vec3<S>& wdot, Vec3<S>& acc) const {
    const Motion<S> V = apply(v), A = apply(a) + rate(v, v);
    w += V.w;
    wdot = cross_add(wp, V.w, wdot + A.w);
    acc = cross_add(w + wp, V.v, acc + A.v);
  }
  void project(const Force<S>& F, S* tau) const {
    for (int k = 0; k < nv; ++k) tau[k] = dot(state.s[k], F);
  }
  Motion<S> column(const Mat3<S>& R, int k) const { return {R * state.s[k].w, R * state.s[k].v}; }
};

// Calls f with the joint of body b, whose S is constant.
template <class S, class Body, class F>
TORSOR_INLINE void visit_constant(const Body& b, F&& f) {
  switch (b.kind) {
    case Kind::revolute:
      return f(Revolute{});
    case Kind::prismatic:
      return f(Prismatic{});
    case Kind::screw:
      return f(Screw<decltype(b.pitch)>{b.pitch});
    case Kind::spherical:
      return f(Spherical{});
    default:
      return f(Free{});
  }
}
// Calls f with the joint of body b.
template <class S, class C, class F>
TORSOR_INLINE void visit(const ModelT<C>& m, const typename ModelT<C>::Body& b, GeneralState<S>* general, F&& f) {
  if (__builtin_expect(b.general >= 0, 0))
    f(General<S, C>{m.general[b.general], general[b.general]});
  else
    visit_constant<S>(b, f);
}

// External wrenches, given in the frames of the user's bodies, transformed to the frames of the recursion.
template <class S, class C, class Add>
TORSOR_INLINE void for_each_wrench(const ModelT<C>& m, const S* f_ext, Add&& add) {
  for (int b : m.order) {
    const auto& frame = m.frames[b];
    if (frame.body < 0) continue;
    const Force<S> F = read_force(f_ext + 6 * b);
    if (frame.same)
      add(frame.body, F);
    else
      add(frame.body, frame.pose.act(F));
  }
}

}  // namespace torsor
