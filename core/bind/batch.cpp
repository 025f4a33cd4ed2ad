#include <chrono>

#include "bind/kernel.hpp"

namespace torsor {

void run_batch(const Kernel& kernel, Kernel::RunOne one, Kernel::RunLanes lanes, const Model& m, const Options& options,
               const Row* in, const Row* out, int64_t states, int threads, void (*check)()) {
  constexpr int64_t block = 16 * kLanes;  // number of states that a thread takes at a time
  share_out(threads, states, block, check, [&](const auto& next) {
    Lease lease;
    int64_t begin, end;
    auto before = std::chrono::steady_clock::now();
    bool slow = true;  // slow enough to check for interrupts within a block
    while (next(begin, end)) {
      if (lanes != nullptr) {
        require_rotations<double>(m, in, kernel.inputs, begin, end);
        for (int64_t s = begin; s < end; s += kLanes) {
          lanes(m, *lease, options, in, out, s, static_cast<int>(std::min<int64_t>(kLanes, end - s)));
          if (slow) poll();
        }
      } else {
        for (int64_t s = begin; s < end; ++s) {
          poll();
          try {
            one(m, options, in, out, s);
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
