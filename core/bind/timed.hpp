// Kernels that depend on time.
#pragma once
#include "bind/kernel.hpp"
#include "constraints/constraint_set.hpp"
#include "forces/force_set.hpp"

namespace torsor {

inline bool depends_on_time(const Options& options) {
  return (options.forces != nullptr && depends_on_time(*options.forces)) ||
         (options.constraints != nullptr && options.constraints->depends_on_time());
}

// A kernel of forces or constraints, which take one time, its third input: the run of K has the time as an argument.
// States of different times in the lanes of a pack are computed one by one, if something depends on time.
template <class K>
struct Timed : K {
  template <class S>
  static void run(const Model& m, Arena& arena, const Options& options, const S* const* in, S* const* out) {
    if constexpr (std::is_same_v<S, Complex>) {
      K::run(m, arena, options, in[2]->real(), in, out);
    } else if constexpr (Lanes<S>::value == 1) {
      K::run(m, arena, options, *in[2], in, out);
    } else {
      const double t = in[2]->lane(0);
      if (any(!equal(*in[2], S(t))) && depends_on_time(options))
        run_apart(m, arena, options, in, out);
      else
        K::run(m, arena, options, t, in, out);
    }
  }

 private:
  template <class S>
  static void run_apart(const Model& m, Arena& all, const Options& options, const S* const* in, S* const* out) {
    Slot from[K::inputs], to[K::outputs];
    K::slots(m, options, from, to);
    Lease lease;
    Arena& arena = *lease;
    for (int l = 0; l < Lanes<S>::value; ++l) {
      arena.reset();
      double *one_in[K::inputs], *one_out[K::outputs];
      for (int i = 0; i < K::inputs; ++i) {
        one_in[i] = nullptr;
        if (in[i] == nullptr) continue;
        one_in[i] = arena.get<double>(from[i].size());
        for (int64_t k = 0; k < from[i].size(); ++k) one_in[i][k] = in[i][k].lane(l);
      }
      for (int i = 0; i < K::outputs; ++i) one_out[i] = out[i] == nullptr ? nullptr : arena.get<double>(to[i].size());
      K::template run<double>(m, arena, options, *one_in[2], one_in, one_out);
      for (int i = 0; i < K::outputs; ++i)
        for (int64_t k = 0; out[i] != nullptr && k < to[i].size(); ++k) out[i][k].lane(l) = one_out[i][k];
      report(arena, l, all);
    }
  }
  // What one lane found wrong, to those of all, of which the first counts.
  static void report(Arena& one, int lane, Arena& all) {
    if (one.singular_joint >= 0) {
      if (all.singular_joint < 0) {
        all.singular_joint = one.singular_joint;
        all.singular_velocity = one.singular_velocity;
        all.singular_lane = lane;
        all.singular_lanes = 0;
      }
      all.singular_lanes |= 1u << lane;
    }
    if (one.contradiction >= 0 && all.contradiction < 0) {
      all.contradiction = one.contradiction;
      all.contradicted = one.contradicted;
      all.contradiction_lane = lane;
    }
    one.singular_joint = one.contradiction = -1;
  }
};

}  // namespace torsor
