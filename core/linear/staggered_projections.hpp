// Impulses of hard contact with Coulomb friction, in the space of the rows (docs/derivations/hard_contact.md). With the
// impulses z and the velocities w = D z + d of the rows,
//   equalities   w = 0
//   normals      z >= 0,  w + e z >= 0,  z (w + e z) = 0
//   friction     blocks of one to three rows: |z| <= l, and z = -l w / |w| where w is not 0
// in this order. A limit l is a weight, times the impulse of a normal, or times the load of a joint, a function of a
// wrench that is affine in z. The compliance e, kCompliance of the least diagonal entry of D among the normals, makes
// their impulses unique where rows depend on each other: the least ones. It is the same for all, so that the solution
// depends on D through e in second order only.
//
// Staggered projections (Kaufman et al. 2008; Sueda 2021, Alg. 7 and 8) take turns: normals and equalities under given
// friction, a quadratic program, then friction under given limits, block by block on balls. Newton's method on the
// projections of the blocks ends this as soon as it converges; its matrix is that of the derivatives of the solution.
#pragma once
#include <limits>

#include "linear/cholesky.hpp"
#include "linear/dual_active_set.hpp"
#include "linear/joint_load.hpp"
#include "linear/lu.hpp"

namespace torsor {

struct FrictionBlock {
  int row, size;
  double weight;
  int normal = -1, load = -1;  // the row of a normal, or a load; or neither
};

class StaggeredProjections {
 public:
  static constexpr int kMost = 3;  // rows of a block
  static constexpr double kCompliance = 1e-8;
  static constexpr double kContradiction = 1e-5;  // part of the largest velocity by which normals may give way
  static constexpr double kDoubt = 1e-6;          // part of the largest velocity below which a slip may be rounding
  static constexpr int kStaggered = 20;  // rounds after which all rows are swept together instead, against cycles
  int equalities = 0, normals = 0;
  std::vector<FrictionBlock> blocks;
  std::vector<JointLoad> loads;
  std::vector<double> D, d;  // n x n and n
  std::vector<double> z;
  double residual = 0.0;       // of the solution, in velocities
  int rounds = 0;              // that were made
  bool contradicting = false;  // whether the normals and equalities cannot be satisfied

  int size() const { return static_cast<int>(d.size()); }
  bool solve(double tolerance, int iterations) {
    if (!find(tolerance, iterations)) return false;
    if (!blocks.empty()) lessen(tolerance);
    // Normals that contradict each other are held by the compliance alone.
    for (int i = equalities; i < equalities + normals; ++i)
      contradicting = contradicting || compliance_[i] * z[i] > tolerance + kContradiction * scale_;
    return !contradicting;
  }
  int kinks = 0;  // rows within `near` of a change, in velocities
  void count_kinks(double near) {
    find_velocities();
    classify(near);
  }

  // Prepares `pull_back`. Rows within `near` of a change are open, or slip. False if the matrix is singular.
  bool linearise(double near) {
    count_kinks(near);
    return factor(false);
  }
  // The gradient of gz.z: kappa (n), with which the rows' velocities at fixed z enter, and psi (blocks), with which
  // limits do: -kappa.dw + psi.dl.
  void pull_back(const double* gz, double* kappa, double* psi) const {
    const int k = static_cast<int>(equations_.size());
    std::vector<double> x(k);
    for (int i = 0; i < k; ++i) x[i] = gz[equations_[i].unknown];
    solve_transposed(k, LU_.data(), pivots_.data(), x.data());
    std::fill_n(kappa, size(), 0.0);
    std::fill_n(psi, blocks.size(), 0.0);
    for (int i = 0; i < k; ++i) {
      const Equation& e = equations_[i];
      for (int j = 0; j < e.rows; ++j) kappa[e.row + j] += e.by_w[j] * x[i];
      if (e.block >= 0) psi[e.block] += e.by_limit * x[i];
    }
  }
  // The limit of a block at z and, if not null, its derivatives (n), which are added.
  double limit(const FrictionBlock& block, double* by_z = nullptr, double factor = 1.0) const {
    if (block.normal >= 0) {
      if (by_z != nullptr) by_z[block.normal] += factor * block.weight;
      return block.weight * std::max(z[block.normal], 0.0);
    }
    if (block.load < 0) return block.weight;
    return block.weight * loads[block.load].at(size(), z.data(), by_z, factor * block.weight);
  }

 private:
  static constexpr double kNoResidual = std::numeric_limits<double>::infinity();
  enum Kind : int { open, closed, sticking, slipping };
  // by_w.w(row ...) + compliance z(unknown) + by_z.z(row ...) - by_limit l(block) = 0 is an equation for z(unknown).
  struct Equation {
    int unknown, row, rows;
    double by_w[kMost], by_z[kMost];
    double compliance, by_limit;
    int block;  // whose limit enters, or -1
    double miss;
  };

  double own(int i) const { return D[std::size_t(i) * size() + i]; }

  // Any solution.
  bool find(double tolerance, int iterations) {
    begin();
    double best = scale_;
    for (rounds = 1; rounds <= iterations; ++rounds) {
      poll();
      if (rounds > kStaggered) {
        sweep_all();
      } else {
        if (!project_normals()) return false;
        project_friction(std::max(0.1 * tolerance, 0.01 * best), rounds > 1);
      }
      residual = find_residual();
      best = std::min(best, residual);
      const std::vector<int> before = std::move(kinds_);
      classify(0.0);
      if ((kinds_ == before || (rounds & (rounds - 1)) == 0) && polish(tolerance)) return true;
      if (residual <= (rounds > kStaggered ? allowed(tolerance) : tolerance)) return true;
    }
    rounds = iterations;
    residual = best;
    return false;
  }
  void begin() {
    const int n = size(), m = equalities + normals;
    z.assign(n, 0.0);
    w_ = d;
    scale_ = 0.0;
    for (double x : d) scale_ = std::max(scale_, std::abs(x));
    contradicting = warm_ = false;
    kinds_.clear();
    compliance_.assign(n, 0.0);
    double least = 0.0;
    for (int i = equalities; i < m; ++i)
      if (own(i) > 0.0) least = least > 0.0 ? std::min(least, own(i)) : own(i);
    for (int i = equalities; i < m; ++i) compliance_[i] = kCompliance * least;
    normal_D_.resize(std::size_t(m) * m);
    for (int i = 0; i < m; ++i) {
      std::copy_n(&D[std::size_t(i) * n], m, &normal_D_[std::size_t(i) * m]);
      normal_D_[std::size_t(i) * m + i] += compliance_[i];
    }
    // Steps of the projections: the inverse of a bound of the eigenvalues of a block.
    step_.assign(blocks.size(), 0.0);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      for (int j = 0; j < blocks[b].size; ++j) step_[b] += own(blocks[b].row + j);
      for (int j = 0; j < blocks[b].size; ++j) compliance_[blocks[b].row + j] = kCompliance * step_[b];
      if (step_[b] > 0.0) step_[b] = 1.0 / step_[b];
    }
  }
  void find_velocities() {
    const int n = size();
    for (int i = 0; i < n; ++i) {
      double sum = d[i];
      const double* row = &D[std::size_t(i) * n];
      for (int j = 0; j < n; ++j) sum += row[j] * z[j];
      w_[i] = sum;
    }
  }
  // What is left of the conditions, in velocities: the distance to the projection, over its step.
  double find_residual() {
    find_velocities();
    double most = 0.0;
    const auto add = [&](double x) { most = std::max(most, std::isnan(x) ? kNoResidual : std::abs(x)); };
    const int m = equalities + normals;
    for (int i = 0; i < equalities; ++i) add(skipped(i) ? 0.0 : w_[i]);
    for (int i = equalities; i < m; ++i) add(std::min(w_[i] + compliance_[i] * z[i], own(i) * z[i]));
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      if (step_[b] == 0.0) continue;
      const Slide at = slide(b);
      const double shrink = at.length > at.limit ? at.limit / at.length : 1.0;
      double sum = 0.0;
      for (int j = 0; j < blocks[b].size; ++j) {
        const double x = z[blocks[b].row + j] - shrink * at.p[j];
        sum += x * x;
      }
      add(std::sqrt(sum) / step_[b]);
    }
    return most;
  }
  // Rows give way by the compliance, which projections see as an error of friction where rows depend on each other.
  double allowed(double tolerance) const {
    double most = 0.0;
    for (int i = 0; i < size(); ++i) most = std::max(most, own(i) * std::abs(z[i]));
    return tolerance + 10.0 * kCompliance * most;
  }
  // The point p = z - step w of a block, which the ball of friction projects.
  struct Slide {
    double p[kMost], length, limit;
  };
  Slide slide(std::size_t b) const {
    const FrictionBlock& block = blocks[b];
    Slide out{{}, 0.0, limit(block)};
    for (int j = 0; j < block.size; ++j) {
      out.p[j] = z[block.row + j] - step_[b] * w_[block.row + j];
      out.length += out.p[j] * out.p[j];
    }
    out.length = std::sqrt(out.length);
    return out;
  }
  // Equalities that depend on others have no multiplier; that they hold is checked by the quadratic program.
  bool skipped(int i) const { return own(i) <= 0.0 || !program_.is_active(i); }

  // Projections -----------------------------------------------------------------------------------------------------

  bool project_normals() {
    const int n = size(), m = equalities + normals;
    std::vector<double> right(m);
    for (int i = 0; i < m; ++i) {
      right[i] = d[i];
      for (int j = m; j < n; ++j) right[i] += D[std::size_t(i) * n + j] * z[j];
    }
    const ProgramStatus status = program_.solve(m, equalities, normal_D_.data(), m, right.data(), 100 + 20 * m, warm_);
    warm_ = status == ProgramStatus::solved;
    contradicting = status == ProgramStatus::infeasible;
    if (warm_) std::copy_n(program_.a.data(), m, z.data());
    return warm_;
  }
  // Block by block, until no velocity changes by more than `tolerance`; or `exactly`.
  void project_friction(double tolerance, bool exactly) {
    if (blocks.empty()) return;
    const int m = equalities + normals;
    find_velocities();
    std::vector<double> limits(blocks.size());
    for (std::size_t b = 0; b < blocks.size(); ++b) limits[b] = limit(blocks[b]);
    if (exactly && find_friction(limits)) return;
    constexpr int kSweeps = 100;
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      double most = 0.0;
      for (std::size_t b = 0; b < blocks.size(); ++b) most = std::max(most, settle(b, limits[b], m));
      if (most <= tolerance) break;
    }
  }
  // Friction under given limits by a primal-dual interior-point method, which is not slowed down where rows depend on
  // each other and contradict each other a little, as those of a body that lands unevenly. With multipliers nu of
  // (limit^2 - |z|^2) / (2 limit) = g >= 0,
  //   w + nu z / limit = 0,   nu g = mu -> 0.
  bool find_friction(const std::vector<double>& limits) {
    const int n = size();
    std::vector<int> some;   // blocks with a limit
    std::vector<int> first;  // their first unknowns
    int k = 0;
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const FrictionBlock& block = blocks[b];
      for (int j = block.row; j < block.row + block.size; ++j) change(j, 0.0, 0);
      if (!(limits[b] > 0.0) || step_[b] == 0.0) continue;
      some.push_back(static_cast<int>(b));
      first.push_back(k);
      k += block.size;
    }
    if (k == 0) return true;
    std::vector<double> nu(some.size(), scale_ > 0.0 ? scale_ : 1.0), g(some.size()), dg(some.size()), dz(k);
    std::vector<double> H(std::size_t(k) * k);
    const auto row = [&](std::size_t i) { return blocks[some[i]].row; };
    const auto count = [&](std::size_t i) { return blocks[some[i]].size; };
    double largest = 0.0;
    for (int b : some) largest = std::max(largest, limits[b]);
    for (int pass = 0; pass < 60; ++pass) {
      double mu = 0.0, miss = 0.0;
      for (std::size_t i = 0; i < some.size(); ++i) {
        const double l = limits[some[i]];
        double square = 0.0;
        for (int j = 0; j < count(i); ++j) {
          const double x = z[row(i) + j];
          square += x * x;
          miss = std::max(miss, std::abs(w_[row(i) + j] + nu[i] * x / l));
        }
        g[i] = (l * l - square) / (2.0 * l);
        mu += nu[i] * g[i] / some.size();
      }
      if (miss <= 1e-14 * scale_ && mu <= 1e-15 * scale_ * largest) break;
      mu *= pass < 5 ? 0.3 : 0.1;
      for (std::size_t i = 0; i < some.size(); ++i) {
        const double l = limits[some[i]];
        for (int a = 0; a < count(i); ++a) {
          const double x = z[row(i) + a];
          dz[first[i] + a] = -(w_[row(i) + a] + mu / g[i] * x / l);
          double* to = &H[std::size_t(first[i] + a) * k];
          for (std::size_t j = 0; j < some.size(); ++j)
            for (int c = 0; c < count(j); ++c) to[first[j] + c] = D[std::size_t(row(i) + a) * n + row(j) + c];
          to[first[i] + a] += nu[i] / l;
          for (int c = 0; c < count(i); ++c) to[first[i] + c] += nu[i] / g[i] * x * z[row(i) + c] / (l * l);
        }
      }
      if (!cholesky(k, H.data())) return false;
      cholesky_solve(k, H.data(), dz.data());
      // The longest step that leaves g and nu positive.
      double step = 1.0;
      for (std::size_t i = 0; i < some.size(); ++i) {
        const double l = limits[some[i]];
        double along = 0.0, square = 0.0, length = 0.0;
        for (int j = 0; j < count(i); ++j) {
          const double x = z[row(i) + j], y = dz[first[i] + j];
          along += x * y;
          length += y * y;
          square += x * x;
        }
        dg[i] = mu / g[i] - nu[i] + nu[i] / g[i] * along / l;
        if (dg[i] < 0.0) step = std::min(step, -0.99 * nu[i] / dg[i]);
        if (length > 0.0) {
          const double room = std::max(l * l - square, 0.0);
          const double reach = room / (along + std::sqrt(along * along + length * room));
          step = std::min(step, 0.99 * reach);
        }
      }
      for (std::size_t i = 0; i < some.size(); ++i) {
        nu[i] += step * dg[i];
        for (int j = 0; j < count(i); ++j) change(row(i) + j, z[row(i) + j] + step * dz[first[i] + j], 0);
      }
    }
    return true;
  }
  // Row by row, normals and friction alike.
  void sweep_all() {
    find_velocities();
    constexpr int kSweeps = 20;
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      for (int i = 0; i < equalities + normals; ++i) {
        const double stiff = own(i) + compliance_[i];
        if (i < equalities ? skipped(i) : stiff <= 0.0) continue;
        const double x = z[i] - (w_[i] + compliance_[i] * z[i]) / stiff;
        change(i, i < equalities ? x : std::max(x, 0.0), 0);
      }
      for (std::size_t b = 0; b < blocks.size(); ++b) settle(b, limit(blocks[b]), 0);
    }
  }
  // Finds the impulse of one block. Velocities of rows from `from` on are updated. The largest change is returned.
  double settle(std::size_t b, double limit, int from) {
    const FrictionBlock& block = blocks[b];
    const int n = size(), r = block.row;
    double A[kMost * kMost] = {}, c[kMost] = {}, x[kMost] = {}, most = 0.0;
    if (limit > 0.0 && step_[b] > 0.0) {
      for (int i = 0; i < block.size; ++i) {
        c[i] = w_[r + i];
        for (int j = 0; j < block.size; ++j) {
          A[block.size * i + j] = D[std::size_t(r + i) * n + r + j];
          c[i] -= A[block.size * i + j] * z[r + j];
        }
      }
      minimise(block.size, A, c, limit, x);
    }
    for (int j = 0; j < block.size; ++j) most = std::max(most, change(r + j, x[j], from));
    return most;
  }
  double change(int row, double x, int from) {
    const int n = size();
    const double by = x - z[row];
    if (by == 0.0) return 0.0;
    z[row] = x;
    for (int i = from; i < n; ++i) w_[i] += D[std::size_t(i) * n + row] * by;
    return std::abs(by) * own(row);
  }
  // The x within a ball for which x.A x / 2 + c.x is least: x = -(A + nu)^-1 c with |x| = limit, or nu = 0. 1 / |x| is
  // concave in nu, so that Newton's method rises to the limit.
  static void minimise(int size, const double* A, const double* c, double limit, double* x) {
    double trace = 0.0, nu = 0.0;
    for (int i = 0; i < size; ++i) trace += A[size * i + i];
    for (int pass = 0; pass < 50; ++pass) {
      double L[kMost * kMost], y[kMost], square = 0.0, rate = 0.0;
      for (int i = 0; i < size; ++i)  // A + nu = L L^T
        for (int j = 0; j <= i; ++j) {
          double sum = A[size * i + j] + (i == j ? nu + 1e-14 * trace : 0.0);
          for (int k = 0; k < j; ++k) sum -= L[size * i + k] * L[size * j + k];
          L[size * i + j] = i == j ? std::sqrt(std::max(sum, 1e-16 * trace)) : sum / L[size * j + j];
        }
      const auto forward = [&](const double* from, double* to) {
        for (int i = 0; i < size; ++i) {
          to[i] = from[i];
          for (int k = 0; k < i; ++k) to[i] -= L[size * i + k] * to[k];
          to[i] /= L[size * i + i];
        }
      };
      forward(c, y);
      for (int i = size - 1; i >= 0; --i) {
        x[i] = -y[i];
        for (int k = i + 1; k < size; ++k) x[i] -= L[size * k + i] * x[k];
        x[i] /= L[size * i + i];
        square += x[i] * x[i];
      }
      const double length = std::sqrt(square);
      if (nu == 0.0 && length <= limit) return;
      forward(x, y);
      for (int i = 0; i < size; ++i) rate += y[i] * y[i];
      const double more = (length / limit - 1.0) * square / rate;
      nu += std::max(more, 0.0);
      if (more > 1e-15 * (nu + trace)) continue;
      for (int i = 0; i < size; ++i) x[i] *= limit / length;
      return;
    }
  }

  // Newton's method -------------------------------------------------------------------------------------------------

  // Which rows are closed, stick or slip, at velocities that are known.
  void classify(double near) {
    kinds_.assign(normals + blocks.size(), open);
    kinks = 0;
    for (int i = 0; i < normals; ++i) {
      const int row = equalities + i;
      const double x = own(row) * z[row] - w_[row];
      if (x > near) kinds_[i] = closed;
      if (std::abs(x) <= near) ++kinks;
    }
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const int normal = blocks[b].normal - equalities;
      if (step_[b] == 0.0 || (normal >= 0 && kinds_[normal] == open)) continue;
      const Slide at = slide(b);
      const double room = (at.limit - at.length) / step_[b];
      kinds_[normals + b] = room > near ? sticking : slipping;
      if (std::abs(room) <= near) ++kinks;
    }
  }
  // The equations of the rows that are not open, at velocities that are known. `least`: whether impulses of rows that
  // stick become least relative to their limits, where rows depend on each other; else the compliance is that of a
  // correction, and none of it remains.
  void list_equations(bool least) {
    equations_.clear();
    const auto add_plain = [&](int row, double compliance, double miss) {
      equations_.push_back({row, row, 1, {1.0}, {}, compliance, 0.0, -1, miss});
    };
    for (int i = 0; i < equalities; ++i)
      if (!skipped(i)) add_plain(i, 0.0, w_[i]);
    for (int i = equalities; i < equalities + normals; ++i)
      if (kinds_[i - equalities] == closed) add_plain(i, compliance_[i], w_[i] + compliance_[i] * z[i]);
    double largest = 0.0;
    for (std::size_t b = 0; least && b < blocks.size(); ++b) largest = std::max(largest, limit(blocks[b]));
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const FrictionBlock& block = blocks[b];
      if (kinds_[normals + b] == sticking) {
        const double share = least && block.weight > 0.0 ? largest / std::max(limit(block), 1e-6 * largest) : 1.0;
        for (int i = block.row; i < block.row + block.size; ++i)
          add_plain(i, share * compliance_[i], w_[i] + (least ? share * compliance_[i] * z[i] : 0.0));
      }
      if (kinds_[normals + b] == slipping) add_slipping(b);
    }
  }
  // z = l p / |p|: along p, z = l; across, (|p| - l) / (step l) z + w = 0, or z = 0 if the limit is 0.
  void add_slipping(std::size_t b) {
    const FrictionBlock& block = blocks[b];
    const Slide at = slide(b);
    double axes[kMost][kMost] = {};
    put_axes(block.size, at.p, at.length, axes);
    const double inverse = 1.0 / step_[b], slip = std::max(at.length - at.limit, 0.0);
    const bool some = at.limit > 1e-14 * at.length;
    for (int i = 0; i < block.size; ++i) {
      Equation e{block.row + i, block.row, block.size, {}, {}, 0.0, 0.0, -1, 0.0};
      const double by_z = i == 0 || !some ? inverse : slip * inverse / at.limit;
      const double scale = i == 0 || !some ? inverse : at.length * inverse / at.limit;
      for (int j = 0; j < block.size; ++j) {
        e.by_w[j] = i == 0 || !some ? 0.0 : axes[i][j];
        e.by_z[j] = by_z * axes[i][j];
        e.miss += scale * axes[i][j] * z[block.row + j];
      }
      if (i == 0) {
        e.block = static_cast<int>(b);
        e.by_limit = at.length > 0.0 ? inverse : 0.0;
        e.miss -= inverse * at.limit;
      }
      equations_.push_back(e);
    }
  }
  // The direction of p, and those across.
  static void put_axes(int size, const double* p, double length, double axes[kMost][kMost]) {
    axes[0][0] = 1.0;
    for (int j = 0; length > 0.0 && j < size; ++j) axes[0][j] = p[j] / length;
    if (size == 2) {
      axes[1][0] = -axes[0][1];
      axes[1][1] = axes[0][0];
    }
    if (size != 3) return;
    int least = 0;
    for (int j = 1; j < 3; ++j)
      if (std::abs(axes[0][j]) < std::abs(axes[0][least])) least = j;
    const int u = (least + 1) % 3, v = (least + 2) % 3;
    const double across = std::hypot(axes[0][u], axes[0][v]);
    axes[1][u] = -axes[0][v] / across;
    axes[1][v] = axes[0][u] / across;
    for (int j = 0; j < 3; ++j) {
      const int k = (j + 1) % 3, l = (j + 2) % 3;
      axes[2][j] = axes[0][k] * axes[1][l] - axes[0][l] * axes[1][k];
    }
  }
  // The matrix of these equations, factored.
  bool factor(bool least) {
    list_equations(least);
    const int n = size(), k = static_cast<int>(equations_.size());
    LU_.assign(std::size_t(k) * k, 0.0);
    pivots_.resize(k);
    std::vector<double> by_z(n);
    for (int i = 0; i < k; ++i) {
      const Equation& e = equations_[i];
      std::fill(by_z.begin(), by_z.end(), 0.0);
      for (int j = 0; j < e.rows; ++j) {
        if (e.by_w[j] != 0.0) add_scaled(n, e.by_w[j], &D[std::size_t(e.row + j) * n], by_z.data());
        by_z[e.row + j] += e.by_z[j];
      }
      by_z[e.unknown] += e.compliance;
      if (e.block >= 0) limit(blocks[e.block], by_z.data(), -e.by_limit);
      for (int c = 0; c < k; ++c) LU_[std::size_t(i) * k + c] = by_z[equations_[c].unknown];
    }
    return torsor::factor(k, LU_.data(), pivots_.data());
  }
  void correct() {
    std::vector<double> x(equations_.size()), next(z.size(), 0.0);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = -equations_[i].miss;
    torsor::solve(static_cast<int>(x.size()), LU_.data(), pivots_.data(), x.data());
    for (std::size_t i = 0; i < x.size(); ++i) next[equations_[i].unknown] = z[equations_[i].unknown] + x[i];
    z = std::move(next);
    residual = find_residual();
  }
  // From the last iterate, which is restored if it does not converge.
  bool polish(double tolerance) {
    const std::vector<double> before = z;
    const double start = residual;
    for (int pass = 0; pass < 12; ++pass) {
      if (pass > 0) classify(0.0);
      if (!factor(false)) break;
      correct();
      if (residual <= tolerance) return true;
    }
    z = before;
    residual = start;
    return false;
  }
  // Where rows that stick depend on each other, takes the least impulses, if these are within their limits: others may
  // be at a limit without need, which would be a kink.
  void lessen(double tolerance) {
    const std::vector<double> before = z;
    const double start = residual;
    find_velocities();
    classify(-kDoubt * scale_);
    if (std::find(kinds_.begin(), kinds_.end(), static_cast<int>(sticking)) == kinds_.end()) return;
    for (const bool least : {true, false}) {
      if (!factor(least)) break;
      correct();
    }
    if (residual <= std::max(start, tolerance)) return;
    z = before;
    residual = start;
  }

  double scale_ = 0.0;  // the largest velocity
  std::vector<double> w_, normal_D_, compliance_, step_, LU_;
  std::vector<Pivot<double>> pivots_;
  std::vector<Equation> equations_;
  std::vector<int> kinds_;
  DualActiveSet<double> program_;
  bool warm_ = false;
};

}  // namespace torsor
