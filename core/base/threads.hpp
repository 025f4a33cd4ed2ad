// A pool of threads that outlives calls (starting a thread costs more than many a batch), work shared out among them,
// and interrupts: long computations call poll() every now and then, and end by an exception when the user wants that.
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

// Calls `work` from this thread and from up to threads - 1 others at once; returns when all have returned. `work`
// shares out what there is to do by itself and must not throw. threads = 0 means one for each core, which is also the
// most. While this thread waits for others it calls `idle` every 50 ms.
void in_parallel(int threads, const std::function<void()>& work, const std::function<void()>& idle);

// What poll() of this thread looks at while this lives: a function that throws if the call is to end, for the thread
// that was called, and a flag that others set.
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
  Watch* outer_;  // calls nest when a force written in Python calls back into the library
};
struct Cancelled : std::exception {};

// Throws if the computation is to end: looks at the clock every eighth time, and for signals every 50 ms.
void poll();

// Shares the numbers below `count` out among threads, `block` at a time: each calls work(next), in which next(begin,
// end) is true while there is something left to do. The first exception ends all of it and is thrown here.
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
  const auto end_all = [&] {  // by the exception that is being handled
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
