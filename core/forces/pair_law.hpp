// Contact of two shapes, on two bodies or on a body and the world. All places where the shapes may touch are summed into
// one wrench W on the first body, -W on the second, about the point of one of their trees.
//
// W depends on the relative pose and the relative velocity V = v_A - v_B alone: displaced by eta relative to the second
// body, and with a change nu of V, it changes by Wq eta + Wv nu beyond a common motion of both. So a velocity with the
// column S that moves the first body alone changes it by
//   dW/dq = Wq S + Wv (Psidot + S x v_A),   dW/dv = Wv S,
// one that moves the second alone by S x* W minus that, and one that moves both by S x* W.
#pragma once
#include "contact/contact_law.hpp"
#include "contact/spots.hpp"
#include "forces/law.hpp"

namespace torsor {

// A shape on a user's body, or on the world.
struct ShapeOn {
  int body;   // that carries it, or -1
  int frame;  // the user's body, or -1
  Shape shape;
};

// The bodies of a pair, seen from a common point in the world's axes.
template <class S>
struct ShapePair {
  Vec3<S> point;       // the common point
  SE3<S> A, B;         // poses of the users' bodies
  Motion<S> v_A, V;    // velocity of the first, and relative to the second
  Vec3<S> to_A, to_B;  // from the common point to those of the trees, or to the world's origin
};

// The wrench of a pair, with its changes.
template <class S>
struct PairWrench {
  Force<S> W;
  Force<S> Wq[6], Wv[6];  // columns
  Mask<S> touches;
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

  template <class S>
  ShapePair<S> state(const BodyState<S>& at) const {
    const auto& all = at.all;
    const auto point = [&](const ShapeOn& on) { return on.body < 0 ? zero3<S>() : all.bodies[on.body].origin; };
    ShapePair<S> x;
    x.point = point(A.body < 0 ? B : A);
    x.to_A = point(A) - x.point;
    x.to_B = point(B) - x.point;
    const auto pose = [&](const ShapeOn& on, const Vec3<S>& to) {
      SE3<S> X = lift<S>(all.pose(on.frame));
      if (on.body >= 0) X = SE3<S>{all.bodies[on.body].R, all.bodies[on.body].p} * X;
      X.p += to;
      return X;
    };
    x.A = pose(A, x.to_A);
    x.B = pose(B, x.to_B);
    const auto velocity = [&](const Motion<S>& v, const Vec3<S>& to) { return shift(v, -to); };
    x.v_A = A.body < 0 ? zero_motion<S>() : velocity(all.bodies[A.body].v, x.to_A);
    x.V = x.v_A;
    if (B.body >= 0) x.V = x.V - velocity(all.bodies[B.body].v, x.to_B);
    return x;
  }
  // Whether the shapes may touch, by balls around them.
  template <class S>
  bool may_touch(const ShapePair<S>& x, const S* p) const {
    return any(near(A.shape, B.shape, p + A.shape.offset, p + B.shape.offset, x.A, x.B));
  }
  // f(spot, force) for each place that touches in some lane.
  template <class S, class F>
  void for_each_touching(const ShapePair<S>& x, const S* p, F&& f) const {
    if (!may_touch(x, p)) return;
    const auto law = read_law(p + offset);
    const int count = spot_count(A.shape, B.shape);
    for (int k = 0; k < count; ++k) {
      const Spot<S> at = spot(A.shape, B.shape, k, p + A.shape.offset, p + B.shape.offset, x.A, x.B);
      const Mask<S> touches = less(at.gap, S(0.0)) | is_nan(at.gap);
      if (any(touches)) f(k, at, touches, law);
    }
  }

  template <class S>
  Force<S> wrench(const ShapePair<S>& x, const S* p) const {
    Force<S> W = zero_force<S>();
    for_each_touching(x, p, [&](int, const Spot<S>& at, const Mask<S>& touches, const ContactNumbers<S>& law) {
      const Vec3<S> u = cross_add(x.V.w, at.point, x.V.v);
      const Force<S> f = wrench_at(contact_force(law, at.gap, at.normal, u), at.point);
      W.n -= select<S>(touches, -f.n, zero3<S>());
      W.f -= select<S>(touches, -f.f, zero3<S>());
    });
    return W;
  }
  // With derivatives, by numbers that carry those along displacements of the first body (6) and along u (3).
  template <class S>
  PairWrench<S> wrench_and_changes(const ShapePair<S>& x, const S* p) const {
    using T = Jet<S, 9>;
    PairWrench<S> out{zero_force<S>(), {}, {}, no_lane<S>()};
    for (int k = 0; k < 6; ++k) out.Wq[k] = out.Wv[k] = zero_force<S>();
    bool first = true;
    SE3<T> X_A, X_B;
    T *p_A = nullptr, *p_B = nullptr;
    T numbers_A[kMostNumbers], numbers_B[kMostNumbers];
    for_each_touching(x, p, [&](int k, const Spot<S>&, const Mask<S>& touches, const ContactNumbers<S>& given) {
      if (first) {
        first = false;
        X_A = displaced<T>(x.A);
        X_B = lift<T>(x.B);
        for (int i = 0; i < number_count(A.shape); ++i) numbers_A[i] = T(p[A.shape.offset + i]);
        for (int i = 0; i < number_count(B.shape); ++i) numbers_B[i] = T(p[B.shape.offset + i]);
        p_A = numbers_A;
        p_B = numbers_B;
      }
      const Spot<T> at = spot<T>(A.shape, B.shape, k, p_A, p_B, X_A, X_B);
      Vec3<T> u = cross_add(lift<T>(x.V.w), at.point, lift<T>(x.V.v));
      u.x.d[6] += S(1.0);
      u.y.d[7] += S(1.0);
      u.z.d[8] += S(1.0);
      const Vec3<T> f = contact_force(lift<T>(given), at.gap, at.normal, u);
      const Force<T> W = wrench_at(f, at.point);
      const auto part = [&](const Force<T>& F, int d) -> Force<S> {
        if (d < 0) return {{F.n.x.v, F.n.y.v, F.n.z.v}, {F.f.x.v, F.f.y.v, F.f.z.v}};
        return {{F.n.x.d[d], F.n.y.d[d], F.n.z.d[d]}, {F.f.x.d[d], F.f.y.d[d], F.f.z.d[d]}};
      };
      const auto add = [&](Force<S>& to, const Force<S>& F) {
        to.n -= select<S>(touches, -F.n, zero3<S>());
        to.f -= select<S>(touches, -F.f, zero3<S>());
      };
      add(out.W, part(W, -1));
      const Vec3<S> r{at.point.x.v, at.point.y.v, at.point.z.v};
      const Vec3<S> along[3] = {cross_columns(r, 0), cross_columns(r, 1), cross_columns(r, 2)};
      Force<S> by_u[3];
      for (int d = 0; d < 3; ++d) by_u[d] = part(W, 6 + d);
      for (int d = 0; d < 6; ++d) {
        add(out.Wq[d], part(W, d));
        // a unit twist changes u by e x r, or by e
        if (d < 3)
          add(out.Wv[d], mul_add(along[d].z, by_u[2],
                                 mul_add(along[d].y, by_u[1], mul_add(along[d].x, by_u[0], zero_force<S>()))));
        else
          add(out.Wv[d], by_u[d - 3]);
      }
      out.touches = out.touches | touches;
    });
    return out;
  }

  template <class S>
  void add_forces(const ForceState<S>& at, const ForceSums<S>& sums) const {
    const ShapePair<S> x = state(at);
    const Force<S> W = wrench(x, at.p);
    if (A.body >= 0) sums.carried[A.body] += seen_from(W, x.to_A);
    if (B.body >= 0) sums.carried[B.body] = sums.carried[B.body] - seen_from(W, x.to_B);
  }

  template <class S>
  void linearise(const ForceState<S>& at, const ForceMatrices<S>& M) const {
    const ShapePair<S> x = state(at);
    const PairWrench<S> w = wrench_and_changes(x, at.p);
    if (!any(w.touches)) return;
    // Columns of velocities that move one of the bodies alone, about the common point.
    const auto visit = [&](const ShapeOn& on, const ShapeOn& other, auto&& f) {
      int i = on.body, j = other.body;
      for (; i >= 0; i = at.m.links[i].parent) {
        while (j > i) j = at.m.links[j].parent;
        if (j == i) return;
        for (int k = at.m.links[i].iv; k < at.m.links[i].iv + at.m.links[i].nv; ++k) f(k);
      }
    };
    const Vec3<S> none = zero3<S>();
    const auto put = [&](int k, const Vec3<S>& to, double sign) {
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
      const Force<S> none{zero3<S>(), zero3<S>()};
      if (sign > 0.0) {
        subtract(A.body, x.to_A, by_q - turned, by_v);
        subtract(B.body, x.to_B, none - by_q, none - by_v);
      } else {
        subtract(A.body, x.to_A, turned - by_q, none - by_v);
        subtract(B.body, x.to_B, by_q, by_v);
      }
    };
    visit(A, B, [&](int k) { put(k, x.to_A, 1.0); });
    visit(B, A, [&](int k) { put(k, x.to_B, -1.0); });
  }

  template <class S, class F>
  void on_body(const BodyState<S>& at, F&& each) const {
    if (!on_single_body() || (A.body < 0 && B.body < 0)) return;
    const ShapePair<S> x = state(at);
    const PairWrench<S> w = wrench_and_changes(x, at.p);
    if (!any(w.touches)) return;
    const bool first = A.body >= 0;
    each(first ? A.body : B.body, WrenchChange<S>([&](const Motion<S>& unit) -> typename WrenchChange<S>::Column {
           const Force<S> by_q = product(w.Wq, unit) + product(w.Wv, cross(unit, x.v_A));
           return {first ? by_q - cross(unit, w.W) : by_q, product(w.Wv, unit)};
         }));
  }

  template <class S>
  S energy(const ForceState<S>& at) const {
    const ShapePair<S> x = state(at);
    S sum(0.0);
    for_each_touching(x, at.p, [&](int, const Spot<S>& spot, const Mask<S>& touches, const ContactNumbers<S>& law) {
      sum += select(touches, contact_energy(law, spot.gap), S(0.0));
    });
    return sum;
  }

  template <class S>
  void add_parameter_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion, S* gradient) const {
    constexpr int width = 4;
    using T = Jet<S, width>;
    const ShapePair<S> x = state(at);
    const Motion<S> U = virtual_velocity(x, motion);
    const int n_A = number_count(A.shape), n_B = number_count(B.shape), count = 5 + n_A + n_B;
    int place[5 + 2 * kMostNumbers];
    for (int i = 0; i < count; ++i)
      place[i] = i < 5 ? offset + i : i < 5 + n_A ? A.shape.offset + i - 5 : B.shape.offset + i - 5 - n_A;
    const SE3<T> X_A = lift<T>(x.A), X_B = lift<T>(x.B);
    for_each_touching(x, at.p, [&](int k, const Spot<S>&, const Mask<S>& touches, const ContactNumbers<S>&) {
      for (int from = 0; from < count; from += width) {
        T numbers[5 + 2 * kMostNumbers];
        for (int i = 0; i < count; ++i) {
          numbers[i] = T(at.p[place[i]]);
          if (i >= from && i < from + width) numbers[i].d[i - from] = S(1.0);
        }
        const Spot<T> spot = torsor::spot<T>(A.shape, B.shape, k, numbers + 5, numbers + 5 + n_A, X_A, X_B);
        const Vec3<T> u = cross_add(lift<T>(x.V.w), spot.point, lift<T>(x.V.v));
        const Vec3<T> f = contact_force(read_law(numbers), spot.gap, spot.normal, u);
        const T power = dot(f, cross_add(lift<T>(U.w), spot.point, lift<T>(U.v)));
        for (int i = from; i < std::min(from + width, count); ++i)
          gradient[place[i]] -= select(touches, -power.d[i - from], S(0.0));
      }
    });
  }
  template <class S>
  void add_velocity_gradient(const ForceState<S>& at, const VirtualMotion<S>& motion,
                             const VelocityGradient<S>& out) const {
    const ShapePair<S> x = state(at);
    const PairWrench<S> w = wrench_and_changes(x, at.p);
    if (!any(w.touches)) return;
    const Force<S> h = transposed(w.Wv, virtual_velocity(x, motion));
    if (A.body >= 0) out.by_twist[A.body] += seen_from(h, x.to_A);
    if (B.body >= 0) out.by_twist[B.body] = out.by_twist[B.body] - seen_from(h, x.to_B);
  }
  template <class S>
  void add_placement_sums(const BodyState<S>& at, const VirtualMotion<S>& motion, PlacementSums<S>* sums) const {
    const ShapePair<S> x = state(at);
    const PairWrench<S> w = wrench_and_changes(x, at.p);
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
  // A wrench about the common point, about the point at r.
  template <class S>
  static Force<S> seen_from(const Force<S>& F, const Vec3<S>& r) {
    return shift_back(F, -r);
  }
  // e_k x r
  template <class S>
  static Vec3<S> cross_columns(const Vec3<S>& r, int k) {
    const S o(0.0);
    return k == 0 ? Vec3<S>{o, -r.z, r.y} : k == 1 ? Vec3<S>{r.z, o, -r.x} : Vec3<S>{-r.y, r.x, o};
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
  // A pose with derivatives along displacements: rotations about the common point, then translations.
  template <class T, class S>
  static SE3<T> displaced(const SE3<S>& X) {
    SE3<T> out = lift<T>(X);
    const auto turn = [](Vec3<T>& to, const Vec3<S>& r) {
      for (int k = 0; k < 3; ++k) {
        const Vec3<S> d = cross_columns(r, k);
        to.x.d[k] = d.x;
        to.y.d[k] = d.y;
        to.z.d[k] = d.z;
      }
    };
    turn(out.R.x, X.R.x);
    turn(out.R.y, X.R.y);
    turn(out.R.z, X.R.z);
    turn(out.p, X.p);
    out.p.x.d[3] = out.p.y.d[4] = out.p.z.d[5] = S(1.0);
    return out;
  }
};

}  // namespace torsor
