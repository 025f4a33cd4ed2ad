#include "constraints/constraints.hpp"
#include "bind/timed.hpp"

namespace torsor {
namespace {

// q, v, t and a, of which v and a are optional.
void motion_slots(const Model& m, Slot* in) {
  in[0] = {"q", 1, {m.nq}};
  in[1] = {"v", 1, {m.nv}, true};
  in[2] = {"t", 0, {}};
  in[3] = {"a", 1, {m.nv}, true};
}

// The state of the rows, without gravity. `rates`: whether derivatives of columns are needed.
template <class S>
struct Evaluated {
  Motions<S> all;
  ConstraintState<S> state;
  Evaluated(const Model& m, Arena& arena, const Options& options, double t, const S* q, const S* v, const S* a,
            bool rates, bool still = false)
      : all(motions(m, arena, q, given(m, arena, v), given(m, arena, a), false, rates)),
        state{m,
              *options.constraints,
              arena,
              all,
              q,
              given(m, arena, v),
              given(m, arena, a),
              t,
              times_at(*options.constraints, arena, t),
              still} {}

 private:
  static const S* given(const Model& m, Arena& arena, const S* x) {
    if (x != nullptr) return x;
    S* rest = arena.get<S>(m.nv);
    std::fill_n(rest, m.nv, S(0.0));
    return rest;
  }
};

struct ConstraintErrors {
  static constexpr int inputs = 4, outputs = 3;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    motion_slots(m, in);
    out[0] = {"g", 1, {options.constraints->rows}};
    out[1] = {"gdot", 1, {options.constraints->rows}};
    out[2] = {"gamma", 1, {options.constraints->rows}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const Evaluated<S> at(m, arena, options, t, in[0], in[1], in[3], false);
    constraint_values(at.state, out[0], out[1], out[2]);
  }
};

struct ConstraintJacobian {
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    motion_slots(m, in);
    out[0] = {"G", 2, {options.constraints->rows, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const Evaluated<S> at(m, arena, options, t, in[0], nullptr, nullptr, false);
    constraint_jacobian(at.state, out[0], m.nv);
  }
};

struct ConstraintDerivatives {
  static constexpr int inputs = 4, outputs = 3;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    motion_slots(m, in);
    out[0] = {"dgdot_dq", 2, {options.constraints->rows, m.nv}};
    out[1] = {"dgamma_dq", 2, {options.constraints->rows, m.nv}};
    out[2] = {"dgamma_dv", 2, {options.constraints->rows, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const Evaluated<S> at(m, arena, options, t, in[0], in[1], in[3], true);
    constraint_derivatives(at.state, out[0], out[1], out[2], m.nv);
  }
};

// d(G^T lambda)/dq.
struct ConstraintStiffness {
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"multipliers", 1, {options.constraints->rows}};
    in[2] = {"t", 0, {}};
    in[3] = {"v", 1, {m.nv}, true};  // not read
    out[0] = {"K", 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const Evaluated<S> at(m, arena, options, t, in[0], nullptr, nullptr, false);
    std::fill_n(out[0], m.nv * m.nv, S(0.0));
    add_constraint_stiffness(at.state, in[1], S(1.0), out[0], m.nv);
  }
};

// Gradients of a weighted sum of g, gdot and gamma.
struct ConstraintVJP {
  static constexpr int inputs = 7, outputs = 5;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    const int rows = options.constraints->rows;
    motion_slots(m, in);
    in[4] = {"w_g", 1, {rows}, true};
    in[5] = {"w_gdot", 1, {rows}, true};
    in[6] = {"w_gamma", 1, {rows}, true};
    out[0] = {"q", 1, {m.nv}};
    out[1] = {"v", 1, {m.nv}};
    out[2] = {"a", 1, {m.nv}};
    out[3] = {"placement", 2, {m.nframes(), 6}};
    out[4] = {"parameters", 1, {options.constraints->parameters}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const Evaluated<S> at(m, arena, options, t, in[0], in[1], in[3], true);
    const int sizes[] = {m.nv, m.nv, m.nv, 6 * m.nframes(), options.constraints->parameters};
    for (int k = 0; k < outputs; ++k) std::fill_n(out[k], sizes[k], S(0.0));
    add_constraint_gradients(m, at.state, in[4], in[5], in[6], {out[0], out[1], out[2], out[3], out[4]});
  }
};

// The wrench of each constraint on its second body, in that body's frame; zero if it acts on coordinates.
struct ConstraintWrenches {
  static constexpr int inputs = 3, outputs = 1;
  static constexpr bool has_options = true;
  static void slots(const Model& m, const Options& options, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"multipliers", 1, {options.constraints->rows}};
    in[2] = {"t", 0, {}};
    out[0] = {"wrenches", 2, {options.constraints->constraints, 6}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, double t, const S* const* in, S* const* out) {
    const Evaluated<S> at(m, arena, options, t, in[0], nullptr, nullptr, false);
    std::fill_n(out[0], 6 * options.constraints->constraints, S(0.0));
    for (const PairPart& pair : options.constraints->pairs) {
      const PairState<S> state = pair_state(pair, at.all, at.state.times);
      Force<S> W = zero_force<S>();
      for (int r = 0; r < pair.rows; ++r) W = mul_add(in[1][pair.row + r], row_wrench(state, pair.each[r]), W);
      SE3<S> X = pair.B.frame < 0 ? SE3<S>{identity3<S>(), zero3<S>()} : lift<S>(at.all.pose(pair.B.frame));
      if (pair.B.body >= 0) X = SE3<S>{at.all.bodies[pair.B.body].R, at.all.bodies[pair.B.body].p} * X;
      S six[6];
      write(X.act_inverse(state.to_B.act(W)), six);
      for (int k = 0; k < 6; ++k) out[0][6 * pair.constraint + k] += six[k];
    }
  }
};

}  // namespace

void bind_constraints(Kernels& kernels) {
  kernels.add<Timed<ConstraintErrors>>("constraint_errors");
  kernels.add<Timed<ConstraintJacobian>>("constraint_jacobian");
  kernels.add<Timed<ConstraintDerivatives>>("constraint_derivatives");
  kernels.add<Timed<ConstraintStiffness>>("constraint_stiffness");
  kernels.add<Timed<ConstraintVJP>>("constraint_vjp");
  kernels.add<Timed<ConstraintWrenches>>("constraint_wrenches");
}

}  // namespace torsor
