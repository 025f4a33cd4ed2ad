#include "bind/kernel.hpp"
#include "dynamics/coriolis.hpp"
#include "dynamics/mass_matrix.hpp"
#include "dynamics/mass_solve.hpp"

namespace torsor {
namespace {

struct MassMatrix {
  static constexpr int inputs = 1, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    out[0] = {"M", 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    mass_matrix(m, arena, in[0], out[0]);
  }
};

struct MassMatrixInverse {
  static constexpr int inputs = 1, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    out[0] = {"inverse", 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    mass_matrix_inverse(m, arena, in[0], out[0]);
  }
};

struct MassMatrixSolve {
  static constexpr int inputs = 4, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"x", 1, {m.nv}};
    in[2] = {"joint_terms", 1, {m.nv}, true};
    in[3] = {"body_terms", 3, {m.nframes(), 6, 6}, true};
    out[0] = {"y", 1, {m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    mass_matrix_solve(m, arena, in[0], in[1], in[2], in[3], out[0]);
  }
};

struct CoriolisMatrix {
  static constexpr int inputs = 2, outputs = 1;
  static constexpr bool has_options = false;
  static void slots(const Model& m, const Options&, Slot* in, Slot* out) {
    in[0] = {"q", 1, {m.nq}};
    in[1] = {"v", 1, {m.nv}};
    out[0] = {"C", 2, {m.nv, m.nv}};
  }
  template <class S>
  static void run(const Model& m, Arena& arena, const Options&, const S* const* in, S* const* out) {
    coriolis_matrix(m, arena, in[0], in[1], out[0]);
  }
};

}  // namespace

void bind_inertia(Kernels& kernels) {
  kernels.add<MassMatrix>("mass_matrix");
  kernels.add<MassMatrixInverse>("mass_matrix_inverse");
  kernels.add<MassMatrixSolve>("mass_matrix_solve");
  kernels.add<CoriolisMatrix>("coriolis_matrix");
}

}  // namespace torsor
