// Forward dynamics under constraints (docs/derivations/constraints.md, 3 and 4):
//   ID(q, v, a) = tau + G^T lambda,   gamma(q, v, a, t) + 2 alpha gdot + beta^2 g + compliance lambda = 0.
//
// The passes of forward dynamics (dynamics/forward_dynamics.hpp) are made once. Between the second and the third,
// accelerations a0 without constraints are found for the bodies that carry rows, rows are evaluated there and carried
// to the roots by the factors that are at hand, and multipliers are added to the forces of the joints.
#pragma once
#include "constraints/constraints.hpp"
#include "constraints/delassus.hpp"

namespace torsor {

// Gains of Baumgarte's stabilisation, and compliance.
struct ConstraintGains {
  double alpha = 0.0, beta = 0.0, compliance = 0.0;
};

// Markers and pairs in the world's axes ------------------------------------------------------------------------------

// Where a body is and how it moves, for the bodies that carry rows: its origin as seen from the point of its tree, that
// point in the world, and the velocity of the origin.
template <class S>
struct CarrierMotion {
  Vec3<S> p, point, v;
};
// A marker: its axes, its origin as seen from that of its body and from the point of its tree, and its motion.
// Accelerations are those of material points, less gravity.
template <class S>
struct MarkerMotion {
  Mat3<S> R;
  Vec3<S> arm, x, point;
  Vec3<S> w, wdot, v, a;
};
// The motion of B as A sees it: its points, and their rates in A's axes, turned into the world's. The points are those
// of RowTerm::seen.
template <class S>
struct PairMotion {
  MarkerMotion<S> A, B;
  Vec3<S> p, w, wdot;  // of B's marker
  SeenPoint<S> seen[4];

  Vec3<S> axis(const RowTerm& term) const {
    return S(term.coefficient) * (term.axis >= 0 ? A.R.column(term.axis) : A.R * lift<S>(term.a));
  }
  Vec3<S> direction(const RowTerm& term) const {  // R b
    return term.seen >= 0 && term.seen < 3 ? B.R.column(term.seen) : B.R * lift<S>(term.b);
  }
  SeenPoint<S> other_point(const RowTerm& term) const {
    const Vec3<S> y = B.R * lift<S>(term.b), u = cross(w, y), udot = cross_add(wdot, y, cross(w, u));
    return {mul_add(S(term.s), seen[3].y, y), mul_add(S(term.s), seen[3].u, u), mul_add(S(term.s), seen[3].udot, udot)};
  }
};

// Forward dynamics between its second and third pass, with what rows need of the bodies.
template <class S, class C>
struct CarriedTree {
  ForwardDynamicsAccess<S, C> tree;
  const S* v;
  InertiaFactor<S>** factors;  // by body, of those on free joints
  S* halves;                   // by velocity of these: L^-1 (tau - B)
  CarrierMotion<S>* carriers;  // by body
  const double* times;         // of times_at

  // Accelerations of body i and its joint, from those of its parent.
  TORSOR_INLINE void accelerate(int i, S* a) const {
    const auto& body = tree.m.bodies[i];
    auto& b = tree.bodies[i];
    if (body.parent < 0)
      b.A = zero_motion<S>();
    else
      b.A = body.offset ? shift(tree.bodies[body.parent].A, b.r) : tree.bodies[body.parent].A;
    if (body.kind == Kind::free) {
      S x[6];
      std::copy_n(halves + body.iv, 6, x);
      factors[i]->complete(x);
      const Motion<S> carried = b.A;
      b.A = read_motion(x);
      write3(transposed(b.R, b.A.w - carried.w), a + body.iv);
      write3(transposed(b.R, b.A.v - carried.v), a + body.iv + 3);
      return;
    }
    visit<S>(tree.m, body, tree.general, [&](auto joint) TORSOR_INLINE_LAMBDA {
      using Joint = decltype(joint);
      for (int k = 0; k < joint.nv; ++k) {
        const int d = body.iv + k;
        const auto& c = tree.columns[d];
        const Motion<S> column = joint.column(b.R, k);
        a[d] = mul_add(-c.Psi, dot(b.A, c.U), c.u);
        if constexpr (Joint::angular) b.A.w = mul_add(a[d], column.w, b.A.w);
        if constexpr (Joint::linear) b.A.v = mul_add(a[d], column.v, b.A.v);
      }
    });
  }
  // Where body i is and, if asked for, the velocity of its origin, from those of its parent.
  TORSOR_INLINE void locate(int i, bool velocities) const {
    const auto& body = tree.m.bodies[i];
    const auto& b = tree.bodies[i];
    CarrierMotion<S>& c = carriers[i];
    c.v = zero3<S>();
    if (body.parent < 0) {  // the point of a tree is the origin of its first body with mass (tree/motions.hpp)
      c.p = zero3<S>();
      for (int j = i; tree.m.bodies[j].massless && j + 1 < tree.m.n() && tree.m.bodies[j + 1].parent == j &&
                      tree.m.bodies[j + 1].last_child;
           ++j)
        c.p -= tree.bodies[j + 1].r;
      c.point = b.r - c.p;
    } else {
      const CarrierMotion<S>& parent = carriers[body.parent];
      c.p = parent.p + b.r;
      c.point = parent.point;
      if (velocities) c.v = body.offset ? cross_add(tree.bodies[body.parent].w, b.r, parent.v) : parent.v;
    }
    if (velocities)
      visit<S>(tree.m, body, tree.general, [&](auto joint) TORSOR_INLINE_LAMBDA {
        using Joint = decltype(joint);
        if constexpr (Joint::linear)
          for (int k = 0; k < joint.nv; ++k) c.v = mul_add(v[body.iv + k], joint.column(b.R, k).v, c.v);
      });
  }

  Vec3<S> world_acceleration() const {
    const auto& g = tree.m.gravity;
    return {S(-g.x), S(-g.y), S(-g.z)};
  }
  TORSOR_INLINE SE3<S> pose_in_body(const Marker& marker) const {
    if (marker.frame < 0) return lift<S>(marker.pose);
    const auto& frame = tree.m.frames[marker.frame];
    return lift<S>(frame.same ? lift<C>(marker.pose) : frame.pose * lift<C>(marker.pose));
  }
  TORSOR_INLINE MarkerMotion<S> marker_motion(const Marker& marker) const {
    const SE3<S> X = pose_in_body(marker);
    const Vec3<S> none = zero3<S>();
    if (marker.body < 0) return {X.R, X.p, X.p, none, none, none, none, world_acceleration()};
    const auto& b = tree.bodies[marker.body];
    const CarrierMotion<S>& c = carriers[marker.body];
    MarkerMotion<S> out;
    out.R = b.R * X.R;
    out.arm = b.R * X.p;
    out.x = c.p + out.arm;
    out.point = c.point;
    out.w = b.w;
    out.wdot = b.zeta.w + b.A.w;
    const Vec3<S> across = cross(b.w, out.arm);
    out.v = c.v + across;
    out.a = cross_add(out.wdot, out.arm, cross_add(b.w, across, b.zeta.v + b.A.v));
    return out;
  }
  // A marker of the world that moves.
  MarkerMotion<S> given_motion(const double* given) const {
    const MarkerState<S> s = moving_marker<S>(given, zero_motion<S>(), false);
    const Vec3<S> a = cross_add(s.V.w, s.V.v, s.A.v + world_acceleration());
    return {s.R, s.x, s.x, s.origin, s.V.w, s.A.w, s.V.v, a};
  }
  TORSOR_INLINE PairMotion<S> pair_motion(const PairPart& pair) const {
    PairMotion<S> out;
    out.B = marker_motion(pair.B);
    out.A = pair.motion.size > 0 ? given_motion(times + pair.motion.at) : marker_motion(pair.A);
    const MarkerMotion<S>&A = out.A, &B = out.B;
    out.p = (B.x - A.x) + (B.point - A.point);
    SeenPoint<S>& s = out.seen[3];
    s.y = out.p;
    if (pair.A_rests()) {
      out.w = B.w;
      out.wdot = B.wdot;
      s.u = B.v;
      s.udot = B.a - A.a;
    } else {
      out.w = B.w - A.w;
      out.wdot = B.wdot - A.wdot - cross(A.w, out.w);
      const Vec3<S> across = cross(A.w, out.p);
      s.u = B.v - A.v - across;
      const Vec3<S> back = cross_add(A.wdot, out.p, cross(A.w, across + S(2.0) * s.u));
      s.udot = B.a - A.a - back;
    }
    for (int k = 0; k < 3; ++k) {
      if (!pair.sees[k]) continue;
      SeenPoint<S>& x = out.seen[k];
      x.y = B.R.column(k);
      x.u = cross(out.w, x.y);
      x.udot = cross_add(out.wdot, x.y, cross(out.w, x.u));
    }
    return out;
  }
};

// A row of a pair: gamma + 2 alpha gdot + beta^2 g, and its wrench about B's marker.
template <class S>
struct EvaluatedRow {
  S value;
  Force<S> W;
};
template <class S>
TORSOR_INLINE S stabilised(const ConstraintGains& gains, const S& g, const S& gdot, const S& gamma) {
  S out = gamma;
  if (gains.alpha != 0.0) out = mul_add(S(2.0 * gains.alpha), gdot, out);
  if (gains.beta != 0.0) out = mul_add(S(gains.beta * gains.beta), g, out);
  return out;
}
template <class S>
TORSOR_INLINE EvaluatedRow<S> evaluate_row(const PairMotion<S>& at, const PairRow& row, const ConstraintGains& gains) {
  if (row.is_distance) {
    const SeenPoint<S>& x = at.seen[3];
    const S l = square_root(dot(x.y, x.y)), inverse = S(1.0) / l;
    const Vec3<S> n = inverse * x.y;
    const S rate = dot(n, x.u);
    const S gamma = dot(n, x.udot) + (dot(x.u, x.u) - rate * rate) * inverse;
    return {stabilised(gains, l - S(row.offset), rate, gamma), {zero3<S>(), n}};
  }
  S g(-row.offset), gdot(0.0), gamma(0.0);
  Force<S> W = zero_force<S>();
  const auto add = [&](const Vec3<S>& a, const SeenPoint<S>& x) TORSOR_INLINE_LAMBDA {
    g = dot_add(a, x.y, g);
    gdot = dot_add(a, x.u, gdot);
    gamma = dot_add(a, x.udot, gamma);
  };
  for (const RowTerm& term : row.terms) {
    const Vec3<S> a = at.axis(term);
    if (term.seen == 3) {
      add(a, at.seen[3]);
      W.f += a;
    } else if (term.seen >= 0) {
      add(a, at.seen[term.seen]);
      W.n = cross_add(at.B.R.column(term.seen), a, W.n);
    } else {
      add(a, at.other_point(term));
      W.n = cross_add(at.direction(term), a, W.n);
      W.f = mul_add(S(term.s), a, W.f);
    }
  }
  return {stabilised(gains, g, gdot, gamma), W};
}

// Rows carried to the roots -------------------------------------------------------------------------------------------

// Wrenches of the rows of a walk on the bodies, about their origins: by body (`vectors` apart), several rows to a
// vector.
template <class S>
struct RowForces {
  using V = Wide<S>;
  static constexpr int width = sizeof(V) / sizeof(S);
  Force<V>* on;
  bool* touched;  // by body: whether anything acts on it yet
  int vectors;
  void touch(int body) const {
    if (touched[body]) return;
    touched[body] = true;
    std::fill_n(on + body * vectors, vectors, zero_force<V>());
  }
  // To a body that is touched.
  TORSOR_INLINE void add(int body, int row, double sign, const Force<S>& F) const {
    Force<V>& to = on[body * vectors + row / width];
    if constexpr (width == 1) {
      to = mul_add(S(sign), F, to);
    } else {
      const int l = row % width;
      to.n.x.lane(l) = mul_add(sign, F.n.x, to.n.x.lane(l));
      to.n.y.lane(l) = mul_add(sign, F.n.y, to.n.y.lane(l));
      to.n.z.lane(l) = mul_add(sign, F.n.z, to.n.z.lane(l));
      to.f.x.lane(l) = mul_add(sign, F.f.x, to.f.x.lane(l));
      to.f.y.lane(l) = mul_add(sign, F.f.y, to.f.y.lane(l));
      to.f.z.lane(l) = mul_add(sign, F.f.z, to.f.z.lane(l));
    }
  }
};

// Carries the rows of a walk from the bodies that their wrenches act on, and from E, if they act on velocities too.
template <class S, class C>
__attribute__((noinline)) void carry_forces(const CarriedTree<S, C>& at, const RowWalk& walk,
                                            const RowForces<S>& forces, const CarriedRows<S>& rows) {
  using V = Wide<S>;
  constexpr int width = sizeof(V) / sizeof(S);
  const ModelT<C>& m = at.tree.m;
  const int places = rows.plan.places, vectors = forces.vectors;
  const bool on_velocities = walk.on_velocities();
  for (int i : walk.bodies) {
    const auto& body = m.bodies[i];
    const auto& b = at.tree.bodies[i];
    Force<V>* arrived = forces.on + i * vectors;
    forces.touch(i);
    const std::size_t first = std::size_t(body.iv) * places + walk.place;
    if (body.kind == Kind::free) {
      const InertiaFactor<S>& factor = *at.factors[i];
      for (int c = 0; c < vectors; ++c) {
        S *E = rows.E + first + c * width, *F = rows.F + first + c * width;
        Force<V> f = arrived[c];
        if (on_velocities) {
          V given[6];
          for (int k = 0; k < 6; ++k) given[k] = load<V>(E + k * places);
          const Force<V> own{lift<V>(b.R) * read3(given), lift<V>(b.R) * read3(given + 3)};
          f += own;
          if (body.parent >= 0) {  // which bears what rows ask of the joint's velocities, and nothing else
            if (c == 0) forces.touch(body.parent);
            Force<V>& parent = forces.on[body.parent * vectors + c];
            parent = parent - shift_back(own, lift<V>(b.r));
          }
        }
        V x[6];
        write(f, x);
#pragma GCC unroll 6
        for (int j = 0; j < 6; ++j) {
#pragma GCC unroll 6
          for (int k = 0; k < j; ++k) x[j] = mul_add(-V(factor.L[j][k]), x[k], x[j]);
          store(x[j], E + j * places);
          store(x[j] * V(factor.inverse[j]), F + j * places);
        }
      }
      continue;
    }
    Force<V>* parent = body.parent >= 0 ? forces.on + body.parent * vectors : nullptr;
    const bool start = parent != nullptr && !forces.touched[body.parent];
    if (start) forces.touched[body.parent] = true;
    visit<S>(m, body, at.tree.general, [&](auto joint) TORSOR_INLINE_LAMBDA {
      using Joint = decltype(joint);
      const Vec3<V> r = lift<V>(b.r);
      for (int c = 0; c < vectors; ++c) {
        Force<V> f = arrived[c];
        for (int k = joint.nv - 1; k >= 0; --k) {
          const auto& column = at.tree.columns[body.iv + k];
          const std::size_t place = first + std::size_t(k) * places + c * width;
          V e = pair_column<Joint>(lift<V>(joint.column(b.R, k)), f);
          if (on_velocities) e += load<V>(rows.E + place);
          const V x = e * V(column.Psi);
          store(e, rows.E + place);
          store(x, rows.F + place);
          f = mul_add(-x, lift<V>(column.U), f);
        }
        if (parent == nullptr) continue;
        if (body.offset) f = shift_back(f, r);
        parent[c] = start ? f : parent[c] + f;
      }
    });
  }
}

// Evaluation ----------------------------------------------------------------------------------------------------------

// What rows are evaluated at: accelerations a without constraints.
template <class S, class C>
struct RowEvaluation {
  const Model& m;
  Arena& arena;
  const ConstraintSet& set;
  const CarriedTree<S, C>& at;
  const S *q, *v, *a;
  double t;
  const ConstraintGains& gains;

  ConstraintState<S> custom_state(const Motions<S>& none) const {
    return {m, set, arena, none, q, v, a, t, at.times, false};
  }
  // The twist of a body in a row of twists, its acceleration without gravity, and its wrench about the origin of the
  // body that carries it.
  struct BodyTwist {
    Motion<S> V, A;  // about the user's body
    Force<S> own, carried;
  };
  BodyTwist body_twist(const TwistPart::OfBody& body) const {
    const MarkerMotion<S> x = at.marker_motion(body.marker);
    const Force<S> w{x.R * lift<S>(body.w.n), x.R * lift<S>(body.w.f)};
    const Vec3<S> a = x.a - at.world_acceleration() - cross(x.w, x.v);
    return {{x.w, x.v}, {x.wdot, a}, w, {cross_add(x.arm, w.f, w.n), w.f}};
  }

  // Sets `values` of the rows of a walk, their wrenches on bodies, and their coefficients of velocities in E.
  __attribute__((noinline)) void evaluate(const RowWalk& walk, const RowForces<S>& forces, const CarriedRows<S>& rows,
                                          S* values) const {
    const int places = rows.plan.places;
    if (walk.on_velocities())
      for_each_velocity(m, walk.bodies, [&](int k) {
        std::fill_n(rows.E + std::size_t(k) * places + walk.place, padding(walk), S(0.0));
      });
    const auto coefficient = [&](int row, int k) -> S& {
      return rows.E[std::size_t(k) * places + walk.place + row - walk.row];
    };
    for (int index : walk.pairs) {
      const PairPart& pair = set.pairs[index];
      const PairMotion<S> x = at.pair_motion(pair);
      if (pair.B.body >= 0) forces.touch(pair.B.body);
      if (pair.A.body >= 0) forces.touch(pair.A.body);
      for (int r = 0; r < pair.rows; ++r) {
        const int row = pair.row + r;
        const EvaluatedRow<S> out = evaluate_row(x, pair.each[r], gains);
        values[row] = out.value;
        if (pair.B.body >= 0)
          forces.add(pair.B.body, row - walk.row, 1.0, {cross_add(x.B.arm, out.W.f, out.W.n), out.W.f});
        if (pair.A.body >= 0)
          forces.add(pair.A.body, row - walk.row, -1.0, {cross_add(x.A.arm + x.p, out.W.f, out.W.n), out.W.f});
      }
    }
    for (int index : walk.couplings) {
      const CouplingPart& part = set.couplings[index];
      S g(-part.offset), gdot(0.0), gamma(0.0);
      if (part.motion.size > 0) {
        const double* f = at.times + part.motion.at;
        g -= S(f[0]);
        gdot -= S(f[1]);
        gamma -= S(f[2]);
      }
      for (const auto& term : part.terms) {
        const S c(term.coefficient);
        g = mul_add(c, q[term.iq], g);
        gdot = mul_add(c, v[term.iv], gdot);
        gamma = mul_add(c, a[term.iv], gamma);
        coefficient(part.row, term.iv) += c;
      }
      values[part.row] = stabilised(gains, g, gdot, gamma);
    }
    for (int index : walk.twists) {
      const TwistPart& part = set.twists[index];
      S gdot(0.0), gamma(0.0);
      if (part.motion.size > 0) {
        gdot -= S(at.times[part.motion.at]);
        gamma -= S(at.times[part.motion.at + 1]);
      }
      for (const auto& term : part.terms) {
        const S c(term.coefficient);
        gdot = mul_add(c, v[term.iv], gdot);
        gamma = mul_add(c, a[term.iv], gamma);
        coefficient(part.row, term.iv) += c;
      }
      for (const auto& body : part.bodies) {
        if (body.marker.body < 0) continue;
        const BodyTwist x = body_twist(body);
        gdot += dot(x.V, x.own);
        gamma += dot(x.A, x.own);
        forces.touch(body.marker.body);
        forces.add(body.marker.body, part.row - walk.row, 1.0, x.carried);
      }
      values[part.row] = stabilised(gains, S(0.0), gdot, gamma);
    }
    const Motions<S> none{};
    for (int index : walk.custom) {
      const CustomPart& part = set.custom[index];
      const CustomRows<S> x = custom_rows(custom_state(none), part);
      for (int r = 0; r < part.rows; ++r) {
        values[part.row + r] = stabilised(gains, x.g[r], x.gdot[r], x.gamma[r]);
        for (int k = 0; k < m.nv; ++k) coefficient(part.row + r, k) += x.G[r * m.nv + k];
      }
    }
  }
  // Squares of the terms of which the values are sums: what is small compared with these is rounding.
  __attribute__((noinline)) void squares(S* out) const {
    const S first(4.0 * gains.alpha * gains.alpha), zeroth(gains.beta * gains.beta * gains.beta * gains.beta);
    const auto sum = [](const Vec3<S>& x) { return dot(x, x); };
    for (const PairPart& pair : set.pairs) {
      const PairMotion<S> x = at.pair_motion(pair);
      const S turn = sum(x.A.w) + sum(x.B.w), turning = sum(x.A.wdot) + sum(x.B.wdot) + turn * turn;
      const S speed = sum(x.A.v) + sum(x.B.v), pushed = sum(x.A.a) + sum(x.B.a) + turn * speed;
      for (int r = 0; r < pair.rows; ++r) {
        const PairRow& row = pair.each[r];
        S& to = out[pair.row + r];
        to = zeroth * S(row.offset * row.offset);
        if (row.is_distance) {
          const S l = sum(x.p);
          to += pushed + turning * l + speed * speed / l + first * speed + zeroth * l;
        }
        for (const RowTerm& term : row.terms) {
          const S c = sum(x.axis(term)), b = sum(x.direction(term)), s(term.s * term.s), y = b + s * sum(x.p);
          to += c * (turning * y + s * pushed + first * (turn * y + s * speed) + zeroth * y);
        }
      }
    }
    for (const CouplingPart& part : set.couplings) {
      S& to = out[part.row];
      to = zeroth * S(part.offset * part.offset);
      if (part.motion.size > 0) {
        const double* f = at.times + part.motion.at;
        to += S(f[2] * f[2]) + first * S(f[1] * f[1]) + zeroth * S(f[0] * f[0]);
      }
      for (const auto& term : part.terms) {
        const S x = q[term.iq], x1 = v[term.iv], x2 = a[term.iv];
        to += S(term.coefficient * term.coefficient) * (x2 * x2 + first * x1 * x1 + zeroth * x * x);
      }
    }
    for (const TwistPart& part : set.twists) {
      S& to = out[part.row];
      to = S(0.0);
      if (part.motion.size > 0) {
        const double* f = at.times + part.motion.at;
        to += S(f[1] * f[1]) + first * S(f[0] * f[0]);
      }
      for (const auto& term : part.terms) {
        const S x1 = v[term.iv], x2 = a[term.iv];
        to += S(term.coefficient * term.coefficient) * (x2 * x2 + first * x1 * x1);
      }
      for (const auto& body : part.bodies) {
        if (body.marker.body < 0) continue;
        const BodyTwist x = body_twist(body);
        to += sum(x.own.n) * (sum(x.A.w) + first * sum(x.V.w)) + sum(x.own.f) * (sum(x.A.v) + first * sum(x.V.v));
      }
    }
    const Motions<S> none{};
    for (const CustomPart& part : set.custom) {
      const CustomRows<S> x = custom_rows(custom_state(none), part);
      for (int r = 0; r < part.rows; ++r) {
        S& to = out[part.row + r];
        to = x.gamma[r] * x.gamma[r] + first * x.gdot[r] * x.gdot[r] + zeroth * x.g[r] * x.g[r];
        for (int k = 0; k < m.nv; ++k) {
          const S G = x.G[r * m.nv + k], of_v = G * v[k], of_a = G * a[k];
          to += of_a * of_a + first * of_v * of_v + zeroth * G * G;
        }
      }
    }
  }

 private:
  static int padding(const RowWalk& walk) {
    constexpr int width = sizeof(Wide<S>) / sizeof(S);
    return (walk.rows + width - 1) / width * width;
  }
};

// Forward dynamics ----------------------------------------------------------------------------------------------------

// The passes of forward dynamics up to the third, the factors of free joints, and accelerations a of the bodies that
// carry rows.
template <class S>
__attribute__((noinline)) CarriedTree<S, double> begin_dynamics(const Model& m, Arena& arena, const ConstraintSet& set,
                                                                double t, const S* q, const S* v, const S* tau,
                                                                const S* f_ext, const ConstraintGains& gains, S* a) {
  bool* doubtful;
  const auto tree = sweep_to_base(m, arena, q, v, f_ext, nullptr, a, tau, doubtful);
  const CarriedTree<S, double> at{tree,
                                  v,
                                  arena.get<InertiaFactor<S>*>(m.n()),
                                  arena.get<S>(m.nv),
                                  arena.get<CarrierMotion<S>>(m.n()),
                                  times_at(set, arena, t)};
  for (int i = 0; i < m.n(); ++i) {
    const Model::Body& body = m.bodies[i];
    if (body.kind != Kind::free) continue;
    const auto& b = tree.bodies[i];
    at.factors[i] = arena.get<InertiaFactor<S>>(1);
    const bool doubt = doubtful != nullptr && doubtful[i];
    *at.factors[i] = factor_6x6(arena, tree, nullptr, i, b.scale, doubt, b.I);
    const S* own = tau + body.iv;
    S x[6];
    write(Force<S>{b.R * read3(own) - b.B.n, b.R * read3(own + 3) - b.B.f}, x);
    at.factors[i]->halve(x);
    std::copy_n(x, 6, at.halves + body.iv);
  }
  const bool velocities = set.needs_velocity || gains.alpha != 0.0;
  const std::vector<int>& bodies = row_plan<S>(set).bodies;
  for (auto i = bodies.rbegin(); i != bodies.rend(); ++i) {
    at.locate(*i, velocities);
    at.accelerate(*i, a);
  }
  return at;
}

// Accelerations, multipliers and the number of rows that do not depend on others. f_ext in the bodies' frames, or null.
template <class S>
void constrained_forward_dynamics(const Model& m, Arena& arena, const ConstraintSet& set, double t, const S* q,
                                  const S* v, const S* tau, const S* f_ext, const ConstraintGains& gains, S* a,
                                  S* multipliers, S* rank) {
  using V = Wide<S>;
  constexpr int width = sizeof(V) / sizeof(S);
  const CarriedTree<S, double> at = begin_dynamics(m, arena, set, t, q, v, tau, f_ext, gains, a);
  const RowEvaluation<S, double> evaluation{m, arena, set, at, q, v, a, t, gains};
  const CarriedRows<S> rows(m, arena, set);
  S* values = arena.get<S>(set.rows);
  int most = 0;
  for (const RowWalk& walk : rows.plan.walks) most = std::max(most, (walk.rows + width - 1) / width);
  RowForces<S> forces{arena.get<Force<V>>(std::size_t(m.n()) * most), arena.get<bool>(m.n()), 0};
  for (const RowWalk& walk : rows.plan.walks) {
    forces.vectors = (walk.rows + width - 1) / width;
    std::fill_n(forces.touched, m.n(), false);
    evaluation.evaluate(walk, forces, rows, values);
    carry_forces(at, walk, forces, rows);
  }
  Delassus<S> D(arena, set.rows);
  D.pair_rows(m, rows);
  D.factor(gains.compliance);
  for (int r = 0; r < set.rows; ++r) values[r] = -values[r];
  D.solve(values, multipliers);
  if (__builtin_expect(any(D.any_skipped()), 0)) {
    S* squares = arena.get<S>(set.rows);
    evaluation.squares(squares);
    D.note_contradictions(values, squares, multipliers);
  }
  *rank = D.rank();
  // What the multipliers add to the forces of joints; then accelerations of all bodies.
  for (const RowWalk& walk : rows.plan.walks) {
    const S* lambda = multipliers + walk.row;
    for (int i : walk.bodies) {
      const Model::Body& body = m.bodies[i];
      const bool free = body.kind == Kind::free;
      for (int k = body.iv; k < body.iv + body.nv; ++k) {
        const S* of_row = (free ? rows.E : rows.F) + std::size_t(k) * rows.plan.places + walk.place;
        S& u = free ? at.halves[k] : at.tree.columns[k].u;
        for (int r = 0; r < walk.rows; ++r) u = mul_add(lambda[r], of_row[r], u);
      }
    }
  }
  for (int i = 0; i < m.n(); ++i) at.accelerate(i, a);
}

}  // namespace torsor
