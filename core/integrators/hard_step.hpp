// Steps with hard contact: symplectic Euler whose velocities satisfy contacts, limits of joints and constraints, with
// Coulomb friction (docs/derivations/hard_contact.md),
//   M (v1 - v0) + h (bias - tau) = C^T z,   q1 = q0 (+) h v1,
// z being the impulses of the rows C at q0 (linear/staggered_projections.hpp):
//   0 <= z_n,  N v1 + gap / h >= 0, one of them 0;  |z_t| <= mu z_n, against the slip T v1;  G v1 + g_t + g / h = 0.
// Derivatives are those of the rows that are closed, stick and slip.
//
// Rows are made over the tree; with couplings C = T P (docs/derivations/hyper_reduced.md).
#pragma once
#include "derivatives/inverse_dynamics_vjp.hpp"
#include "forces/force_placements.hpp"
#include "integrators/explicit_stage.hpp"
#include "integrators/hard_rows.hpp"
#include "integrators/trajectory.hpp"
#include "linear/staggered_projections.hpp"

namespace torsor {

struct HardScheme {
  double h, tolerance;
  int iterations;
  IntegratorTable euler;  // the step without rows
};

// One state at a time: node 1 is where the step begins, 2 where it ends.
class HardStep {
 public:
  HardStep(const Scene& scene, const HardScheme& scheme)
      : scheme(scheme),
        scene_(scene),
        forces_(scene.forces),
        free_{scene.tree, forces_.others.empty() ? nullptr : &forces_.others},
        at(free_),
        m_(scene.m),
        tree_(scene.tree),
        euler_(at, scheme.euler),
        v_free_(m_.nv),
        xi_(m_.nv) {}
  HardStep(const HardStep&) = delete;
  const HardScheme& scheme;

 private:
  const Scene& scene_;
  const HardForces forces_;
  const Scene free_;

 public:
  StepContext<double> at;
  Shortfall shortfall{};
  int kinks = 0;  // of the step that was taken
  const ForceSet* forces() const { return scene_.forces; }
  const ConstraintSet* constraints() const { return scene_.constraints; }
  bool is_singular() const { return at.arena.singular_joint >= 0; }

  bool take(double t) {
    const int nv = m_.nv;
    const double h = scheme.h;
    Nodes<double>& nodes = at.nodes;
    double *a = nodes.a(1), *v1 = nodes.v(2);
    shortfall = {std::numeric_limits<double>::infinity(), 0.0};
    at.arena.singular_joint = -1;
    if (!accelerate_node(at, 1, t, a) || !is_finite(largest(nv, a))) return false;
    double speed = 0.0;
    for (int k = 0; k < nv; ++k) {
      v_free_[k] = nodes.v(1)[k] + h * a[k];
      speed = std::max(speed, std::abs(v_free_[k]));
    }
    const double allowed = scheme.tolerance * (1.0 + speed);
    find_places(t);
    do {
      assemble(t);
      if (!rows_.solve(allowed, scheme.iterations)) {
        shortfall = {rows_.contradicting ? -1.0 : rows_.residual, allowed};
        return false;
      }
      std::copy(v_free_.begin(), v_free_.end(), v1);
      for (int r = 0; r < rows_.size(); ++r) add_scaled(nv, rows_.z[r], &Y_[std::size_t(r) * nv], v1);
    } while (add_violated(v1, allowed));
    rows_.count_kinks(kNear * allowed);
    kinks = rows_.kinks;
    for (int k = 0; k < nv; ++k) {
      a[k] = (v1[k] - nodes.v(1)[k]) / h;
      xi_[k] = h * v1[k];
    }
    return is_finite(largest(nv, v1)) && retract<double>(m_, nodes.q(1), xi_.data(), nodes.q(2));
  }

  // The forces (3 each) at all places, of the step that was taken last: impulses over h.
  void put_contact_forces(double* out) const {
    std::fill_n(out, 3 * places_.size(), 0.0);
    for (std::size_t c = 0; c < contacts_.size(); ++c) {
      const ContactPlace& place = places_[contacts_[c]];
      const double* tangents = &rows_.z[rows_.blocks[c].row];
      const Vec3<double> impulse =
          rows_.z[normal_of(c)] * place.axes[0] + tangents[0] * place.axes[1] + tangents[1] * place.axes[2];
      write3((1.0 / scheme.h) * impulse, out + 3 * contacts_[c]);
    }
  }

  // Linearises the step that was taken last. False if that is not possible.
  bool linearise(double t) {
    const double speed = largest(m_.nv, v_free_.data());
    return euler_.linearise(stage(), t) && rows_.linearise(kNear * scheme.tolerance * (1.0 + speed));
  }
  // Cotangents (nv each): q0, v0 and u += those of gq1.q1 + gv1.v1; and gradients by parameters, if they are wanted.
  void pull_back(double t, const double* gq1, const double* gv1, double* q0, double* v0, double* u,
                 const ParameterGradients<double>& out) {
    const int nv = m_.nv, rows = rows_.size();
    const double h = scheme.h;
    std::vector<double> gv(gv1, gv1 + nv), l(nv), force(nv), gz(rows), kappa(rows), psi(rows_.blocks.size());
    apply<double>(m_, free_.quaternions, euler_.V1, true, gq1, gv.data(), true);
    apply<double>(m_, free_.quaternions, euler_.V0, true, gq1, q0, true);
    l = gv;
    euler_.solver().solve_transposed(l.data());
    for (int r = 0; r < rows; ++r)
      for (int k = 0; k < nv; ++k) gz[r] += row(r)[k] * l[k];
    rows_.pull_back(gz.data(), kappa.data(), psi.data());
    for (int r = 0; r < rows; ++r) {
      add_scaled(nv, -kappa[r], &Y_[std::size_t(r) * nv], l.data());
      add_scaled(nv, -kappa[r], row(r), gv.data());
    }
    std::vector<Motion<double>> twists;
    if (!forces_.bearings.empty()) {
      std::vector<double> by_v1(nv, 0.0);
      const double* limits = psi.data() + rows_.blocks.size() - forces_.bearings.size();
      twists = pull_back_loads(t, limits, q0, v0, by_v1.data(), out);
      add_scaled(nv, 1.0, by_v1.data(), gv.data());
      euler_.solver().solve_transposed(by_v1.data());
      add_scaled(nv, 1.0, by_v1.data(), l.data());
    }
    add_scaled(nv, 1.0, gv.data(), v0);
    for (int i = 0; i < nv; ++i) {
      const double lambda = h * l[i];
      u[i] += lambda;
      add_scaled(nv, -lambda, euler_.Aq + std::size_t(i) * nv, q0);
      add_scaled(nv, -lambda, euler_.Av + std::size_t(i) * nv, v0);
    }
    // of z.(C l) - kappa.(C v1) - kappa.(gap / h, g / h)
    std::vector<double> against(rows);
    for (int r = 0; r < rows; ++r) against[r] = -kappa[r];
    add_row_gradients(t, l.data(), rows_.z.data(), 0.0, true, twists, q0, out);
    add_row_gradients(t, at.nodes.v(2), against.data(), 1.0 / h, false, {}, q0, out);
    if (out.inertia == nullptr) return;
    for (std::size_t b = 0; b < contacts_.size(); ++b)
      out.forces[places_[contacts_[b]].law->offset + kFriction] += psi[b] * rows_.z[normal_of(b)];
    for (std::size_t k = 0; k < friction_.size(); ++k)
      out.forces[friction_[k].parameter] += h * psi[contacts_.size() + k];
    for (double& x : l) x *= h;
    for (Motion<double>& x : twists) x = h * x;
    add_parameters(t, l.data(), twists.empty() ? nullptr : twists.data(), out);
  }

 private:
  // Rows within this times the tolerance of a change of contact are kinks.
  static constexpr double kNear = 100.0;
  static constexpr int kFriction = 2;  // among the numbers of the law

  Stage stage() const { return scheme.euler.first.front(); }
  const double* row(int r) const { return &C_[std::size_t(r) * m_.nv]; }
  double* tree_row(int r) { return &T_[std::size_t(r) * tree_.nv]; }
  int normal_of(std::size_t contact) const { return rows_.equalities + static_cast<int>(contact); }

  // All places, and those among them that may close within the step.
  void find_places(double t) {
    places_.clear();
    normals_.clear();
    limits_.clear();
    friction_.clear();
    wanted_.clear();
    const double h = scheme.h;
    at.arena.reset();
    const TreeMotion x = motion_at(v_free_.data(), false);
    const BodyState<double> state{at.arena, x.all, t, at.p};
    const int nv = tree_.nv;
    for (const PairLaw& law : forces_.contacts)
      for_each_place(law, state, [&](const ContactPlace& place, const Vec3<double>& u, const ShapePair<double>& pair) {
        const double gap = place.gap;
        wanted_.push_back(!(gap + h * std::min(0.0, dot(place.axes[0], u)) > 0.0) || !(gap > h * length(u)));
        places_.push_back(place);
        normals_.resize(normals_.size() + nv, 0.0);
        add_row(tree_, x.all, place, pair, place.axes[0], &normals_[normals_.size() - nv]);
      });
    for (const JointLaw& law : forces_.limits)
      for_each_limit(tree_, law, x.q, at.p, [&](const LimitPlace& limit) { limits_.push_back(limit); });
    for (const FrictionLaw& law : forces_.friction)
      for_each_friction(tree_, law, at.p, [&](const FrictionPlace& place) { friction_.push_back(place); });
    for (const LimitPlace& limit : limits_) {
      const double speed = limit.sign * x.v[limit.iv];
      wanted_.push_back(!(limit.gap + h * std::min(speed, 0.0) > 0.0) || !(limit.gap > h * std::abs(speed)));
    }
  }
  static double length(const Vec3<double>& x) { return std::sqrt(dot(x, x)); }
  // The state of the tree where the step begins, with other velocities; and with couplings, how it depends on the
  // reduced one.
  struct Start {
    const double *q, *v, *a;
    const ChainedState<double>* chain;
  };
  Start start_at(const double* v) {
    if (!scene_.coupled) return {at.nodes.q(1), v, at.zero, nullptr};
    const auto* chain = new (at.arena.get<ChainedState<double>>(1))
        ChainedState<double>(chained_state<double>(tree_, at.arena, at.nodes.q(1), v, at.zero));
    return {chain->tree.q, chain->tree.v, chain->tree.a, chain};
  }
  struct TreeMotion : Start {
    Motions<double> all;
  };
  TreeMotion motion_at(const double* v, bool rates) {
    const Start x = start_at(v);
    return {x, motions<double>(tree_, at.arena, x.q, x.v, x.a, false, rates)};
  }
  // Rows of constraints of the tree.
  ConstraintState<double> constraint_state(const TreeMotion& x, double t, bool still) {
    const ConstraintSet& set = *scene_.constraints;
    return {tree_, set, at.arena, x.all, x.q, x.v, x.a, t, times_at(set, at.arena, t), still};
  }

  // The rows of constraints, of the places that are wanted and of the limits: C, Y = M^-1 C^T and the problem.
  void assemble(double t) {
    const int nv = m_.nv, equalities = scene_.constraints == nullptr ? 0 : scene_.constraints->rows;
    const double *q = at.nodes.q(1), h = scheme.h;
    at.arena.reset();
    const TreeMotion x = motion_at(v_free_.data(), false);
    contacts_.clear();
    closing_.clear();
    for (std::size_t k = 0; k < places_.size(); ++k)
      if (wanted_[k] && moves(&normals_[k * tree_.nv], x.chain)) contacts_.push_back(static_cast<int>(k));
    for (std::size_t k = 0; k < limits_.size(); ++k)
      if (wanted_[places_.size() + k]) closing_.push_back(static_cast<int>(k));
    const int contacts = static_cast<int>(contacts_.size()), normals = contacts + static_cast<int>(closing_.size());
    const int sliding = equalities + normals + 2 * contacts;           // first row of the joints with dry friction
    const int turning = sliding + static_cast<int>(friction_.size());  // and of the bearings
    int rows = turning;
    for (const BearingLaw& law : forces_.bearings) rows += tree_.bodies[law.body].nv;
    T_.assign(std::size_t(rows) * tree_.nv, 0.0);
    rows_.equalities = equalities;
    rows_.normals = normals;
    rows_.blocks.clear();
    rows_.d.assign(rows, 0.0);

    if (equalities > 0) {
      const ConstraintState<double> state = constraint_state(x, t, false);
      constraint_jacobian(state, T_.data(), tree_.nv);
      std::vector<double> g(equalities);
      constraint_values<double>(state, g.data(), rows_.d.data(), nullptr);
      for (int r = 0; r < equalities; ++r) rows_.d[r] += g[r] / h;
    }
    const BodyState<double> state{at.arena, x.all, t, at.p};
    for (int c = 0; c < contacts; ++c) {
      const ContactPlace& place = places_[contacts_[c]];
      const int normal = equalities + c, tangent = equalities + normals + 2 * c;
      std::copy_n(&normals_[std::size_t(contacts_[c]) * tree_.nv], tree_.nv, tree_row(normal));
      const ShapePair<double> pair = place.law->state(state);
      for (int j = 0; j < 2; ++j) add_row(tree_, x.all, place, pair, place.axes[1 + j], tree_row(tangent + j));
      rows_.d[normal] = place.gap / h;
      rows_.blocks.push_back({tangent, 2, place.friction, normal});
    }
    for (int k = 0; k < normals - contacts; ++k) {
      const LimitPlace& limit = limits_[closing_[k]];
      const int r = equalities + contacts + k;
      tree_row(r)[limit.iv] = limit.sign;
      rows_.d[r] = limit.gap / h;
    }
    for (int r = sliding; r < turning; ++r) {
      const FrictionPlace& place = friction_[r - sliding];
      tree_row(r)[place.iv] = 1.0;
      rows_.blocks.push_back({r, 1, place.torque * h});
    }
    int bearing = turning;
    for (std::size_t b = 0; b < forces_.bearings.size(); ++b) {
      const BearingLaw& law = forces_.bearings[b];
      const Model::Body& body = tree_.bodies[law.body];
      rows_.blocks.push_back({bearing, body.nv, at.p[law.offset] * h, -1, static_cast<int>(b)});
      for (int k = 0; k < body.nv; ++k, ++bearing) tree_row(bearing)[body.iv + k] = 1.0;
    }
    C_ = T_;
    if (x.chain != nullptr) {
      C_.resize(std::size_t(rows) * nv);
      reduce_rows(*x.chain, at.arena, rows, T_.data(), C_.data());
    }
    for (int r = equalities; r < rows; ++r)
      for (int k = 0; k < nv; ++k) rows_.d[r] += row(r)[k] * v_free_[k];
    Y_.resize(C_.size());
    const SceneMass<double> mass(free_, at.arena, q);
    rows_.D.assign(std::size_t(rows) * rows, 0.0);
    for (int r = 0; r < rows; ++r) {
      double* y = &Y_[std::size_t(r) * nv];
      mass.solve(row(r), y);
      for (int s = 0; s <= r; ++s) {
        double sum = 0.0;
        for (int k = 0; k < nv; ++k) sum += row(s)[k] * y[k];
        rows_.D[std::size_t(r) * rows + s] = rows_.D[std::size_t(s) * rows + r] = sum;
      }
    }
    if (!forces_.bearings.empty()) find_loads(t);
  }
  // The wrenches through the bearings: those of the step without impulses, and of unit impulses, by which accelerations
  // are Y / h and which act on bodies.
  void find_loads(double t) {
    const int nv = m_.nv, rows = rows_.size(), n = tree_.n();
    const double *q = at.nodes.q(1), *v = at.nodes.v(1), h = scheme.h;
    rows_.loads.resize(forces_.bearings.size());
    std::vector<double> a(nv), r(nv);
    for (int k = 0; k < nv; ++k) a[k] = (v_free_[k] - v[k]) / h;
    const Evaluation<double> e = evaluate_residual<double>(at, q, v, a.data(), t, r.data());
    for (std::size_t b = 0; b < forces_.bearings.size(); ++b) {
      const BearingLaw& law = forces_.bearings[b];
      JointLoad& load = rows_.loads[b];
      write(joint_wrench(e.all.bodies[law.body]), load.offset);
      load.map.assign(std::size_t(6) * rows, 0.0);
      load.size = [&law, p = at.p](const double* W, double* by_W) {
        double by_shape[3];
        return load_of(law, p, W, by_W, by_shape);
      };
    }
    std::vector<Force<double>> on(n);
    for (int row = 0; row < rows; ++row) {
      at.arena.reset();
      for (int k = 0; k < nv; ++k) a[k] = Y_[std::size_t(row) * nv + k] / h;
      const Motions<double> all = row_motions<double>(free_, at.arena, q, at.zero, a.data(), false);
      for (int i = 0; i < n; ++i) {
        const auto& b = all.bodies[i];
        on[i] = tree_.bodies[i].massless ? zero_force<double>() : shift_back(rotate(b.R, tree_.bodies[i].I), b.p) * b.a;
      }
      for_each_wrench(row, all, t, [&](int i, const Force<double>& F) {
        on[i] = on[i] - Force<double>{(1.0 / h) * F.n, (1.0 / h) * F.f};
      });
      for (int i = n - 1; i >= 0; --i)
        if (tree_.links[i].parent >= 0) on[tree_.links[i].parent] += on[i];
      for (std::size_t b = 0; b < forces_.bearings.size(); ++b) {
        const auto& body = all.bodies[forces_.bearings[b].body];
        double W[6];
        write(SE3<double>{body.R, body.p}.act_inverse(on[forces_.bearings[b].body]), W);
        for (int k = 0; k < 6; ++k) rows_.loads[b].map[std::size_t(k) * rows + row] = W[k];
      }
    }
  }
  // f(body, wrench) with the wrenches on bodies of a unit impulse.
  template <class F>
  void for_each_wrench(int row, const Motions<double>& all, double t, F&& f) {
    if (row < rows_.equalities) {
      const TreeMotion x = motion_at(at.zero, false);
      for_each_wrench_of(constraint_state(x, t, true), row, f);
      return;
    }
    const int contacts = static_cast<int>(contacts_.size()), normal = row - rows_.equalities;
    const int tangent = row - rows_.equalities - rows_.normals;
    const bool along = normal < contacts;
    if (!along && (tangent < 0 || tangent >= 2 * contacts)) return;
    const ContactPlace& place = places_[contacts_[along ? normal : tangent / 2]];
    const ShapePair<double> pair = place.law->state(BodyState<double>{at.arena, all, t, at.p});
    const Force<double> W = wrench_at(place.axes[along ? 0 : 1 + tangent % 2], place.point);
    if (place.law->A.body >= 0) f(place.law->A.body, shift_back(W, -pair.to_A));
    if (place.law->B.body >= 0) f(place.law->B.body, negative(shift_back(W, -pair.to_B)));
  }
  // Whether a row of the tree moves anything.
  bool moves(const double* normal, const ChainedState<double>* chain) {
    const auto any = [](int n, const double* x) {
      return std::any_of(x, x + n, [](double entry) { return entry != 0.0; });
    };
    if (chain == nullptr) return any(tree_.nv, normal);
    std::vector<double> own(m_.nv);
    reduce_rows(*chain, at.arena, 1, normal, own.data());
    return any(m_.nv, own.data());
  }
  // Wants the places and limits that v1 closes all the same. False if there are none.
  bool add_violated(const double* v1, double allowed) {
    bool any = false;
    at.arena.reset();
    const Start x = start_at(v1);
    const auto check = [&](std::size_t k, double rate) {
      if (wanted_[k] || !(rate < -allowed)) return;
      wanted_[k] = true;
      any = true;
    };
    for (std::size_t k = 0; k < places_.size(); ++k) {
      double rate = places_[k].gap / scheme.h;
      for (int j = 0; j < tree_.nv; ++j) rate += normals_[k * tree_.nv + j] * x.v[j];
      check(k, moves(&normals_[k * tree_.nv], x.chain) ? rate : 0.0);
    }
    for (std::size_t k = 0; k < limits_.size(); ++k)
      check(places_.size() + k, limits_[k].gap / scheme.h + limits_[k].sign * x.v[limits_[k].iv]);
    return any;
  }

  // Adds the gradients of x.(C v) + rate x.(gaps and g). `twists` (by body, or none): bodies move by them too, relative
  // to those that carry them.
  void add_row_gradients(double t, const double* v, const double* x, double rate, bool still,
                         const std::vector<Motion<double>>& twists, double* by_own_q,
                         const ParameterGradients<double>& out) {
    const int contacts = static_cast<int>(contacts_.size());
    const bool all_parameters = out.inertia != nullptr;
    at.arena.reset();
    const TreeMotion moved = motion_at(v, twists.empty());
    const Motions<double>& all = moved.all;
    if (!twists.empty()) add_twists(all, twists);
    double* by_q = moved.chain == nullptr ? by_own_q : zeros<double>(at.arena, tree_.nv);
    const BodyState<double> state{at.arena, all, t, at.p};
    std::vector<RowWrenches<double>> sums(tree_.n(), zero_wrenches<double>());
    std::vector<RowWrenches<double>> by_frame(all_parameters ? tree_.nplaces() : 0, zero_wrenches<double>());
    for (int c = 0; c < contacts; ++c) {
      const ContactPlace& place = places_[contacts_[c]];
      const int normal = rows_.equalities + c, tangent = rows_.blocks[c].row;
      const PlaceWeights weights{place.axis, rate * x[normal], {x[normal], x[tangent], x[tangent + 1]}};
      if (weights.along[0] == 0.0 && weights.along[1] == 0.0 && weights.along[2] == 0.0) continue;
      const ShapePair<double> pair = place.law->state(state);
      const PlaceSum sum = weigh_place(pair, place.k, weights);
      if (all_parameters)
        add_place_gradient(pair, place.k, weights, out.forces + pair.a.offset, out.forces + pair.b.offset);
      const RowWrenches<double> w{sum.by_pose + cross(pair.v_A, sum.W), sum.W, zero_force<double>()};
      const auto add = [&](const ShapeOn& on, const Vec3<double>& to, double sign) {
        const auto part = [&](const Force<double>& F) -> Force<double> {
          const Force<double> f = shift_back(F, -to);
          return {sign * f.n, sign * f.f};
        };
        const RowWrenches<double> moved{part(w.C0), part(w.C1), part(w.C2)};
        if (on.body >= 0) sums[on.body] += moved;
        if (all_parameters && on.frame >= 0) by_frame[on.frame] += moved;
      };
      add(place.law->A, pair.to_A, 1.0);
      add(place.law->B, pair.to_B, -1.0);
    }
    for (int i = tree_.n() - 1; i >= 0; --i) {
      const Model::Link& link = tree_.links[i];
      for (int k = link.iv; k < link.iv + link.nv; ++k)
        by_q[k] += dot(all.columns[k].S_, sums[i].C0) + dot(all.columns[k].Psidot, sums[i].C1);
      if (link.parent >= 0) sums[link.parent] += sums[i];
    }
    if (all_parameters) constraint_placement_gradient(tree_, all, by_frame.data(), out.placement);
    for (std::size_t k = 0; rate != 0.0 && k < closing_.size(); ++k) {
      const LimitPlace& limit = limits_[closing_[k]];
      const double weight = limit.sign * rate * x[rows_.equalities + contacts + static_cast<int>(k)];
      by_q[limit.iv] += weight;
      if (all_parameters) out.forces[limit.parameter] -= weight;
    }
    if (rows_.equalities > 0) {
      std::vector<double> errors(x, x + rows_.equalities);
      for (double& e : errors) e *= rate;
      const ConstraintGradients<double> to{by_q, nullptr, nullptr, all_parameters ? out.placement : nullptr,
                                           all_parameters ? out.constraints : nullptr};
      add_constraint_gradients<double>(tree_, constraint_state(moved, t, still), rate == 0.0 ? nullptr : errors.data(),
                                       x, nullptr, to);
    }
    if (moved.chain == nullptr) return;
    double* by_v = zeros<double>(at.arena, tree_.nv);
    for (int r = 0; r < rows_.size(); ++r) add_scaled(tree_.nv, x[r], tree_row(r), by_v);
    add_chained(*moved.chain, by_q, by_v, nullptr, by_own_q, nullptr, nullptr, out);
  }
  // Adds gradients by a reduced state, and by numbers of couplings, to those given by the tree's; v and a may be null.
  void add_chained(const ChainedState<double>& chain, const double* g_q, const double* g_v, const double* g_a,
                   double* q, double* v, double* a, const ParameterGradients<double>& out) {
    const int nr = m_.nv;
    const double *none = zeros<double>(at.arena, tree_.nv), *rest = zeros<double>(at.arena, nr);
    double *to[3] = {q, v, a}, *own[3];
    for (double*& x : own) x = at.arena.get<double>(nr);
    if (g_a == nullptr) g_a = none;
    chain_gradients<double>(chain, at.arena, g_q, g_v, g_a, nullptr, nullptr, own[0], own[1], own[2]);
    for (int k = 0; k < 3; ++k)
      if (to[k] != nullptr) add_scaled(nr, 1.0, own[k], to[k]);
    if (out.inertia != nullptr)
      add_number_gradient<double>(chain.terms(), at.arena, {chain.z, chain.v, chain.a, rest}, {g_q, g_v, g_a, none},
                                  out.couplings);
  }
  // Adds twists to the velocities of bodies, and the rates of columns.
  void add_twists(const Motions<double>& all, std::vector<Motion<double>> twists) {
    for (int i = 0; i < tree_.n(); ++i) {
      const Model::Body& body = tree_.bodies[i];
      const Motion<double> carried = body.parent >= 0 ? twists[body.parent] : zero_motion<double>();
      for (int k = body.iv; body.general >= 0 && k < body.iv + body.nv; ++k)
        all.columns[k].Psidot += cross(carried, all.columns[k].S_);
      twists[i] += carried;
      all.bodies[i].v += twists[i];
    }
    add_rates(tree_, all);
  }
  // Of psi.(limits of the bearings) at fixed impulses: adds the gradients by q0, v0 and v1, and by the parameters of
  // the bearings. With the derivative y of a limit by its wrench, a twist y of the body in the virtual motion that has
  // the residual for its power gives the rest: these twists are returned, as of the impulses.
  std::vector<Motion<double>> pull_back_loads(double t, const double* psi, double* q0, double* v0, double* v1,
                                              const ParameterGradients<double>& out) {
    const LoadedTree& tree = *scene_.loads;
    const int nv = m_.nv, n = tree.m.nv, rows = rows_.size();
    const double h = scheme.h;
    std::vector<double> r(nv);
    const Evaluation<double> e =
        evaluate_residual<double>(at, at.nodes.q(1), at.nodes.v(1), at.nodes.a(1), t, r.data());
    std::vector<Motion<double>> twists(tree_.n(), zero_motion<double>());
    std::vector<std::vector<double>> by_W(forces_.bearings.size(), std::vector<double>(6));
    for (std::size_t b = 0; b < forces_.bearings.size(); ++b) {
      const BearingLaw& law = forces_.bearings[b];
      const JointLoad& load = rows_.loads[b];
      double W[6], by_shape[3];
      load.put_wrench(rows, rows_.z.data(), W);
      const double R = load_of(law, at.p, W, by_W[b].data(), by_shape), friction = at.p[law.offset];
      for (double& x : by_W[b]) x *= psi[b] * h * friction;
      if (out.inertia != nullptr) {
        out.forces[law.offset] += psi[b] * h * R;
        for (int k = 0; k < 3; ++k)
          out.forces[law.offset + (k == 2 ? 4 : 1 + k)] += psi[b] * h * friction * by_shape[k];
      }
      const auto& body = e.all.bodies[law.body];
      twists[law.body] += (-1.0 / h) * SE3<double>{body.R, body.p}.act(read_motion(by_W[b].data()));
    }
    add_rates(tree_, e);
    sum_inertias(tree_, e);
    const LoadedDerivatives<double> wide =
        loaded_derivatives(tree_, tree, forces_.bearings, free_.forces, at.arena, e.all, e.held, e.q, e.v, t, at.p);
    double* g[3];  // by the state of the tree
    for (double*& x : g) x = zeros<double>(at.arena, tree_.nv);
    for (std::size_t b = 0; b < forces_.bearings.size(); ++b)
      for (int w = 0; w < 6; ++w) {
        const std::size_t first = std::size_t(tree.wrench(forces_.bearings[b].body) + w) * n;
        for (int k = 0; k < tree_.nv; ++k)
          for (int x = 0; x < 3; ++x) g[x][k] += by_W[b][w] * wide.by[x][first + tree.at[k]];
      }
    double* by_a = g[2];
    if (scene_.coupled) {
      by_a = zeros<double>(at.arena, nv);
      add_chained(chained_state<double>(tree_, at.arena, at.nodes.q(1), at.nodes.v(1), at.nodes.a(1)), g[0], g[1], g[2],
                  q0, v0, by_a, out);
    } else {
      add_scaled(nv, 1.0, g[0], q0);
      add_scaled(nv, 1.0, g[1], v0);
    }
    add_scaled(nv, -1.0 / h, by_a, v0);
    add_scaled(nv, 1.0 / h, by_a, v1);
    return twists;
  }
  // Adds -lambda . d(ID - tau)/dp, in a virtual motion with further twists of bodies.
  void add_parameters(double t, const double* lambda, const Motion<double>* twists,
                      const ParameterGradients<double>& out) {
    const int bodies = tree_.nframes();
    if (scene_.coupled)
      add_coupling_gradient<double>(at, at.nodes.q(1), at.nodes.v(1), at.nodes.a(1), lambda, t, -1.0, out.couplings);
    const TreeState<double> state(at, at.nodes.q(1), at.nodes.v(1), at.nodes.a(1), lambda);
    const double *q = state.q, *v = state.v, *a = state.a;
    at.arena.reset();
    double *inertia = at.arena.get<double>(10 * bodies), *placement = at.arena.get<double>(6 * bodies),
           *gravity = at.arena.get<double>(3), *armature = at.arena.get<double>(tree_.nv);
    inverse_dynamics_vjp<double>(tree_, at.arena, q, v, a, state.lambda, nullptr, 0,
                                 {nullptr, nullptr, nullptr, nullptr, inertia, placement, gravity, armature}, true,
                                 twists);
    add_scaled(10 * bodies, -1.0, inertia, out.inertia);
    add_scaled(6 * bodies, -1.0, placement, out.placement);
    add_scaled(3, -1.0, gravity, out.gravity);
    add_scaled(tree_.nv, -1.0, armature, out.armature);
    if (free_.forces == nullptr) return;
    const Motions<double> all = motions(tree_, at.arena, q, v, a);
    force_parameter_gradient<double>(tree_, *free_.forces, at.arena, all, q, v, t, at.p, state.lambda, out.forces,
                                     twists);
    force_placement_gradient<double>(tree_, *free_.forces, at.arena, all, t, at.p, state.lambda, out.placement, twists);
  }

  const Model& m_;     // of the states
  const Model& tree_;  // of the rows
  ExplicitStage<double> euler_;
  std::vector<double> v_free_, xi_;
  std::vector<ContactPlace> places_;
  std::vector<double> normals_;  // rows of the places, of the tree
  std::vector<LimitPlace> limits_;
  std::vector<FrictionPlace> friction_;
  std::vector<char> wanted_;             // of the places, then of the limits: whether they are rows
  std::vector<int> contacts_, closing_;  // places and limits that are rows
  std::vector<double> T_, C_, Y_;
  StaggeredProjections rows_;
};

}  // namespace torsor
