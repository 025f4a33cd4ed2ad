// Products with the inverse of the mass matrix in O(n). Sueda 2021, Alg. 10, with the notation of
// dynamics/forward_dynamics.hpp: the first loop (factor) depends on q alone, the other two (solve) run once for each
// right-hand side.
#pragma once
#include "dynamics/forward_dynamics.hpp"
#include "dynamics/mass_matrix.hpp"

namespace torsor {

template <class S>
struct MassFactor {
  const WorldBody<S>* bodies;
  const Motion<S>* columns;
  Force<S>* U;  // by velocity: I S and 1 / (S.U + armature + joint term)
  S* Psi;
  Force<S>* B;  // working memory of solve, by body
  Motion<S>* A;
  S* u;  // and by velocity
  const unsigned char* prescribed;
  bool held(int k) const { return prescribed != nullptr && prescribed[k] != 0; }
};

// A symmetric 6 x 6 matrix P (row-major) of one of the user's bodies, in the world's axes about the origin of the body
// that carries it.
template <class S, class Frame>
ArticulatedInertia<S> carried(const Frame& frame, const WorldBody<S>* bodies, const S* P) {
  const SE3<S> X = frame_pose(frame, bodies);
  const auto block = [&](int i, int j) -> Mat3<S> {
    const S* p = P + 18 * i + 3 * j;
    return {{p[0], p[6], p[12]}, {p[1], p[7], p[13]}, {p[2], p[8], p[14]}};
  };
  const auto symmetric = [&](const Mat3<S>& m) {
    return rotate(X.R, Sym3<S>{m.x.x, m.y.y, m.z.z, m.y.x, m.z.x, m.z.y});
  };
  const Mat3<S> H = X.R * block(0, 1);
  const Mat3<S> Rt{X.R.row_x(), X.R.row_y(), X.R.row_z()};
  const ArticulatedInertia<S> turned{symmetric(block(0, 0)), symmetric(block(1, 1)), H * Rt};
  return shift_back(turned, X.p - bodies[frame.body].X.p);
}

// The interface that `answers` reads.
template <class S, class C>
struct MassAccess {
  const ModelT<C>& m;
  const MassFactor<S>& f;
  const RigidInertia<S>* rigid;
  Motion<S>& motion(int j) const { return f.A[j]; }
  const Vec3<S>& r(int j) const { return f.bodies[j].r; }
  const Mat3<S>& axes(int j) const { return f.bodies[j].X.R; }
  const Force<S>& U(int d) const { return f.U[d]; }
  const S& Psi(int d) const { return f.Psi[d]; }
  const Motion<S>& column(int j, int k) const { return f.columns[m.bodies[j].iv + k]; }
  S rigid_pivot(int j, int k) const {
    const auto& body = m.bodies[j];
    Motion<S> largest = column(j, k);
    for (int l = 0; body.general >= 0 && l < body.nv; ++l) largest = longer(largest, column(j, l));
    const Sym3<S>& J = rigid[j].J;
    return torsor::rigid_pivot<Screw<double>>(Scale<S>{J.xx + J.yy + J.zz, S(3.0) * rigid[j].m}, largest);
  }
};

// joint_terms (nv) and body_terms (bodies x 6 x 6, symmetric, in the bodies' frames) may be null. Prescribed
// velocities, those with prescribed[k] != 0 (none if null), are held fixed.
template <class S, class C>
MassFactor<S> factor_mass(const ModelT<C>& m, Arena& arena, const S* q, const S* joint_terms, const S* body_terms,
                          const unsigned char* prescribed = nullptr) {
  const int n = m.n();
  auto* general = arena.get<GeneralState<S>>(m.general.size());
  MassFactor<S> f;
  f.prescribed = prescribed;
  f.bodies = world_bodies(m, arena, general, q);
  f.columns = world_columns(m, arena, general, f.bodies);
  f.U = arena.get<Force<S>>(m.nv);
  f.Psi = arena.get<S>(m.nv);
  f.u = arena.get<S>(m.nv);
  f.B = arena.get<Force<S>>(n);
  f.A = arena.get<Motion<S>>(n);
  auto* I = arena.get<ArticulatedInertia<S>>(n);
  const auto* rigid = composite_inertias(m, arena, f.bodies);
  for (int i = 0; i < n; ++i)
    I[i] = m.bodies[i].massless ? zero_articulated<S>() : articulated(rotate(f.bodies[i].X.R, m.bodies[i].I));
  if (body_terms != nullptr)
    for (int b : m.order)
      if (m.frames[b].body >= 0) I[m.frames[b].body] += carried(m.frames[b], f.bodies, body_terms + 36 * b);
  const MassAccess<S, C> access{m, f, rigid};
  bool* doubtful = arena.get<bool>(n);
  for (int i = 0; i < n; ++i) doubtful[i] = false;
  for (int i = n - 1; i >= 0; --i) {
    const auto& body = m.bodies[i];
    ArticulatedInertia<S> Pi = I[i];
    for (int k = body.iv + body.nv - 1; k >= body.iv; --k) {
      f.U[k] = Pi * f.columns[k];
      if (f.held(k)) continue;
      S D = dot(f.columns[k], f.U[k]);
      if (!m.armature.empty()) D += S(m.armature[k]);
      if (joint_terms != nullptr) D += joint_terms[k];
      const S N = access.rigid_pivot(i, k - body.iv);
      note_singular(arena, is_nothing(D, N), body.joint, k);
      if (m.has_weak && (doubtful[i] || any(less(D, S(kDoubt) * N)))) {
        doubtful[i] = true;
        const S size = answers(m, prescribed, i, k + 1 - body.iv, f.columns[k], N, access);
        note_singular(arena, is_nothing(D, size), body.joint, k);
      }
      f.Psi[k] = S(1.0) / D;
      Pi.subtract(f.Psi[k], f.U[k]);
    }
    if (body.parent >= 0) {
      I[body.parent] += body.offset ? shift_back(Pi, f.bodies[i].r) : Pi;
      doubtful[body.parent] = doubtful[body.parent] || doubtful[i];
    }
  }
  return f;
}

// y = (M + terms)^-1 x; both may be the same. Elements lie `stride` apart. With prescribed velocities p and the others
// f, y_p = x_p and M_ff y_f = x_f - M_fp x_p.
template <class S>
void solve_mass(const Model& m, const MassFactor<S>& f, const S* x, S* y, int stride = 1) {
  const int n = m.n();
  for (int i = 0; i < n; ++i) f.B[i] = zero_force<S>();
  for (int i = n - 1; i >= 0; --i) {
    const Model::Body& body = m.bodies[i];
    Force<S> beta = f.B[i];
    for (int k = body.iv + body.nv - 1; k >= body.iv; --k) {
      if (f.held(k)) {
        beta = mul_add(x[k * stride], f.U[k], beta);
        continue;
      }
      f.u[k] = (x[k * stride] - dot(f.columns[k], beta)) * f.Psi[k];
      beta = mul_add(f.u[k], f.U[k], beta);
    }
    if (body.parent >= 0) f.B[body.parent] += body.offset ? shift_back(beta, f.bodies[i].r) : beta;
  }
  for (int i = 0; i < n; ++i) {
    const Model::Body& body = m.bodies[i];
    f.A[i] = body.parent < 0 ? zero_motion<S>()
             : body.offset   ? shift(f.A[body.parent], f.bodies[i].r)
                             : f.A[body.parent];
    for (int k = body.iv; k < body.iv + body.nv; ++k) {
      const S a = f.held(k) ? x[k * stride] : mul_add(-f.Psi[k], dot(f.A[i], f.U[k]), f.u[k]);
      y[k * stride] = a;
      f.A[i] = mul_add(a, f.columns[k], f.A[i]);
    }
  }
}

template <class S>
void mass_matrix_solve(const Model& m, Arena& arena, const S* q, const S* x, const S* joint_terms, const S* body_terms,
                       S* y) {
  solve_mass(m, factor_mass(m, arena, q, joint_terms, body_terms), x, y);
}

template <class S>
void mass_matrix_inverse(const Model& m, Arena& arena, const S* q, S* inverse) {
  const MassFactor<S> f = factor_mass<S>(m, arena, q, nullptr, nullptr);
  const int nv = m.nv;
  for (int k = 0; k < nv * nv; ++k) inverse[k] = S(0.0);
  for (int k = 0; k < nv; ++k) {
    inverse[k * nv + k] = S(1.0);
    solve_mass(m, f, inverse + k * nv, inverse + k * nv);
  }
  for (int k = 0; k < nv; ++k)  // rows and columns differ by rounding
    for (int l = 0; l < k; ++l)
      inverse[l * nv + k] = inverse[k * nv + l] = S(0.5) * (inverse[l * nv + k] + inverse[k * nv + l]);
}

}  // namespace torsor
