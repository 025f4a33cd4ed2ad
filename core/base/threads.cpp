#include "base/threads.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#endif

namespace torsor {
namespace {

struct Job {
  const std::function<void()>* work;
  std::mutex mutex;
  std::condition_variable idle;
  int running = 0;
  bool closed = false;

  void help() {
    {
      std::lock_guard<std::mutex> lock(mutex);
      if (closed) return;
      ++running;
    }
    (*work)();
    std::lock_guard<std::mutex> lock(mutex);
    if (--running == 0) idle.notify_all();
  }
  void close(const std::function<void()>& meanwhile) {
    std::unique_lock<std::mutex> lock(mutex);
    closed = true;
    while (!idle.wait_for(lock, std::chrono::milliseconds(50), [&] { return running == 0; })) {
      lock.unlock();
      meanwhile();
      lock.lock();
    }
  }
};

class Pool {
 public:
  void offer(const std::shared_ptr<Job>& job, int helpers) {
    std::lock_guard<std::mutex> lock(mutex_);
    while (size_ < helpers) {
      std::thread([this] { serve(); }).detach();
      ++size_;
    }
    for (int i = 0; i < helpers; ++i) jobs_.push_back(job);
    wake_.notify_all();
  }

 private:
  void serve() {
    for (;;) {
      std::shared_ptr<Job> job;
      {
        std::unique_lock<std::mutex> lock(mutex_);
        wake_.wait(lock, [&] { return !jobs_.empty(); });
        job = std::move(jobs_.front());
        jobs_.pop_front();
      }
      job->help();
    }
  }
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Job>> jobs_;
  int size_ = 0;
};

// Never destroyed: its threads wait in it until the process ends. A forked child has no such threads and makes a new
// pool.
Pool* pool = nullptr;
std::mutex* pool_mutex = new std::mutex;

Pool& instance() {
  std::lock_guard<std::mutex> lock(*pool_mutex);
  if (pool == nullptr) {
    pool = new Pool;
#if defined(__unix__) || defined(__APPLE__)
    static const bool registered = [] {
      pthread_atfork(nullptr, nullptr, [] {
        pool = nullptr;
        pool_mutex = new std::mutex;
      });
      return true;
    }();
    (void)registered;
#endif
  }
  return *pool;
}

thread_local Watch* watch = nullptr;

}  // namespace

Watch::Watch(void (*check)(), const std::atomic<bool>* cancelled)
    : check_(check), cancelled_(cancelled), last_(std::chrono::steady_clock::now()), outer_(watch) {
  watch = this;
}
Watch::~Watch() { watch = outer_; }

void Watch::look() {
  if (++calls_ % 8 != 0) return;
  const auto now = std::chrono::steady_clock::now();
  if (now - last_ < std::chrono::milliseconds(50)) return;
  last_ = now;
  if (cancelled_ != nullptr && *cancelled_) throw Cancelled();
  if (check_ != nullptr) check_();
}

void poll() {
  if (watch != nullptr) watch->look();
}

int core_count() {
  static const int cores = std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
  return cores;
}

void in_parallel(int threads, const std::function<void()>& work, const std::function<void()>& idle) {
  const int helpers = (threads == 0 ? core_count() : std::min(threads, core_count())) - 1;
  if (helpers <= 0) return work();
  auto job = std::make_shared<Job>();
  job->work = &work;
  instance().offer(job, helpers);
  work();
  job->close(idle);
}

}  // namespace torsor
