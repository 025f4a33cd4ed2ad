#include "base/blocks.hpp"

#include <mutex>
#include <new>
#include <utility>
#include <vector>
#if defined(__unix__) || defined(__APPLE__)
#include <pthread.h>
#include <sys/mman.h>
#endif

namespace torsor {
namespace {

constexpr std::size_t kLimit = std::size_t(1) << 28;  // largest number of bytes that are kept
constexpr std::size_t kHugePage = std::size_t(1) << 21;

std::align_val_t alignment(std::size_t size) { return std::align_val_t(size < kHugePage ? 64 : kHugePage); }

// Sizes are rounded up to multiples of an eighth of a power of two, so that results of similar size use the same
// blocks.
std::size_t rounded(std::size_t bytes) {
  std::size_t step = 64;
  while (step < bytes / 16) step *= 2;
  return (bytes + step - 1) / step * step;
}

void* allocate(std::size_t size) noexcept {
  void* block = ::operator new(size, alignment(size), std::nothrow);
#ifdef MADV_HUGEPAGE  // pages of 2 MB take a tenth of the time to zero
  if (block != nullptr && size >= kHugePage) madvise(block, size, MADV_HUGEPAGE);
#endif
  return block;
}
void deallocate(void* block, std::size_t size) noexcept { ::operator delete(block, alignment(size)); }

class Cache {
 public:
  Cache() { kept_.reserve(kLimit / kLeastBlock + 1); }  // so that nothing is allocated when a block is given back

  void* take(std::size_t size) noexcept {
    std::lock_guard<std::mutex> lock(mutex);
    for (auto at = kept_.rbegin(); at != kept_.rend(); ++at)
      if (at->size == size) {
        void* block = at->memory;
        kept_.erase(at.base() - 1);
        total_ -= size;
        return block;
      }
    return nullptr;
  }
  void give_back(void* block, std::size_t size) noexcept {
    if (size < kLeastBlock || size > kLimit) return deallocate(block, size);
    std::lock_guard<std::mutex> lock(mutex);
    while (total_ + size > kLimit) free_oldest();
    kept_.push_back({block, size});
    total_ += size;
  }
  std::size_t release() noexcept {
    std::lock_guard<std::mutex> lock(mutex);
    for (const Kept& block : kept_) deallocate(block.memory, block.size);
    kept_.clear();
    return std::exchange(total_, 0);
  }
  std::mutex mutex;

 private:
  struct Kept {
    void* memory;
    std::size_t size;
  };
  void free_oldest() noexcept {
    deallocate(kept_.front().memory, kept_.front().size);
    total_ -= kept_.front().size;
    kept_.erase(kept_.begin());
  }
  std::vector<Kept> kept_;  // oldest first
  std::size_t total_ = 0;
};

// Never destroyed: results may outlive the module. Its mutex is held while the process forks, so that the child finds
// it whole.
Cache& cache = *new Cache;
#if defined(__unix__) || defined(__APPLE__)
[[maybe_unused]] const int registered =
    pthread_atfork([] { cache.mutex.lock(); }, [] { cache.mutex.unlock(); }, [] { cache.mutex.unlock(); });
#endif

}  // namespace

void* take_block(std::size_t bytes) noexcept {
  const std::size_t size = rounded(bytes);
  void* block = cache.take(size);
  if (block == nullptr) block = allocate(size);
  if (block == nullptr && release_blocks() > 0) block = allocate(size);
  return block;
}
void give_back_block(void* block, std::size_t bytes) noexcept { cache.give_back(block, rounded(bytes)); }
std::size_t release_blocks() noexcept { return cache.release(); }

}  // namespace torsor
