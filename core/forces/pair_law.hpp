// Contact of two shapes, on two bodies or on a body and the world (contact/touching.hpp): a wrench W on the first body,
// -W on the second, about the point of one of their trees.
//
// W depends on the relative pose and the relative velocity V = v_A - v_B alone: displaced by eta relative to the second
// body, and with a change nu of V, it changes by Wq eta + Wv nu beyond a common motion of both. So a velocity with the
// column S that moves the first body alone changes it by
//   dW/dq = Wq S + Wv (Psidot + S x v_A),   dW/dv = Wv S,
// one that moves the second alone by S x* W minus that, and one that moves both by S x* W.
#pragma once
#include <algorithm>

#include "contact/touching.hpp"
#include "forces/law.hpp"

namespace torsor {

// A shape on a user's body, or on the world.
struct ShapeOn {
  int body;   // that carries it, or -1
  int frame;  // the user's body, or -1
  Shape shape;
};

// A pair at a state: seen from the point of one of the trees.
template <class S>
struct ShapePair : Touching<S> {
  Vec3<S> common;      // the common point, in the world
  Motion<S> v_A;       // velocity of the first body
  Vec3<S> to_A, to_B;  // from the common point to those of the trees, or to the world's origin
};

struct PairLaw : Law {
  ShapeOn A, B;
  int offset;  // of the numbers of the law

  Work work() const { return Work::stores; }
  bool acts_on_bodies() const { return true; }
  bool keeps_branches(const Model& m) const {  // if both bodies lie on one path
    int i = std::max(A.body, B.body);
    const int other = std::min(A.body, B.body);
    while (i > other) i = m.links[i].parent;
    return i == other;
  }
  bool depends_on_place() const { return true; }
  bool on_single_body() const { return A.body < 0 || B.body < 0; }
  bool is_stiff() const { return true; }

  template <class S>
  ShapePair<S> state(const BodyState<S>& at) const {
    const auto& all = at.all;
    const auto point = [&](const ShapeOn& on) { return on.body < 0 ? zero3<S>() : all.bodies[on.body].origin; };
    const Vec3<S> common = point(A.body < 0 ? B : A), to_A = point(A) - common, to_B = point(B) - common;
    const auto pose = [&](const ShapeOn& on, const Vec3<S>& to) {
      SE3<S> X = lift<S>(all.pose(on.frame));
      if (on.body >= 0) X = SE3<S>{all.bodies[on.body].R, all.bodies[on.body].p} * X;
      X.p += to;
      return X;
    };
    const auto velocity = [&](const ShapeOn& on, const Vec3<S>& to) {
      return on.body < 0 ? zero_motion<S>() : shift(all.bodies[on.body].v, -to);
    };
    const Motion<S> v_A = velocity(A, to_A);
    return {{A.shape, B.shape, at.p + A.shape.offset, at.p + B.shape.offset, pose(A, to_A), pose(B, to_B),
             v_A - velocity(B, to_B)},
            common,
            v_A,
            to_A,
            to_B};
  }
  template <class S>
  ContactNumbers<S> law(const S* p) const {
    return read_law(p + offset);
  }

  template <class S>
  void add_forces(const ForceState<S>& at, const ForceSums<S>& sums) const {
    const ShapePair<S> x = state(at);
    const Force<S> W = contact_wrench<S>(x, law(at.p));
    if (A.body >= 0) sums.carried[A.body] += seen_from(W, x.to_A);
    if (B.body >= 0) sums.carried[B.body] = sums.carried[B.body] - seen_from(W, x.to_B);
  }

  template <class S>
  void linearise(const ForceState<S>& at, const ForceMatrices<S>& M) const {
    const ShapePair<S> x = state(at);
    const ContactWrench<S> w = contact_wrench_changes<S>(x, law(at.p));
    if (!any(w.touches)) return;
    for_each_relative(at.m, x, [&](int k, const Vec3<S>& to, double sign) {
      const auto& c = at.all.columns[k];
      const Motion<S> column = shift(c.S_, -to), rate = shift(c.Psidot, -to);
      const Force<S> turned = cross(column, w.W);
      const Force<S> by_v = product(w.Wv, column);
      const Force<S> by_q = product(w.Wq, column) + product(w.Wv, rate + cross(column, x.v_A));
      const auto subtract = [&](int body, const Vec3<S>& from, const Force<S>& q, const Force<S>& v) {
        const Force<S> fq = seen_from(q, from), fv = seen_from(v, from);
        for_each_velocity(at.m, body, [&](int j) {
          const Motion<S>& row = at.all.columns[j].S_;
          M.Aq[j * M.stride + k] -= select(w.touches, dot(row, fq), S(0.0));
          M.Av[j * M.stride + k] -= select(w.touches, dot(row, fv), S(0.0));
        });
      };
      const Force<S> none = zero_force<S>();
      if (sign > 0.0) {
        subtract(A.body, x.to_A, by_q - turned, by_v);
        subtract(B.body, x.to_B, none - by_q, none - by_v);
      } else {
        subtract(A.body, x.to_A, turned - by_q, none - by_v);
        subtract(B.body, x.to_B, by_q, by_v);
      }
    });
  }
  template <class S>
  void add_stiff_places(const ForceState<S>& at, double c, StiffPlaces<S>& out) const {
    const ShapePair<S> x = state(at);
    const ContactNumbers<S> numbers = law(at.p);
    // Places that could close within a step: where they are not near, a step that reaches them is corrected later.
    const auto length = [](const Vec3<S>& y) { return square_root(dot(y, y)); };
    const S margin = S(3.0 / c) * (length(x.V.v) + length(x.V.w) + S(100.0 / c));
    for_each_place(at, x, margin, [&](const Place<S>& place) {
      if (!out.add(less(place.gap, margin), numbers, S(-1.0), place.gap, place.normal, place.u)) return;
      for_each_relative(at.m, x, [&](int k, const Vec3<S>& to, double sign) {
        const Motion<S> column = shift(at.all.columns[k].S_, -to);
        out.add_column(k, S(sign) * cross_add(column.w, place.point, column.v));
      });
    });
  }
  template <class S, class F>
  void for_each_phase(const ForceState<S>& at, double h, F&& each) const {
    const S slip = law(at.p).slip;
    const ShapePair<S> x = state(at);
    const auto length = [](const Vec3<S>& y) { return square_root(dot(y, y)); };
    const S margin = S(2.0 * h) * (length(x.V.v) + length(x.V.w) * (S(1.0) + length(x.A.p)));
    for_each_place(at, x, margin, [&](const Place<S>& place) {
      const S away = dot(place.normal, place.u);
      const Vec3<S> u_t = mul_add(-away, place.normal, place.u);
      each(Phase<S>{less(place.gap, S(0.0)), away, square_root(dot(u_t, u_t)) / slip});
    });
  }
  // f(place) for all places; those of shapes that are further apart than `margin` have an infinite gap.
  template <class S, class F>
  void for_each_place(const BodyState<S>& at, const ShapePair<S>& x, const S& margin, F&& f) const {
    const int count = place_count(A.shape, B.shape);
    auto* places = at.arena.template get<Place<S>>(count);
    contact_places<S>(x, margin, places);
    for (int k = 0; k < count; ++k) f(places[k]);
  }

  template <class S, class F>
  void on_body(const BodyState<S>& at, F&& each) const {
    if (!on_single_body() || (A.body < 0 && B.body < 0)) return;
    const ShapePair<S> x = state(at);
    const ContactWrench<S> w = contact_wrench_changes<S>(x, law(at.p));
    if (!any(w.touches)) return;
    const bool first = A.body >= 0;
    each(first ? A.body : B.body, WrenchChange<S>([&](const Motion<S>& unit) -> typename WrenchChange<S>::Column {
           const Force<S> by_q = product(w.Wq, unit) + product(w.Wv, cross(unit, x.v_A));
           return {first ? by_q - cross(unit, w.W) : by_q, product(w.Wv, unit)};
         }));
  }

  template <class S>
  S energy(const ForceState<S>& at) const {
    return has_potential(A.shape.kind, B.shape.kind) ? stored(at) : S(0.0);
  }
  // The same of pairs without a potential: about what can be regained.
  template <class S>
  S stored(const ForceState<S>& at) const {
    return contact_energy<S>(state(at), law(at.p));
  }

  template <class S>
  void add_parameter_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion, S* gradient) const {
    const ShapePair<S> x = state(at);
    add_power_gradient<S>(x, law(at.p), virtual_velocity(x, motion), gradient + offset, gradient + A.shape.offset,
                          gradient + B.shape.offset);
  }
  template <class S>
  void add_velocity_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion,
                             const VelocityGradient<S>& out) const {
    const ShapePair<S> x = state(at);
    const ContactWrench<S> w = contact_wrench_changes<S>(x, law(at.p));
    if (!any(w.touches)) return;
    const Force<S> h = transposed(w.Wv, virtual_velocity(x, motion));
    if (A.body >= 0) out.by_twist[A.body] += seen_from(h, x.to_A);
    if (B.body >= 0) out.by_twist[B.body] = out.by_twist[B.body] - seen_from(h, x.to_B);
  }
  template <class S>
  void add_placement_sums(const BodyState<S>& at, const VirtualMotion<S>& motion, PlacementSums<S>* sums) const {
    const ShapePair<S> x = state(at);
    const ContactWrench<S> w = contact_wrench_changes<S>(x, law(at.p));
    if (!any(w.touches)) return;
    const Motion<S> U = virtual_velocity(x, motion);
    const Motion<S> U_A = A.body < 0 ? zero_motion<S>() : shift(motion.W[A.body], -x.to_A);
    const Force<S> h = transposed(w.Wv, U);
    const Force<S> g = transposed(w.Wq, U) + cross(x.v_A, h) + cross(U_A, w.W);
    const auto add = [&](const ShapeOn& on, const Vec3<S>& to, double sign) {
      if (on.frame < 0) return;
      const auto part = [&](const Force<S>& F) {
        const Force<S> f = seen_from(F, to);
        return sign > 0.0 ? f : negative(f);
      };
      sums[on.frame] += {part(g), part(h), part(w.W)};
    };
    add(A, x.to_A, 1.0);
    add(B, x.to_B, -1.0);
  }

 private:
  // f(k, to, sign) for each velocity that moves one of the bodies alone: the first (1) or the second (-1); `to` is from
  // the common point to that of its column.
  template <class S, class F>
  void for_each_relative(const Model& m, const ShapePair<S>& x, F&& f) const {
    const auto visit = [&](const ShapeOn& on, const ShapeOn& other, const Vec3<S>& to, double sign) {
      int i = on.body, j = other.body;
      for (; i >= 0; i = m.links[i].parent) {
        while (j > i) j = m.links[j].parent;
        if (j == i) return;
        for (int k = m.links[i].iv; k < m.links[i].iv + m.links[i].nv; ++k) f(k, to, sign);
      }
    };
    visit(A, B, x.to_A, 1.0);
    visit(B, A, x.to_B, -1.0);
  }
  // A wrench about the common point, about the point at r.
  template <class S>
  static Force<S> seen_from(const Force<S>& F, const Vec3<S>& r) {
    return shift_back(F, -r);
  }
  template <class S>
  static Force<S> product(const Force<S>* columns, const Motion<S>& x) {
    const S parts[6] = {x.w.x, x.w.y, x.w.z, x.v.x, x.v.y, x.v.z};
    Force<S> out = zero_force<S>();
    for (int k = 0; k < 6; ++k) out = mul_add(parts[k], columns[k], out);
    return out;
  }
  template <class S>
  static Force<S> transposed(const Force<S>* columns, const Motion<S>& x) {
    const auto part = [&](int k) { return dot(x, columns[k]); };
    return {{part(0), part(1), part(2)}, {part(3), part(4), part(5)}};
  }
  // The relative twist of joints that move with w.
  template <class S>
  Motion<S> virtual_velocity(const ShapePair<S>& x, const VirtualMotion<S>& motion) const {
    Motion<S> U = A.body < 0 ? zero_motion<S>() : shift(motion.W[A.body], -x.to_A);
    if (B.body >= 0) U = U - shift(motion.W[B.body], -x.to_B);
    return U;
  }
};

}  // namespace torsor
