// The factors of a matrix over the unknowns of a tree, in the form that fits it: over the tree, along its branches, or
// dense with pivots. Callers that assemble a matrix fill one of the forms and factor it; solving does not depend on the
// form. Constraint rows can border it by solve_columns (a Schur complement) and need nothing else.
//
// All lanes have the same form: one whose matrix needs another is reported as not factored.
#pragma once
#include <memory>
#include <optional>

#include "linear/branch_matrix.hpp"
#include "linear/tree_system.hpp"

namespace torsor {

template <class S>
class TreeSolver {
 public:
  enum class Form { tree, branches, dense };

  // With `copies` unknowns per velocity; there are branches if it is one. `memory` must live as long as this.
  TreeSolver(const Model& m, Arena& memory, int copies = 1) : m_(m), memory_(memory), copies_(copies) {}
  int size() const { return copies_ * m_.nv; }
  Form form() const { return form_; }

  // The forms, allocated at first use, to be filled.
  TreeSystem<S>& tree(int states, int sums) {
    if (!tree_) tree_ = std::make_unique<TreeSystem<S>>(m_, memory_, states, sums, copies_);
    return *tree_;
  }
  BranchMatrix<S>& branches() {
    if (!branches_) branches_.emplace(m_, memory_);
    return *branches_;
  }
  S* dense() {
    if (LU_ == nullptr) LU_ = memory_.get<S>(square());
    pivots_.resize(size());
    return LU_;
  }

  // False in lanes where it is singular, or cannot be factored in this form.
  Mask<S> factor_tree() {
    form_ = Form::tree;
    return tree_->factor();
  }
  Mask<S> factor_branches() {
    form_ = Form::branches;
    return branches_->factor();
  }
  Mask<S> factor_dense() {
    form_ = Form::dense;
    return torsor::factor(size(), LU_, pivots_.data());
  }

  // Factors A (nv x nv): along branches if `branched` (entries between branches are zero) and, for a single state, if
  // possible; otherwise densely.
  Mask<S> factor_matrix(const S* A, bool branched) {
    if (branched) {
      branches().read(A);
      const Mask<S> good = factor_branches();
      if (any(good) || Lanes<S>::value > 1) return good;
    }
    std::copy_n(A, square(), dense());
    return factor_dense();
  }

  // Keeps the factors, so that those of some lanes can be restored after new ones were made in the same form.
  void save() {
    if (form_ == Form::tree) return tree_->save();
    if (form_ == Form::branches) return branches_->save();
    if (saved_LU_ == nullptr) saved_LU_ = memory_.get<S>(square());
    std::copy_n(LU_, square(), saved_LU_);
    saved_pivots_ = pivots_;
  }
  void restore(const Mask<S>& lanes) {
    if (form_ == Form::tree) return tree_->restore(lanes);
    if (form_ == Form::branches) return branches_->restore(lanes);
    torsor::restore(lanes, square(), saved_LU_, LU_);
    torsor::restore(lanes, saved_pivots_, pivots_);
  }

  void solve(S* x) const {  // x <- A^-1 x
    if (form_ == Form::tree) return tree_->solve(x);
    if (form_ == Form::dense) return torsor::solve(size(), LU_, pivots_.data(), x);
    branches_->solve(x);
  }
  void solve_transposed(S* x) const {  // x <- A^-T x
    if (form_ == Form::tree) return tree_->solve_transposed(x);
    if (form_ == Form::dense) return torsor::solve_transposed(size(), LU_, pivots_.data(), x);
    branches_->solve_transposed(x);
  }
  // X <- A^-1 X, rows `columns` apart, a multiple of the vector width, as BranchMatrix<S>::rounded gives.
  void solve_columns(S* X, int columns) const {
    if (form_ == Form::tree) return tree_->solve_columns(X, columns);
    if (form_ == Form::dense) return torsor::solve(size(), LU_, pivots_.data(), X, columns);
    branches_->solve_columns(X, columns);
  }

 private:
  std::size_t square() const { return std::size_t(size()) * size(); }

  const Model& m_;
  Arena& memory_;
  int copies_;
  Form form_ = Form::dense;
  std::unique_ptr<TreeSystem<S>> tree_;
  std::optional<BranchMatrix<S>> branches_;
  S *LU_ = nullptr, *saved_LU_ = nullptr;
  std::vector<Pivot<S>> pivots_, saved_pivots_;
};

}  // namespace torsor
