// The rows of hard contact at a configuration: normals and tangents of the places of contact, and limits of joints
// (docs/derivations/hard_contact.md). A row of a contact is a wrench W on the first body and -W on the second, and its
// value is W.V, V being the velocity of the first relative to the second.
#pragma once
#include "constraints/constraints.hpp"
#include "forces/forces.hpp"

namespace torsor {

// The forces of a set that are rows in hard steps, and the others.
struct HardForces {
  std::vector<PairLaw> contacts;
  std::vector<JointLaw> limits;
  ForceSet others;
  explicit HardForces(const ForceSet* set) {
    if (set == nullptr) return;
    others.forces = set->forces;
    others.parameters = set->parameters;
    set->for_each([&](const auto& law) { sort(law); });
  }

 private:
  void sort(const PairLaw& law) { contacts.push_back(law); }
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
  int k;  // among the places of its pair
  int axis;
  double gap;
  Vec3<double> point, axes[3];  // the normal and two tangents
  double friction;
};
// A limit of a coordinate: sign (q - bound) >= 0.
struct LimitPlace {
  int iq, iv, parameter;
  double sign, gap;
};

// The tangents of a normal: the first one is normal to a coordinate axis, too.
template <class T>
void put_axes(const Vec3<T>& n, int axis, Vec3<T>* axes) {
  const T none(0.0), one(1.0);
  const Vec3<T> a{axis == 0 ? one : none, axis == 1 ? one : none, axis == 2 ? one : none};
  const Vec3<T> t = cross(a, n);
  axes[0] = n;
  axes[1] = (one / square_root(dot(t, t))) * t;
  axes[2] = cross(n, axes[1]);
}
inline int least_axis(const Vec3<double>& n) {
  const double x = std::abs(n.x), y = std::abs(n.y), z = std::abs(n.z);
  return x <= y && x <= z ? 0 : y <= z ? 1 : 2;
}

// f(place, pair) for all places of a contact.
template <class F>
void for_each_place(const PairLaw& law, const BodyState<double>& at, F&& f) {
  const ShapePair<double> pair = law.state(at);
  const double *pa = at.p + law.A.shape.offset, *pb = at.p + law.B.shape.offset;
  for (int k = 0; k < spot_count(law.A.shape, law.B.shape); ++k) {
    const Spot<double> found = spot(law.A.shape, law.B.shape, k, pa, pb, pair.A, pair.B);
    ContactPlace place{
        &law, k, least_axis(found.normal), found.gap, found.point, {}, read_law(at.p + law.offset).friction};
    put_axes(found.normal, place.axis, place.axes);
    f(place, pair);
  }
}
// f(place) for all finite limits.
template <class F>
void for_each_limit(const Model& m, const JointLaw& law, const double* q, const double* p, F&& f) {
  const Model::Body& body = m.bodies[law.body];
  for (int k = 0; k < body.nv; ++k) {
    const double x = q[body.iq + k], lower = p[law.lower + k], upper = p[law.upper + k];
    if (std::isfinite(lower)) f(LimitPlace{body.iq + k, body.iv + k, law.lower + k, 1.0, x - lower});
    if (std::isfinite(upper)) f(LimitPlace{body.iq + k, body.iv + k, law.upper + k, -1.0, upper - x});
  }
}

// row (nv, zero before) += that of a force along `axis` at the place.
inline void add_row(const Model& m, const Motions<double>& all, const ContactPlace& place,
                    const ShapePair<double>& pair, const Vec3<double>& axis, double* row) {
  const Force<double> W = wrench_at(axis, place.point);
  const Force<double> on_A = shift_back(W, -pair.to_A), on_B = shift_back(W, -pair.to_B);
  for_each_velocity(m, place.law->A.body, [&](int k) { row[k] += dot(all.columns[k].S_, on_A); });
  for_each_velocity(m, place.law->B.body, [&](int k) { row[k] -= dot(all.columns[k].S_, on_B); });
}

// Weights of the gap and of the three rows of a place, in a sum of gaps and of rows times velocities.
struct PlaceWeights {
  double gap, rows[3];
};
// What such a sum adds to the wrenches of the bodies (constraints/pair_rows.hpp), and to the gradient by the numbers of
// the shapes, if that is not null. Motions are at the velocities.
inline RowWrenches<double> place_wrenches(const ContactPlace& place, const ShapePair<double>& pair, const double* p,
                                          const PlaceWeights& x, double* gradient) {
  using T = Jet<double, 6>;
  const PairLaw& law = *place.law;
  const int n_A = number_count(law.A.shape), n_B = number_count(law.B.shape), count = n_A + n_B;
  T numbers[2 * kMostNumbers];
  const auto number = [&](int i) { return i < n_A ? law.A.shape.offset + i : law.B.shape.offset + i - n_A; };
  for (int i = 0; i < count; ++i) numbers[i] = T(p[number(i)]);
  // The force of the rows, its point and the gap.
  struct Sum {
    Vec3<T> force, point;
    T gap;
  };
  const auto sum = [&](const SE3<T>& A, const SE3<T>& B) -> Sum {
    const Spot<T> at = spot<T>(law.A.shape, law.B.shape, place.k, numbers, numbers + n_A, A, B);
    Vec3<T> axes[3];
    put_axes(at.normal, place.axis, axes);
    return {T(x.rows[0]) * axes[0] + T(x.rows[1]) * axes[1] + T(x.rows[2]) * axes[2], at.point, T(x.gap) * at.gap};
  };
  const SE3<T> B = lift<T>(pair.B);
  const Sum moved = sum(PairLaw::displaced<T>(pair.A), B);
  const Force<T> W = wrench_at(moved.force, moved.point);
  const Force<double> now{{W.n.x.v, W.n.y.v, W.n.z.v}, {W.f.x.v, W.f.y.v, W.f.z.v}};
  double by_pose[6];  // gap, and W at the given velocity
  for (int k = 0; k < 6; ++k) {
    const Force<double> change{{W.n.x.d[k], W.n.y.d[k], W.n.z.d[k]}, {W.f.x.d[k], W.f.y.d[k], W.f.z.d[k]}};
    by_pose[k] = moved.gap.d[k] + dot(pair.V, change);
  }
  if (gradient != nullptr) {
    const SE3<T> A = lift<T>(pair.A);
    const Vec3<T> turning = lift<T>(pair.V.w), moving = lift<T>(pair.V.v);
    for (int from = 0; from < count; from += 6) {
      const int until = std::min(from + 6, count);
      for (int i = from; i < until; ++i) numbers[i].d[i - from] = 1.0;
      const Sum by = sum(A, B);
      const T value = by.gap + dot(by.force, cross_add(turning, by.point, moving));
      for (int i = from; i < until; ++i) {
        gradient[number(i)] += value.d[i - from];
        numbers[i].d[i - from] = 0.0;
      }
    }
  }
  return {read_force(by_pose) + cross(pair.v_A, now), now, zero_force<double>()};
}

}  // namespace torsor
