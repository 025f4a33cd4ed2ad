// The residual ID(q, v, a) - tau_f - u of the equations of motion, and what its derivatives need. With bearings, tau_f
// depends on accelerations too. With couplings it is that of the tree pulled back, P^T (ID - tau_f) - u
// (docs/derivations/hyper_reduced.md).
#pragma once
#include "integrators/scene_mass.hpp"

namespace torsor {

// The motions at a state of the tree. Of the bodies, I is their own and f is summed over subtrees.
template <class S>
struct Evaluation {
  Motions<S> all;
  WorldWrench<S>* held;
  const S *q, *v;
  double t;
  S kinetic, gravity;  // energies
  // With couplings: the state that it was lifted from, and the tree's residual without controls.
  struct Reduced {
    const S *q, *v, *a, *r;
  } reduced{};
};

// The motions with gravity, without rates of columns: of the bodies, I and f are their own. Kinetic energy and that of
// gravity are added.
template <class S, class C>
Motions<S> inertial_motions(const ModelT<C>& m, Arena& arena, const S* q, const S* v, const S* a, S& kinetic,
                            S& gravity) {
  const Motions<S> all = motions(m, arena, q, v, a, true, false);
  for (int i = 0; i < m.n(); ++i) {
    auto& b = all.bodies[i];
    b.I = zero_inertia<S>();
    b.f = zero_force<S>();
    if (m.bodies[i].massless) continue;
    b.I = shift_back(rotate(b.R, m.bodies[i].I), b.p);
    const Force<S> momentum = b.I * b.v;
    b.f = b.I * b.a + cross(b.v, momentum);
    kinetic += S(0.5) * dot(b.v, momentum);
    gravity -= dot(m.gravity, mul_add(b.I.m, b.origin, b.I.h));
  }
  for (int i = 0; all.armature != nullptr && i < m.n(); ++i)
    for (int k = m.bodies[i].iv; k < m.bodies[i].iv + m.bodies[i].nv; ++k)
      kinetic = mul_add(S(0.5) * all.armature[k] * v[k], v[k], kinetic);
  return all;
}

// r = ID - tau_f - u of the tree. `add` may add to r and to the forces of bodies.
struct AddNothing {
  template <class M>
  void operator()(const M&) const {}
};
template <class S, class Add = AddNothing>
Evaluation<S> evaluate_tree(const Scene& scene, Arena& arena, const S* q, const S* v, const S* a, double t, const S* p,
                            const S* u, S* r, const Add& add = {}) {
  const Model& m = scene.tree;
  S kinetic(0.0), gravity(0.0);
  const Motions<S> all = with_model<S>(
      scene, [&](const auto& numbers) { return inertial_motions(numbers, arena, q, v, a, kinetic, gravity); });
  ForceSums<S> sums{nullptr, nullptr, nullptr};
  if (scene.forces != nullptr && scene.on_joints) {
    std::fill_n(sums.tau = arena.get<S>(m.nv), m.nv, S(0.0));
    add_joint_torques(m, *scene.forces, arena, q, v, t, p, sums.tau);
  } else if (scene.forces != nullptr) {
    sums = force_sums(m, *scene.forces, arena, all, q, v, t, p);
    subtract_wrenches(m, all.bodies, sums);
    if (!scene.held) sums.held = nullptr;
  }
  constexpr bool adds = !std::is_same_v<Add, AddNothing>;
  if constexpr (adds) {
    std::fill_n(r, m.nv, S(0.0));
    add(all);
  }
  for (int i = m.n() - 1; i >= 0; --i) {
    const Model::Link& link = m.links[i];
    for (int k = link.iv; k < link.iv + link.nv; ++k) {
      S x = dot(all.columns[k].S_, all.bodies[i].f) - u[k];
      if (all.armature != nullptr) x = mul_add(all.armature[k], a[k], x);
      r[k] = adds ? r[k] + x : x;
      if (sums.tau != nullptr) r[k] -= sums.tau[k];
    }
    if (link.parent >= 0) all.bodies[link.parent].f += all.bodies[i].f;
  }
  if (scene.loads != nullptr) add_bearing_friction(m, *scene.forces, all, v, p, r);
  return {all, sums.held, q, v, t, kinetic, gravity};
}
// r (outside the arena, which is used from its start) at a state in the coordinates of the scene.
template <class S, class Add = AddNothing>
Evaluation<S> evaluate_residual(const Scene& scene, Arena& arena, const S* q, const S* v, const S* a, double t,
                                const S* p, const S* u, S* r, const Add& add = {}) {
  arena.reset();
  if (!scene.coupled) return evaluate_tree(scene, arena, q, v, a, t, p, u, r, add);
  const Lifted<S> at = lift_state(scene.tree, arena, q, v, a, 2);
  S *own = arena.get<S>(scene.tree.nv), *none = zeros<S>(arena, scene.tree.nv);
  Evaluation<S> e = evaluate_tree<S>(scene, arena, at.q, at.v, at.a, t, p, none, own);
  e.reduced = {q, v, a, own};
  pull(at.terms, own, r);
  for (int k = 0; k < scene.m.nv; ++k) r[k] -= u[k];
  return e;
}
template <class S>
Evaluation<S> evaluate_residual(StepContext<S>& at, const S* q, const S* v, const S* a, double t, S* r) {
  return evaluate_residual(at.scene, at.arena, q, v, a, t, at.p, at.u, r);
}

template <class S>
Energies<S> energies_of(StepContext<S>& at, const Evaluation<S>& e) {
  return {e.kinetic, e.gravity, stored_energy(at.scene.tree, *at.scene.forces, at.arena, e.all, e.q, e.v, e.t, at.p)};
}

// Adds what derivatives need: rates of the columns, and 2 B of the bodies.
template <class S>
void add_rates(const Model& m, const Evaluation<S>& e) {
  add_rates(m, e.all);
  for (int i = 0; i < m.n(); ++i) e.all.bodies[i].B = coriolis_inertia(e.all.bodies[i].I, e.all.bodies[i].v);
}
// Sums I, 2 B and wrenches over subtrees; f is summed already.
template <class S>
void sum_inertias(const Model& m, const Evaluation<S>& e) {
  for (int i = m.n() - 1; i >= 0; --i) {
    const int p = m.links[i].parent;
    if (p < 0) continue;
    e.all.bodies[p].I += e.all.bodies[i].I;
    e.all.bodies[p].B += e.all.bodies[i].B;
    if (e.held != nullptr) e.held[p] += e.held[i];
  }
}

// Adds A_q, A_v and M, the derivative by accelerations (nv x nv, zero before), of an evaluation with sums.
template <class S>
void add_tree_derivatives(StepContext<S>& at, const Evaluation<S>& e, S* Aq, S* Av, S* M) {
  const Model& m = at.scene.tree;
  if (at.scene.loads != nullptr)
    return add_loaded_derivatives(m, *at.scene.loads, *at.scene.forces, at.arena, e.all, e.held, e.q, e.v, e.t, at.p,
                                  Aq, Av, M);
  pair_columns(m, at.arena, e.all, e.held, 2, Aq, Av, M, m.nv);
  if (at.scene.forces != nullptr)
    linearise_forces(m, *at.scene.forces, at.arena, e.all, e.q, e.v, e.t, at.p, Aq, Av, m.nv);
}
template <class S>
void add_residual_derivatives(StepContext<S>& at, const Evaluation<S>& e, S* Aq, S* Av, S* M) {
  if (!at.scene.coupled) return add_tree_derivatives(at, e, Aq, Av, M);
  const int size = at.scene.tree.nv * at.scene.tree.nv;
  S *Tq = zeros<S>(at.arena, size), *Tv = zeros<S>(at.arena, size), *TM = zeros<S>(at.arena, size);
  add_tree_derivatives(at, e, Tq, Tv, TM);
  const ChainedState<S> state = chained_state<S>(at.scene.tree, at.arena, e.reduced.q, e.reduced.v, e.reduced.a);
  chain_forces<S>(state, at.arena, Tq, Tv, TM, e.reduced.r, Aq, Av, M);
}

// Adds the gradient of s lambda.r by the numbers of couplings: with w = P lambda and g the gradients of w.(ID - tau_f)
// by the state of the tree, what the numbers change of that state and of P lambda.
template <class S>
void add_coupling_gradient(StepContext<S>& at, const S* q, const S* v, const S* a, const S* lambda, double t, double s,
                           S* out) {
  const Model& tree = at.scene.tree;
  const int nv = tree.nv, count = tree.coupling->numbers;
  std::vector<S> r(at.scene.m.nv), A[3], gradient(count, S(0.0));
  const Evaluation<S> e = evaluate_residual<S>(at, q, v, a, t, r.data());
  add_rates(tree, e);
  sum_inertias(tree, e);
  for (auto& matrix : A) matrix.assign(std::size_t(nv) * nv, S(0.0));
  add_tree_derivatives(at, e, A[0].data(), A[1].data(), A[2].data());
  const BlockTerms<S> terms = block_terms(*tree.coupling, at.arena, q, 3);
  S* w = at.arena.template get<S>(nv);
  lift_velocities<S>(terms, at.arena, lambda, w);
  S* g[3];
  for (int k = 0; k < 3; ++k) {
    g[k] = zeros<S>(at.arena, nv);
    for (int i = 0; i < nv; ++i) add_scaled(nv, w[i], A[k].data() + std::size_t(i) * nv, g[k]);
  }
  add_number_gradient<S>(terms, at.arena, {q, v, a, lambda}, {g[0], g[1], g[2], e.reduced.r}, gradient.data());
  add_scaled(count, S(s), gradient.data(), out);
}

// A state of the tree and, if it is given, a virtual velocity, from those in the coordinates of a scene.
template <class S>
class TreeState {
 public:
  const S *q, *v, *a, *lambda;
  TreeState(StepContext<S>& at, const S* q, const S* v, const S* a, const S* lambda)
      : q(q), v(v), a(a), lambda(lambda) {
    if (!at.scene.coupled) return;
    const Model& tree = at.scene.tree;
    at.arena.reset();
    const Lifted<S> point = lift_state(tree, at.arena, q, v, a, 2);
    kept_.resize(tree.nq + 3 * tree.nv);
    S* to = kept_.data();
    this->q = std::copy_n(point.q, tree.nq, to) - tree.nq;
    this->v = std::copy_n(point.v, tree.nv, to + tree.nq) - tree.nv;
    this->a = std::copy_n(point.a, tree.nv, to + tree.nq + tree.nv) - tree.nv;
    this->lambda = to + tree.nq + 2 * tree.nv;
    lift_velocities<S>(point.terms, at.arena, lambda, to + tree.nq + 2 * tree.nv);
  }
  TreeState(const TreeState&) = delete;

 private:
  std::vector<S> kept_;
};

// A state of the tree from one in the coordinates of the scene, in the arena; v may be null.
template <class S>
struct TreePoint {
  const S *q, *v;
};
template <class S>
TreePoint<S> tree_point(const Scene& scene, Arena& arena, const S* q, const S* v) {
  if (!scene.coupled) return {q, v};
  const Lifted<S> at = lift_state<S>(scene.tree, arena, q, v, nullptr, 1);
  return {at.q, at.v};
}
// The motions of functions of forces (forces/forces.hpp), at a state of the tree.
template <class S>
Motions<S> force_motions_at(StepContext<S>& at, const TreePoint<S>& point) {
  return with_model<S>(at.scene, [&](const auto& m) { return force_motions(m, at.arena, point.q, point.v); });
}

template <class S>
MassFactor<S> factor_mass_at(StepContext<S>& at, const S* q) {
  return with_model<S>(at.scene, [&](const auto& m) { return factor_mass<S>(m, at.arena, q, nullptr, nullptr); });
}
// x = M(q)^-1 x. False if the mass matrix is singular.
template <class S>
Mask<S> solve_mass_at(StepContext<S>& at, const S* q, S* x) {
  at.arena.singular_joint = -1;
  SceneMass<S>(at.scene, at.arena, q).solve(x, x);
  return at.is_regular();
}

}  // namespace torsor
