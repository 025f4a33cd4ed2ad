// Rows of a pair, evaluated several at a time: for one state side by side in a vector, for packs of states one by one.
// The formulas are those of constraints/pair_rows.hpp.
#pragma once
#include "constraints/pair_rows.hpp"

namespace torsor {

template <class V, class S>
PairState<V> lift_state(const PairState<S>& s) {
  return {lift<V>(s.R),  lift<V>(s.p),  lift<V>(s.V),  lift<V>(s.Vdot), lift<V>(s.VA),
          lift<V>(s.VB), lift<V>(s.AA), lift<V>(s.AB), lift<V>(s.to_A), lift<V>(s.to_B)};
}

// Values of rows, their wrench W, and what gdot and gamma change with: W1, W0, and W1 of gdot without its last term.
template <class V>
struct RowGroup {
  int first, rows;  // of the pair
  V g, gdot, gamma;
  Force<V> W, W1, W0, half;
};

// Calls f for all rows of a pair, `at` being its state in V. `rates`: whether W1, W0 and half are needed, not values.
template <class S, class V, class F>
TORSOR_INLINE void for_each_group(const PairPart& pair, const PairState<V>& at, bool rates, F&& f) {
  constexpr int width = sizeof(V) / sizeof(S);
  const Force<V> none = zero_force<V>();
  const auto add = [&](RowGroup<V>& out, const Vec3<V>& a, const Vec3<V>& b, const V& s) TORSOR_INLINE_LAMBDA {
    const Vec3<V> y = mul_add(s, at.p, at.R * b), u = cross_add(at.V.w, y, s * at.V.v);
    out.W.n = cross_add(y, a, out.W.n);
    out.W.f = mul_add(s, a, out.W.f);
    if (rates) {
      const Vec3<V> turned = cross(a, at.V.w), z = cross_add(a, at.Vdot.w, cross(turned, at.V.w));
      out.half.n = cross_add(y, turned, out.half.n);
      out.half.f = mul_add(s, turned, out.half.f);
      out.W1.n = cross_add(u, a, out.W1.n);  // to which half is added in the end
      out.W0.n = cross_add(y, z, out.W0.n);
      out.W0.f = mul_add(s, z, out.W0.f);
    } else {
      const Vec3<V> udot = cross_add(at.Vdot.w, y, cross_add(at.V.w, u, s * at.Vdot.v));
      out.g = dot_add(a, y, out.g);
      out.gdot = dot_add(a, u, out.gdot);
      out.gamma = dot_add(a, udot, out.gamma);
    }
  };
  if constexpr (width > 1) {
    int first = 0;
    for (const RowLanes& lanes : pair.lanes) {
      RowGroup<V> out{first, lanes.rows, -load<V>(lanes.offset), V(0.0), V(0.0), none, none, none, none};
      for (const RowLanes::Term& term : lanes.terms)
        add(out, {load<V>(term.a[0]), load<V>(term.a[1]), load<V>(term.a[2])},
            {load<V>(term.b[0]), load<V>(term.b[1]), load<V>(term.b[2])}, load<V>(term.s));
      out.W1 += out.half;
      f(out);
      first += lanes.rows;
    }
    if (!pair.lanes.empty()) return;
  }
  for (int r = 0; r < pair.rows; ++r) {
    const PairRow& row = pair.each[r];
    RowGroup<V> out{r, 1, V(-row.offset), V(0.0), V(0.0), none, none, none, none};
    if (row.is_distance) {
      const SeenDistance<V> d = seen_distance(at);
      out.g += d.l;
      out.gdot = d.nu;
      out.gamma = dot(d.n, d.udot) + d.turning / d.l;
      out.W.f = d.n;  // p x n = 0
      const Vec3<V> turned = cross(d.n, at.V.w), e1 = V(2.0) * d.across;
      const Vec3<V> bend = d.bent - (d.turning / (d.l * d.l)) * d.n - (V(2.0) * d.nu / d.l) * d.across;
      out.half = row_wrench(d.y, 1.0, turned + d.across);
      out.W1 = row_wrench(d.y, 1.0, turned + e1);
      out.W1.n += cross(d.u, d.n);
      out.W0 = row_wrench(d.y, 1.0, cross_add(d.n, at.Vdot.w, cross_add(turned + e1, at.V.w, bend)));
    } else {
      for (const RowTerm& term : row.terms) add(out, V(term.coefficient) * lift<V>(term.a), lift<V>(term.b), V(term.s));
      out.W1 += out.half;
    }
    f(out);
  }
}

// Wrenches on B, and their opposites on A, in A's axes, with which gdot and gamma change: RowSum in pair_rows.hpp.
template <class V>
struct GroupWrenches {
  RowWrenches<V> gamma;
  Force<V> rate;  // C0 of gdot; its C1 is W
};
template <class V>
TORSOR_INLINE GroupWrenches<V> group_wrenches(const PairState<V>& at, bool A_rests, const RowGroup<V>& x) {
  GroupWrenches<V> out;
  out.gamma.C2 = x.W;
  const Force<V> dragged = cross(at.VB, x.W);
  out.rate = x.half + dragged;
  if (A_rests) {
    out.gamma.C1 = x.W1 + dragged;
    out.gamma.C0 = x.W0 + cross(at.VB, x.W1) + cross(at.AB, x.W);
  } else {
    const Force<V> by_A = cross(at.VA, x.W);
    out.gamma.C1 = x.W1 + dragged + by_A;
    out.gamma.C0 = x.W0 + cross(at.VB, x.W1 + by_A) + cross(at.AB, x.W);
  }
  return out;
}

}  // namespace torsor
