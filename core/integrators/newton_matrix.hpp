// The matrix of Newton's method, H = A_q + (A_v + c M) V1 (docs/derivations/implicit_steps.md), and its factors. A change of
// one coordinate changes velocities by V1 and accelerations by c V1, so that H is dID/dq of derivatives/inverse_dynamics_derivatives.hpp with
//   X = Psidot + S V1,   Y = Psiddot + (Vdot + c S) V1
// in place of Psidot and Psiddot, at the price of one matrix.
#pragma once
#include "forces/local_forces.hpp"
#include "linear/branch_matrix.hpp"
#include "linear/tree_system.hpp"
#include "model/retraction.hpp"

namespace torsor {

template <class S>
struct StageColumn {
  Motion<S> S_, Y;
  Vec3<S> X;  // its angular part
};

// X (whole) of all velocities, and their columns.
struct StageColumns {
  Motion<double>* X;
  StageColumn<double>* columns;
};
inline StageColumns stage_columns(const Model& m, Arena& arena, const Motions<double>& all,
                                  const std::vector<int>& quaternions, const BlockDiagonal& V1, double c) {
  const StageColumns out{arena.get<Motion<double>>(m.nv), arena.get<StageColumn<double>>(m.nv)};
  std::size_t b = 0;
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    const bool block = b < quaternions.size() && quaternions[b] == i;
    for (int k = 0; k < body.nv; ++k) {
      const auto& d = all.columns[body.iv + k];
      Motion<double> x = d.Psidot, y = d.Psiddot;
      for (int j = block ? 0 : k; j < (block ? body.nv : k + 1); ++j) {
        const double s = block ? V1.blocks[b].x[body.nv * j + k] : V1.scalar;
        const auto& e = all.columns[body.iv + j];
        x = mul_add(s, e.S_, x);
        y = mul_add(s, mul_add(c, e.S_, e.Vdot), y);
      }
      out.columns[body.iv + k] = {d.S_, y, x.w};
      out.X[body.iv + k] = x;
    }
    b += block ? 1 : 0;
  }
  return out;
}

// R_jk . f of a joint with S(q), for add(j, k, value).
template <class F>
void add_own_changes(const Model& m, const Motions<double>& all, int i, F&& add) {
  const Model::Body& body = m.bodies[i];
  if (body.general < 0) return;
  const auto& b = all.bodies[i];
  const auto& g = all.general[body.general];
  const Force<double> f{transposed(b.R, cross_add(b.f.f, b.p, b.f.n)), transposed(b.R, b.f.f)};
  for (int j = 0; j < body.nv; ++j)
    for (int k = 0; k < body.nv; ++k) add(j, k, dot(g.ds[body.nv * j + k], f));
}

// H of inverse dynamics, with wrenches that lag behind, if any; the bodies having their subtrees' sums.
inline void stage_matrix(const Model& m, Arena& arena, const Motions<double>& all, const WorldWrench<double>* wrenches,
                         const std::vector<int>& quaternions, const BlockDiagonal& V1, double c, PathMatrix& H) {
  using V = Wide<double>;
  const auto [X, columns] = stage_columns(m, arena, all, quaternions, V1, c);
  Path<StageColumn, double> path(m, arena, columns);
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
      Force<double> own = body.B * X[r] + body.I * d.Y + cross(d.S_, body.f), back = zero_force<double>();
      if (wrenches != nullptr) {
        own += wrenches[i].lag(2, d.S_);
        back = wrenches[i].transposed_lag(2, d.S_);
      }
      const auto F = lift<V>(own);
      double *row = H.row(r), *column = H.column(r);
      for (int t = 0; t < count; t += path.width) {
        const auto& e = path.at(t);
        V x = dot_add(BS, e.X, dot(e.Y, IS));
        if (wrenches != nullptr) x += dot(e.S_, lift<V>(back));
        store(x, row + t);
        store(dot(e.S_, F), column + t);
      }
    }
    add_own_changes(m, all, i, [&](int j, int k, double x) { H.row(link.iv + j)[link.above + k] += x; });
    for (int k = 1; k < link.nv; ++k)
      for (int j = 0; j < k; ++j) H.column(link.iv + k)[link.above + j] = H.row(link.iv + j)[link.above + k];
  }
}

// What the forces themselves add to H, if they keep branches: K and D (nv x nv) are working memory.
inline void add_forces(const Model& m, const ForceSet& set, Arena& arena, const Motions<double>& all, const double* q,
                       const double* v, double t, const double* p, const std::vector<int>& quaternions,
                       const BlockDiagonal& V1, double* K, double* D, PathMatrix& H) {
  const int n = m.nv;
  std::fill_n(K, n * n, 0.0);
  std::fill_n(D, n * n, 0.0);
  linearise_forces(m, set, arena, all, q, v, t, p, K, D, n);
  add_product(m, quaternions, D, V1, K);
  H.for_each_entry([&](int r, int t, int a) {
    H.row(r)[t] += K[r * n + a];
    H.column(r)[t] += K[a * n + r];
  });
}

// H as a system over the tree (docs/derivations/implicit_steps.md): the state of a body is how it is displaced (eta), how its velocity
// and its acceleration change beside what they are carried along; the sum is the change of its subtree's force beside that. Of
// the bodies, I and 2 B are their own, f that of the subtree. Without `places` the states have no eta.
inline void stage_system(const Model& m, Arena& arena, const Motions<double>& all, const std::vector<int>& quaternions,
                         const BlockDiagonal& V1, double c, bool places, TreeSystem& H) {
  const auto [X, columns] = stage_columns(m, arena, all, quaternions, V1, c);
  const int at = places ? 6 : 0;  // where the change of velocity begins
  for (int i = 0; i < m.n(); ++i) {
    const Model::Link& link = m.links[i];
    const auto& b = all.bodies[i];
    for (int k = 0; k < link.nv; ++k) {
      const int r = link.iv + k;
      const auto& d = columns[r];
      double* A = H.A(i, k);
      if (places) write(d.S_, A);
      write(X[r], A + at);
      write(d.Y, A + at + 6);
      const Force<double> turned = cross(d.S_, b.f);
      write(Force<double>{-turned.n, -turned.f}, H.C(i, k));
      write(d.S_, H.L(i, k));
    }
    std::fill_n(H.N(i), link.nv * link.nv, 0.0);
    add_own_changes(m, all, i, [&](int j, int k, double x) { H.N(i)[link.nv * j + k] += x; });
    // P = (0, 2 B, I)
    const auto put = [&](int row, int column, const Mat3<double>& M) {
      for (int j = 0; j < 3; ++j) {
        const Vec3<double>& x = M.column(j);
        H.P(i, row)[column + j] = x.x;
        H.P(i, row + 1)[column + j] = x.y;
        H.P(i, row + 2)[column + j] = x.z;
      }
    };
    const Sym3<double>&T = b.B.T, &J = b.I.J;
    const Vec3<double>& n = b.B.n;
    put(0, at, {{T.xx, T.xy - n.z, T.xz + n.y}, {T.xy + n.z, T.yy, T.yz - n.x}, {T.xz - n.y, T.yz + n.x, T.zz}});
    put(3, at, skew(-2.0 * b.B.f));
    put(0, at + 6, {{J.xx, J.xy, J.xz}, {J.xy, J.yy, J.yz}, {J.xz, J.yz, J.zz}});
    put(3, at + 6, skew(-b.I.h));
    put(0, at + 9, skew(b.I.h));
    put(3, at + 9, {{b.I.m, 0.0, 0.0}, {0.0, b.I.m, 0.0}, {0.0, 0.0, b.I.m}});
    for (int row = 0; row < 6; ++row) {
      std::fill_n(H.P(i, row), at, 0.0);
      std::fill_n(H.P(i, row) + at + 3, 3, 0.0);
    }
  }
}

// What forces that are local add to it.
inline void add_forces(const Model& m, const ForceSet& set, Arena& arena, const Motions<double>& all, const double* q,
                       const double* v, double t, const double* p, const std::vector<int>& quaternions,
                       const BlockDiagonal& V1, bool places, TreeSystem& H) {
  const int at = places ? 6 : 0;
  for_each_joint_force(m, set, q, v, p, [&](int i, const double* Aq, const double* Av) {
    const int n = m.bodies[i].nv;
    Block K, D, own{};
    std::copy_n(Aq, n * n, K.x);
    std::copy_n(Av, n * n, D.x);
    for (int k = 0; k < n; ++k) own.x[k * (n + 1)] = V1.scalar;
    const auto found = std::find(quaternions.begin(), quaternions.end(), i);
    multiply(n, 1.0, D, found == quaternions.end() ? own : V1.blocks[found - quaternions.begin()], K, true);
    add_scaled(n * n, 1.0, K.x, H.N(i));
  });
  for_each_body_force<double>(set, arena, all, t, p, [&](int i, const WrenchChange<double>& change) {
    for (int row = 0; row < 6; ++row) {
      if (places) add_scaled(6, -1.0, change.x[row], H.P(i, row));
      add_scaled(6, -1.0, change.x[row] + 6, H.P(i, row) + at);
    }
  });
}

// The factors of H in one of three forms: over the tree, along paths, or dense with pivots.
class NewtonMatrix {
 public:
  NewtonMatrix(const Model& m, Arena& memory) : paths(m, memory), m_(m), memory_(memory) {}
  PathMatrix paths;
  TreeSystem& tree(bool places) {
    if (!tree_) tree_ = std::make_unique<TreeSystem>(m_, places ? 18 : 12, 6, 1);
    return *tree_;
  }
  bool factor_tree() {
    form_ = Form::tree;
    return tree_->factor_once();
  }
  bool factor_paths() {
    form_ = Form::paths;
    return paths.factor();
  }
  bool factor_dense(const double* H) {
    const std::size_t n = m_.nv;
    if (LU_ == nullptr) {
      LU_ = memory_.get<double>(n * n);
      pivots_ = memory_.get<int>(n);
    }
    form_ = Form::dense;
    std::copy_n(H, n * n, LU_);
    return factor(m_.nv, LU_, pivots_);
  }
  void solve(double* x) const {
    if (form_ == Form::tree) return tree_->solve(x);
    if (form_ == Form::paths) return paths.solve(x);
    torsor::solve(m_.nv, LU_, pivots_, x);
  }
  void solve_transposed(double* x) const {
    if (form_ == Form::tree) return tree_->solve_transposed(x);
    if (form_ == Form::paths) return paths.solve_transposed(x);
    torsor::solve_transposed(m_.nv, LU_, pivots_, x);
  }
  // X <- H^-1 X of a matrix that is not over the tree, rows `stride` apart, a multiple of the lanes.
  void solve(double* X, int stride) const {
    if (form_ == Form::paths) return paths.solve(X, stride);
    torsor::solve(m_.nv, LU_, pivots_, X, stride);
  }

 private:
  enum class Form { tree, paths, dense };
  const Model& m_;
  Arena& memory_;
  Form form_ = Form::dense;
  std::unique_ptr<TreeSystem> tree_;
  double* LU_ = nullptr;
  int* pivots_ = nullptr;
};

}  // namespace torsor
