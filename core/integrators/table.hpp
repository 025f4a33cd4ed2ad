// Integrators as tables of numbers (docs/derivations/implicit_steps.md). In the chart at the state where a step begins,
// x being a node's coordinates there, a node is found from earlier ones by
//   xdot = c (x - sum_j z_j x_j),   v = J(x) xdot,   a = c (v - (1 - sum_j z_j) v_0 - sum_j z_j v_j),
// with c = alpha / (beta h):
// a row of a diagonally implicit Runge-Kutta method, or a two-step method with the previous row.
#pragma once
#include <algorithm>
#include <optional>
#include <vector>

namespace torsor {

// How a stage finds its accelerations: from the equations of motion at its end; from those at its beginning; or from
// these with the forces linearised.
enum class StageKind : int { implicit, explicit_, linearised };

struct TableRow {
  double alpha, beta;
  double fraction;        // of the step, at which forces and controls are taken
  std::vector<double> z;  // of the nodes after the first; in a multistep method, of the row before
};

// One stage of a step. Node 0 is the row before, 1 the state that the step starts from.
struct Stage {
  struct Other {
    int node;
    double z;
  };
  int to, from;               // the new node and the one in whose chart it is found
  std::vector<Other> others;  // other nodes in the formulas
  double c, w;                // w: of v_from
  double fraction, begin;     // of the step, at `to` and at `from`
};

struct IntegratorTable {
  StageKind kind;
  std::vector<TableRow> rows;         // of a step, and of each part of a divided one
  std::optional<TableRow> multistep;  // instead of them, if the step is whole and there is a row before it
  std::vector<double> fractions;      // at which controls are given that have a row for each stage; increasing
  double h;
  double tolerance;                 // of Newton's method: estimated error of v that remains, relative to 1 + |v|
  int iterations;                   // corrections that may be tried in a stage
  int substeps;                     // into which a step may be divided
  double baumgarte;                 // explicit stages: rate at which they remove errors of constraints
  bool post;                        // explicit stages: whether they end by moving onto the constraints
  std::vector<Stage> first, later;  // of a whole step without and with a row before it: list_stages
  std::vector<Stage> impact;        // of a step with an impact: implicit Euler
  bool is_implicit() const { return kind == StageKind::implicit; }
  // Whether steps with an impact are taken by another formula: those of order two and more would gain energy.
  bool has_impacts() const { return is_implicit() && (multistep || rows.size() > 1); }
};

// The stages of one step divided into `parts`; `previous`: whether node 0 is there. The last node is that of the last
// stage.
inline std::vector<Stage> list_stages(const IntegratorTable& table, int parts, bool previous) {
  std::vector<Stage> stages;
  const double h = table.h / parts;
  const auto add = [&](const TableRow& row, int from, int first, int part) {
    const double fraction = parts == 1 ? row.fraction : (part + row.fraction) / parts;
    const int to = stages.empty() ? 2 : stages.back().to + 1;
    stages.push_back({to, from, {}, row.alpha / (row.beta * h), 1.0, fraction, double(part) / parts});
    for (std::size_t j = 0; j < row.z.size(); ++j) {
      stages.back().others.push_back({first + static_cast<int>(j), row.z[j]});
      stages.back().w -= row.z[j];
    }
  };
  if (table.multistep && previous && parts == 1) {
    add(*table.multistep, 1, 0, 0);
    return stages;
  }
  for (int part = 0; part < parts; ++part) {
    const int from = part == 0 ? 1 : stages.back().to;
    for (const TableRow& row : table.rows) add(row, from, from + 1, part);
  }
  return stages;
}

// Controls of one step: one row for all of it, or one for each of table.fractions and lines through them, the first and
// the last of which extend to the ends of the step.
template <class S>
struct StageControls {
  const S* rows;  // null: none
  int count;
  const std::vector<double>& fractions;
  struct Place {
    int row, next;
    double s;  // the part of the second
  };
  Place place(double fraction) const {
    if (count == 1) return {0, 0, 0.0};
    int row = 0;
    while (row + 2 < count && fraction > fractions[row + 1]) ++row;
    return {row, row + 1, (fraction - fractions[row]) / (fractions[row + 1] - fractions[row])};
  }
};

}  // namespace torsor
