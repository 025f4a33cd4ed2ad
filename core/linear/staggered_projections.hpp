// Impulses of hard contact with Coulomb friction, in the space of the rows (docs/derivations/hard_contact.md). With the
// impulses z and the velocities w = D z + d of the rows,
//   equalities     w = 0
//   normals        z >= 0,  w + e z >= 0,  z (w + e z) = 0
//   friction       blocks of one or two rows: |z| <= l, and z = -l w / |w| where w is not 0
// in this order, each limit l being a sum of terms weight |offset + z_k| over the impulses of other rows. The compliance
// e, kCompliance of the least diagonal entry of D among the normals, makes their impulses unique where rows depend on
// each other: the least ones. It is the same for all, so that the solution depends on D through e in second order only.
//
// Staggered projections (Kaufman et al. 2008; Sueda 2021, Alg. 7) take turns: normals under given friction, a quadratic
// program, then friction under given limits, block by block on discs. Newton's method on the projections of the blocks
// ends this as soon as it converges; its matrix is that of the derivatives of the solution.
#pragma once
#include <limits>

#include "linear/dual_active_set.hpp"
#include "linear/lu.hpp"

namespace torsor {

struct FrictionBlock {
  int row, size;  // its first row, and 1 or 2
  struct Term {
    double weight, offset;
    int row;
  };
  std::vector<Term> limit;
};

class StaggeredProjections {
 public:
  static constexpr double kCompliance = 1e-8;
  static constexpr double kDoubt = 1e-6;  // part of the largest velocity below which a slip may be rounding
  static constexpr int kStaggered = 20;   // rounds after which all rows are swept together instead, against cycles
  int equalities = 0, normals = 0;
  std::vector<FrictionBlock> blocks;
  std::vector<double> D, d;  // n x n and n
  std::vector<double> z;
  double residual = 0.0;       // of the solution, in velocities
  int rounds = 0;              // that were made
  bool contradicting = false;  // whether the normals and equalities cannot be satisfied

  int size() const { return static_cast<int>(d.size()); }
  bool solve(double tolerance, int iterations) {
    if (!find(tolerance, iterations)) return false;
    if (!blocks.empty()) lessen(tolerance);
    return true;
  }

  // Prepares `pull_back`. Rows within `near` of a change, in velocities, are open, or slip, and are counted as kinks.
  // False if the matrix is singular.
  bool linearise(double near) {
    find_velocities();
    classify(near);
    return factor(false);
  }
  int kinks = 0;
  int count_kinks(double near) {
    find_velocities();
    classify(near);
    return kinks;
  }
  bool is_closed(int normal) const { return kinds_[normal] == closed; }
  bool slips(std::size_t block) const { return kinds_[normals + block] == slipping; }
  // The gradient of gz.z: kappa (n), with which the rows' velocities at fixed z enter, and psi, with which limits do:
  // -kappa.dw + psi.dl.
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
      if (e.limited >= 0) psi[e.limited] += e.by_limit * x[i];
    }
  }
  // Of the limit of a block, at the solution.
  double limit_of(std::size_t block) const { return limit(blocks[block]); }

 private:
  static constexpr double kNoResidual = std::numeric_limits<double>::infinity();
  enum Kind : int { open, closed, sticking, slipping };
  // sum by_w w(row + j) + by_z z = ... is an equation for the impulse `unknown`.
  struct Equation {
    int unknown, row, rows;
    double by_w[2];
    double compliance;  // times z(unknown)
    int block = -1;     // by_z: of the rows of a block
    double by_z[2] = {0.0, 0.0};
    int limited = -1;  // the block whose limit enters, by -by_limit
    double by_limit = 0.0;
    double miss = 0.0;
  };

  // Any solution.
  bool find(double tolerance, int iterations) {
    begin();
    double best = 0.0;
    for (double x : d) best = std::max(best, std::abs(x));
    scale_ = best;
    for (rounds = 1; rounds <= iterations; ++rounds) {
      if (rounds > kStaggered) {
        sweep_all();
      } else {
        if (!project_normals()) return false;
        project_friction(std::max(0.1 * tolerance, 0.01 * best));
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
  double own(int i) const { return D[std::size_t(i) * size() + i]; }
  int first_of(std::size_t block) const { return blocks[block].row; }
  double limit(const FrictionBlock& block) const {
    double sum = 0.0;
    for (const auto& term : block.limit)
      sum += term.weight * std::abs(term.offset + (term.row < 0 ? 0.0 : z[term.row]));
    return sum;
  }
  void begin() {
    const int n = size(), m = equalities + normals;
    z.assign(n, 0.0);
    w_ = d;
    contradicting = false;
    kinds_.clear();
    normal_D_.resize(std::size_t(m) * m);
    for (int i = 0; i < m; ++i) std::copy_n(&D[std::size_t(i) * n], m, &normal_D_[std::size_t(i) * m]);
    compliance_.assign(n, 0.0);
    double least = 0.0;
    for (int i = equalities; i < m; ++i)
      if (own(i) > 0.0) least = least > 0.0 ? std::min(least, own(i)) : own(i);
    for (int i = equalities; i < n; ++i) compliance_[i] = kCompliance * (i < m ? least : own(i));
    for (int i = equalities; i < m; ++i) normal_D_[std::size_t(i) * m + i] += compliance_[i];
    // Steps of the projections: the inverse of the largest eigenvalue of a block.
    step_.resize(blocks.size());
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const Disc disc = disc_of(b);
      step_[b] = disc.values[1] > 0.0 ? 1.0 / disc.values[1] : 0.0;
    }
    warm_ = false;
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
      const Slide at = slide(b);
      if (step_[b] == 0.0) continue;
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
  // The point p = z - step w of a block, which the disc of friction projects.
  struct Slide {
    double p[2], length, limit;
  };
  Slide slide(std::size_t b) const {
    const FrictionBlock& block = blocks[b];
    Slide out{{0.0, 0.0}, 0.0, limit(block)};
    for (int j = 0; j < block.size; ++j) out.p[j] = z[block.row + j] - step_[b] * w_[block.row + j];
    out.length = std::hypot(out.p[0], out.p[1]);
    return out;
  }
  // Equalities that depend on others have no multiplier; that they hold is checked by the quadratic program.
  bool skipped(int i) const { return own(i) <= 0.0 || !program_.is_active(i); }

  // Normals --------------------------------------------------------------------------------------------------------

  bool project_normals() {
    const int n = size(), m = equalities + normals;
    std::vector<double>& right = work_;
    right.resize(m);
    for (int i = 0; i < m; ++i) {
      right[i] = d[i];
      for (int j = m; j < n; ++j) right[i] += D[std::size_t(i) * n + j] * z[j];
    }
    const ProgramStatus status = program_.solve(m, equalities, normal_D_.data(), m, right.data(), 100 + 20 * m, warm_);
    warm_ = status == ProgramStatus::solved;
    contradicting = status == ProgramStatus::infeasible;
    if (!warm_) return false;
    std::copy_n(program_.a.data(), m, z.data());
    return true;
  }

  // Friction -------------------------------------------------------------------------------------------------------

  // The matrix of a block in its principal axes, the smaller value first.
  struct Disc {
    double axes[2][2], values[2];
  };
  Disc disc_of(std::size_t b) const {
    const int n = size(), r = blocks[b].row;
    if (blocks[b].size == 1) return {{{1.0, 0.0}, {1.0, 0.0}}, {own(r), own(r)}};
    const double x = own(r), y = own(r + 1), xy = D[std::size_t(r) * n + r + 1];
    const double mean = 0.5 * (x + y), half = 0.5 * (x - y), radius = std::hypot(half, xy);
    double c = half + radius, s = xy;  // of the larger value
    if (half < 0.0) {
      c = xy;
      s = radius - half;
    }
    const double length = std::hypot(c, s);
    c = length > 0.0 ? c / length : 1.0;
    s = length > 0.0 ? s / length : 0.0;
    return {{{-s, c}, {c, s}}, {std::max(mean - radius, 0.0), mean + radius}};
  }
  // The impulse of a block within its disc for which x.A x / 2 + c.x is least.
  static void minimise(const Disc& A, int size, const double* c, double limit, double* x) {
    if (size == 1) {
      x[0] = A.values[1] > 0.0 ? std::clamp(-c[0] / A.values[1], -limit, limit) : 0.0;
      return;
    }
    double along[2];
    for (int k = 0; k < 2; ++k) along[k] = A.axes[k][0] * c[0] + A.axes[k][1] * c[1];
    // Without a limit, and of a direction that does not move without an impulse
    const double tiny = 1e-14 * A.values[1];
    double y[2], square = 0.0;
    for (int k = 0; k < 2; ++k) {
      y[k] = A.values[k] > tiny ? -along[k] / A.values[k] : 0.0;
      square += y[k] * y[k];
    }
    if (square > limit * limit) {
      // |y(nu)| = limit with y = -along / (values + nu): Newton on 1/|y|, which is concave in nu and rises to it
      double nu = 0.0;
      for (int pass = 0; pass < 50; ++pass) {
        double sum = 0.0, rate = 0.0;
        for (int k = 0; k < 2; ++k) {
          if (A.values[k] + nu <= tiny) continue;
          const double x = along[k] / (A.values[k] + nu);
          sum += x * x;
          rate += x * x / (A.values[k] + nu);
        }
        const double length = std::sqrt(sum), change = (length / limit - 1.0) * sum / rate;
        nu += change;
        if (!(std::abs(change) > 1e-15 * (nu + A.values[1]))) break;
      }
      for (int k = 0; k < 2; ++k) y[k] = A.values[k] + nu > tiny ? -along[k] / (A.values[k] + nu) : 0.0;
      const double length = std::hypot(y[0], y[1]);
      for (double& part : y) part *= limit / length;
    }
    for (int j = 0; j < 2; ++j) x[j] = A.axes[0][j] * y[0] + A.axes[1][j] * y[1];
  }
  // Block by block, until no velocity changes by more than `tolerance`.
  void project_friction(double tolerance) {
    if (blocks.empty()) return;
    const int m = equalities + normals;
    find_velocities();
    limits_.resize(blocks.size());
    for (std::size_t b = 0; b < blocks.size(); ++b) limits_[b] = limit(blocks[b]);
    constexpr int kSweeps = 100;
    for (int sweep = 0; sweep < kSweeps; ++sweep) {
      double most = 0.0;
      for (std::size_t b = 0; b < blocks.size(); ++b) most = std::max(most, settle(b, limits_[b], m));
      if (most <= tolerance) break;
    }
  }
  // Finds the impulse of one block. Velocities of rows from `from` on are updated. The largest change is returned.
  double settle(std::size_t b, double limit, int from) {
    const FrictionBlock& block = blocks[b];
    const int n = size(), r = block.row;
    double c[2] = {0.0, 0.0}, x[2] = {0.0, 0.0}, most = 0.0;
    if (limit > 0.0 && step_[b] > 0.0) {
      for (int i = 0; i < block.size; ++i) {
        c[i] = w_[r + i];
        for (int j = 0; j < block.size; ++j) c[i] -= D[std::size_t(r + i) * n + r + j] * z[r + j];
      }
      minimise(disc_of(b), block.size, c, limit, x);
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

  // Newton's method ------------------------------------------------------------------------------------------------

  // Which rows are closed, stick or slip, at velocities that are known.
  void classify(double near) {
    const int m = equalities + normals;
    kinds_.assign(normals + blocks.size(), open);
    kinks = 0;
    for (int i = equalities; i < m; ++i) {
      const double x = own(i) * z[i] - w_[i];
      if (x > near) kinds_[i - equalities] = closed;
      if (std::abs(x) <= near) ++kinks;
    }
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      if (is_open(blocks[b]) || step_[b] == 0.0) continue;
      const Slide at = slide(b);
      const double room = (at.limit - at.length) / step_[b];
      kinds_[normals + b] = room > near ? sticking : slipping;
      if (std::abs(room) <= near) ++kinks;
    }
  }
  // Whether friction is that of normals that are all open.
  bool is_open(const FrictionBlock& block) const {
    for (const auto& term : block.limit) {
      const int normal = term.row - equalities;
      if (term.offset != 0.0 || normal < 0 || normal >= normals || kinds_[normal] == closed) return false;
    }
    return true;
  }
  // The equations of the rows that are not open, at velocities that are known, and the factors of their matrix.
  bool factor(bool least) {
    list_equations(least);
    const int n = size(), k = static_cast<int>(equations_.size());
    LU_.assign(std::size_t(k) * k, 0.0);
    pivots_.resize(k);
    for (int i = 0; i < k; ++i) {
      const Equation& e = equations_[i];
      double* row = &LU_[std::size_t(i) * k];
      for (int c = 0; c < k; ++c)
        for (int j = 0; j < e.rows; ++j) row[c] += e.by_w[j] * D[std::size_t(e.row + j) * n + equations_[c].unknown];
      row[i] += e.compliance;
      if (e.block >= 0)
        for (int c = 0; c < k; ++c)
          for (int j = 0; j < blocks[e.block].size; ++j)
            if (equations_[c].unknown == first_of(e.block) + j) row[c] += e.by_z[j];
      if (e.limited >= 0)
        for (const auto& term : blocks[e.limited].limit)
          for (int c = 0; c < k; ++c)
            if (term.row == equations_[c].unknown)
              row[c] -= e.by_limit * std::copysign(term.weight, term.offset + z[term.row]);
    }
    return torsor::factor(k, LU_.data(), pivots_.data());
  }
  // `least`: whether impulses of rows that stick become least, where these depend on each other; else the compliance
  // is that of a correction, and none of it remains.
  void list_equations(bool least) {
    equations_.clear();
    const int m = equalities + normals;
    const auto add_plain = [&](int row, double compliance, double miss) {
      Equation e{row, row, 1, {1.0, 0.0}, compliance};
      e.miss = miss;
      equations_.push_back(e);
    };
    for (int i = 0; i < equalities; ++i)
      if (!skipped(i)) add_plain(i, 0.0, w_[i]);
    for (int i = equalities; i < m; ++i)
      if (kinds_[i - equalities] == closed) add_plain(i, compliance_[i], w_[i] + compliance_[i] * z[i]);
    for (std::size_t b = 0; b < blocks.size(); ++b) {
      const FrictionBlock& block = blocks[b];
      const int r = block.row;
      if (kinds_[normals + b] == open) continue;
      if (kinds_[normals + b] == sticking) {
        for (int i = r; i < r + block.size; ++i)
          add_plain(i, compliance_[i], w_[i] + (least ? compliance_[i] * z[i] : 0.0));
        continue;
      }
      // z = l p / |p|: along p, z = l; across, (|p| - l) / (step l) z + w = 0
      const Slide at = slide(b);
      const double c = at.length > 0.0 ? at.p[0] / at.length : 1.0, s = at.length > 0.0 ? at.p[1] / at.length : 0.0;
      const double inverse = 1.0 / step_[b];
      Equation along{r, r, 0, {0.0, 0.0}, 0.0, static_cast<int>(b), {inverse * c, inverse * s}, static_cast<int>(b)};
      along.by_limit = at.length > 0.0 ? inverse : 0.0;
      along.miss = inverse * (c * z[r] + (block.size == 2 ? s * z[r + 1] : 0.0) - at.limit);
      equations_.push_back(along);
      if (block.size == 1) continue;
      const double slip = std::max(at.length - at.limit, 0.0);
      const bool some = at.limit > 1e-14 * at.length;
      const double ratio = some ? slip * inverse / at.limit : inverse, by_w = some ? 1.0 : 0.0;
      Equation across{r + 1, r, 2, {-s * by_w, c * by_w}, 0.0, static_cast<int>(b), {-s * ratio, c * ratio}};
      across.miss = (some ? at.length * inverse / at.limit : inverse) * (c * z[r + 1] - s * z[r]);
      equations_.push_back(across);
    }
  }
  void correct() {
    std::vector<double> x(equations_.size()), next(z.size(), 0.0);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = -equations_[i].miss;
    torsor::solve(static_cast<int>(x.size()), LU_.data(), pivots_.data(), x.data());
    for (std::size_t i = 0; i < x.size(); ++i) next[equations_[i].unknown] = z[equations_[i].unknown] + x[i];
    z = std::move(next);
    residual = find_residual();
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
  // From the last iterate, which is restored if it does not converge.
  bool polish(double tolerance) {
    const std::vector<double> before = z;
    const double start = residual;
    double last = kNoResidual;
    for (int pass = 0; pass < 12; ++pass) {
      if (pass > 0) classify(0.0);
      if (!factor(false)) break;
      correct();
      if (residual <= tolerance) return true;
      if (!(residual < 1e3 * start) || (pass > 3 && !(residual < last))) break;
      last = residual;
    }
    z = before;
    residual = start;
    return false;
  }

  std::vector<double> w_, normal_D_, compliance_, step_, limits_, work_, LU_;
  std::vector<Pivot<double>> pivots_;
  std::vector<Equation> equations_;
  std::vector<int> kinds_;
  DualActiveSet<double> program_;
  double scale_ = 0.0;
  bool warm_ = false;
};

}  // namespace torsor
