// The convex problem that leads Newton's method through impacts and changes between stick and slip
// (docs/derivations/contact.md), of each state by itself. At an iterate of a stage, with the geometry kept, the change
// w of the velocities makes the residual
//   R + A w - sum J^T f(gap + n.J w / c, u + J w) = 0,
// R and A being those of all forces that are not stiff. Where friction goes by given normal forces, the lag, this is
// the derivative of a convex function, and Newton's method with an exact minimum along each direction finds its minimum
// from anywhere. The lag follows the normal forces; once that settles, whole steps of Newton's method end the search.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "contact/contact_law.hpp"
#include "linear/cholesky.hpp"
#include "linear/joint_load.hpp"
#include "model/coupling.hpp"

namespace torsor {

// A stiff force at one place: its normal part by the law of contact, none if the stiffness is 0, and friction with the
// coefficient times the normal force, or with a given limit. The load of a joint takes the place of the normal force of
// a place whose normal is zero.
struct StiffPlace {
  ContactNumbers<double> law;
  double limit = -1.0;  // of friction, if it does not go by the normal force
  double gap;
  Vec3<double> n, u;
  int begin, end;  // its columns
  int load = -1;   // among the loads, or -1
};

class ContactProblem {
 public:
  // Places are added between `clear` and `solve`, each followed by its columns: velocity k changes u by J.
  void clear(int nv) {
    nv_ = nv;
    places_.clear();
    columns_.clear();
    J_.clear();
    loads_.clear();
  }
  void add(const StiffPlace& place) {
    places_.push_back(place);
    places_.back().begin = places_.back().end = static_cast<int>(columns_.size());
  }
  void add_column(int k, const Vec3<double>& J) {
    columns_.push_back(k);
    J_.push_back(J);
    ++places_.back().end;
  }
  // Of the place that was added last; z is w.
  void add_load(JointLoad load) {
    places_.back().load = static_cast<int>(loads_.size());
    loads_.push_back(std::move(load));
  }
  bool empty() const { return places_.empty(); }
  // Replaces columns and loads, which are those of a tree, by their products with P; lane(x) is an entry of it.
  template <class S, class F>
  void reduce(const TangentMatrix<S>& P, F&& lane) {
    const Coupling& coupling = P.coupling;
    const std::vector<int> columns = std::move(columns_);
    const std::vector<Vec3<double>> J = std::move(J_);
    std::vector<Vec3<double>> sums(nv_);
    columns_.clear();
    J_.clear();
    for (StiffPlace& place : places_) {
      std::fill(sums.begin(), sums.end(), Vec3<double>{0.0, 0.0, 0.0});
      for (int k = place.begin; k < place.end; ++k)
        for (int e = coupling.start[columns[k]]; e < coupling.start[columns[k] + 1]; ++e)
          sums[coupling.column[e]] += lane(P.x[e]) * J[k];
      place.begin = place.end = static_cast<int>(columns_.size());
      for (int k = 0; k < nv_; ++k) {
        if (sums[k].x == 0.0 && sums[k].y == 0.0 && sums[k].z == 0.0) continue;
        columns_.push_back(k);
        J_.push_back(sums[k]);
        ++place.end;
      }
    }
    const int rows = static_cast<int>(coupling.start.size()) - 1;
    for (JointLoad& load : loads_) {
      const std::vector<double> map = std::move(load.map);
      load.map.assign(std::size_t(6) * nv_, 0.0);
      for (int k = 0; k < 6; ++k)
        for (int i = 0; i < rows; ++i)
          for (int e = coupling.start[i]; e < coupling.start[i + 1]; ++e)
            load.map[std::size_t(k) * nv_ + coupling.column[e]] += map[std::size_t(k) * rows + i] * lane(P.x[e]);
    }
  }

  // w (nv) for the symmetric positive definite matrix A (nv x nv, of which M is used instead if it is not), the
  // residual r with all forces, and velocities v, which set the scale. False if there is no solution.
  bool solve(double c, const double* A, const double* M, const double* r, const double* v, double* w) {
    c_ = c;
    const int n = nv_;
    A_.assign(A, A + std::size_t(n) * n);
    U_ = A_;
    if (!cholesky(n, U_.data())) {
      A_.assign(M, M + std::size_t(n) * n);
      U_ = A_;
      if (!cholesky(n, U_.data())) return false;
    }
    for (auto* x : {&R_, &F_, &step_, &trial_, &rate_}) x->assign(n, 0.0);
    K_.resize(std::size_t(n) * n);
    const std::size_t count = places_.size();
    at_.resize(count);
    moved_.assign(count, Vec3<double>{0.0, 0.0, 0.0});
    lag_.assign(count, 0.0);
    std::fill_n(w, n, 0.0);
    for (std::size_t i = 0; i < count; ++i)
      if (places_[i].load >= 0) lag_[i] = loads_[places_[i].load].at(n, w);
    // R: without the stiff forces.
    std::copy_n(r, n, R_.data());
    evaluate(w, at_);
    for (std::size_t i = 0; i < count; ++i) add_transposed(places_[i], at_[i].force, R_.data());
    const double scale = free_speed(v);
    whole_ = false;

    double size = coupled(w, at_, F_);
    double least = size;
    best_.assign(n, 0.0);
    for (int iteration = 0; iteration < 60; ++iteration) {
      if (!std::isfinite(size)) return false;
      if (size <= 1e-5 * scale) return true;
      // With high friction the normal forces may answer the lag by more than its change: a cycle, unless it lags
      // behind.
      share_ = iteration < 10 ? 1.0 : iteration < 25 ? 0.5 : 0.25;
      if (size < least) {
        least = size;
        best_.assign(w, w + n);
      }
      if (whole_ && whole_step(w, size)) continue;
      if (!convex_step(w, size)) return iteration > 0;
      size = coupled(w, at_, F_);
    }
    std::copy_n(best_.data(), n, w);  // not exact, but near
    return true;
  }

 private:
  struct State {
    Vec3<double> u, u_t, t;
    double f_n, slope;   // normal force and its derivative by u_n, at most 0
    double F, dF, over;  // of friction, with the slip velocity in the denominators: dF/d|u_t| and F / |u_t|
    Vec3<double> force;
  };
  static double dot3(const Vec3<double>& a, const Vec3<double>& b) { return a.x * b.x + a.y * b.y + a.z * b.z; }

  State state(const StiffPlace& p, const Vec3<double>& change) const {
    State s;
    s.u = p.u + change;
    const double u_n = dot3(p.n, s.u), gap = p.gap + dot3(p.n, change) / c_;
    s.u_t = s.u - u_n * p.n;
    const Onset<double> onset(-gap, p.law.onset);
    const Dissipation<double> loss(p.law.dissipation * u_n);
    s.f_n = p.law.stiffness * onset.p * loss.D;
    s.slope = p.law.stiffness * (-onset.dp * loss.D / c_ + onset.p * loss.dD * p.law.dissipation);
    const double speed = std::sqrt(dot3(s.u_t, s.u_t));
    const SlipRatio<double> ratio(speed / p.law.slip);
    s.F = ratio.F;
    s.dF = ratio.dF / p.law.slip;
    s.over = ratio.F_over_s / p.law.slip;
    s.t = speed > 0.0 ? (1.0 / speed) * s.u_t : Vec3<double>{0.0, 0.0, 0.0};
    s.force = s.f_n * p.n - (limit(p, s.f_n) * s.over) * s.u_t;
    return s;
  }
  static double limit(const StiffPlace& p, double normal) { return p.limit >= 0.0 ? p.limit : p.law.friction * normal; }
  Vec3<double> product(const StiffPlace& p, const double* w) const {
    Vec3<double> out{0.0, 0.0, 0.0};
    for (int k = p.begin; k < p.end; ++k) out = mul_add(w[columns_[k]], J_[k], out);
    return out;
  }
  void add_transposed(const StiffPlace& p, const Vec3<double>& f, double* out) const {
    for (int k = p.begin; k < p.end; ++k) out[columns_[k]] += dot3(J_[k], f);
  }
  void evaluate(const double* w, std::vector<State>& out) {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      moved_[i] = product(places_[i], w);
      out[i] = state(places_[i], moved_[i]);
      if (places_[i].load < 0) continue;
      out[i].f_n = loads_[places_[i].load].at(nv_, w);
      out[i].force = force(i, out[i], out[i].f_n);
    }
  }
  // A w, by the rows of the symmetric A.
  void multiply(const double* w, double* out) const {
    std::fill_n(out, nv_, 0.0);
    for (int i = 0; i < nv_; ++i) {
      const double* row = A_.data() + std::size_t(i) * nv_;
      const double x = w[i];
      for (int j = 0; j < nv_; ++j) out[j] += x * row[j];
    }
  }
  // |F| in the metric of A^-1.
  double measure(const std::vector<double>& F) {
    trial_ = F;
    solve_transposed(nv_, U_.data(), trial_.data());
    double sum = 0.0;
    for (const double x : trial_) sum += x * x;
    return std::sqrt(sum);
  }
  // The velocities without stiff forces, in the metric of A.
  double free_speed(const double* v) {
    trial_ = R_;
    cholesky_solve(nv_, U_.data(), trial_.data());
    for (int k = 0; k < nv_; ++k) trial_[k] = v[k] - trial_[k];
    multiply(trial_.data(), rate_.data());
    double sum = 0.0;
    for (int k = 0; k < nv_; ++k) sum += trial_[k] * rate_[k];
    return std::sqrt(std::max(sum, 0.0)) + 1e-12;
  }
  // F = R + A w - sum J^T f with friction by the present normal forces; returns its size.
  double coupled(const double* w, std::vector<State>& at, std::vector<double>& F) {
    evaluate(w, at);
    multiply(w, F.data());
    for (int k = 0; k < nv_; ++k) F[k] += R_[k];
    for (std::size_t i = 0; i < places_.size(); ++i) add_transposed(places_[i], -at[i].force, F.data());
    return measure(F);
  }
  // K = A - J^T (df/du) J, with df/du = slope c n^T - limit B (1 - n n^T), B = dF t t^T + over (1 - t t^T); `lagged`:
  // with c = n and the limit by the lag, which is symmetric, in the upper triangle alone.
  void assemble(const double* w, bool lagged) {
    std::copy(A_.begin(), A_.end(), K_.begin());
    for (std::size_t i = 0; i < places_.size(); ++i) {
      const StiffPlace& p = places_[i];
      const State& s = at_[i];
      const double most = limit(p, lagged ? lag_[i] : s.f_n);
      if (s.slope == 0.0 && most == 0.0) continue;
      const double coefficient = p.limit >= 0.0 || lagged ? 0.0 : p.law.friction;
      const Vec3<double> along = p.n - (coefficient * s.over) * s.u_t;
      for (int b = p.begin; b < p.end; ++b) {
        const Vec3<double>& J = J_[b];
        const double n = dot3(p.n, J), t = dot3(s.t, J);
        const Vec3<double> across = J - n * p.n;
        const Vec3<double> f = (-s.slope * n) * along + most * ((s.dF - s.over) * t * s.t + s.over * across);
        for (int a = p.begin; a < p.end; ++a)
          if (!lagged || columns_[a] <= columns_[b]) K_[std::size_t(columns_[a]) * nv_ + columns_[b]] += dot3(J_[a], f);
      }
      if (lagged || p.load < 0) continue;
      for (int a = p.begin; a < p.end; ++a)
        loads_[p.load].at(nv_, w, &K_[std::size_t(columns_[a]) * nv_], p.law.friction * s.over * dot3(J_[a], s.u_t));
    }
  }
  // A step with the exact matrix, taken if it halves |F|.
  bool whole_step(double* w, double& size) {
    assemble(w, false);
    pivots_.resize(nv_);
    if (!factor(nv_, K_.data(), pivots_.data())) return false;
    for (int k = 0; k < nv_; ++k) step_[k] = -F_[k];
    torsor::solve(nv_, K_.data(), pivots_.data(), step_.data());
    if (!std::isfinite(largest_of(step_))) return false;
    other_w_.resize(nv_);
    for (int k = 0; k < nv_; ++k) other_w_[k] = w[k] + step_[k];
    other_.resize(places_.size());
    other_F_.resize(nv_);
    const double after = coupled(other_w_.data(), other_, other_F_);
    if (!(after < 0.5 * size)) {
      evaluate(w, at_);
      return false;
    }
    size = after;
    std::copy(other_w_.begin(), other_w_.end(), w);
    at_.swap(other_);
    F_.swap(other_F_);
    return true;
  }
  static double largest_of(const std::vector<double>& x) {
    double most = 0.0;
    for (const double y : x) most = std::isfinite(y) ? std::max(most, std::fabs(y)) : INFINITY;
    return most;
  }
  // A step of the convex problem, to the minimum along it; then the lag follows.
  bool convex_step(double* w, double size) {
    const std::size_t count = places_.size();
    const auto lagged = [&] {
      multiply(w, F_.data());
      for (int k = 0; k < nv_; ++k) F_[k] += R_[k];
      for (std::size_t i = 0; i < count; ++i) add_transposed(places_[i], -force(i, at_[i], lag_[i]), F_.data());
    };
    lagged();
    if (measure(F_) < 0.3 * size) {  // solved for this lag
      for (std::size_t i = 0; i < count; ++i) lag_[i] += share_ * (at_[i].f_n - lag_[i]);
      lagged();
    }
    assemble(w, true);
    if (!cholesky(nv_, K_.data())) return false;
    for (int k = 0; k < nv_; ++k) step_[k] = -F_[k];
    cholesky_solve(nv_, K_.data(), step_.data());
    if (!std::isfinite(largest_of(step_))) return false;
    // The derivative along the step rises with its length.
    multiply(step_.data(), rate_.data());
    double linear = 0.0, quadratic = 0.0;
    multiply(w, trial_.data());
    for (int k = 0; k < nv_; ++k) {
      linear += step_[k] * (R_[k] + trial_[k]);
      quadratic += step_[k] * rate_[k];
    }
    changes_.resize(count);
    for (std::size_t i = 0; i < count; ++i) changes_[i] = product(places_[i], step_.data());
    const auto slope = [&](double length, double& second) {
      double first = linear + length * quadratic;
      second = quadratic;
      for (std::size_t i = 0; i < count; ++i) {
        const StiffPlace& p = places_[i];
        const Vec3<double>& d = changes_[i];
        const State s = state(p, moved_[i] + length * d);
        first -= dot3(d, force(i, s, lag_[i]));
        const double n = dot3(p.n, d), t = dot3(s.t, d);
        const Vec3<double> across = d - n * p.n;
        second += -s.slope * n * n + limit(p, lag_[i]) * ((s.dF - s.over) * t * t + s.over * dot3(across, across));
      }
      return first;
    };
    double second, length = 1.0, low = 0.0, high = -1.0;
    const double begin = std::fabs(slope(0.0, second));
    for (int k = 0; k < 80; ++k) {
      const double here = slope(length, second);
      if (std::fabs(here) <= 1e-4 * begin || (high >= 0.0 && high - low < 1e-14)) break;
      (here < 0.0 ? low : high) = length;
      const double next = second > 0.0 ? length - here / second : INFINITY;
      if (high < 0.0) {
        if (length >= 1.5) break;
        length = std::isfinite(next) ? std::min(std::max(next, 1.1 * length), 1.5) : 1.5;
      } else {
        length = low < next && next < high && k % 3 != 0 ? next : 0.5 * (low + high);
      }
    }
    whole_ = length > 0.9;
    const double part = share_ * std::min(length, 1.0);
    for (int k = 0; k < nv_; ++k) trial_[k] = w[k] + step_[k];
    for (std::size_t i = 0; i < count; ++i) {
      const StiffPlace& p = places_[i];
      const double ahead =
          p.load >= 0 ? loads_[p.load].at(nv_, trial_.data()) : at_[i].f_n + at_[i].slope * dot3(p.n, changes_[i]);
      lag_[i] += part * (std::max(ahead, 0.0) - lag_[i]);
    }
    for (int k = 0; k < nv_; ++k) w[k] += length * step_[k];
    return true;
  }
  Vec3<double> force(std::size_t i, const State& s, double lag) const {
    const StiffPlace& p = places_[i];
    return s.f_n * p.n - (limit(p, lag) * s.over) * s.u_t;
  }

  int nv_ = 0;
  double c_ = 1.0;
  double share_ = 1.0;  // of a change of the normal forces by which the lag follows
  bool whole_ = false;  // whether the last step was as long as the linear model, so that whole steps may succeed
  std::vector<StiffPlace> places_;
  std::vector<int> columns_;
  std::vector<Vec3<double>> J_, moved_, changes_;
  std::vector<State> at_, other_;
  std::vector<JointLoad> loads_;
  std::vector<double> A_, U_, K_, R_, F_, step_, trial_, rate_, lag_, other_w_, other_F_, best_;
  std::vector<Pivot<double>> pivots_;
};

// The problems of all lanes, to which laws add their places.
template <class S>
class StiffPlaces {
 public:
  static constexpr int lanes = Lanes<S>::value;
  void clear(int nv, const Mask<S>& where) {
    where_ = where;
    for (ContactProblem& problem : problems_) problem.clear(nv);
  }
  // Adds a place in some lanes; false if there are none. `limit`: of friction, if it does not go by the normal force;
  // else negative.
  bool add(const Mask<S>& lanes_of_place, const ContactNumbers<S>& law, const S& limit, const S& gap, const Vec3<S>& n,
           const Vec3<S>& u) {
    present_ = where_ & lanes_of_place;
    for_each([&](int l, ContactProblem& problem) {
      const auto at = [&](const S& x) { return lane_of(x, l); };
      const auto vector = [&](const Vec3<S>& x) -> Vec3<double> { return {at(x.x), at(x.y), at(x.z)}; };
      problem.add({{at(law.stiffness), at(law.dissipation), at(law.friction), at(law.slip), at(law.onset)},
                   at(limit),
                   at(gap),
                   vector(n),
                   vector(u),
                   0,
                   0});
    });
    return any(present_);
  }
  // Velocity k changes u of the place that was added last by J.
  void add_column(int k, const Vec3<S>& J) {
    for_each([&](int l, ContactProblem& problem) {
      problem.add_column(k, {lane_of(J.x, l), lane_of(J.y, l), lane_of(J.z, l)});
    });
  }
  // The load of that place: its wrench is offset + map w (6 x nv), and size(lane) the function of it.
  template <class F>
  void add_load(int nv, const S* offset, const S* map, F&& size) {
    for_each([&](int l, ContactProblem& problem) {
      JointLoad load{{}, std::vector<double>(std::size_t(6) * nv), size(l)};
      for (int k = 0; k < 6; ++k) load.offset[k] = lane_of(offset[k], l);
      for (int k = 0; k < 6 * nv; ++k) load.map[k] = lane_of(map[k], l);
      problem.add_load(std::move(load));
    });
  }
  // From velocities of a tree to reduced ones.
  void reduce(const TangentMatrix<S>& P) {
    for (int l = 0; l < lanes; ++l)
      if (in_lane(where_, l)) problems_[l].reduce(P, [&](const S& x) { return lane_of(x, l); });
  }
  ContactProblem& operator[](int l) { return problems_[l]; }
  static double lane_of(const S& x, int l) {
    if constexpr (lanes > 1)
      return x.lane(l);
    else
      return x;
  }

 private:
  template <class F>
  void for_each(F&& f) {
    for (int l = 0; l < lanes; ++l)
      if (in_lane(present_, l)) f(l, problems_[l]);
  }
  Mask<S> where_ = no_lane<S>(), present_ = no_lane<S>();
  ContactProblem problems_[lanes];
};

}  // namespace torsor
