// Kernels for models with couplings (model/coupling.hpp): states in reduced coordinates are lifted to the tree, kernels
// of the tree run there, and what they give is projected. docs/derivations/hyper_reduced.md.
#include "bind/coupled.hpp"

namespace torsor {
namespace {

struct ContactStatesRule;  // over real numbers only

// A kernel whose outputs are projected one by one: no derivative among them.
template <class Rule>
struct Projected {
  static constexpr int length(const char* text) {
    int n = 0;
    while (text[n] != 0) ++n;
    return n;
  }
  static constexpr int inputs = length(Rule::in), outputs = length(Rule::out);
  static constexpr bool has_options = Rule::has_options, has_complex = !std::is_same_v<Rule, ContactStatesRule>;
  static const TreeKernel& tree() {
    static const TreeKernel kernel(Rule::name);
    return kernel;
  }
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree()->slots(m, options, in, out);
    reduce_slots(m, Rule::in, Rule::out, in, out);
  }
  // The array of a kind, or -1.
  static constexpr int place(char kind, const char* kinds) {
    for (int i = 0; kinds[i] != 0; ++i)
      if (kinds[i] == kind) return i;
    return -1;
  }
  static constexpr bool has(char kind, const char* kinds) { return place(kind, kinds) >= 0; }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    const Coupling& c = *m.coupling;
    constexpr int level = has('a', Rule::in) ? 2 : 1, of_v = place('v', Rule::in), of_a = place('a', Rule::in);
    const Lifted<S> at =
        lift_state<S>(m, arena, in[0], of_v < 0 ? nullptr : in[of_v], of_a < 0 ? nullptr : in[of_a], level);
    const BlockTerms<S>& t = at.terms;
    const S* from[inputs + 1];
    std::copy_n(in, inputs, from);
    from[0] = at.q;
    if (of_v > 0) from[of_v] = at.v;
    if (of_a > 0) from[of_a] = at.a;
    Slot in_slots[inputs + 1], out_slots[outputs];
    if (has('c', Rule::out) || has('r', Rule::out)) tree()->slots(m, options, in_slots, out_slots);
    S* to[outputs];
    for (int i = 0; i < outputs; ++i) {
      const char kind = Rule::out[i];
      to[i] = out[i] == nullptr || kind == '-' ? out[i]
              : kind == 'f'                    ? arena.get<S>(m.nv)
              : kind == 'm'                    ? arena.get<S>(m.nv * m.nv)
                                               : arena.get<S>(out_slots[i].size());
    }
    tree().run(m, arena, options, from, to);
    for (int i = 0; i < outputs; ++i) {
      if (out[i] == nullptr || Rule::out[i] == '-') continue;
      if (Rule::out[i] == 'f') {
        pull(t, to[i], out[i]);
        continue;
      }
      const TangentMatrix<S> P = tangent_map(t, arena);
      if (Rule::out[i] == 'm') {
        project_symmetric(arena, P, to[i], out[i]);
      } else if (Rule::out[i] == 'c') {
        const int n = m.nv == 0 ? 0 : static_cast<int>(out_slots[i].size()) / m.nv;
        for (int k = 0; k < n * c.nv(); ++k) out[i][k] = S(0.0);
        add_times(n, to[i], P, out[i]);
      } else {
        const int n = static_cast<int>(out_slots[i].shape[1]);
        for (int k = 0; k < n * c.nv(); ++k) out[i][k] = S(0.0);
        add_transposed_times(n, P, to[i], out[i]);
      }
    }
  }
};

#define TORSOR_RULE(Type, kernel, options, inputs, outputs)                   \
  struct Type {                                                               \
    static constexpr const char *name = kernel, *in = inputs, *out = outputs; \
    static constexpr bool has_options = options;                              \
  }
TORSOR_RULE(InverseDynamicsRule, "inverse_dynamics", true, "qva-", "f");
TORSOR_RULE(JointReactionsRule, "joint_reactions", true, "qva-", "-");
TORSOR_RULE(MassMatrixRule, "mass_matrix", false, "q", "m");
TORSOR_RULE(KineticEnergyRule, "kinetic_energy", false, "qv", "-");
TORSOR_RULE(PotentialEnergyRule, "potential_energy", false, "q", "-");
TORSOR_RULE(GeneralizedMomentaRule, "generalized_momenta", false, "qv", "f");
TORSOR_RULE(CenterOfMassRule, "center_of_mass", false, "q", "-");
TORSOR_RULE(CenterOfMassJacobianRule, "center_of_mass_jacobian", false, "q", "c");
TORSOR_RULE(MomentumRule, "momentum", true, "qv", "-");
TORSOR_RULE(MomentumMatrixRule, "momentum_matrix", true, "q", "c");
TORSOR_RULE(BodyPosesRule, "body_poses", false, "q", "-");
TORSOR_RULE(PointPositionsRule, "point_positions", true, "q-", "-");
TORSOR_RULE(BodyVelocitiesRule, "body_velocities", true, "qv", "-");
TORSOR_RULE(BodyAccelerationsRule, "body_accelerations", true, "qva", "-");
TORSOR_RULE(JacobianTransposeRule, "jacobian_transpose_product", false, "q-", "f");
TORSOR_RULE(BodyJacobianRule, "body_jacobian", true, "q", "c");
TORSOR_RULE(PointJacobiansRule, "point_jacobians", true, "q-", "c");
TORSOR_RULE(MaximalJacobianRule, "maximal_jacobian", false, "q", "c");
TORSOR_RULE(InertialRegressorRule, "inertial_regressor", false, "qva", "r");
TORSOR_RULE(GeneralizedForcesRule, "generalized_forces", true, "qv--", "f");
TORSOR_RULE(ForceEnergiesRule, "force_energies", true, "qv--", "-");
TORSOR_RULE(ContactStatesRule, "contact_states", true, "qv--", "-----");
TORSOR_RULE(ConstraintErrorsRule, "constraint_errors", true, "qv-a", "---");
TORSOR_RULE(ConstraintWrenchesRule, "constraint_wrenches", true, "q--", "-");
#undef TORSOR_RULE

// The tree's state of a reduced one. Models without couplings are their own trees.
struct Expand {
  static constexpr int inputs = 1, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {manifold(m).nq}};
    out[0] = {"tree_q", 1, {m.nq}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    if (m.coupling)
      lift_coordinates(block_terms(*m.coupling, arena, in[0], 0), in[0], out[0]);
    else
      std::copy_n(in[0], m.nq, out[0]);
  }
};
struct ExpandVelocity {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {manifold(m).nq}};
    in[1] = {"v", 1, {manifold(m).nv}};
    out[0] = {"tree_v", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    if (m.coupling)
      lift_velocities(block_terms(*m.coupling, arena, in[0], 1), arena, in[1], out[0]);
    else
      std::copy_n(in[1], m.nv, out[0]);
  }
};
struct ExpandAcceleration {
  static constexpr int inputs = 3, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    ExpandVelocity::slots(m, {}, in, out);
    in[2] = {"a", 1, {manifold(m).nv}};
    out[0].name = "tree_a";
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    if (m.coupling)
      lift_velocities(block_terms(*m.coupling, arena, in[0], 2), arena, in[2], out[0], in[1]);
    else
      std::copy_n(in[2], m.nv, out[0]);
  }
};
struct CouplingJacobian {
  static constexpr int inputs = 1, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {manifold(m).nq}};
    out[0] = {"P", 2, {m.nv, manifold(m).nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    const int nr = manifold(m).nv;
    for (int k = 0; k < m.nv * nr; ++k) out[0][k] = S(0.0);
    if (!m.coupling) {
      for (int k = 0; k < nr; ++k) out[0][k * nr + k] = S(1.0);
      return;
    }
    const TangentMatrix<S> P = tangent_map(block_terms(*m.coupling, arena, in[0], 1), arena);
    each_run(P, [&](int tree, int reduced, int count) {
      for (int k = 0; k < count; ++k) out[0][(tree + k) * nr + reduced + k] = S(1.0);
    });
    each_row(P, [&](int i, int begin, int end) {
      for (int k = begin; k < end; ++k) out[0][i * nr + m.coupling->column[k]] += P.x[k];
    });
  }
};

struct ReducedForwardDynamics {
  static constexpr const char* name = "forward_dynamics";
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedForwardDynamics>(m, options, in, out);
    reduce_slots(m, "qvx-", "f", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    reduced_hybrid_dynamics(m, arena, options, in[0], in[1], in[3], nullptr, out[0], const_cast<S*>(in[2]));
  }
};

struct ReducedHybridDynamics {
  static constexpr const char* name = "hybrid_dynamics";
  static constexpr int inputs = 5, outputs = 2;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedHybridDynamics>(m, options, in, out);
    reduce_slots(m, "qvxx-", "ff", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    std::copy_n(in[2], m.coupling->nv(), out[0]);
    std::copy_n(in[3], m.coupling->nv(), out[1]);
    reduced_hybrid_dynamics(m, arena, options, in[0], in[1], in[4], options.prescribed, out[0], out[1]);
  }
};

struct ReducedMassSolve {
  static constexpr const char* name = "mass_matrix_solve";
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedMassSolve>(m, options, in, out);
    reduce_slots(m, "qxx-", "f", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    const int nr = m.coupling->nv();
    const Lifted<S> at = lift_state<S>(m, arena, in[0], nullptr, nullptr, 1);
    const TangentMatrix<S> P = tangent_map(at.terms, arena);
    S* added = nullptr;
    if (in[2] != nullptr || in[3] != nullptr) {
      added = zeros<S>(arena, nr * nr);
      if (in[3] != nullptr) add_body_terms(m, arena, at, P, in[3], added);
      for (int k = 0; in[2] != nullptr && k < nr; ++k) added[k * nr + k] += in[2][k];
    }
    std::copy_n(in[1], nr, out[0]);
    factor_reduced_mass(m, arena, P, at.q, nullptr, added).solve(arena, 1, out[0]);
  }
  // A += J^T terms J, with the Jacobian J of all bodies.
  template <class S>
  static void add_body_terms(const Model& m, Arena& arena, const Lifted<S>& at, const TangentMatrix<S>& P,
                             const S* terms, S* A) {
    static const TreeKernel maximal_jacobian("maximal_jacobian");
    const int nr = m.coupling->nv(), rows = 6 * m.nframes();
    S *full = arena.get<S>(rows * m.nv), *J = zeros<S>(arena, rows * nr), *Y = zeros<S>(arena, 6 * nr);
    maximal_jacobian.operator()<S>(m, arena, {}, {at.q}, {full});
    add_times(rows, full, P, J);
    for (int b = 0; b < m.nframes(); ++b) {
      for (int k = 0; k < 6 * nr; ++k) Y[k] = S(0.0);
      for (int i = 0; i < 6; ++i)
        for (int j = 0; j < 6; ++j) add_scaled(nr, terms[36 * b + 6 * i + j], J + (6 * b + j) * nr, Y + i * nr);
      add_product_of_transpose(6, nr, nr, J + 6 * b * nr, Y, A);
    }
  }
};

struct ReducedMassInverse {
  static constexpr const char* name = "mass_matrix_inverse";
  static constexpr int inputs = 1, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedMassInverse>(m, options, in, out);
    reduce_slots(m, "q", "m", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    const int nr = m.coupling->nv();
    const Lifted<S> at = lift_state<S>(m, arena, in[0], nullptr, nullptr, 1);
    for (int k = 0; k < nr * nr; ++k) out[0][k] = S(k % (nr + 1) == 0 ? 1.0 : 0.0);
    factor_reduced_mass<S>(m, arena, tangent_map(at.terms, arena), at.q, nullptr).solve(arena, nr, out[0]);
    for (int i = 0; i < nr; ++i)  // rows and columns differ by rounding
      for (int j = 0; j < i; ++j)
        out[0][j * nr + i] = out[0][i * nr + j] = S(0.5) * (out[0][j * nr + i] + out[0][i * nr + j]);
  }
};

// P^T (C P + M Pdot): C v_R are the velocity forces, and dM_R/dt - 2 C is skew-symmetric.
struct ReducedCoriolisMatrix {
  static constexpr const char* name = "coriolis_matrix";
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedCoriolisMatrix>(m, options, in, out);
    reduce_slots(m, "qv", "m", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    static const TreeKernel coriolis("coriolis_matrix"), mass("mass_matrix");
    const Coupling& c = *m.coupling;
    const int nr = c.nv();
    const Lifted<S> at = lift_state<S>(m, arena, in[0], in[1], nullptr, 2);
    const TangentMatrix<S> P = tangent_map(at.terms, arena);
    S *C = arena.get<S>(m.nv * m.nv), *half = zeros<S>(arena, m.nv * nr);
    coriolis.operator()<S>(m, arena, {}, {at.q, at.v}, {C});
    add_times(m.nv, C, P, half);
    if (!c.is_linear()) {
      mass.operator()<S>(m, arena, {}, {at.q}, {C});
      add_times(m.nv, C, tangent_rate(at.terms, arena, in[1]), half);
    }
    for (int k = 0; k < nr * nr; ++k) out[0][k] = S(0.0);
    add_transposed_times(nr, P, half, out[0]);
  }
};

// Jdot P x + J Pdot x.
struct ReducedJacobianDotProduct {
  static constexpr const char* name = "jacobian_dot_product";
  static constexpr int inputs = 3, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedJacobianDotProduct>(m, options, in, out);
    reduce_slots(m, "qvx", "-", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    static const TreeKernel product("jacobian_dot_product"), velocities("body_velocities");
    const Lifted<S> at = lift_state<S>(m, arena, in[0], in[1], nullptr, 2);
    S* x = arena.get<S>(m.nv);
    lift_velocities(at.terms, arena, in[2], x);
    product.operator()<S>(m, arena, {}, {at.q, at.v, x}, {out[0]});
    if (m.coupling->is_linear()) return;
    S *bent = zeros<S>(arena, m.nv), *y = arena.get<S>(6 * m.nframes());
    add_applied(tangent_rate(at.terms, arena, in[1]), in[2], bent);
    velocities.operator()<S>(m, arena, {}, {at.q, bent}, {y});
    add_scaled(6 * m.nframes(), S(1.0), y, out[0]);
  }
};

struct ReducedMaximalJacobianDot {
  static constexpr const char* name = "maximal_jacobian_dot";
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    tree_slots<ReducedMaximalJacobianDot>(m, options, in, out);
    reduce_slots(m, "qv", "c", in, out);
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    static const TreeKernel rate("maximal_jacobian_dot"), jacobian("maximal_jacobian");
    const int rows = 6 * m.nframes();
    const Lifted<S> at = lift_state<S>(m, arena, in[0], in[1], nullptr, 2);
    S* J = arena.get<S>(rows * m.nv);
    rate.operator()<S>(m, arena, {}, {at.q, at.v}, {J});
    for (int k = 0; k < rows * m.coupling->nv(); ++k) out[0][k] = S(0.0);
    add_times(rows, J, tangent_map(at.terms, arena), out[0]);
    if (m.coupling->is_linear()) return;
    jacobian.operator()<S>(m, arena, {}, {at.q}, {J});
    add_times(rows, J, tangent_rate(at.terms, arena, in[1]), out[0]);
  }
};

template <class K>
void add_both(Kernels& kernels, const char* name) {
  kernels.add<K>(name);
  kernels.add_coupled<K>(name);
}
template <class... Rules>
void add_projected(Kernels& kernels) {
  (kernels.add_coupled<Projected<Rules>>(Rules::name), ...);
}

}  // namespace

void bind_coupled(Kernels& kernels) {
  add_both<Expand>(kernels, "expand");
  add_both<ExpandVelocity>(kernels, "expand_velocity");
  add_both<ExpandAcceleration>(kernels, "expand_acceleration");
  add_both<CouplingJacobian>(kernels, "coupling_jacobian");
  add_projected<InverseDynamicsRule, JointReactionsRule, MassMatrixRule, KineticEnergyRule, PotentialEnergyRule,
                GeneralizedMomentaRule, CenterOfMassRule, CenterOfMassJacobianRule, MomentumRule, MomentumMatrixRule,
                BodyPosesRule, PointPositionsRule, BodyVelocitiesRule, BodyAccelerationsRule, JacobianTransposeRule,
                BodyJacobianRule, PointJacobiansRule, MaximalJacobianRule, InertialRegressorRule, GeneralizedForcesRule,
                ForceEnergiesRule, ContactStatesRule, ConstraintErrorsRule, ConstraintWrenchesRule>(kernels);
  kernels.add_coupled<ReducedForwardDynamics>("forward_dynamics");
  kernels.add_coupled<ReducedHybridDynamics>("hybrid_dynamics");
  kernels.add_coupled<ReducedMassSolve>("mass_matrix_solve");
  kernels.add_coupled<ReducedMassInverse>("mass_matrix_inverse");
  kernels.add_coupled<ReducedCoriolisMatrix>("coriolis_matrix");
  kernels.add_coupled<ReducedJacobianDotProduct>("jacobian_dot_product");
  kernels.add_coupled<ReducedMaximalJacobianDot>("maximal_jacobian_dot");
}

}  // namespace torsor
