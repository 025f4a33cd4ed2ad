// Values of all rows, and their derivatives: as matrices, as gradients of weighted sums in O(n), and of the reaction
// torques G^T lambda (docs/derivations/constraints.md, 2). Rows are functions of the tree's state; with couplings their
// derivatives are those by the reduced state (docs/derivations/hyper_reduced.md), in all functions of the last section.
#pragma once
#include "constraints/pair_rows.hpp"
#include "derivatives/coupled_derivatives.hpp"

namespace torsor {

// Where rows are evaluated: a state of the tree. `times`: of times_at. `still`: without the velocities of moving
// markers, as for G v with a virtual velocity v. `chain`: with couplings, how that state depends on the reduced one.
template <class S>
struct ConstraintState {
  const Model& m;
  const ConstraintSet& set;
  Arena& arena;
  const Motions<S>& all;
  const S *q, *v, *a;
  double t;
  const double* times;
  bool still = false;
  const ChainedState<S>* chain = nullptr;
};

// User-defined rows: evaluated for all lanes at once.
template <class S>
struct CustomRows {
  const S *g, *gdot, *gamma, *G;
};
namespace detail {
template <class S>
struct CustomState {
  UserRows<S> q, v, a;
  explicit CustomState(const ConstraintState<S>& at)
      : q(at.arena, at.m.nq, at.q), v(at.arena, at.m.nv, at.v), a(at.arena, at.m.nv, at.a) {}
};
}  // namespace detail
template <class S>
CustomRows<S> custom_rows(const ConstraintState<S>& at, const CustomPart& part) {
  if constexpr (IsDual<S>::value) {
    throw std::logic_error("torsor: user-defined constraints have no dual numbers");
  } else {
    const detail::CustomState<S> x(at);
    const UserRows<S> out(at.arena, part.rows * (3 + at.m.nv));
    part.custom->evaluate(UserRows<S>::lanes, x.q, x.v, x.a, at.t, out);
    const S* data = out.read(at.arena);
    return {data, data + part.rows, data + 2 * part.rows, data + 3 * part.rows};
  }
}
// dgdot/dq, dgamma/dq and dgamma/dv, rows x nv each.
template <class S>
const S* custom_derivatives(const ConstraintState<S>& at, const CustomPart& part) {
  if constexpr (IsDual<S>::value) {
    throw std::logic_error("torsor: user-defined constraints have no dual numbers");
  } else {
    const detail::CustomState<S> x(at);
    const UserRows<S> out(at.arena, part.rows * 3 * at.m.nv);
    part.custom->derivatives(UserRows<S>::lanes, x.q, x.v, x.a, at.t, out);
    return out.read(at.arena);
  }
}

// The same less those at rest, which are due to time alone.
template <class S>
const S* less_at_rest(const ConstraintState<S>& at, const CustomPart& part, const S* derivatives) {
  const int size = 3 * part.rows * at.m.nv;
  S *rest = at.arena.template get<S>(at.m.nv), *out = at.arena.template get<S>(size);
  std::fill_n(rest, at.m.nv, S(0.0));
  const S* due_to_time = custom_derivatives(
      ConstraintState<S>{at.m, at.set, at.arena, at.all, at.q, rest, rest, at.t, at.times, at.still}, part);
  for (int k = 0; k < size; ++k) out[k] = derivatives[k] - due_to_time[k];
  return out;
}

// The twist of a body in a row of twists, its wrench w and acceleration, in the world's axes about the point of its
// tree; the acceleration without gravity.
template <class S>
struct TwistTerm {
  SE3<S> X;
  Motion<S> V, A;
  Force<S> w;
};
template <class S>
TwistTerm<S> twist_term(const TwistPart::OfBody& body, const Motions<S>& all) {
  const auto& b = all.bodies[body.marker.body];
  const SE3<S> X = SE3<S>{b.R, b.p} * lift<S>(all.pose(body.marker.frame));
  return {X, b.v, b.a - all.bodies[-1].a, X.act(lift<S>(body.w))};
}

// Values --------------------------------------------------------------------------------------------------------------

// g, gdot, gamma (rows each); any may be null.
template <class S>
void constraint_values(const ConstraintState<S>& at, S* g, S* gdot, S* gamma) {
  const auto put = [&](int row, const S& x, const S& x1, const S& x2) {
    if (g != nullptr) g[row] = x;
    if (gdot != nullptr) gdot[row] = x1;
    if (gamma != nullptr) gamma[row] = x2;
  };
  for (const PairPart& pair : at.set.pairs) {
    const PairState<S> state = pair_state(pair, at.all, at.times, at.still);
    for (int r = 0; r < pair.rows; ++r) {
      const RowValue<S> x = row_value(state, pair.each[r]);
      put(pair.row + r, x.g, x.gdot, x.gamma);
    }
  }
  for (const CouplingPart& part : at.set.couplings) {
    S x(-part.offset), x1(0.0), x2(0.0);
    if (part.motion.size > 0) {
      const double* f = at.times + part.motion.at;
      x -= S(f[0]);
      if (!at.still) {
        x1 -= S(f[1]);
        x2 -= S(f[2]);
      }
    }
    for (const auto& term : part.terms) {
      x = mul_add(S(term.coefficient), at.q[term.iq], x);
      x1 = mul_add(S(term.coefficient), at.v[term.iv], x1);
      x2 = mul_add(S(term.coefficient), at.a[term.iv], x2);
    }
    put(part.row, x, x1, x2);
  }
  for (const TwistPart& part : at.set.twists) {
    S x1(0.0), x2(0.0);
    if (part.motion.size > 0 && !at.still) {
      x1 -= S(at.times[part.motion.at]);
      x2 -= S(at.times[part.motion.at + 1]);
    }
    for (const auto& term : part.terms) {
      x1 = mul_add(S(term.coefficient), at.v[term.iv], x1);
      x2 = mul_add(S(term.coefficient), at.a[term.iv], x2);
    }
    for (const auto& body : part.bodies) {
      const TwistTerm<S> term = twist_term(body, at.all);
      x1 += dot(term.V, term.w);
      x2 += dot(term.A, term.w);
    }
    put(part.row, S(0.0), x1, x2);
  }
  for (const CustomPart& part : at.set.custom) {
    const CustomRows<S> x = custom_rows(at, part);
    for (int r = 0; r < part.rows; ++r) {
      S rate = x.gdot[r];
      if (at.still) {
        rate = S(0.0);
        for (int k = 0; k < at.m.nv; ++k) rate = mul_add(x.G[r * at.m.nv + k], at.v[k], rate);
      }
      put(part.row + r, x.g[r], rate, x.gamma[r]);
    }
  }
}

// Over the velocities of bodies.
template <class F>
void for_each_velocity_of(const Model& m, const std::vector<int>& bodies, F&& f) {
  for (int i : bodies)
    for (int k = m.links[i].iv; k < m.links[i].iv + m.links[i].nv; ++k) f(k);
}

// G of the tree (rows x nv, rows `stride` apart).
template <class S>
void tree_jacobian(const ConstraintState<S>& at, S* G, int stride) {
  const Model& m = at.m;
  for (int r = 0; r < at.set.rows; ++r) std::fill_n(G + r * stride, m.nv, S(0.0));
  for (const PairPart& pair : at.set.pairs) {
    const PairState<S> state = pair_state(pair, at.all, at.times, at.still);
    for (int r = 0; r < pair.rows; ++r) {
      S* row = G + (pair.row + r) * stride;
      const Force<S> W = row_wrench(state, pair.each[r]), on_A = state.to_A.act(W), on_B = state.to_B.act(W);
      for_each_velocity_of(m, pair.moves_B, [&](int k) { row[k] = dot(at.all.columns[k].S_, on_B); });
      for_each_velocity_of(m, pair.moves_A, [&](int k) { row[k] = -dot(at.all.columns[k].S_, on_A); });
    }
  }
  for (const CouplingPart& part : at.set.couplings)
    for (const auto& term : part.terms) G[part.row * stride + term.iv] += S(term.coefficient);
  for (const TwistPart& part : at.set.twists) {
    S* row = G + part.row * stride;
    for (const auto& term : part.terms) row[term.iv] += S(term.coefficient);
    for (const auto& body : part.bodies) {
      const Force<S> w = twist_term(body, at.all).w;
      for_each_velocity_of(m, body.moves, [&](int k) { row[k] += dot(at.all.columns[k].S_, w); });
    }
  }
  for (const CustomPart& part : at.set.custom) {
    const CustomRows<S> x = custom_rows(at, part);
    for (int r = 0; r < part.rows; ++r) std::copy_n(x.G + r * m.nv, m.nv, G + (part.row + r) * stride);
  }
}

// Derivatives ---------------------------------------------------------------------------------------------------------

// The wrenches of a row of twists with weights x1 of gdot and x2 of gamma. `world`: the acceleration of the world.
template <class S>
RowWrenches<S> twist_wrenches(const TwistTerm<S>& term, const Motion<S>& world, const S& x1, const S& x2) {
  const Force<S> C2{x2 * term.w.n, x2 * term.w.f}, W1{x1 * term.w.n, x1 * term.w.f};
  return {cross(world, C2), W1 + cross(term.V, C2), C2};
}

// dgdot/dq, dgamma/dq and dgamma/dv of the tree (rows x nv, rows `stride` apart); any may be null. The motions have
// rates.
template <class S>
void tree_derivatives(const ConstraintState<S>& at, S* dgdot_dq, S* dgamma_dq, S* dgamma_dv, int stride) {
  const Model& m = at.m;
  for (S* matrix : {dgdot_dq, dgamma_dq, dgamma_dv})
    for (int r = 0; matrix != nullptr && r < at.set.rows; ++r) std::fill_n(matrix + r * stride, m.nv, S(0.0));
  const auto add = [&](int row, double sign, const std::vector<int>& moves, const RowWrenches<S>& rate,
                       const RowWrenches<S>& second) {
    for_each_velocity_of(m, moves, [&](int k) {
      const auto& c = at.all.columns[k];
      const S s(sign);
      const int e = row * stride + k;
      if (dgdot_dq != nullptr) dgdot_dq[e] += s * (dot(c.S_, rate.C0) + dot(c.Psidot, rate.C1));
      if (dgamma_dq != nullptr)
        dgamma_dq[e] += s * (dot(c.S_, second.C0) + dot(c.Psidot, second.C1) + dot(c.Psiddot, second.C2));
      if (dgamma_dv != nullptr) dgamma_dv[e] += s * (dot(c.S_, second.C1) + dot(c.Vdot, second.C2));
    });
  };
  const auto carried = [](const SE3<S>& X, const RowWrenches<S>& x) -> RowWrenches<S> {
    return {X.act(x.C0), X.act(x.C1), X.act(x.C2)};
  };
  const S none(0.0), one(1.0);
  for (const PairPart& pair : at.set.pairs) {
    const PairState<S> state = pair_state(pair, at.all, at.times, at.still);
    for (int r = 0; r < pair.rows; ++r) {
      RowSum<S> first(state), second(state);
      first.add(pair.each[r], none, one, none);
      second.add(pair.each[r], none, none, one);
      const RowWrenches<S> x1 = first.wrenches(), x2 = second.wrenches();
      add(pair.row + r, 1.0, pair.moves_B, carried(state.to_B, x1), carried(state.to_B, x2));
      add(pair.row + r, -1.0, pair.moves_A, carried(state.to_A, x1), carried(state.to_A, x2));
    }
  }
  for (const TwistPart& part : at.set.twists)
    for (const auto& body : part.bodies) {
      const TwistTerm<S> term = twist_term(body, at.all);
      const Motion<S>& world = at.all.bodies[-1].a;
      add(part.row, 1.0, body.moves, twist_wrenches(term, world, one, none), twist_wrenches(term, world, none, one));
    }
  for (const CustomPart& part : at.set.custom) {
    const S* x = custom_derivatives(at, part);
    if (at.still) x = less_at_rest(at, part, x);
    int which = 0;
    for (S* matrix : {dgdot_dq, dgamma_dq, dgamma_dv}) {
      const S* from = x + which++ * part.rows * m.nv;
      for (int r = 0; matrix != nullptr && r < part.rows; ++r)
        std::copy_n(from + r * m.nv, m.nv, matrix + (part.row + r) * stride);
    }
  }
}

// K = d(G^T lambda)/dq of user-defined rows (nv x nv).
template <class S>
const S* custom_stiffness(const ConstraintState<S>& at, const CustomPart& part, const S* lambda) {
  if constexpr (IsDual<S>::value) {
    throw std::logic_error("torsor: user-defined constraints have no dual numbers");
  } else {
    const UserRows<S> q(at.arena, at.m.nq, at.q), weights(at.arena, part.rows, lambda + part.row);
    const UserRows<S> out(at.arena, at.m.nv * at.m.nv);
    part.custom->stiffness(UserRows<S>::lanes, q, at.t, weights, out);
    return out.read(at.arena);
  }
}
// The part of K that is due to the turning of reactions with A, and K of user-defined rows: K += s times that. The
// rest is due to wrenches that move with their bodies.
template <class S>
void add_constraint_border(const ConstraintState<S>& at, const S* lambda, const S& s, S* K, int stride) {
  const Model& m = at.m;
  for (const PairPart& pair : at.set.pairs) {
    const PairState<S> state = pair_state(pair, at.all, at.times, at.still);
    const Force<S> W = pair_wrench(state, pair, lambda);
    // (J_B^T (N - . x* W) - J_A^T N) (J_B - J_A)
    const auto add_column = [&](int k, double sign, const SE3<S>& X) {
      const Motion<S> seen = X.act_inverse(at.all.columns[k].S_), eta{S(sign) * seen.w, S(sign) * seen.v};
      Force<S> change = zero_force<S>();
      for (int r = 0; r < pair.rows; ++r) change += wrench_change(state, pair.each[r], lambda[pair.row + r], eta);
      const Force<S> by_A = state.to_A.act(change), by_B = state.to_B.act(change - cross(eta, W));
      for_each_velocity_of(m, pair.moves_B, [&](int j) {
        K[j * stride + k] = mul_add(s, dot(at.all.columns[j].S_, by_B), K[j * stride + k]);
      });
      for_each_velocity_of(m, pair.moves_A, [&](int j) {
        K[j * stride + k] = mul_add(-s, dot(at.all.columns[j].S_, by_A), K[j * stride + k]);
      });
    };
    for_each_velocity_of(m, pair.moves_B, [&](int k) { add_column(k, 1.0, state.to_B); });
    for_each_velocity_of(m, pair.moves_A, [&](int k) { add_column(k, -1.0, state.to_A); });
  }
  for (const CustomPart& part : at.set.custom) {
    const S* x = custom_stiffness(at, part, lambda);
    for (int j = 0; j < m.nv; ++j) add_scaled(m.nv, s, x + j * m.nv, K + j * stride);
  }
}
// K += s K of a wrench F that moves with a body, in the world's axes about the point of its tree. `moves`: that body
// and those above it, as far as they matter.
template <class S>
void add_riding(const ConstraintState<S>& at, const std::vector<int>& moves, const Force<S>& F, const S& s, S* K,
                int stride) {
  const Model& m = at.m;
  for (std::size_t at_k = 0; at_k < moves.size(); ++at_k) {
    const Model::Link& beyond = m.links[moves[at_k]];
    for (int k = beyond.iv; k < beyond.iv + beyond.nv; ++k) {
      const Force<S> turned = cross(at.all.columns[k].S_, F);
      for (std::size_t at_j = at_k + 1; at_j < moves.size(); ++at_j) {
        const Model::Link& link = m.links[moves[at_j]];
        for (int j = link.iv; j < link.iv + link.nv; ++j)
          K[j * stride + k] = mul_add(s, dot(at.all.columns[j].S_, turned), K[j * stride + k]);
      }
    }
    const Model::Body& body = m.bodies[moves[at_k]];
    if (body.general < 0) continue;
    const auto& b = at.all.bodies[moves[at_k]];
    const auto& g = at.all.general[body.general];
    const Force<S> local{transposed(b.R, cross_add(F.f, b.p, F.n)), transposed(b.R, F.f)};
    for (int j = 0; j < body.nv; ++j)
      for (int k = 0; k < body.nv; ++k) {
        S& x = K[(body.iv + j) * stride + body.iv + k];
        x = mul_add(s, dot(g.ds[body.nv * j + k], local), x);
      }
  }
}
// The same of the wrenches of a pair.
template <class S>
void add_riding(const ConstraintState<S>& at, const PairPart& pair, const S* lambda, const S& s, S* K, int stride) {
  const PairState<S> state = pair_state(pair, at.all, at.times, at.still);
  const Force<S> W = pair_wrench(state, pair, lambda), on_A = state.to_A.act(W);
  add_riding(at, pair.moves_B, state.to_B.act(W), s, K, stride);
  add_riding(at, pair.moves_A, {-on_A.n, -on_A.f}, s, K, stride);
}
// K += s d(G^T lambda)/dq of the tree (nv x nv, rows `stride` apart). Of the motions, the poses and columns are read.
template <class S>
void add_tree_stiffness(const ConstraintState<S>& at, const S* lambda, const S& s, S* K, int stride) {
  for (const PairPart& pair : at.set.pairs) add_riding(at, pair, lambda, s, K, stride);
  for (const TwistPart& part : at.set.twists)
    for (const auto& body : part.bodies) {
      const Force<S> w = twist_term(body, at.all).w;
      add_riding(at, body.moves, {lambda[part.row] * w.n, lambda[part.row] * w.f}, s, K, stride);
    }
  add_constraint_border(at, lambda, s, K, stride);
}

// Gradients in O(n) ---------------------------------------------------------------------------------------------------

// Gradients of a weighted sum of g, gdot and gamma, to which they are added; any may be null.
template <class S>
struct ConstraintGradients {
  S *q, *v, *a;            // nv each
  S* placement;            // of the user's bodies x 6: twists in the joints' frames
  S* parameters;           // of the constraints
  S* couplings = nullptr;  // of the numbers of couplings
};

template <class S>
RowWrenches<S>& operator+=(RowWrenches<S>& a, const RowWrenches<S>& b) {
  a.C0 += b.C0;
  a.C1 += b.C1;
  a.C2 += b.C2;
  return a;
}
// C0 - V x* C1 - A x* C2 + V x* (V x* C2): the gradient by a twist that moves them, on a body with the motion (V, A).
template <class S>
Force<S> on_moving_body(const RowWrenches<S>& x, const Motion<S>& V, const Motion<S>& A) {
  return x.C0 - cross(V, x.C1 - cross(V, x.C2)) - cross(A, x.C2);
}

// Adds the gradients by placements, twists in the joints' frames, from the wrenches on each of the user's bodies and
// the frames on them, which become sums over subtrees.
template <class S, class C>
void constraint_placement_gradient(const ModelT<C>& m, const Motions<S>& all, RowWrenches<S>* sums, S* gradient) {
  add_frames_to_bodies(m, sums);
  const auto pose = [&](int b) {
    const auto& frame = m.frames[b];
    if (frame.body < 0) return lift<S>(frame.pose);
    return SE3<S>{all.bodies[frame.body].R, all.bodies[frame.body].p} * frame.pose;
  };
  for (auto it = m.order.rbegin(); it != m.order.rend(); ++it) {  // children before parents
    const int b = *it, parent = m.frames[b].parent, i = m.frames[b].body;
    const int above = parent >= 0 ? m.frames[parent].body : -1;
    SE3<S> X = parent >= 0 ? pose(parent) * m.frames[b].placement : lift<S>(m.frames[b].placement);
    if (above < 0 && i >= 0) X.p -= all.bodies[i].origin;
    S twist[6];
    write(X.act_inverse(on_moving_body(sums[b], all.bodies[above].v, all.bodies[above].a)), twist);
    for (int k = 0; k < 6; ++k) gradient[6 * b + k] += twist[k];
    if (parent < 0) continue;
    if (above < 0 && i >= 0) {  // to the world's origin
      const Vec3<S>& o = all.bodies[i].origin;
      sums[parent] += {shift_back(sums[b].C0, o), shift_back(sums[b].C1, o), shift_back(sums[b].C2, o)};
    } else {
      sums[parent] += sums[b];
    }
  }
}

// Those of user-defined rows, which have no placements.
template <class S>
void add_custom_gradients(const ConstraintState<S>& at, const CustomPart& part, const S* x0, const S* x1, const S* x2,
                          const ConstraintGradients<S>& out) {
  const int nv = at.m.nv, rows = part.rows;
  const CustomRows<S> value = custom_rows(at, part);
  const auto add = [&](const S* x, const S* matrix, S* to) {
    for (int r = 0; x != nullptr && to != nullptr && r < rows; ++r)
      add_scaled(nv, x[part.row + r], matrix + r * nv, to);
  };
  add(x0, value.G, out.q);
  add(x1, value.G, out.v);
  add(x2, value.G, out.a);
  if (at.still && x1 != nullptr && out.q != nullptr) {  // of lambda.G v
    const S* K = custom_stiffness(at, part, x1);
    for (int j = 0; j < nv; ++j) add_scaled(nv, at.v[j], K + j * nv, out.q);
  } else if (x1 != nullptr || x2 != nullptr) {
    const S* d = custom_derivatives(at, part);
    add(x1, d, out.q);
    add(x2, d + rows * nv, out.q);
    add(x2, d + 2 * rows * nv, out.v);
  }
  if constexpr (!IsDual<S>::value) {
    if (out.parameters == nullptr || part.count == 0) return;
    S* weights = at.arena.template get<S>(3 * rows);
    int place = 0;
    for (const S* x : {x0, x1, x2})
      for (int r = 0; r < rows; ++r) weights[place++] = x == nullptr ? S(0.0) : x[part.row + r];
    const auto add_parameters = [&](const S& s, const S* v) {
      const UserRows<S> q(at.arena, at.m.nq, at.q), rate(at.arena, nv, v), a(at.arena, nv, at.a);
      const UserRows<S> given(at.arena, 3 * rows, weights), result(at.arena, part.count);
      part.custom->gradient(UserRows<S>::lanes, q, rate, a, at.t, given, result);
      add_scaled(part.count, s, result.read(at.arena), out.parameters + part.at);
    };
    add_parameters(S(1.0), at.v);
    if (!at.still) return;
    S* rest = at.arena.template get<S>(nv);  // less the part of the rate that does not depend on v
    std::fill_n(rest, nv, S(0.0));
    std::fill_n(weights, rows, S(0.0));
    add_parameters(S(-1.0), rest);
  }
}

// Adds the gradients of the sum of x0 g + x1 gdot + x2 gamma (rows each, any may be null), by the tree's state.
template <class S, class C>
void add_tree_gradients(const ModelT<C>& numbers, const ConstraintState<S>& at, const S* x0, const S* x1, const S* x2,
                        const ConstraintGradients<S>& out) {
  const Model& m = at.m;
  const ConstraintSet& set = at.set;
  const S none(0.0);
  const auto weight = [&](const S* x, int row) { return x == nullptr ? none : x[row]; };
  auto* sums = at.arena.template get<RowWrenches<S>>(m.n());
  for (int i = 0; i < m.n(); ++i) sums[i] = zero_wrenches<S>();
  RowWrenches<S>* by_frame = nullptr;
  if (out.placement != nullptr) {
    by_frame = at.arena.template get<RowWrenches<S>>(m.nplaces());
    for (int b = 0; b < m.nplaces(); ++b) by_frame[b] = zero_wrenches<S>();
  }
  const auto add = [&](const Marker& marker, double sign, const SE3<S>& X, const RowWrenches<S>& x) {
    const auto carried = [&](const Force<S>& F) -> Force<S> {
      const Force<S> G = X.act(F);
      return {S(sign) * G.n, S(sign) * G.f};
    };
    const RowWrenches<S> moved{carried(x.C0), carried(x.C1), carried(x.C2)};
    if (marker.body >= 0) sums[marker.body] += moved;
    if (by_frame != nullptr && marker.frame >= 0) by_frame[marker.frame] += moved;
  };
  const auto add_six = [&](int place, double sign, const Force<S>& x) {
    S six[6];
    write(x, six);
    for (int k = 0; k < 6; ++k) out.parameters[place + k] = mul_add(S(sign), six[k], out.parameters[place + k]);
  };
  for (const PairPart& pair : set.pairs) {
    const PairState<S> state = pair_state(pair, at.all, at.times, at.still);
    RowSum<S> sum(state);
    for (int r = 0; r < pair.rows; ++r)
      sum.add(pair.each[r], weight(x0, pair.row + r), weight(x1, pair.row + r), weight(x2, pair.row + r));
    const RowWrenches<S> x = sum.wrenches();
    add(pair.B, 1.0, state.to_B, x);
    if (pair.motion.size == 0) add(pair.A, -1.0, state.to_A, x);
    if (out.parameters == nullptr) continue;
    if (pair.motion.size == 0) add_six(pair.at, -1.0, on_moving_body(x, state.VA, state.AA));
    add_six(pair.at + 6, 1.0, SE3<S>{state.R, state.p}.act_inverse(on_moving_body(x, state.VB, state.AB)));
    for (int r = 0; r < pair.rows; ++r) out.parameters[pair.at + 12 + r] -= weight(x0, pair.row + r);
  }
  for (const CouplingPart& part : set.couplings) {
    const S w0 = weight(x0, part.row), w1 = weight(x1, part.row), w2 = weight(x2, part.row);
    int place = part.at;
    for (const auto& term : part.terms) {
      const S c(term.coefficient);
      if (out.q != nullptr) out.q[term.iv] = mul_add(c, w0, out.q[term.iv]);
      if (out.v != nullptr) out.v[term.iv] = mul_add(c, w1, out.v[term.iv]);
      if (out.a != nullptr) out.a[term.iv] = mul_add(c, w2, out.a[term.iv]);
      if (out.parameters != nullptr)
        out.parameters[place++] += w0 * at.q[term.iq] + w1 * at.v[term.iv] + w2 * at.a[term.iv];
    }
    if (out.parameters != nullptr) out.parameters[place] -= w0;
  }
  for (const TwistPart& part : set.twists) {
    const S w1 = weight(x1, part.row), w2 = weight(x2, part.row);
    int place = part.at;
    for (const auto& body : part.bodies) {
      const TwistTerm<S> term = twist_term(body, at.all);
      const SE3<S> same{identity3<S>(), zero3<S>()};
      add(body.marker, 1.0, same, twist_wrenches(term, at.all.bodies[-1].a, w1, w2));
      if (out.parameters != nullptr) {
        S V[6], A[6];
        write(term.X.act_inverse(term.V), V);
        write(term.X.act_inverse(term.A), A);
        for (int k = 0; k < 6; ++k) out.parameters[place + k] += w1 * V[k] + w2 * A[k];
      }
      place += 6;
    }
    for (const auto& term : part.terms) {
      const S c(term.coefficient);
      if (out.v != nullptr) out.v[term.iv] = mul_add(c, w1, out.v[term.iv]);
      if (out.a != nullptr) out.a[term.iv] = mul_add(c, w2, out.a[term.iv]);
      if (out.parameters != nullptr) out.parameters[place++] += w1 * at.v[term.iv] + w2 * at.a[term.iv];
    }
  }
  for (int i = m.n() - 1; i >= 0; --i) {
    const Model::Link& link = m.links[i];
    const RowWrenches<S>& x = sums[i];
    for (int k = link.iv; k < link.iv + link.nv; ++k) {
      const auto& c = at.all.columns[k];
      if (out.q != nullptr) out.q[k] += dot(c.S_, x.C0) + dot(c.Psidot, x.C1) + dot(c.Psiddot, x.C2);
      if (out.v != nullptr) out.v[k] += dot(c.S_, x.C1) + dot(c.Vdot, x.C2);
      if (out.a != nullptr) out.a[k] += dot(c.S_, x.C2);
    }
    if (link.parent >= 0) sums[link.parent] += x;
  }
  if (by_frame != nullptr) constraint_placement_gradient(numbers, at.all, by_frame, out.placement);
  for (const CustomPart& part : set.custom) add_custom_gradients(at, part, x0, x1, x2, out);
}

// In the coordinates of the state -------------------------------------------------------------------------------------

// Y = X P, of n rows of the tree's velocities. Sums that cancel but for rounding are zero: so are rows that couplings
// fulfil by themselves, which depend on others then.
template <class S>
void reduce_rows(const ChainedState<S>& s, Arena& arena, int n, const S* X, S* Y) {
  constexpr double kRounding = 1e-13;
  const Coupling& c = s.coupling();
  const int nv = static_cast<int>(c.start.size()) - 1, nr = c.nv(), entries = static_cast<int>(c.column.size());
  S *sizes = arena.get<S>(std::size_t(n) * nv), *of_P = arena.get<S>(entries), *most = zeros<S>(arena, n * nr);
  const auto put_sizes = [](int count, const S* x, S* y) {
    for (int k = 0; k < count; ++k) {
      if constexpr (std::is_same_v<S, Complex>)
        y[k] = std::abs(x[k].real());
      else if constexpr (IsDual<S>::value)
        y[k] = {absolute(x[k].v), decltype(x[k].v)(0.0)};
      else
        y[k] = absolute(x[k]);
    }
  };
  put_sizes(n * nv, X, sizes);
  put_sizes(entries, s.P.x, of_P);
  std::fill_n(Y, n * nr, S(0.0));
  add_times(n, X, s.P, Y);
  add_times(n, sizes, TangentMatrix<S>{c, of_P, s.P.rows, s.P.passes}, most);
  for (int k = 0; k < n * nr; ++k) {
    if constexpr (std::is_same_v<S, Complex>) {
      if (std::abs(Y[k].real()) <= kRounding * most[k].real()) Y[k] = {0.0, Y[k].imag()};
    } else if constexpr (IsDual<S>::value) {
      using Base = decltype(Y[k].v);
      Y[k].v = select(less_equal(absolute(Y[k].v), Base(kRounding) * most[k].v), Base(0.0), Y[k].v);
    } else {
      Y[k] = select(less_equal(absolute(Y[k]), S(kRounding) * most[k]), S(0.0), Y[k]);
    }
  }
}

// G (rows x nv, rows `stride` apart). With couplings G P.
template <class S>
void constraint_jacobian(const ConstraintState<S>& at, S* G, int stride) {
  if (at.chain == nullptr) return tree_jacobian(at, G, stride);
  const int rows = at.set.rows, nr = at.chain->coupling().nv();
  S *X = at.arena.template get<S>(std::size_t(rows) * at.m.nv), *Y = at.arena.template get<S>(std::size_t(rows) * nr);
  tree_jacobian(at, X, at.m.nv);
  reduce_rows(*at.chain, at.arena, rows, X, Y);
  for (int r = 0; r < rows; ++r) std::copy_n(Y + r * nr, nr, G + r * stride);
}

// dgdot/dq, dgamma/dq and dgamma/dv (rows x nv, rows `stride` apart); any may be null. The motions have rates.
template <class S>
void constraint_derivatives(const ConstraintState<S>& at, S* dgdot_dq, S* dgamma_dq, S* dgamma_dv, int stride) {
  if (at.chain == nullptr) return tree_derivatives(at, dgdot_dq, dgamma_dq, dgamma_dv, stride);
  const int rows = at.set.rows, nr = at.chain->coupling().nv();
  S *X[4], *out[3] = {dgdot_dq, dgamma_dq, dgamma_dv}, *Y[3];
  for (S*& x : X) x = at.arena.template get<S>(std::size_t(rows) * at.m.nv);
  for (S*& y : Y) y = at.arena.template get<S>(std::size_t(rows) * nr);
  tree_jacobian(at, X[3], at.m.nv);
  tree_derivatives(at, X[0], X[1], X[2], at.m.nv);
  chain_columns<S>(*at.chain, rows, X[0], X[3], nullptr, Y[0], nullptr, nullptr);
  chain_columns<S>(*at.chain, rows, X[1], X[2], X[3], Y[1], Y[2], nullptr);
  for (int k = 0; k < 3; ++k)
    for (int r = 0; out[k] != nullptr && r < rows; ++r) std::copy_n(Y[k] + r * nr, nr, out[k] + r * stride);
}

// K += s d(G^T lambda)/dq (nv x nv, rows `stride` apart). Of the motions, the poses and columns are read.
template <class S>
void add_constraint_stiffness(const ConstraintState<S>& at, const S* lambda, const S& s, S* K, int stride) {
  if (at.chain == nullptr) return add_tree_stiffness(at, lambda, s, K, stride);
  const int rows = at.set.rows, nv = at.m.nv, nr = at.chain->coupling().nv();
  S *X = zeros<S>(at.arena, nv * nv), *G = at.arena.template get<S>(std::size_t(rows) * nv),
    *force = zeros<S>(at.arena, nv), *Y = at.arena.template get<S>(nr * nr);
  add_tree_stiffness(at, lambda, S(1.0), X, nv);
  tree_jacobian(at, G, nv);
  for (int r = 0; r < rows; ++r) add_scaled(nv, lambda[r], G + r * nv, force);
  chain_forces<S>(*at.chain, at.arena, X, nullptr, nullptr, force, Y, nullptr, nullptr);
  for (int j = 0; j < nr; ++j) add_scaled(nr, s, Y + j * nr, K + j * stride);
}

// Adds the gradients of the sum of x0 g + x1 gdot + x2 gamma (rows each, any may be null).
template <class S, class C>
void add_constraint_gradients(const ModelT<C>& numbers, const ConstraintState<S>& at, const S* x0, const S* x1,
                              const S* x2, const ConstraintGradients<S>& out) {
  if (at.chain == nullptr) return add_tree_gradients(numbers, at, x0, x1, x2, out);
  const int nv = at.m.nv, nr = at.chain->coupling().nv();
  S *g[3], *own[3], *to[3] = {out.q, out.v, out.a};
  for (S*& x : g) x = zeros<S>(at.arena, nv);
  for (S*& x : own) x = at.arena.template get<S>(nr);
  add_tree_gradients(numbers, at, x0, x1, x2, {g[0], g[1], g[2], out.placement, out.parameters});
  chain_gradients<S>(*at.chain, at.arena, g[0], g[1], g[2], nullptr, nullptr, own[0], own[1], own[2]);
  for (int k = 0; k < 3; ++k)
    if (to[k] != nullptr) add_scaled(nr, S(1.0), own[k], to[k]);
  if constexpr (!std::is_same_v<S, Complex> && !IsDual<S>::value) {
    if (out.couplings == nullptr) return;
    add_number_gradient<S>(at.chain->terms(), at.arena, {at.chain->z, at.chain->v, at.chain->a, zeros<S>(at.arena, nr)},
                           {g[0], g[1], g[2], zeros<S>(at.arena, nv)}, out.couplings);
  }
}

}  // namespace torsor
