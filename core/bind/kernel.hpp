// Kernels, and how they are applied to states: one state in doubles, or as many states at a time as there are lanes.
//
// A kernel K is a struct with `inputs` and `outputs` (how many arrays), `has_options`, and
//   static void slots(const Model&, const Options&, Slot* in, Slot* out);    names and shapes of the arrays
//   template <class S> static void run(const Model&, Arena&, const Options&, const S* const* in, S* const* out);
// which reads one row of each input and writes one row of each output. Absent inputs and outputs are null pointers.
// If it returns a Mask<S>, lanes that are false are not done: these states are run again, one by one, in doubles.
// It may also have
//   has_lanes = false       runs over double only, one state at a time
//   has_complex = false     does not run over complex numbers
//   has_direction = true    takes directions of the model (Options::direction)
//   static int slabs(const Model&)    makes its outputs in that many parts of equal size, one after the other: its run
//                                     has a last argument next() to call when a part of every output is written, which
//                                     moves `out` on to the next part
//
// Kernels run on the tree of a model. For models with couplings there is another kernel beside each, which takes states
// in reduced coordinates (bind/coupled.cpp); one that only uses the manifold of the coordinates runs on that.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>

#include "base/arena.hpp"
#include "base/threads.hpp"
#include "model/coupling.hpp"
#include "scalar/dual.hpp"

namespace torsor {

struct ForceSet;
struct ConstraintSet;
struct IntegratorTable;
struct VariationalScheme;
struct HardScheme;

struct Options {
  const unsigned char* prescribed = nullptr;        // by velocity
  int axes = 0;                                     // 0 body, 1 world, 2 world's axes at the body's origin
  unsigned wanted = ~0u;                            // outputs to compute, by bit
  const ModelT<Dual<double>>* direction = nullptr;  // the model with tangents, for a direction of the model
  std::vector<int> frames;                          // indices of the user's bodies that are requested
  const ForceSet* forces = nullptr;                 // forces of the scene
  const ConstraintSet* constraints = nullptr;       // and its constraints
  double alpha = 0.0, beta = 0.0;                   // Baumgarte's gains: gamma + 2 alpha gdot + beta^2 g = 0
  double compliance = 0.0;                          // by which rows give way to their multipliers
  const IntegratorTable* table = nullptr;           // integrator of a step: its table,
  const VariationalScheme* variational = nullptr;   // or its variational rule,
  const HardScheme* hard = nullptr;                 // or hard contact
};

constexpr int kMaxTrailing = 4;

// An array of a kernel: its name and its shape for one state, which follows the batch shape. Inputs named q, q0, q1 and
// previous q are configurations.
struct Slot {
  const char* name;
  int ndim;
  int64_t shape[kMaxTrailing];
  bool optional = false;
  // Member by member: otherwise GCC copies a temporary object, which costs 8 ns for each slot of a call.
  Slot& operator=(const Slot& other) {
    name = other.name;
    ndim = other.ndim;
    for (int d = 0; d < kMaxTrailing; ++d) shape[d] = other.shape[d];
    optional = other.optional;
    return *this;
  }
  int64_t size() const {
    int64_t s = 1;
    for (int d = 0; d < ndim; ++d) s *= shape[d];
    return s;
  }
  bool is_configuration() const { return name[0] == 'q' || (name[0] == 'p' && std::strcmp(name, "previous q") == 0); }
};

struct Row {
  void* data;          // null: absent
  int64_t size;        // of a row
  int64_t stride;      // from row to row; 0 for a row that all states share
  int configurations;  // number of configurations in a row, if they have quaternions; else 0
};

// The mass matrix of a state is singular at a joint.
struct Singular : std::runtime_error {
  int joint;
  int64_t state;
  Singular(int joint, int64_t state) : std::runtime_error("singular mass matrix"), joint(joint), state(state) {}
};

// Rows of constraints contradict each other in a state: `row` cannot be met beside `others`.
struct Contradiction : std::runtime_error {
  int row;
  std::vector<int> others;
  int64_t state;
  Contradiction(int row, std::vector<int> others, int64_t state)
      : std::runtime_error("contradictory constraints"), row(row), others(std::move(others)), state(state) {}
};

// A step of an integrator failed; run_batch fills in the state. The other members are those of
// integrators/trajectory.hpp (Outcome) and integrators/newton.hpp (Shortfall).
struct StepFailed : std::runtime_error {
  int64_t state = 0;
  int outcome;
  double error, allowed;
  StepFailed(int outcome, double error, double allowed)
      : std::runtime_error("step failed"), outcome(outcome), error(error), allowed(allowed) {}
};

// A quaternion of length 0, which is not a rotation, in an input, at a joint, in a state (-1: in all states).
struct ZeroQuaternion : std::runtime_error {
  int input, joint;
  int64_t state;
  ZeroQuaternion(int input, int joint, int64_t state)
      : std::runtime_error("zero quaternion"), input(input), joint(joint), state(state) {}
};
template <class S>
void require_rotations(const Model& m, const Row* in, int inputs, int64_t first, int64_t end) {
  const Model& points = manifold(m);
  if (points.quaternions.empty()) return;
  for (int i = 0; i < inputs; ++i)
    for (int64_t s = first; in[i].configurations > 0 && s < (in[i].stride == 0 ? first + 1 : end); ++s) {
      const S* q = static_cast<const S*>(in[i].data) + s * in[i].stride;
      for (int c = 0; c < in[i].configurations; ++c, q += points.nq)
        for (const auto& at : points.quaternions) {
          const S* x = q + at.iq;
          if (x[0] == S(0.0) && x[1] == S(0.0) && x[2] == S(0.0) && x[3] == S(0.0))
            throw ZeroQuaternion(i, at.joint, in[i].stride == 0 ? -1 : s);
        }
    }
}

template <class K, class = void>
struct has_slabs : std::false_type {};
template <class K>
struct has_slabs<K, std::void_t<decltype(&K::slabs)>> : std::true_type {};

// Runs one state, in place.
template <class K, class S>
void run_one(const Model& m, const Options& options, const Row* in, const Row* out, int64_t state) {
  require_rotations<S>(m, in, K::inputs, state, state + 1);
  Lease lease;
  Arena& arena = *lease;
  arena.reset();
  const S* from[K::inputs + 1];
  S* to[K::outputs];
  for (int i = 0; i < K::inputs; ++i)
    from[i] = in[i].data ? static_cast<const S*>(in[i].data) + state * in[i].stride : nullptr;
  for (int i = 0; i < K::outputs; ++i)
    to[i] = out[i].data ? static_cast<S*>(out[i].data) + state * out[i].stride : nullptr;
  if constexpr (has_slabs<K>::value)
    K::template run<S>(m, arena, options, from, to, [&] {
      poll();
      for (int i = 0; i < K::outputs; ++i)
        if (to[i] != nullptr) to[i] += out[i].size / K::slabs(m);
    });
  else
    K::template run<S>(m, arena, options, from, to);
  if (arena.singular_joint >= 0) throw Singular(arena.singular_joint, state);
  if (arena.contradiction >= 0) throw Contradiction(arena.contradiction, arena.contradicted, state);
}

// Runs `count` states from `first` on, at most one per lane. Spare lanes repeat the last state.
template <class K>
void run_lanes(const Model& m, Arena& arena, const Options& options, const Row* in, const Row* out, int64_t first,
               int count) {
  using S = Pack<kLanes>;
  arena.reset();
  const S* from[K::inputs + 1];
  S* to[K::outputs];
  for (int i = 0; i < K::inputs; ++i) {
    from[i] = nullptr;
    if (in[i].data == nullptr) continue;
    const double* rows[kLanes];
    for (int l = 0; l < kLanes; ++l)
      rows[l] = static_cast<const double*>(in[i].data) + (first + std::min(l, count - 1)) * in[i].stride;
    S* buffer = arena.get<S>(in[i].size);
    load_rows(rows, static_cast<int>(in[i].size), buffer);
    from[i] = buffer;
  }
  const int parts = [&] {
    if constexpr (has_slabs<K>::value)
      return std::max(K::slabs(m), 1);
    else
      return 1;
  }();
  for (int i = 0; i < K::outputs; ++i) to[i] = out[i].data ? arena.get<S>(out[i].size / parts) : nullptr;
  int64_t part = 0;
  const auto store = [&] {
    if constexpr (has_slabs<K>::value) poll();
    for (int i = 0; i < K::outputs; ++i) {
      if (to[i] == nullptr) continue;
      const int64_t size = out[i].size / parts;
      double* rows[kLanes];
      for (int l = 0; l < count; ++l)
        rows[l] = static_cast<double*>(out[i].data) + (first + l) * out[i].stride + part * size;
      store_rows(to[i], static_cast<int>(size), rows, count);
    }
    ++part;
  };
  if constexpr (has_slabs<K>::value) {
    K::template run<S>(m, arena, options, from, to, store);
  } else if constexpr (std::is_void_v<decltype(K::template run<S>(m, arena, options, from, to))>) {
    K::template run<S>(m, arena, options, from, to);
    store();
  } else {
    const Mask<S> done = K::template run<S>(m, arena, options, from, to);
    store();
    for (int l = 0; l < count; ++l) {
      if (in_lane(done, l)) continue;
      try {
        run_one<K, double>(m, options, in, out, first + l);
      } catch (StepFailed& failed) {
        failed.state = first + l;
        throw;
      }
    }
  }
  if (arena.singular_joint >= 0) throw Singular(arena.singular_joint, first + std::min(arena.singular_lane, count - 1));
  if (arena.contradiction >= 0)
    throw Contradiction(arena.contradiction, arena.contradicted, first + std::min(arena.contradiction_lane, count - 1));
}

template <class S>
using Run = void (*)(const Model&, Arena&, const Options&, const S* const* in, S* const* out);
template <class K, class S>
constexpr Run<S> run_of() {
  if constexpr (has_slabs<K>::value) {
    return nullptr;
  } else {
    auto* run = &K::template run<S>;
    if constexpr (std::is_same_v<decltype(run), Run<S>>)
      return run;
    else
      return nullptr;
  }
}

// A kernel as data, so that the code that surrounds kernels is compiled once.
struct Kernel {
  static constexpr int kMaxInputs = 10, kMaxOutputs = 12;
  using RunOne = void (*)(const Model&, const Options&, const Row* in, const Row* out, int64_t state);
  using RunLanes = void (*)(const Model&, Arena&, const Options&, const Row* in, const Row* out, int64_t first,
                            int count);
  int inputs = 0, outputs = 0;
  bool has_options = false;
  void (*slots)(const Model&, const Options&, Slot* in, Slot* out) = nullptr;
  RunOne one = nullptr;
  RunLanes lanes = nullptr;          // null: states are computed one by one
  RunOne over_complex = nullptr;     // null: real numbers only
  RunOne along_direction = nullptr;  // null: no directions of the model
  bool on_coordinates = false;       // uses nothing of the model but the manifold of its coordinates
  std::unique_ptr<Kernel> coupled;   // the same for models with couplings, or null
  // The function itself, for kernels of coupled models; null for those that may fail, and for those that make their
  // outputs in parts.
  Run<double> run = nullptr, run_direction = nullptr;
  Run<Pack<kLanes>> run_lanes = nullptr;
  Run<Complex> run_complex = nullptr;
};

// Runs a kernel over a batch, with `lanes` or, if that is null, with `one`; `check` throws if the batch should end.
void run_batch(const Kernel& kernel, Kernel::RunOne one, Kernel::RunLanes lanes, const Model& m, const Options& options,
               const Row* in, const Row* out, int64_t states, int threads, void (*check)());

namespace detail {  // optional members of a kernel K, with defaults
template <class K, class = void>
struct has_lanes : std::true_type {};
template <class K>
struct has_lanes<K, std::enable_if_t<!K::has_lanes>> : std::false_type {};
template <class K, class = void>
struct has_complex : std::true_type {};
template <class K>
struct has_complex<K, std::enable_if_t<!K::has_complex>> : std::false_type {};
template <class K, class = void>
struct has_direction : std::false_type {};
template <class K>
struct has_direction<K, std::enable_if_t<K::has_direction>> : std::true_type {};
}  // namespace detail

Kernel& kernel_named(const char* name);  // adds it if there is none
// That of models with couplings, which it adds to the kernel if there is none.
inline Kernel& coupled_kernel(const char* name) {
  Kernel& kernel = kernel_named(name);
  if (!kernel.coupled) kernel.coupled = std::make_unique<Kernel>();
  return *kernel.coupled;
}

// Registers the kernels of a file: their common instantiations, or the rare ones, which are compiled in cold.cpp.
struct CommonKernels {
  template <class K>
  void add(const char* name) {
    fill<K>(kernel_named(name));
  }
  // K is `name` for models with couplings.
  template <class K>
  void add_coupled(const char* name) {
    Kernel& kernel = coupled_kernel(name);
    fill<K>(kernel);
    if constexpr (detail::has_direction<K>::value) kernel.along_direction = run_one<K, double>;
  }

 private:
  template <class K>
  void fill(Kernel& kernel) {
    static_assert(K::inputs <= Kernel::kMaxInputs && K::outputs <= Kernel::kMaxOutputs);
    kernel.inputs = K::inputs;
    kernel.outputs = K::outputs;
    kernel.has_options = K::has_options;
    kernel.slots = K::slots;
    kernel.one = run_one<K, double>;
    kernel.run = run_of<K, double>();
    if constexpr (detail::has_lanes<K>::value) {
      kernel.lanes = run_lanes<K>;
      kernel.run_lanes = run_of<K, Pack<kLanes>>();
    }
  }
};
struct RareKernels {
  template <class K>
  void add(const char* name) {
    Kernel& kernel = kernel_named(name);
    if constexpr (detail::has_complex<K>::value) {
      kernel.over_complex = run_one<K, Complex>;
      kernel.run_complex = run_of<K, Complex>();
    }
    if constexpr (detail::has_direction<K>::value) {
      kernel.along_direction = run_one<K, double>;
      kernel.run_direction = run_of<K, double>();
    }
  }
  template <class K>
  void add_coupled(const char* name) {
    if constexpr (detail::has_complex<K>::value) coupled_kernel(name).over_complex = run_one<K, Complex>;
  }
};
#ifdef TORSOR_COLD
using Kernels = RareKernels;
#else
using Kernels = CommonKernels;
#endif

}  // namespace torsor
