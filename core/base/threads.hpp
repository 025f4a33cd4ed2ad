// A pool of threads that outlives calls, because starting a thread takes longer than a small batch; loops over threads;
// and interrupts: long computations call poll() regularly, which throws when the user interrupts them.
#pragma once
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace torsor {

// The number of cores. The system is asked for it once, because the query takes microseconds.
int core_count();

// How many threads, at most `most`, the work of so many seconds pays for. Measured with two cores: two lose up to a
// fifth at 37 us, because waking one takes as long as a small batch, and gain a fifth at 75 us.
inline int paying_threads(int most, double work) {
  constexpr double work_of_thread = 25e-6;
  return static_cast<int>(std::max(1.0, std::min<double>(most, work / work_of_thread)));
}

// Calls `work` concurrently from this thread and from up to threads - 1 others; returns when all have returned. `work`
// must distribute its tasks itself and must not throw. threads = 0 means one per core, which is also the maximum. While
// this thread waits for the others it calls `idle` every 50 ms.
void in_parallel(int threads, const std::function<void()>& work, const std::function<void()>& idle);

// What poll() checks in this thread during the lifetime of this object: a function that throws if the call should end,
// for the thread of the caller, and a flag that other threads set.
class Watch {
 public:
  Watch(void (*check)(), const std::atomic<bool>* cancelled);
  ~Watch();
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  friend void poll();
  void look();
  void (*check_)();
  const std::atomic<bool>* cancelled_;
  std::chrono::steady_clock::time_point last_;
  unsigned calls_ = 0;
  Watch* outer_;  // calls nest when a user-defined force calls back into the library
};
struct Cancelled : std::exception {};

// Throws if the computation should end. Reads the clock at every eighth call, and checks for signals every 50 ms.
void poll();

// Distributes the indices below `count` among threads, `block` at a time. Each thread calls work(next), in which
// next(begin, end) gives the next range and returns false when none is left. The first exception ends all threads'
// work and is thrown here.
template <class Work>
void share_out(int threads, int64_t count, int64_t block, void (*check)(), Work&& work) {
  std::atomic<int64_t> at{0};
  std::atomic<bool> cancelled{false};
  const auto caller = std::this_thread::get_id();
  std::mutex mutex;
  std::exception_ptr error;
  const auto next = [&](int64_t& begin, int64_t& end) {
    poll();
    begin = at.fetch_add(block);
    end = std::min(begin + block, count);
    return begin < count;
  };
  const auto end_all = [&] {  // with the exception that is being handled
    at = count;
    std::lock_guard<std::mutex> lock(mutex);
    if (!error) error = std::current_exception();
    cancelled = true;
  };
  const auto share = [&] {
    try {
      const Watch watch(std::this_thread::get_id() == caller ? check : nullptr, &cancelled);
      work(next);
    } catch (...) {
      end_all();
    }
  };
  const auto idle = [&] {
    try {
      check();
    } catch (...) {
      end_all();
    }
  };
  in_parallel(count <= block ? 1 : threads, share, idle);
  if (error) std::rethrow_exception(error);
}

}  // namespace torsor
