// Exact derivatives of one step of a table of stages, forward, as matrices (docs/derivations/implicit_steps.md; Sueda
// 2021, 3.5, with the stage alpha of (3.98), (3.103) included).
#pragma once
#include "integrators/projection_derivatives.hpp"
#include "integrators/stepper.hpp"

namespace torsor {

// Calls f(row, column, value) for all entries of a block-diagonal matrix.
template <class S, class F>
void for_each_entry(const Model& m, const std::vector<int>& quaternions, const BlockDiagonal<S>& D, F&& f) {
  std::size_t b = 0;
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    const bool block = b < quaternions.size() && quaternions[b] == i;
    for (int r = 0; r < body.nv; ++r)
      for (int k = block ? 0 : r; k < (block ? body.nv : r + 1); ++k)
        f(body.iv + r, body.iv + k, block ? D.blocks[b].x[body.nv * r + k] : D.scalar);
    b += block ? 1 : 0;
  }
}

// Tangents of all nodes of a step: of q and v by (q0, v0, the rows of controls; then the previous row, if it is used),
// nv x columns each, rows `columns` apart, a multiple of the lanes.
template <class S>
class StepTangents {
 public:
  StepTangents(Stepper<S>& stepper, const StageControls<S>& controls, bool previous)
      : stepper_(stepper),
        m_(stepper.at.scene.m),
        quaternions_(stepper.at.scene.quaternions),
        controls_(controls),
        nv_(m_.nv),
        before_((2 + controls.count) * nv_),
        columns_(BranchMatrix<S>::rounded(before_ + (previous ? 2 * nv_ : 0))),
        size_(std::size_t(nv_) * columns_),
        nodes_(stepper.last_node() + 1) {
    Arena& memory = stepper.at.memory;
    const bool from_units = stepper.stages().size() == 1 && stepper.table.is_implicit();
    for (int node = 0; node <= stepper.last_node(); ++node) {
      nodes_[node] = {memory.get<S>(size_), memory.get<S>(size_)};
      if (node <= 1 && from_units) continue;  // not needed
      std::fill_n(nodes_[node].q, size_, S(0.0));
      std::fill_n(nodes_[node].v, size_, S(0.0));
      for (int k = 0; node <= 1 && k < nv_ && (node == 1 || previous); ++k) {
        const int at = k * columns_ + k + (node == 1 ? 0 : before_);
        nodes_[node].q[at] = nodes_[node].v[at + nv_] = S(1.0);
      }
    }
    for (S** matrix : {&G_, &M_, &work_}) *matrix = memory.get<S>(std::size_t(nv_) * nv_);
    sum_ = from_units ? nullptr : memory.get<S>(size_);
  }

  // Of the step just taken, from time t. False if a matrix is singular.
  Mask<S> run(double t) {
    Mask<S> good = every_lane<S>();
    for (const Stage& stage : stepper_.stages()) {
      const double time = t + stage.fraction * stepper_.table.h;
      stepper_.read_control(controls_, stage.fraction);
      good = good & (stepper_.table.is_implicit() ? over_implicit(stage, time) : over_explicit(stage, time));
      if (!any(good)) break;
    }
    return good;
  }
  const S* q() const { return nodes_.back().q; }  // of the last node
  const S* v() const { return nodes_.back().v; }
  int columns() const { return columns_; }

 private:
  struct Node {
    S *q, *v;
  };

  // M da = -A_q dq0 - A_v dv0 + du;  dv1 = dv0 + h da;  dq1 = V0 dq0 + V1 dv1
  Mask<S> over_explicit(const Stage& stage, double t) {
    ExplicitStage<S>& found = stepper_.explicit_stage();
    const Mask<S> good = found.linearise(stage, t);
    if (!any(good)) return good;
    const Node &from = nodes_[stage.from], &to = nodes_[stage.to];
    add_product(S(-1.0), found.Aq, from.q, to.v);
    add_product(S(-1.0), found.Av, from.v, to.v);
    add_control(stage.fraction, to.v);
    if (StageRows<S>* rows = found.rows(); rows != nullptr)
      solve_with_rows(found, *rows, stage, from, to.v);
    else
      found.solver().solve_columns(to.v, columns_);
    for (std::size_t k = 0; k < size_; ++k) to.v[k] = from.v[k] + to.v[k] / S(stage.c);
    add_product(found.V0, from.q, to.q);
    add_product(found.V1, to.v, to.q);
    if (found.rows_after() != nullptr) over_displacement(found, stage, t, to);
    return good;
  }
  // b = V0 dq0 + sum_j V_j dq_j;  H dq1 = -G b + c M (w dv0 + sum_j z_j dv_j) + du;  dv1 = V1 dq1 + b
  Mask<S> over_implicit(const Stage& stage, double t) {
    ImplicitStage<S>& found = stepper_.implicit();
    const Mask<S> good = found.linearise(stage, t, true);
    if (!any(good)) return good;
    found.matrix().matrices(stepper_.at, G_, M_);
    const StageTerms<S>& terms = found.terms();
    const Node& to = nodes_[stage.to];
    const bool from_units =
        stage.from == 1 && std::all_of(stage.others.begin(), stage.others.end(), [](auto& o) { return o.node == 0; });
    if (from_units)
      right_hand_side_of_units(stage, terms, to);
    else
      right_hand_side(stage, terms, to);
    add_control(stage.fraction, to.q);
    StageRows<S>* rows = found.rows();
    if (rows != nullptr) {
      scratch_.assign(std::size_t(rows->border.width()) * columns_, S(0.0));
      rows->border.solve_columns(found.solver(), to.q, columns_, scratch_.data());
    } else {
      found.solver().solve_columns(to.q, columns_);
    }
    if (from_units) {
      std::fill_n(to.v, size_, S(0.0));
      add_blocks(terms.V0, to.v);
      for (const BlockDiagonal<S>& V : terms.V) add_blocks(V, to.v + before_);
    }
    add_product(terms.V1, to.q, to.v);
    if (rows != nullptr) over_projection(found, *rows, stage, t, to);
    return good;
  }
  // M da - G^T dlambda = X,   G da = -(G dv0 + d(G v1 + g_t + beta g)/dq dq0) / h
  void solve_with_rows(ExplicitStage<S>& found, StageRows<S>& rows, const Stage& stage, const Node& from, S* X) {
    scratch_.assign(std::size_t(rows.count()) * columns_, S(0.0));
    for (int r = 0; r < rows.count(); ++r) {
      const S h = S(-stage.c) * rows.metric.kept(r);
      for (int k = 0; k < nv_; ++k) {
        add_scaled(columns_, h * found.by_q(r)[k], from.q + k * columns_, &scratch_[r * columns_]);
        add_scaled(columns_, h * rows.metric.G(r)[k], from.v + k * columns_, &scratch_[r * columns_]);
      }
    }
    rows.border.solve_columns(found.solver(), X, columns_, scratch_.data());
  }
  // dv1 = dv^ - M^-1 R dq1 - Y dkappa,   D dkappa = G (dv^ - M^-1 R dq1) + d(G v1 + g_t)/dq dq1
  void over_projection(ImplicitStage<S>& found, StageRows<S>& rows, const Stage& stage, double t, const Node& to) {
    project(rows, velocity_projection(stepper_.at, found.free_velocities(), stage.to, t), to.q, to.v);
  }
  // The same for the displacement d of q^, whose tangents are in to.q: dq1 = D0 dq^ + D1 dd
  void over_displacement(ExplicitStage<S>& found, const Stage& stage, double t, const Node& to) {
    std::vector<S> end(to.q, to.q + size_), d(size_, S(0.0));
    project(*found.rows_after(), found.displacement(stage, t), end.data(), d.data());
    std::fill_n(to.q, size_, S(0.0));
    add_product(found.D0, end.data(), to.q);
    add_product(found.D1, d.data(), to.q);
  }
  // Tangents of y, which hold those before the projection, from those of q.
  void project(StageRows<S>& rows, const Projection<S>& of, const S* q, S* y) {
    const int count = rows.count();
    std::vector<S> by_q(std::size_t(count) * nv_), kappa(std::size_t(count) * columns_, S(0.0));
    projection_matrices<S>(stepper_.at, rows, of, work_, by_q.data());
    const SceneMass<S> mass(stepper_.at.scene, stepper_.at.arena, of.q);
    for (int k = 0; k < nv_; ++k) mass.solve(work_ + k, work_ + k, nv_);
    add_product(S(-1.0), work_, q, y);
    for (int r = 0; r < count; ++r)
      for (int k = 0; k < nv_; ++k) {
        add_scaled(columns_, rows.metric.G(r)[k], y + k * columns_, &kappa[r * columns_]);
        add_scaled(columns_, by_q[r * nv_ + k], q + k * columns_, &kappa[r * columns_]);
      }
    rows.metric.solve(kappa.data(), columns_);
    for (int r = 0; r < count; ++r)
      for (int k = 0; k < nv_; ++k) add_scaled(columns_, -rows.metric.Y(r)[k], &kappa[r * columns_], y + k * columns_);
  }
  // If all other nodes are rows, whose tangents are unit matrices.
  void right_hand_side_of_units(const Stage& stage, const StageTerms<S>& terms, const Node& to) {
    put_product(terms.V0, to.q);
    put_scaled(S(stage.c * stage.w), M_, to.q + nv_);
    for (int r = 0; r < nv_; ++r) std::fill(to.q + r * columns_ + 2 * nv_, to.q + (r + 1) * columns_, S(0.0));
    for (std::size_t j = 0; j < terms.V.size(); ++j) {
      put_product(terms.V[j], to.q + before_);
      put_scaled(S(stage.c * stage.others[j].z), M_, to.q + before_ + nv_);
    }
  }
  // b is put into to.v.
  void right_hand_side(const Stage& stage, const StageTerms<S>& terms, const Node& to) {
    add_product(terms.V0, nodes_[stage.from].q, to.v);
    for (std::size_t k = 0; k < size_; ++k) sum_[k] = S(stage.c * stage.w) * nodes_[stage.from].v[k];
    for (std::size_t j = 0; j < terms.V.size(); ++j) {
      const Node& other = nodes_[stage.others[j].node];
      add_product(terms.V[j], other.q, to.v);
      add_scaled(static_cast<int>(size_), S(stage.c * stage.others[j].z), other.v, sum_);
    }
    add_product(S(-1.0), G_, to.v, to.q);
    add_product(S(1.0), M_, sum_, to.q);
  }

  void add_control(double fraction, S* X) const {  // du
    const auto place = controls_.place(fraction);
    for (int k = 0; k < nv_; ++k) {
      X[k * columns_ + (2 + place.row) * nv_ + k] += S(1.0 - place.s);
      if (place.next != place.row) X[k * columns_ + (2 + place.next) * nv_ + k] += S(place.s);
    }
  }
  // Y += D X
  void add_product(const BlockDiagonal<S>& D, const S* X, S* Y) const {
    for_each_entry(m_, quaternions_, D,
                   [&](int r, int k, const S& d) { add_scaled(columns_, d, X + k * columns_, Y + r * columns_); });
  }
  // Y += s A X, A nv x nv
  void add_product(const S& s, const S* A, const S* X, S* Y) const {
    for (int i = 0; i < nv_; ++i)
      for (int k = 0; k < nv_; ++k)
        if (any(!equal(A[i * nv_ + k], S(0.0))))
          add_scaled(columns_, s * A[i * nv_ + k], X + k * columns_, Y + i * columns_);
  }
  // Adds D to nv columns of Y.
  void add_blocks(const BlockDiagonal<S>& D, S* Y) const {
    for_each_entry(m_, quaternions_, D, [&](int r, int k, const S& d) { Y[r * columns_ + k] += d; });
  }
  // nv columns of Y = s A
  void put_scaled(const S& s, const S* A, S* Y) const {
    for (int r = 0; r < nv_; ++r)
      for (int k = 0; k < nv_; ++k) Y[r * columns_ + k] = s * A[r * nv_ + k];
  }
  // nv columns of Y = -G D
  void put_product(const BlockDiagonal<S>& D, S* Y) const {
    if (quaternions_.empty()) return put_scaled(-D.scalar, G_, Y);
    std::fill_n(work_, nv_ * nv_, S(0.0));
    torsor::add_product<S>(m_, quaternions_, G_, D, work_);
    put_scaled(S(-1.0), work_, Y);
  }

  Stepper<S>& stepper_;
  const Model& m_;
  const std::vector<int>& quaternions_;
  const StageControls<S> controls_;
  const int nv_, before_, columns_;  // before_: first column of the previous row
  const std::size_t size_;
  std::vector<Node> nodes_;
  std::vector<S> scratch_;
  S *G_, *M_, *work_, *sum_;
};

}  // namespace torsor
