// The factors of a matrix over the unknowns of a tree, in the form that fits it: over the tree, along its branches, or dense with
// pivots. Whoever assembles a matrix fills one of the forms and factors it; what is solved with it does not ask which. Rows of
// constraints border it by solve_columns (a Schur complement) and need nothing else.
#pragma once
#include <memory>
#include <optional>

#include "linear/branch_matrix.hpp"
#include "linear/tree_system.hpp"

namespace torsor {

class TreeSolver {
 public:
  enum class Form { tree, branches, dense };

  // With one unknown for each velocity; `memory` has to last as long as this.
  TreeSolver(const Model& m, Arena& memory) : m_(m), copies_(1), memory_(&memory) {}
  // With several, for which there are no branches.
  TreeSolver(const Model& m, int copies) : m_(m), copies_(copies) {}
  int size() const { return copies_ * m_.nv; }
  Form form() const { return form_; }

  // The forms, made when they are first used, to be filled.
  TreeSystem& tree(int states, int sums) {
    if (!tree_) tree_ = std::make_unique<TreeSystem>(m_, states, sums, copies_);
    return *tree_;
  }
  BranchMatrix<double>& branches() {
    if (!branches_) branches_.emplace(m_, *memory_);
    return *branches_;
  }
  double* dense() {
    LU_.resize(std::size_t(size()) * size());
    pivots_.resize(size());
    return LU_.data();
  }

  // False if it is singular, or cannot be factored in this form. `once`: what was filled into P is lost, TreeSystem::factor_once.
  bool factor_tree(bool once) {
    form_ = Form::tree;
    return once ? tree_->factor_once() : tree_->factor();
  }
  bool factor_branches() {
    form_ = Form::branches;
    return branches_->factor();
  }
  bool factor_dense() {
    form_ = Form::dense;
    return torsor::factor(size(), LU_.data(), pivots_.data());
  }

  // Factors A (nv x nv), along branches if `branched`, its entries between them being zero, and if that can be.
  bool factor_matrix(const double* A, bool branched) {
    if (branched) {
      branches().read(A);
      if (factor_branches()) return true;
    }
    std::copy_n(A, std::size_t(size()) * size(), dense());
    return factor_dense();
  }

  void solve(double* x) const {  // x <- A^-1 x
    if (form_ == Form::tree) return tree_->solve(x);
    if (form_ == Form::branches) return branches_->solve(x);
    torsor::solve(size(), LU_.data(), pivots_.data(), x);
  }
  void solve_transposed(double* x) const {  // x <- A^-T x
    if (form_ == Form::tree) return tree_->solve_transposed(x);
    if (form_ == Form::branches) return branches_->solve_transposed(x);
    torsor::solve_transposed(size(), LU_.data(), pivots_.data(), x);
  }
  // X <- A^-1 X, rows `columns` apart, a multiple of the lanes.
  void solve_columns(double* X, int columns) const {
    if (form_ == Form::tree) return tree_->solve_columns(X, columns);
    if (form_ == Form::branches) return branches_->solve_columns(X, columns);
    torsor::solve(size(), LU_.data(), pivots_.data(), X, columns);
  }

 private:
  const Model& m_;
  int copies_;
  Arena* memory_ = nullptr;
  Form form_ = Form::dense;
  std::unique_ptr<TreeSystem> tree_;
  std::optional<BranchMatrix<double>> branches_;
  AlignedVector LU_;
  std::vector<int> pivots_;
};

}  // namespace torsor
