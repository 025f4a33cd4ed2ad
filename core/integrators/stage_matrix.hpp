// The matrix of Newton's method of a stage, H = A_q + G V1, G = A_v + c M (docs/derivations/implicit_steps.md), its
// factors, and products with G and M. A change of one coordinate changes velocities by V1 and accelerations by c V1, so
// that H is dID/dq of derivatives/inverse_dynamics_derivatives.hpp with
//   X = Psidot + S V1,   Y = Psiddot + (Vdot + c S) V1
// in place of Psidot and Psiddot, at the cost of one matrix.
#pragma once
#include "integrators/stage_rows.hpp"
#include "linear/tree_solver.hpp"

namespace torsor {

template <class S>
struct StageColumn {
  Motion<S> S_, Y;
  Vec3<S> X;  // its angular part
};

// X of all velocities (with its linear part), and their columns.
template <class S>
struct StageColumns {
  Motion<S>* X;
  StageColumn<S>* columns;
};
template <class S>
StageColumns<S> stage_columns(const Model& m, Arena& arena, const Motions<S>& all, const std::vector<int>& quaternions,
                              const BlockDiagonal<S>& V1, double c) {
  const StageColumns<S> out{arena.get<Motion<S>>(m.nv), arena.get<StageColumn<S>>(m.nv)};
  std::size_t b = 0;
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    const bool block = b < quaternions.size() && quaternions[b] == i;
    for (int k = 0; k < body.nv; ++k) {
      const auto& d = all.columns[body.iv + k];
      Motion<S> x = d.Psidot, y = d.Psiddot;
      for (int j = block ? 0 : k; j < (block ? body.nv : k + 1); ++j) {
        const S s = block ? V1.blocks[b].x[body.nv * j + k] : V1.scalar;
        const auto& e = all.columns[body.iv + j];
        x = mul_add(s, e.S_, x);
        y = mul_add(s, mul_add(S(c), e.S_, e.Vdot), y);
      }
      out.columns[body.iv + k] = {d.S_, y, x.w};
      out.X[body.iv + k] = x;
    }
    b += block ? 1 : 0;
  }
  return out;
}

// R_jk . f of a joint with S(q), for add(j, k, value).
template <class S, class F>
void add_own_changes(const Model& m, const Motions<S>& all, int i, F&& add) {
  const Model::Body& body = m.bodies[i];
  if (body.general < 0) return;
  const auto& b = all.bodies[i];
  const auto& g = all.general[body.general];
  const Force<S> f{transposed(b.R, cross_add(b.f.f, b.p, b.f.n)), transposed(b.R, b.f.f)};
  for (int j = 0; j < body.nv; ++j)
    for (int k = 0; k < body.nv; ++k) add(j, k, dot(g.ds[body.nv * j + k], f));
}

// c M V1 of the armature of joint i, for add(j, k, value).
template <class S, class F>
void add_armature(const Scene& scene, const S* armature, int i, const BlockDiagonal<S>& V1, double c, F&& add) {
  if (armature == nullptr) return;
  const Model::Link& link = scene.m.links[i];
  const auto found = std::find(scene.quaternions.begin(), scene.quaternions.end(), i);
  for (int j = 0; j < link.nv; ++j) {
    const S own = S(c) * armature[link.iv + j];
    if (found == scene.quaternions.end())
      add(j, j, own * V1.scalar);
    else
      for (int k = 0; k < link.nv; ++k)
        add(j, k, own * V1.blocks[found - scene.quaternions.begin()].x[link.nv * j + k]);
  }
}

// H of inverse dynamics and of wrenches that do not rotate with their bodies, if any. The bodies have sums over their
// subtrees.
template <class S>
void stage_matrix(const Scene& scene, Arena& arena, const Evaluation<S>& e, const BlockDiagonal<S>& V1, double c,
                  BranchMatrix<S>& H) {
  using V = Wide<S>;
  const Model& m = scene.m;
  const Motions<S>& all = e.all;
  const WorldWrench<S>* wrenches = e.held;
  const auto [X, columns] = stage_columns(m, arena, all, scene.quaternions, V1, c);
  Path<StageColumn, S> path(m, arena, columns);
  for (int i = m.n() - 1; i >= 0; --i) {
    path.enter(i);
    const Model::Link& link = m.links[i];
    const auto& body = all.bodies[i];
    const int count = link.above + link.nv;
    for (int k = 0; k < link.nv; ++k) {
      const int r = link.iv + k;
      const auto& d = columns[r];
      const auto IS = lift<V>(body.I * d.S_);
      const auto BS = lift<V>(transposed(body.B, d.S_));
      Force<S> own = body.B * X[r] + body.I * d.Y + cross(d.S_, body.f), back = zero_force<S>();
      if (wrenches != nullptr) {
        own += wrenches[i].lag(2, d.S_);
        back = wrenches[i].transposed_lag(2, d.S_);
      }
      const auto F = lift<V>(own);
      S *row = H.row(r), *column = H.column(r);
      for (int t = 0; t < count; t += path.width) {
        const auto& above = path.at(t);
        V x = dot_add(BS, above.X, dot(above.Y, IS));
        if (wrenches != nullptr) x += dot(above.S_, lift<V>(back));
        store(x, row + t);
        store(dot(above.S_, F), column + t);
      }
    }
    const auto add = [&](int j, int k, const S& x) { H.row(link.iv + j)[link.above + k] += x; };
    add_own_changes(m, all, i, add);
    add_armature(scene, all.armature, i, V1, c, add);
    for (int k = 1; k < link.nv; ++k)
      for (int j = 0; j < k; ++j) H.column(link.iv + k)[link.above + j] = H.row(link.iv + j)[link.above + k];
  }
}

// Adds the derivatives of the forces to H, if they keep branches: K = -dtau/dq, without the terms in stage_matrix, and
// D = -dtau/dv (nv x nv). K is overwritten by K + D V1.
template <class S>
void add_forces(const Scene& scene, const BlockDiagonal<S>& V1, S* K, const S* D, BranchMatrix<S>& H) {
  const int n = scene.m.nv;
  add_product(scene.m, scene.quaternions, D, V1, K);
  H.for_each_entry([&](int r, int t, int a) {
    H.row(r)[t] += K[r * n + a];
    H.column(r)[t] += K[a * n + r];
  });
}

// Calls f(body, K + D V1) for each torque at a joint, with K = -dtau/dq and D = -dtau/dv of that joint alone.
template <class S, class F>
void for_each_joint_block(const Scene& scene, const Evaluation<S>& e, const S* p, const BlockDiagonal<S>& V1, F&& f) {
  for_each_joint_force(scene.m, *scene.forces, e.q, e.v, p, [&](int i, const S* Aq, const S* Av) {
    const int n = scene.m.bodies[i].nv;
    Block<S> K;
    std::copy_n(Aq, n * n, K.x);
    const auto found = std::find(scene.quaternions.begin(), scene.quaternions.end(), i);
    if (found == scene.quaternions.end()) {
      add_scaled(n * n, V1.scalar, Av, K.x);
    } else {
      Block<S> D;
      std::copy_n(Av, n * n, D.x);
      multiply(n, S(1.0), D, V1.blocks[found - scene.quaternions.begin()], K, true);
    }
    f(i, K.x);
  });
}
// Adds the derivatives of torques at joints to H.
template <class S>
void add_joint_forces(const Scene& scene, const Evaluation<S>& e, const S* p, const BlockDiagonal<S>& V1,
                      BranchMatrix<S>& H) {
  for_each_joint_block(scene, e, p, V1, [&](int i, const S* K) {
    const Model::Link& link = scene.m.links[i];
    for (int r = 0; r < link.nv; ++r)
      for (int k = 0; k <= r; ++k) {
        H.row(link.iv + r)[link.above + k] += K[link.nv * r + k];
        H.column(link.iv + r)[link.above + k] += K[link.nv * k + r];
      }
  });
}

// H as a system over the tree (docs/derivations/implicit_steps.md): the state of a body is its displacement eta and the
// changes of its velocity and acceleration in excess of those of a rigid displacement; the sum is the change of its
// subtree's force, likewise. Of the bodies, I and 2 B are their own, f is summed over the subtree. States have no eta
// if no force depends on places.
template <class S>
void stage_system(const Scene& scene, Arena& arena, const Evaluation<S>& e, const BlockDiagonal<S>& V1, double c,
                  TreeSystem<S>& H) {
  const Model& m = scene.m;
  const Motions<S>& all = e.all;
  const auto [X, columns] = stage_columns(m, arena, all, scene.quaternions, V1, c);
  const bool places = scene.places;
  const S zero(0.0);
  const int at = places ? 6 : 0;  // where the change of velocity begins
  for (int i = 0; i < m.n(); ++i) {
    const Model::Link& link = m.links[i];
    const auto& b = all.bodies[i];
    for (int k = 0; k < link.nv; ++k) {
      const int r = link.iv + k;
      const auto& d = columns[r];
      S* A = H.A(i, k);
      if (places) write(d.S_, A);
      write(X[r], A + at);
      write(d.Y, A + at + 6);
      const Force<S> turned = cross(d.S_, b.f);
      write(Force<S>{-turned.n, -turned.f}, H.C(i, k));
      write(d.S_, H.L(i, k));
    }
    std::fill_n(H.N(i), link.nv * link.nv, S(0.0));
    const auto add = [&](int j, int k, const S& x) { H.N(i)[link.nv * j + k] += x; };
    add_own_changes(m, all, i, add);
    add_armature(scene, all.armature, i, V1, c, add);
    // P = (0, 2 B, I)
    const auto put = [&](int row, int column, const Mat3<S>& M) {
      for (int j = 0; j < 3; ++j) {
        const Vec3<S>& x = M.column(j);
        H.P(i, row)[column + j] = x.x;
        H.P(i, row + 1)[column + j] = x.y;
        H.P(i, row + 2)[column + j] = x.z;
      }
    };
    const Sym3<S>&T = b.B.T, &J = b.I.J;
    const Vec3<S>& n = b.B.n;
    put(0, at, {{T.xx, T.xy - n.z, T.xz + n.y}, {T.xy + n.z, T.yy, T.yz - n.x}, {T.xz - n.y, T.yz + n.x, T.zz}});
    put(3, at, skew(S(-2.0) * b.B.f));
    put(0, at + 6, {{J.xx, J.xy, J.xz}, {J.xy, J.yy, J.yz}, {J.xz, J.yz, J.zz}});
    put(3, at + 6, skew(-b.I.h));
    put(0, at + 9, skew(b.I.h));
    put(3, at + 9, {{b.I.m, zero, zero}, {zero, b.I.m, zero}, {zero, zero, b.I.m}});
    for (int row = 0; row < 6; ++row) {
      std::fill_n(H.P(i, row), at, zero);
      std::fill_n(H.P(i, row) + at + 3, 3, zero);
    }
  }
}

// Adds local forces to it.
template <class S>
void add_forces(const Scene& scene, Arena& arena, const Evaluation<S>& e, const S* p, const BlockDiagonal<S>& V1,
                TreeSystem<S>& H) {
  const ForceSet& set = *scene.forces;
  const int at = scene.places ? 6 : 0;
  for_each_joint_block(scene, e, p, V1, [&](int i, const S* K) {
    add_scaled(scene.m.bodies[i].nv * scene.m.bodies[i].nv, S(1.0), K, H.N(i));
  });
  for_each_body_force<S>(set, arena, e.all, e.t, p, [&](int i, const WrenchChange<S>& change) {
    for (int row = 0; row < 6; ++row) {
      if (scene.places) add_scaled(6, S(-1.0), change.x[row], H.P(i, row));
      add_scaled(6, S(-1.0), change.x[row] + 6, H.P(i, row) + at);
    }
  });
}

// Inertias of single bodies, kept while sums over subtrees replace them.
template <class S>
struct BodyInertia {
  RigidInertia<S> I;
  CoriolisInertia<S> B;
};
template <class S>
BodyInertia<S>* copy_inertias(const Model& m, Arena& arena, const Motions<S>& all) {
  auto* out = arena.get<BodyInertia<S>>(m.n());
  for (int i = 0; i < m.n(); ++i) out[i] = {all.bodies[i].I, all.bodies[i].B};
  return out;
}
// G^T x and M x of inverse dynamics alone, in one sweep out and one back: with the twists W that x gives the bodies and
// sums over subtrees, M x = S . sum I W and G^T x = (Vdot + c S) . sum I W + S . sum 2 B^T W.
template <class S>
void inertial_products(const Model& m, Arena& arena, const Motions<S>& all, const BodyInertia<S>* bodies, double c,
                       const S* x, S* Gx, S* Mx) {
  auto* W = arena.get<Motion<S>>(m.n() + 1) + 1;
  auto* F = arena.get<Force<S>>(m.n());
  auto* N = arena.get<Vec3<S>>(m.n());  // B^T W is a pure moment
  W[-1] = zero_motion<S>();
  for (int i = 0; i < m.n(); ++i) {
    const Model::Link& link = m.links[i];
    W[i] = W[link.parent];
    for (int k = link.iv; k < link.iv + link.nv; ++k) W[i] = mul_add(x[k], all.columns[k].S_, W[i]);
    F[i] = bodies[i].I * W[i];
    N[i] = transposed(bodies[i].B, W[i]);
  }
  for (int i = m.n() - 1; i >= 0; --i) {
    const Model::Link& link = m.links[i];
    for (int k = link.iv; k < link.iv + link.nv; ++k) {
      const auto& column = all.columns[k];
      Mx[k] = dot(column.S_, F[i]);
      if (all.armature != nullptr) Mx[k] = mul_add(all.armature[k], x[k], Mx[k]);
      Gx[k] = mul_add(S(c), Mx[k], dot(column.Vdot, F[i]) + dot(column.S_.w, N[i]));
    }
    if (link.parent < 0) continue;
    F[link.parent] += F[i];
    N[link.parent] += N[i];
  }
}

template <class S>
class StageMatrix {
  using Form = typename TreeSolver<S>::Form;

 public:
  StageMatrix(const Scene& scene, Arena& memory) : scene_(scene), solver_(scene.m, memory) {}

  // Factors H at an evaluation with rates and without sums over subtrees. `over_tree`: whether that form may be used;
  // `products`: whether products with G and M will be needed before the next evaluation. False in lanes where H is
  // singular or, with several lanes, cannot be factored in the form that is tried first.
  // `rows`: the constraints, if any; their border is not included.
  Mask<S> factor(StepContext<S>& at, const Evaluation<S>& e, const BlockDiagonal<S>& V1, double c, bool over_tree,
                 bool products, StageRows<S>* rows = nullptr) {
    const Model& m = scene_.tree;
    e_ = e;
    c_ = c;
    bodies_ = products ? copy_inertias(m, at.arena, e.all) : nullptr;
    constexpr bool alone = Lanes<S>::value == 1;
    if (over_tree && scene_.local) {
      const Mask<S> good = factor_tree(at, e, V1, c);
      if (any(good) || !alone) return good;
    }
    sum_inertias(m, e);
    if (scene_.branched) {
      const Mask<S> good = factor_branches(at, e, V1, c);
      if (any(good) || !alone) return good;
    }
    return factor_dense(at, e, V1, c, rows);
  }
  const TreeSolver<S>& solver() const { return solver_; }
  // The factors, to be restored in some lanes.
  void save() { solver_.save(); }
  void restore(const Mask<S>& lanes) { solver_.restore(lanes); }

  // G^T x and M x.
  void multiply_transposed(StepContext<S>& at, const S* x, S* Gx, S* Mx) const {
    const Model& m = scene_.m;
    const int n = m.nv;
    if (solver_.form() == Form::dense) {
      std::fill_n(Gx, n, S(0.0));
      std::fill_n(Mx, n, S(0.0));
      for (int i = 0; i < n; ++i) {
        add_scaled(n, x[i], &D_[std::size_t(i) * n], Gx);
        add_scaled(n, x[i], &M_[std::size_t(i) * n], Mx);
      }
      return;
    }
    inertial_products(m, at.arena, e_.all, bodies_, c_, x, Gx, Mx);
    if (scene_.forces == nullptr) return;
    if (single_joints())
      add_transposed_joint_damping(m, *scene_.forces, at.arena, e_.q, e_.v, e_.t, at.p, x, Gx);
    else if (solver_.form() == Form::tree)
      add_transposed_damping(m, *scene_.forces, at.arena, e_.all, e_.q, e_.v, e_.t, at.p, x, Gx);
    else
      for (int i = 0; i < n; ++i) add_scaled(n, x[i], &D_[std::size_t(i) * n], Gx);
  }
  // G and M themselves (nv x nv). To be called once.
  void matrices(StepContext<S>& at, S* G, S* M) const {
    if (solver_.form() == Form::tree) sum_inertias(scene_.m, e_);
    const std::size_t size = std::size_t(scene_.m.nv) * scene_.m.nv;
    if (solver_.form() == Form::dense) {
      std::copy_n(D_, size, G);
      std::copy_n(M_, size, M);
      return;
    }
    std::fill_n(G, size, S(0.0));
    std::fill_n(M, size, S(0.0));
    pair_columns<S>(scene_.m, at.arena, e_.all, e_.held, 2, nullptr, G, M, scene_.m.nv);
    if (scene_.forces != nullptr && single_joints())
      for_each_joint_force(scene_.m, *scene_.forces, e_.q, e_.v, at.p, [&](int i, const S*, const S* D) {
        const Model::Link& link = scene_.m.links[i];
        for (int r = 0; r < link.nv; ++r)
          for (int k = 0; k < link.nv; ++k) G[(link.iv + r) * scene_.m.nv + link.iv + k] += D[link.nv * r + k];
      });
    else if (scene_.forces != nullptr && solver_.form() == Form::branches)
      add_scaled(static_cast<int>(size), S(1.0), D_, G);
    else if (scene_.forces != nullptr) {
      std::vector<S> K(size, S(0.0));
      linearise_forces(scene_.m, *scene_.forces, at.arena, e_.all, e_.q, e_.v, e_.t, at.p, K.data(), G, scene_.m.nv);
    }
    add_scaled(static_cast<int>(size), S(c_), M, G);
  }

  // The three forms, each with the evaluation that it needs: with sums over subtrees but for the first.
  Mask<S> factor_tree(StepContext<S>& at, const Evaluation<S>& e, const BlockDiagonal<S>& V1, double c) {
    TreeSystem<S>& H = solver_.tree(scene_.places ? 18 : 12, 6);
    stage_system(scene_, at.arena, e, V1, c, H);
    if (scene_.forces != nullptr) add_forces(scene_, at.arena, e, at.p, V1, H);
    return solver_.factor_tree();
  }
  Mask<S> factor_branches(StepContext<S>& at, const Evaluation<S>& e, const BlockDiagonal<S>& V1, double c) {
    BranchMatrix<S>& H = solver_.branches();
    stage_matrix(scene_, at.arena, e, V1, c, H);
    if (scene_.forces != nullptr && single_joints()) {
      add_joint_forces(scene_, e, at.p, V1, H);
    } else if (scene_.forces != nullptr) {
      linearise_forces(scene_.m, *scene_.forces, at.arena, e.all, e.q, e.v, e.t, at.p, at.zeros(K_), at.zeros(D_),
                       scene_.m.nv);
      add_forces(scene_, V1, K_, D_, H);
    }
    return solver_.factor_branches();
  }
  Mask<S> factor_dense(StepContext<S>& at, const Evaluation<S>& e, const BlockDiagonal<S>& V1, double c,
                       StageRows<S>* rows = nullptr) {
    const std::size_t size = std::size_t(scene_.m.nv) * scene_.m.nv;
    add_residual_derivatives(at, e, at.zeros(K_), at.zeros(D_), at.zeros(M_));
    add_scaled(static_cast<int>(size), S(c), M_, D_);
    add_product(scene_.m, scene_.quaternions, D_, V1, K_);
    std::copy_n(K_, size, solver_.dense());
    if (rows != nullptr && (scene_.custom_rows || scene_.coupled)) rows->subtract_stiffness(e, solver_.dense());
    return solver_.factor_dense();
  }

 private:
  // Whether each force is a torque at one joint, so that its derivatives are blocks of joints.
  bool single_joints() const { return scene_.on_joints && scene_.local; }
  const Scene& scene_;
  TreeSolver<S> solver_;
  Evaluation<S> e_{};
  double c_ = 0.0;
  const BodyInertia<S>* bodies_ = nullptr;
  // Along branches, but for torques at single joints: -dtau/dq and -dtau/dv of the forces. Dense: H and G, and M.
  S *K_ = nullptr, *D_ = nullptr, *M_ = nullptr;
};

}  // namespace torsor
