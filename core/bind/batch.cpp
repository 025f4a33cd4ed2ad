#include <chrono>
#include <cmath>

#include "bind/kernel.hpp"
#include "constraints/constraint_set.hpp"
#include "forces/force_set.hpp"

namespace torsor {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kWorkOfBlock = 20e-6;
constexpr double kSample = 4e-6;  // how long the first states are measured

// The states of a call, and how they are computed.
struct Batch {
  const Kernel& kernel;
  Kernel::RunOne one;
  Kernel::RunLanes lanes;
  const Model& m;
  const Options& options;
  const Row *in, *out;

  // Computes states begin .. end - 1; if `polls`, looks for interrupts after every vector of them.
  void run(Arena& arena, int64_t begin, int64_t end, bool polls) const {
    if (lanes == nullptr) {
      for (int64_t s = begin; s < end; ++s) {
        poll();
        try {
          one(m, options, in, out, s);
        } catch (StepFailed& failed) {
          failed.state = s;
          throw;
        }
      }
      return;
    }
    require_rotations<double>(m, in, kernel.inputs, begin, end);
    for (int64_t s = begin; s < end; s += kLanes) {
      const int count = static_cast<int>(std::min<int64_t>(kLanes, end - s));
      if (count == 1)  // measured with 8 lanes: in 0.4 to 0.7 of their time; two, one by one, mostly take longer
        one(m, options, in, out, s);
      else
        lanes(m, arena, options, in, out, s, count);
      if (polls) poll();
    }
  }
  // Computes the blocks that next(begin, end) gives, until it returns false.
  template <class Next>
  void run_blocks(const Next& next) const {
    Lease lease;
    int64_t begin, end;
    bool slow = true;  // slow enough to look for interrupts within a block
    auto before = Clock::now();
    while (next(begin, end)) {
      run(*lease, begin, end, slow);
      const auto now = Clock::now();
      slow = now - before > std::chrono::milliseconds(1);
      before = now;
    }
  }
};

}  // namespace

void run_batch(const Kernel& kernel, Kernel::RunOne one, Kernel::RunLanes lanes, const Model& m, const Options& options,
               const Row* in, const Row* out, int64_t states, int threads, void (*check)()) {
  const Batch batch{kernel, one, lanes, m, options, in, out};
  const int64_t vector = lanes == nullptr ? 1 : kLanes;
  const int most = threads == 0 ? core_count() : std::min(threads, core_count());
  int64_t done = 0;
  const auto alone = [&] {
    const Watch watch(check, nullptr);
    batch.run_blocks([&](int64_t& begin, int64_t& end) {
      begin = done;
      done = end = std::min(begin + 16 * vector, states);
      poll();
      return begin < states;
    });
  };
  if (most == 1 || states <= 2 * vector || runs_user_code(m, options.forces) ||
      (options.constraints != nullptr && options.constraints->runs_user_code()))
    return alone();
  // The first states, twice as many at each turn: how long does one take?
  double each = 0.0;
  {
    const Watch watch(check, nullptr);
    Lease lease;
    double spent = 0.0;
    for (int64_t count = vector; done < states && spent < kSample; count *= 2) {
      const int64_t end = std::min(done + count, states);
      const auto start = Clock::now();
      batch.run(*lease, done, end, true);
      spent = std::chrono::duration<double>(Clock::now() - start).count();
      each = spent / static_cast<double>(end - done);
      done = end;
    }
  }
  // As many threads, and blocks, as the work that is left pays for.
  const int64_t first = done, rest = states - done;
  const double work = each * static_cast<double>(rest);
  threads = paying_threads(most, work);
  if (threads <= 1) return alone();
  const double blocks = std::max<double>(threads, work / kWorkOfBlock);
  const auto vectors =
      static_cast<int64_t>(std::ceil(static_cast<double>(rest) / blocks / static_cast<double>(vector)));
  share_out(threads, rest, vectors * vector, check, [&](const auto& next) {
    batch.run_blocks([&](int64_t& begin, int64_t& end) {
      const bool more = next(begin, end);
      begin += first;
      end += first;
      return more;
    });
  });
}

}  // namespace torsor
