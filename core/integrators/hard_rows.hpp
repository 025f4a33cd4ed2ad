// The rows of hard contact at a configuration: normals and tangents of the places of contact, limits of joints, and
// velocities of joints with dry friction (docs/derivations/hard_contact.md). A row of a contact is a wrench W on the
// first body and -W on the second, and its value is W.V, V being the velocity of the first relative to the second.
#pragma once
#include "constraints/constraints.hpp"
#include "forces/forces.hpp"

namespace torsor {

// The forces of a set that are rows in hard steps, and the others.
struct HardForces {
  std::vector<PairLaw> contacts;
  std::vector<JointLaw> limits;
  std::vector<FrictionLaw> friction;
  std::vector<BearingLaw> bearings;
  ForceSet others;
  explicit HardForces(const ForceSet* set) {
    if (set == nullptr) return;
    others.forces = set->forces;
    others.parameters = set->parameters;
    bearings = set->bearings;
    set->for_each([&](const auto& law) { sort(law); });
  }

 private:
  void sort(const PairLaw& law) { contacts.push_back(law); }
  void sort(const FrictionLaw& law) { friction.push_back(law); }
  void sort(const JointLaw& law) {
    if (law.kind == JointLaw::limits)
      limits.push_back(law);
    else
      others.add(law);
  }
  template <class L>
  void sort(const L& law) {
    others.add(law);
  }
};

// A place where two shapes may touch, seen from the common point of their pair.
struct ContactPlace {
  const PairLaw* law;
  int k;     // among the places of its pair
  int axis;  // of its tangents (contact/touching.hpp)
  double gap, friction;
  Vec3<double> point, axes[3];  // the normal and two tangents
};
// A limit of a coordinate: sign (q - bound) >= 0.
struct LimitPlace {
  int iv, parameter;
  double sign, gap;
};
// A velocity with dry friction.
struct FrictionPlace {
  int iv, parameter;
  double torque;
};

// f(place, velocity of the first shape relative to the second, pair) for all places of a contact.
template <class F>
void for_each_place(const PairLaw& law, const BodyState<double>& at, F&& f) {
  const ShapePair<double> pair = law.state(at);
  int k = 0;
  law.for_each_place(at, pair, std::numeric_limits<double>::infinity(), [&](const Place<double>& x) {
    const double a = std::abs(x.normal.x), b = std::abs(x.normal.y), c = std::abs(x.normal.z);
    const int axis = a <= b && a <= c ? 0 : b <= c ? 1 : 2;
    ContactPlace place{&law, k++, axis, x.gap, law.law(at.p).friction, x.point, {}};
    put_axes(x.normal, axis, place.axes);
    f(place, x.u, pair);
  });
}
// f(place) for all finite limits.
template <class F>
void for_each_limit(const Model& m, const JointLaw& law, const double* q, const double* p, F&& f) {
  const Model::Body& body = m.bodies[law.body];
  for (int k = 0; k < body.nv; ++k) {
    const double x = q[body.iq + k], lower = p[law.lower + k], upper = p[law.upper + k];
    if (std::isfinite(lower)) f(LimitPlace{body.iv + k, law.lower + k, 1.0, x - lower});
    if (std::isfinite(upper)) f(LimitPlace{body.iv + k, law.upper + k, -1.0, upper - x});
  }
}
template <class F>
void for_each_friction(const Model& m, const FrictionLaw& law, const double* p, F&& f) {
  const Model::Body& body = m.bodies[law.body];
  for (int k = 0; k < body.nv; ++k) f(FrictionPlace{body.iv + k, law.torque.at(k), p[law.torque.at(k)]});
}

// The load of a bearing by the wrench W that it transmits, with derivatives by W and by radius, length and smoothing.
inline double load_of(const BearingLaw& law, const double* p, const double* W, double* by_W, double* by_shape) {
  p += law.offset;
  return bearing_load(law.kind, W, p[1], p[2], p[4], by_W, by_shape);
}

// f(body, wrench) with the wrenches on bodies of a row of constraints, about the points of their trees. Rows on
// coordinates have none, and none are known of user-defined rows.
template <class F>
void for_each_wrench_of(const ConstraintState<double>& at, int row, F&& f) {
  for (const PairPart& pair : at.set.pairs) {
    if (row < pair.row || row >= pair.row + pair.rows) continue;
    const PairState<double> state = pair_state(pair, at.all, at.times, at.still);
    const Force<double> W = row_wrench(state, pair.each[row - pair.row]);
    if (pair.B.body >= 0) f(pair.B.body, state.to_B.act(W));
    if (pair.A.body >= 0) f(pair.A.body, negative(state.to_A.act(W)));
  }
  for (const TwistPart& part : at.set.twists)
    if (row == part.row)
      for (const auto& body : part.bodies) f(body.marker.body, twist_term(body, at.all).w);
}

// row (nv, zero before) += that of a force along `axis` at the place.
inline void add_row(const Model& m, const Motions<double>& all, const ContactPlace& place,
                    const ShapePair<double>& pair, const Vec3<double>& axis, double* row) {
  const Force<double> W = wrench_at(axis, place.point);
  const Force<double> on_A = shift_back(W, -pair.to_A), on_B = shift_back(W, -pair.to_B);
  for_each_velocity(m, place.law->A.body, [&](int k) { row[k] += dot(all.columns[k].S_, on_A); });
  for_each_velocity(m, place.law->B.body, [&](int k) { row[k] -= dot(all.columns[k].S_, on_B); });
}

}  // namespace torsor
