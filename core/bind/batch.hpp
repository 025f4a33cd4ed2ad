// Runs a kernel over a batch of states: one state in a double, or as many at a time as the machine has lanes.
//
// A kernel K has `inputs` and `outputs` (how many arrays) and
//   template <class S> static void run(const Model&, Arena&, const Options&, const S* const* in, S* const* out);
// which reads one row of each input and writes one row of each output. Absent inputs and outputs are null pointers.
// A kernel with `static int slabs(const Model&)` makes its outputs in that many parts of equal size, one after the other: its run
// has a last argument next() to call when a part of every output is written, which makes out point to where the next one goes.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <stdexcept>

#include "base/arena.hpp"
#include "base/threads.hpp"
#include "model/model.hpp"
#include "scalar/dual.hpp"

namespace torsor {

struct ForceSet;
struct IntegratorTable;
struct VariationalScheme;

struct Options {
  const unsigned char* prescribed = nullptr;        // by velocity
  int axes = 0;                                     // 0 body, 1 world, 2 world's axes at the body's origin
  unsigned wanted = ~0u;                            // outputs to compute, by bit
  const ModelT<Dual<double>>* direction = nullptr;  // the model with tangents, if it changes too
  std::vector<int> frames;                          // the user's bodies that are asked for
  const ForceSet* forces = nullptr;                 // of the scene
  const IntegratorTable* table = nullptr;           // of the integrator of a step
  const VariationalScheme* variational = nullptr;   // or its rule
};

struct Row {
  void* data = nullptr;
  int64_t size = 0;        // of a row
  int64_t stride = 0;      // from row to row; 0 for a row that all states share
  int configurations = 0;  // how many a row is made of, if it is of coordinates and these have quaternions
};

// The mass matrix is singular at a joint in a state.
struct Singular : std::runtime_error {
  int joint;
  int64_t state;
  Singular(int joint, int64_t state) : std::runtime_error("singular mass matrix"), joint(joint), state(state) {}
};

// A step of an integrator cannot be taken from a state, which is filled in where batches are run. The others are those of
// integrators/trajectory.hpp and integrators/newton.hpp.
struct StepFailed : std::runtime_error {
  int64_t state = 0;
  int outcome;
  double error, allowed;
  StepFailed(int outcome, double error, double allowed)
      : std::runtime_error("step failed"), outcome(outcome), error(error), allowed(allowed) {}
};

// A quaternion of length 0, which is no rotation, in an input, at a joint, in a state (-1: all).
struct ZeroQuaternion : std::runtime_error {
  int input, joint;
  int64_t state;
  ZeroQuaternion(int input, int joint, int64_t state)
      : std::runtime_error("zero quaternion"), input(input), joint(joint), state(state) {}
};
template <class S>
void require_rotations(const Model& m, const Row* in, int inputs, int64_t first, int64_t end) {
  if (m.quaternions.empty()) return;
  for (int i = 0; i < inputs; ++i)
    for (int64_t s = first; in[i].configurations > 0 && s < (in[i].stride == 0 ? first + 1 : end); ++s) {
      const S* q = static_cast<const S*>(in[i].data) + s * in[i].stride;
      for (int c = 0; c < in[i].configurations; ++c, q += m.nq)
        for (const auto& at : m.quaternions) {
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

// One state, read and written where it lies.
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
}

// `count` states from `first`, at most one for each lane. Spare lanes repeat the last state.
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
  } else {
    K::template run<S>(m, arena, options, from, to);
    store();
  }
  if (arena.singular_joint >= 0) throw Singular(arena.singular_joint, first + std::min(arena.singular_lane, count - 1));
}

// Whether a kernel takes several states at a time: all but those that run in one double (K::has_lanes = false).
template <class K, class = void>
struct has_lanes : std::true_type {};
template <class K>
struct has_lanes<K, std::enable_if_t<!K::has_lanes>> : std::false_type {};

// `check` throws if the batch is to end.
template <class K>
void run_batch(const Model& m, const Options& options, const Row* in, const Row* out, int64_t states, int threads,
               void (*check)()) {
  constexpr int64_t block = 16 * kLanes;  // states that a thread takes at a time
  share_out(threads, states, block, check, [&](const auto& next) {
    Lease lease;
    int64_t begin, end;
    auto before = std::chrono::steady_clock::now();
    bool slow = true;  // so slow that interrupts are looked for within a block
    while (next(begin, end)) {
      if constexpr (has_lanes<K>::value) {
        require_rotations<double>(m, in, K::inputs, begin, end);
        for (int64_t s = begin; s < end; s += kLanes) {
          run_lanes<K>(m, *lease, options, in, out, s, static_cast<int>(std::min<int64_t>(kLanes, end - s)));
          if (slow) poll();
        }
      } else {
        for (int64_t s = begin; s < end; ++s) {
          try {
            run_one<K, double>(m, options, in, out, s);
          } catch (StepFailed& failed) {
            failed.state = s;
            throw;
          }
        }
      }
      const auto now = std::chrono::steady_clock::now();
      slow = now - before > std::chrono::milliseconds(1);
      before = now;
    }
  });
}

}  // namespace torsor
