// The matrix of Newton's method, H = A_q + (A_v + c M) V1 (docs/derivations/implicit_steps.md), and its factors. A change of
// one coordinate changes velocities by V1 and accelerations by c V1, so that H is dID/dq of inverse_dynamics_derivatives.hpp with
//   X = Psidot + S V1,   Y = Psiddot + (Vdot + c S) V1
// in place of Psidot and Psiddot, at the price of one matrix.
#pragma once
#include "charts.hpp"
#include "forces.hpp"
#include "path_matrix.hpp"

namespace torsor {

template <class S>
struct StageColumn {
  Motion<S> S_, Y;
  Vec3<S> X;  // its angular part
};

// H of inverse dynamics, with wrenches that lag behind, if any; the bodies having their subtrees' sums.
inline void stage_matrix(const Model& m, Arena& arena, const Motions<double>& all, const WorldWrench<double>* wrenches,
                         const std::vector<int>& quaternions, const BlockDiagonal& V1, double c, PathMatrix& H) {
  using V = Wide<double>;
  auto* columns = arena.get<StageColumn<double>>(m.nv);
  auto* X = arena.get<Motion<double>>(m.nv);
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
      columns[body.iv + k] = {d.S_, y, x.w};
      X[body.iv + k] = x;
    }
    b += block ? 1 : 0;
  }
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
    const int general = m.bodies[i].general;
    if (general >= 0) {  // R_jk . f
      const auto& g = all.general[general];
      const Force<double> f{transposed(body.R, cross_add(body.f.f, body.p, body.f.n)), transposed(body.R, body.f.f)};
      for (int j = 0; j < link.nv; ++j)
        for (int k = 0; k < link.nv; ++k) H.row(link.iv + j)[link.above + k] += dot(g.ds[link.nv * j + k], f);
    }
    for (int k = 1; k < link.nv; ++k)
      for (int j = 0; j < k; ++j) H.column(link.iv + k)[link.above + j] = H.row(link.iv + j)[link.above + k];
  }
}

// Whether forces leave the entries between branches zero: those between points do if all bodies lie on one path.
inline bool keeps_branches(const Model& m, const ForceSet& set) {
  if (!set.customs.empty()) return false;
  for (const PointLaw& law : set.points) {
    int tip = -1;
    for (const Attachment& point : law.points) tip = std::max(tip, point.body);
    for (const Attachment& point : law.points) {
      int i = tip;
      while (i > point.body) i = m.links[i].parent;
      if (i != point.body && point.body >= 0) return false;
    }
  }
  return true;
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

// The factors of H: along paths or, where that will not do, dense.
class NewtonMatrix {
 public:
  NewtonMatrix(const Model& m, Arena& memory) : paths(m, memory), n_(m.nv), memory_(memory) {}
  PathMatrix paths;
  bool factor_paths() {
    dense_ = false;
    return paths.factor();
  }
  bool factor_dense(const double* H) {
    if (LU_ == nullptr) {
      LU_ = memory_.get<double>(std::size_t(n_) * n_);
      pivots_ = memory_.get<int>(n_);
    }
    dense_ = true;
    std::copy_n(H, std::size_t(n_) * n_, LU_);
    return factor(n_, LU_, pivots_);
  }
  void solve(double* x) const { dense_ ? torsor::solve(n_, LU_, pivots_, x) : paths.solve(x); }
  void solve(double* X, int stride) const {
    dense_ ? torsor::solve(n_, LU_, pivots_, X, stride) : paths.solve(X, stride);
  }
  void solve_transposed(double* x) const {
    dense_ ? torsor::solve_transposed(n_, LU_, pivots_, x) : paths.solve_transposed(x);
  }

 private:
  int n_;
  Arena& memory_;
  bool dense_ = false;
  double* LU_ = nullptr;
  int* pivots_ = nullptr;
};

}  // namespace torsor
