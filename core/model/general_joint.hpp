// Joints whose S depends on q: exponential coordinates, splines, and user-defined joints. Each is a function q -> T, s,
// ds, d2s in the child's frame: s[j] the j-th column of S, ds[j][k] = d s[j] / dq_k, d2s[j][k][l] = d ds[j][k] / dq_l.
// At most six velocities.
#pragma once
#include "base/arena.hpp"
#include "model/model.hpp"
#include "scalar/complex_step.hpp"
#include "scalar/dual.hpp"

namespace torsor {

// Lane l of a value, and a value made lane by lane.
TORSOR_INLINE double lane_of(double x, int) { return x; }
TORSOR_INLINE double lane_of(const Complex& x, int) { return x.real(); }
template <int N>
TORSOR_INLINE double lane_of(const Pack<N>& x, int l) {
  return x.lane(l);
}
template <class S>
TORSOR_INLINE double lane_of(const Dual<S>& x, int l) {
  return lane_of(x.v, l);
}
TORSOR_INLINE double value_of(double x) { return x; }
TORSOR_INLINE double value_of(const Dual<double>& x) { return x.v; }
TORSOR_INLINE double tangent_of(double) { return 0.0; }
TORSOR_INLINE double tangent_of(const Dual<double>& x) { return x.d; }
template <class S, class F>
TORSOR_INLINE S per_lane(F&& f) {
  if constexpr (IsDual<S>::value) {
    using Base = decltype(S::v);
    return {per_lane<Base>([&](int l) { return value_of(f(l)); }),
            per_lane<Base>([&](int l) { return tangent_of(f(l)); })};
  } else if constexpr (Lanes<S>::value == 1) {
    return S(f(0));
  } else {
    S r;
    for (int l = 0; l < Lanes<S>::value; ++l) r.lane(l) = lane_of(f(l), l);
    return r;
  }
}

// Results of an evaluation. `level` says how far: 1 T and s, 2 ds too, 3 d2s too.
template <class S>
struct GeneralTerms {
  SE3<S>& T;
  Motion<S>* s;    // n
  Motion<S>* ds;   // n x n
  Motion<S>* d2s;  // n x n x n
};

// Exponential coordinates of a rotation. With Stumpff functions c_m of q.q,
//   s_j = c1 e_j - c2 q x e_j + c3 q_j q,   d c_m / dq_k = q_k (m c_{m+2} - c_{m+1}).
template <class S>
void evaluate_exponential(const S* q, int level, const GeneralTerms<S>& t) {
  const Vec3<S> x = read3(q);
  S c[8], d[6], g[4];
  stumpff<8>(dot(x, x), c);
  for (int m = 1; m < 6; ++m) d[m] = S(m) * c[m + 2] - c[m + 1];
  for (int m = 1; m < 4; ++m) g[m] = S(m) * d[m + 2] - d[m + 1];
  t.T = {rotation_from(x, c[1], c[2]), zero3<S>()};
  const Mat3<S> unit = identity3<S>();
  const auto e = [&](int j) { return unit.column(j); };
  for (int j = 0; j < 3; ++j) {
    const Vec3<S> xe = cross(x, e(j)), xx = q[j] * x;
    t.s[j] = {c[1] * e(j) - c[2] * xe + c[3] * xx, zero3<S>()};
    if (level < 2) continue;
    for (int k = 0; k < 3; ++k) {
      const S jk(j == k ? 1.0 : 0.0);
      t.ds[3 * j + k] = {(q[k] * d[1]) * e(j) - (q[k] * d[2]) * xe - c[2] * cross(e(k), e(j)) + (q[k] * d[3]) * xx +
                             c[3] * (jk * x + q[j] * e(k)),
                         zero3<S>()};
      if (level < 3) continue;
      for (int l = 0; l < 3; ++l) {
        const S kl(k == l ? 1.0 : 0.0), jl(j == l ? 1.0 : 0.0), qkl = q[k] * q[l];
        const auto second = [&](int m) { return kl * d[m] + qkl * g[m]; };
        t.d2s[9 * j + 3 * k + l] = {second(1) * e(j) - second(2) * xe - (q[k] * d[2]) * cross(e(l), e(j)) -
                                        (q[l] * d[2]) * cross(e(k), e(j)) + second(3) * xx +
                                        (q[k] * d[3]) * (jl * x + q[j] * e(l)) +
                                        (q[l] * d[3]) * (jk * x + q[j] * e(k)) + c[3] * (jk * e(l) + jl * e(k)),
                                    zero3<S>()};
      }
    }
  }
}

// A scalar function of q and its derivatives to the third order.
template <class S>
struct ThirdOrder {
  S f, d[2], dd[2][2], ddd[2][2][2];
};

// Multiplies T by exp(xi phi(q)) and updates s, ds, d2s. Sueda 2021, Algs. 3 and 4 (Alg. 3, line 10 corrected:
// derivative of the basis), and their derivative. With A = Ad(exp(-xi phi)):
//   s_j <- A s_j + xi phi_j,   ds_jk <- A (ds_jk + s_j x xi phi_k) + xi phi_jk, and so on.
template <class S>
void multiply_exponential(const Motion<S>& xi, const ThirdOrder<S>& phi, int n, int level, const GeneralTerms<S>& t) {
  const SE3<S> Q = exponential(phi.f * xi);
  t.T = t.T * Q;
  for (int j = 0; j < n; ++j) {
    const Motion<S> sx = cross(t.s[j], xi), sxx = cross(sx, xi);
    if (level >= 3)
      for (int k = 0; k < n; ++k)
        for (int l = 0; l < n; ++l) {
          Motion<S>& d2s = t.d2s[n * (n * j + k) + l];
          d2s = Q.act_inverse(d2s + phi.d[l] * cross(t.ds[n * j + k], xi) + phi.d[k] * cross(t.ds[n * j + l], xi) +
                              phi.dd[k][l] * sx + (phi.d[k] * phi.d[l]) * sxx) +
                phi.ddd[j][k][l] * xi;
        }
    if (level >= 2)
      for (int k = 0; k < n; ++k) {
        Motion<S>& ds = t.ds[n * j + k];
        ds = Q.act_inverse(ds + phi.d[k] * sx) + phi.dd[j][k] * xi;
      }
    t.s[j] = Q.act_inverse(t.s[j]) + phi.d[j] * xi;
  }
}
template <class S>
void clear(int n, int level, const GeneralTerms<S>& t) {
  for (int j = 0; j < n; ++j) t.s[j] = zero_motion<S>();
  for (int j = 0; level >= 2 && j < n * n; ++j) t.ds[j] = zero_motion<S>();
  for (int j = 0; level >= 3 && j < n * n * n; ++j) t.d2s[j] = zero_motion<S>();
}

// Uniform cubic B-splines. Outside the range the polynomial of the end segment is continued.
inline int segment(double q, int segments) { return q > 0.0 ? (q < segments ? static_cast<int>(q) : segments - 1) : 0; }

// b[d][i]: d-th derivative of the i-th of the four basis functions at u. Sueda 2021, (2.68)-(2.73).
template <class S>
void cubic_basis(const S& u, S (&b)[4][4]) {
  static constexpr double B[4][4] = {{1, -3, 3, -1}, {4, 0, -6, 3}, {1, 3, 3, -3}, {0, 0, 0, 1}};
  for (int i = 0; i < 4; ++i) {
    const double c0 = B[i][0] / 6, c1 = B[i][1] / 6, c2 = B[i][2] / 6, c3 = B[i][3] / 6;
    b[0][i] = mul_add(mul_add(mul_add(u, S(c3), S(c2)), u, S(c1)), u, S(c0));
    b[1][i] = mul_add(mul_add(u, S(3 * c3), S(2 * c2)), u, S(c1));
    b[2][i] = mul_add(u, S(6 * c3), S(2 * c2));
    b[3][i] = S(6 * c3);
  }
}

// Q(q) = C_1 exp(D_2 b_2(q)) exp(D_3 b_3(q)) exp(D_4 b_4(q)), cumulative basis b. Sueda 2021, (2.74) and Alg. 3.
template <class S, class C>
void evaluate_spline_curve(const GeneralJointT<C>& joint, const S* q, int level, const GeneralTerms<S>& t) {
  const int segments = static_cast<int>(joint.frames.size()) - 3;
  int first[Lanes<S>::value];
  for (int l = 0; l < Lanes<S>::value; ++l) first[l] = segment(lane_of(q[0], l), segments);
  const auto pick = [&](auto&& value) { return per_lane<S>([&](int l) { return value(first[l]); }); };
  const auto pick3 = [&](auto&& value) -> Vec3<S> {
    return {pick([&](int k) { return value(k).x; }), pick([&](int k) { return value(k).y; }),
            pick([&](int k) { return value(k).z; })};
  };
  S b[4][4];
  cubic_basis(q[0] - pick([](int k) { return double(k); }), b);
  t.T = {{pick3([&](int k) { return joint.frames[k].R.x; }), pick3([&](int k) { return joint.frames[k].R.y; }),
          pick3([&](int k) { return joint.frames[k].R.z; })},
         pick3([&](int k) { return joint.frames[k].p; })};
  clear(1, level, t);
  for (int i = 1; i < 4; ++i) {
    S sum[4];
    for (int d = 0; d < 4; ++d) {
      sum[d] = b[d][3];
      for (int r = 2; r >= i; --r) sum[d] += b[d][r];
    }
    ThirdOrder<S> phi;
    phi.f = sum[0];
    phi.d[0] = sum[1];
    phi.dd[0][0] = sum[2];
    phi.ddd[0][0][0] = sum[3];
    const Motion<S> step{pick3([&](int k) { return joint.steps[k + i - 1].w; }),
                         pick3([&](int k) { return joint.steps[k + i - 1].v; })};
    multiply_exponential(step, phi, 1, level, t);
  }
}

// Q(q) = prod_k exp(e_k f(C_k, q)), e_k the three translations, then the three rotations. Sueda 2021, (2.78) and Alg.
// 4.
template <class S, class C>
void evaluate_spline_surface(const GeneralJointT<C>& joint, const S* q, int level, const GeneralTerms<S>& t) {
  int first[2][Lanes<S>::value];
  const int count[2] = {joint.nu - 3, joint.nw - 3};
  S b[2][4][4];
  for (int p = 0; p < 2; ++p) {
    for (int l = 0; l < Lanes<S>::value; ++l) first[p][l] = segment(lane_of(q[p], l), count[p]);
    cubic_basis(q[p] - per_lane<S>([&](int l) { return double(first[p][l]); }), b[p]);
  }
  t.T = {identity3<S>(), zero3<S>()};
  clear(2, level, t);
  for (int k = 0; k < 6; ++k) {
    // D[a][c]: derivative of f of order a in q_1 and c in q_2.
    S D[4][4];
    for (int a = 0; a < 4; ++a)
      for (int c = 0; c < 4; ++c) D[a][c] = S(0.0);
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) {
        const S value = per_lane<S>([&](int l) {
          return joint.values[(std::size_t(k) * joint.nu + first[0][l] + i) * joint.nw + first[1][l] + j];
        });
        for (int a = 0; a < 4; ++a)
          for (int c = 0; a + c < 4; ++c) D[a][c] = mul_add(b[0][a][i] * b[1][c][j], value, D[a][c]);
      }
    ThirdOrder<S> phi;
    phi.f = D[0][0];
    for (int a = 0; a < 2; ++a) {
      phi.d[a] = D[1 - a][a];
      for (int c = 0; c < 2; ++c) {
        phi.dd[a][c] = D[2 - a - c][a + c];
        for (int d = 0; d < 2; ++d) phi.ddd[a][c][d] = D[3 - a - c - d][a + c + d];
      }
    }
    Motion<S> axis = zero_motion<S>();
    Vec3<S>& part = k < 3 ? axis.v : axis.w;
    (k % 3 == 0 ? part.x : k % 3 == 1 ? part.y : part.z) = S(1.0);
    multiply_exponential(axis, phi, 2, level, t);
  }
}

// A joint written in Python. In dual numbers the tangents follow from the derivatives that it returns, except the
// tangent of d2s: that is the imaginary part of d2s evaluated by complex step.
template <class S, class C>
void evaluate_custom(const GeneralJointT<C>& joint, const S* q, int level, const GeneralTerms<S>& t) {
  constexpr bool dual = IsDual<S>::value;
  const int n = joint.nv;
  if (dual && level < 3) {
    if constexpr (dual) {
      using Base = decltype(S::v);
      Base x[6] = {};
      for (int k = 0; k < n; ++k) x[k] = q[k].v;
      SE3<Base> T;
      Motion<Base> s[6], ds[36], d2s[216];
      evaluate_custom(joint, x, level + 1, GeneralTerms<Base>{T, s, ds, d2s});
      const auto zip = [](const Vec3<Base>& value, const Vec3<Base>& tangent) -> Vec3<S> {
        return {{value.x, tangent.x}, {value.y, tangent.y}, {value.z, tangent.z}};
      };
      // value, and its derivative as the sum over k of parts[k] times the tangent of q_k
      const auto along = [&](const Motion<Base>& value, const Motion<Base>* parts) -> Motion<S> {
        Motion<Base> sum = zero_motion<Base>();
        for (int k = 0; k < n; ++k) sum = mul_add(q[k].d, parts[k], sum);
        return {zip(value.w, sum.w), zip(value.v, sum.v)};
      };
      Motion<Base> V = zero_motion<Base>();
      for (int k = 0; k < n; ++k) V = mul_add(q[k].d, s[k], V);
      // T^-1 dT = hat(V): the columns of R [w], and R v
      const Mat3<Base>& R = T.R;
      t.T = {{zip(R.x, V.w.z * R.y - V.w.y * R.z), zip(R.y, V.w.x * R.z - V.w.z * R.x),
              zip(R.z, V.w.y * R.x - V.w.x * R.y)},
             zip(T.p, R * V.v)};
      for (int j = 0; j < n; ++j) t.s[j] = along(s[j], ds + n * j);
      for (int j = 0; level >= 2 && j < n * n; ++j) t.ds[j] = along(ds[j], d2s + n * j);
    }
  } else {
    using Value = std::conditional_t<std::is_same_v<S, Complex> || dual, Complex, double>;
    constexpr int lanes = Lanes<S>::value;
    const int size = 16 + 6 * n + 6 * n * n + 6 * n * n * n;
    std::vector<Value> in(lanes * n), out(lanes * size);
    for (int l = 0; l < lanes; ++l)
      for (int k = 0; k < n; ++k) {
        if constexpr (dual)
          in[l * n + k] = {lane_of(q[k].v, l), kStep * lane_of(q[k].d, l)};
        else if constexpr (lanes == 1)
          in[k] = q[k];
        else
          in[l * n + k] = q[k].lane(l);
      }
    joint.custom->evaluate(in.data(), lanes, level, out.data());
    const auto at = [&](int k) -> S {
      if constexpr (dual)
        return per_lane<S>([&](int l) {
          const Complex& z = out[l * size + k];
          return Dual<double>(z.real(), z.imag() / kStep);
        });
      else if constexpr (lanes == 1)
        return out[k];
      else
        return per_lane<S>([&](int l) { return out[l * size + k]; });
    };
    const auto motion = [&](int base, int stride) -> Motion<S> {
      return {{at(base), at(base + stride), at(base + 2 * stride)},
              {at(base + 3 * stride), at(base + 4 * stride), at(base + 5 * stride)}};
    };
    t.T = {{{at(0), at(4), at(8)}, {at(1), at(5), at(9)}, {at(2), at(6), at(10)}}, {at(3), at(7), at(11)}};
    int base = 16;
    for (int j = 0; j < n; ++j) t.s[j] = motion(base + j, n);
    base += 6 * n;
    for (int j = 0; level >= 2 && j < n * n; ++j) t.ds[j] = motion(base + j, n * n);
    base += 6 * n * n;
    for (int j = 0; level >= 3 && j < n * n * n; ++j) t.d2s[j] = motion(base + j, n * n * n);
  }
}

template <class S, class C>
void evaluate(const GeneralJointT<C>& joint, const S* q, int level, const GeneralTerms<S>& t) {
  switch (joint.kind) {
    case Kind::exponential:
      return evaluate_exponential(q, level, t);
    case Kind::spline_curve:
      return evaluate_spline_curve(joint, q, level, t);
    case Kind::spline_surface:
      return evaluate_spline_surface(joint, q, level, t);
    default:
      return evaluate_custom(joint, q, level, t);
  }
}

}  // namespace torsor
