// The constraints of a scene, compiled for models of one tree (same_tree, model/lane_models.hpp): rows between pairs of
// markers, couplings of coordinates, rows on twists, and user-defined rows (docs/derivations/constraints.md, 1).
//
// Every row has a value g, its rate gdot and second rate gamma along a motion, and a gradient G by q. Multipliers
// lambda act as torques G^T lambda.
#pragma once
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "forces/law.hpp"

namespace torsor {

// A frame fixed in one of the user's bodies, or in the world.
struct Marker {
  int frame, body;  // the user's body and the one that carries it, or -1
  SE3<double> pose;
};

// coefficient a.(R b + s p), a in the axes of marker A, (R, p) being the pose of marker B there.
struct RowTerm {
  double coefficient;
  Vec3<double> a, b;
  double s;
  int axis = -1;  // k if a is the k-th unit vector
  int seen = -1;  // k if b is the k-th unit vector and s = 0, 3 if b = 0 and s = 1
};
inline int unit_vector(const Vec3<double>& x) {
  for (int k = 0; k < 3; ++k)
    if (x.x == (k == 0) && x.y == (k == 1) && x.z == (k == 2)) return k;
  return -1;
}
// The sum of its terms, or the distance between the markers, less an offset.
struct PairRow {
  bool is_distance;
  std::vector<RowTerm> terms;
  double offset;
};

// Rows of a pair side by side in a vector: their terms, with coefficients multiplied into a.
struct RowLanes {
  struct Term {
    double a[3][kLanes], b[3][kLanes], s[kLanes];
  };
  int rows = 0;
  double offset[kLanes] = {};
  std::vector<Term> terms;
};
inline std::vector<RowLanes> row_lanes(const std::vector<PairRow>& rows) {
  std::vector<RowLanes> out;
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (rows[r].is_distance) return {};
    if (r % kLanes == 0) out.emplace_back();
    RowLanes& lanes = out.back();
    const int l = lanes.rows++;
    lanes.offset[l] = rows[r].offset;
    for (std::size_t k = 0; k < rows[r].terms.size(); ++k) {
      if (k == lanes.terms.size()) lanes.terms.emplace_back();
      const RowTerm& from = rows[r].terms[k];
      RowLanes::Term& to = lanes.terms[k];
      const double a[3] = {from.a.x, from.a.y, from.a.z}, b[3] = {from.b.x, from.b.y, from.b.z};
      for (int c = 0; c < 3; ++c) {
        to.a[c][l] = from.coefficient * a[c];
        to.b[c][l] = b[c];
      }
      to.s[l] = from.s;
    }
  }
  return out;
}

// Numbers that are given functions of time.
struct TimeFunction : UserCode {
  virtual void evaluate(double t, double* out) const = 0;
};
// Where the numbers of a function of time are in the array of all of them; size 0: there is none.
struct TimeSlot {
  int at = 0, size = 0;
};

// Base of all parts: where its rows, and its parameters in the flat gradient, begin.
struct ConstraintPart {
  int constraint;  // the user's
  int row, rows;
  int at;
};
struct PairPart : ConstraintPart {
  Marker A, B;
  std::vector<PairRow> each;
  std::vector<RowLanes> lanes;  // the same, if none is a distance
  TimeSlot motion;  // of marker A, in the world: pose (R by rows, p), twist and its rate in the marker's frame
  std::vector<int> moves_A, moves_B;  // the bodies whose joints move one of the two markers only, tips first
  bool A_rests() const { return A.body < 0 && motion.size == 0; }
  bool sees[4];          // which points of RowTerm::seen its rows look at
  bool has_common;       // whether joints move both markers
  bool has_other_terms;  // and whether at others
  bool needs_velocity;   // whether gamma depends on linear velocities of the bodies
};
struct CouplingPart : ConstraintPart {
  struct Term {
    double coefficient;
    int iq, iv;
  };
  std::vector<Term> terms;
  double offset;
  TimeSlot motion;  // value, rate, second rate, subtracted
};
// A row on velocities alone, without g: sum of w.V over bodies, V in the body's frame, and of coefficients times
// velocities of joints.
struct TwistPart : ConstraintPart {
  struct OfBody {
    Marker marker;
    Force<double> w;
    std::vector<int> moves;
  };
  struct Term {
    double coefficient;
    int iv;
  };
  std::vector<OfBody> bodies;
  std::vector<Term> terms;
  TimeSlot motion;  // value, rate, subtracted
};

// User-defined rows of coordinates. Arrays have a row for each of `lanes` states, which have one time.
struct CustomConstraint : UserCode {
  // out: g, gdot, gamma, then G (rows x nv).
  virtual void evaluate(int lanes, const double* q, const double* v, const double* a, double t, double* out) const = 0;
  virtual void evaluate(int lanes, const Complex* q, const Complex* v, const Complex* a, double t,
                        Complex* out) const = 0;
  // out: dgdot/dq, dgamma/dq, dgamma/dv (rows x nv each).
  virtual void derivatives(int lanes, const double* q, const double* v, const double* a, double t,
                           double* out) const = 0;
  virtual void derivatives(int lanes, const Complex* q, const Complex* v, const Complex* a, double t,
                           Complex* out) const = 0;
  // out (nv x nv): the derivative of G^T lambda by q.
  virtual void stiffness(int lanes, const double* q, double t, const double* lambda, double* out) const = 0;
  virtual void stiffness(int lanes, const Complex* q, double t, const Complex* lambda, Complex* out) const = 0;
  // out (count): the gradient of the sum of weights times g, gdot and gamma; weights: rows each.
  virtual void gradient(int lanes, const double* q, const double* v, const double* a, double t, const double* weights,
                        double* out) const = 0;
  virtual void gradient(int lanes, const Complex* q, const Complex* v, const Complex* a, double t,
                        const Complex* weights, Complex* out) const = 0;
};
struct CustomPart : ConstraintPart {
  int count;  // of its parameters
  std::shared_ptr<CustomConstraint> custom;
};

// Rows that are carried together from the bodies they act on to the roots (constraints/delassus.hpp).
struct RowWalk {
  int row, rows;            // consecutive rows
  int place;                // of the first of them in an array where every walk begins with a whole vector
  std::vector<int> bodies;  // that carry them: those they act on and all above, children before parents
  std::vector<int> pairs, couplings, twists, custom;  // the parts that they belong to
  bool on_velocities() const { return !couplings.empty() || !twists.empty() || !custom.empty(); }
};
struct RowPlan {
  std::vector<RowWalk> walks;
  int places = 0;           // of all walks
  std::vector<int> bodies;  // of all walks, children before parents
};

struct ConstraintSet {
  int constraints = 0, rows = 0;
  int parameters = 0;  // length of the flat gradient
  int times = 0;       // numbers that are functions of time
  std::vector<PairPart> pairs;
  std::vector<CouplingPart> couplings;
  std::vector<TwistPart> twists;
  std::vector<CustomPart> custom;
  std::vector<std::pair<TimeSlot, std::shared_ptr<TimeFunction>>> motions;
  std::vector<std::string> row_names;
  bool needs_velocity = false;     // whether gamma depends on linear velocities of bodies
  RowPlan one_by_one, in_vectors;  // for numbers that hold several states, and for those of one state

  bool depends_on_time() const { return !motions.empty() || !custom.empty(); }
  bool runs_user_code() const { return depends_on_time(); }
};

// The bodies whose joints move body i but not body j, tips first; -1 is the world.
inline std::vector<int> moves_alone(const Model& m, int i, int j) {
  std::vector<bool> common(m.n() + 1, false);
  for (; j >= 0; j = m.links[j].parent) common[j] = true;
  std::vector<int> out;
  for (; i >= 0 && !common[i]; i = m.links[i].parent) out.push_back(i);
  return out;
}

// How rows are carried if vectors hold `width` of them: rows of one part together, and those of several parts that fit
// into a vector.
inline RowPlan plan_rows(const Model& m, const ConstraintSet& set, int width) {
  std::vector<int> owner(m.nv);
  for (int i = 0; i < m.n(); ++i)
    for (int k = 0; k < m.bodies[i].nv; ++k) owner[m.bodies[i].iv + k] = i;
  std::vector<RowWalk> parts;
  const auto add = [&](const ConstraintPart& part, std::vector<int> bodies, std::vector<int> RowWalk::* kind,
                       int index) {
    if (part.rows == 0) return;
    parts.push_back({part.row, part.rows, 0, std::move(bodies), {}, {}, {}, {}});
    (parts.back().*kind).push_back(index);
  };
  int index = 0;
  for (const PairPart& pair : set.pairs) {
    std::vector<int> bodies = pair.moves_A;
    bodies.insert(bodies.end(), pair.moves_B.begin(), pair.moves_B.end());
    add(pair, std::move(bodies), &RowWalk::pairs, index++);
  }
  index = 0;
  for (const CouplingPart& part : set.couplings) {
    std::vector<int> bodies;
    for (const auto& term : part.terms) bodies.push_back(owner[term.iv]);
    add(part, std::move(bodies), &RowWalk::couplings, index++);
  }
  index = 0;
  for (const TwistPart& part : set.twists) {
    std::vector<int> bodies;
    for (const auto& term : part.terms) bodies.push_back(owner[term.iv]);
    for (const auto& body : part.bodies) bodies.insert(bodies.end(), body.moves.begin(), body.moves.end());
    add(part, std::move(bodies), &RowWalk::twists, index++);
  }
  index = 0;
  for (const CustomPart& part : set.custom) {
    std::vector<int> bodies;
    for (int i = 0; i < m.n(); ++i) bodies.push_back(i);
    add(part, std::move(bodies), &RowWalk::custom, index++);
  }
  std::sort(parts.begin(), parts.end(), [](const RowWalk& a, const RowWalk& b) { return a.row < b.row; });
  RowPlan plan;
  for (RowWalk& part : parts) {
    if (!plan.walks.empty() && plan.walks.back().rows + part.rows <= width) {
      RowWalk& last = plan.walks.back();
      last.rows += part.rows;
      for (auto list : {&RowWalk::bodies, &RowWalk::pairs, &RowWalk::couplings, &RowWalk::twists, &RowWalk::custom})
        (last.*list).insert((last.*list).end(), (part.*list).begin(), (part.*list).end());
    } else {
      plan.walks.push_back(std::move(part));
    }
  }
  const auto with_ancestors = [&](std::vector<int>& bodies) {
    std::vector<bool> carries(m.n(), false);
    for (int i : bodies)
      for (; i >= 0 && !carries[i]; i = m.links[i].parent) carries[i] = true;
    bodies.clear();
    for (int i = m.n() - 1; i >= 0; --i)
      if (carries[i]) bodies.push_back(i);
  };
  for (RowWalk& walk : plan.walks) {
    with_ancestors(walk.bodies);
    walk.place = plan.places;
    plan.places += (walk.rows + width - 1) / width * width;
    plan.bodies.insert(plan.bodies.end(), walk.bodies.begin(), walk.bodies.end());
  }
  with_ancestors(plan.bodies);
  return plan;
}
template <class S>
const RowPlan& row_plan(const ConstraintSet& set) {
  return std::is_same_v<Wide<S>, S> ? set.one_by_one : set.in_vectors;
}

// The numbers that are functions of time, at t.
inline const double* times_at(const ConstraintSet& set, Arena& arena, double t) {
  double* out = arena.get<double>(set.times);
  for (const auto& [slot, motion] : set.motions) motion->evaluate(t, out + slot.at);
  return out;
}

}  // namespace torsor
