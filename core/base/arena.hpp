// Working memory of one thread: allocated in order, released all at once, and kept for the next call.
#pragma once
#include <cstddef>
#include <memory>
#include <new>
#include <vector>

#include "base/blocks.hpp"

namespace torsor {

// Allocates memory aligned to cache lines, so that no vector register straddles two of them.
template <class T>
struct AlignedAllocator {
  using value_type = T;
  AlignedAllocator() = default;
  template <class U>
  AlignedAllocator(const AlignedAllocator<U>&) {}
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), std::align_val_t(64))); }
  void deallocate(T* p, std::size_t) { ::operator delete(p, std::align_val_t(64)); }
  bool operator==(const AlignedAllocator&) const { return true; }
  bool operator!=(const AlignedAllocator&) const { return false; }
};
template <class T>
using AlignedVector = std::vector<T, AlignedAllocator<T>>;

class Arena {
 public:
  // Uninitialised memory for n objects of T, whose destructor must be trivial.
  template <class T>
  T* get(std::size_t n) {
    constexpr std::size_t line = 64;
    const std::size_t bytes = (n * sizeof(T) + line - 1) / line * line;
    if (used_ + bytes > capacity_) grow(bytes);
    char* p = block_ + used_;
    used_ += bytes;
    return reinterpret_cast<T*>(p);
  }
  void reset() {
    used_ = 0;
    if (blocks_.size() > 1) {  // replace them by one block that is large enough
      const std::size_t total = total_;
      blocks_.clear();
      total_ = capacity_ = 0;
      grow(total);
      used_ = 0;
    }
  }
  // Frees the memory of an unusually large call.
  void trim() {
    constexpr std::size_t keep = std::size_t(1) << 25;
    if (total_ <= keep) return;
    blocks_.clear();
    block_ = nullptr;
    capacity_ = used_ = total_ = 0;
  }
  int singular_joint = -1;  // user's joint at which a recursion found the mass matrix singular, or -1, and the lane
  int singular_lane = 0;
  unsigned singular_lanes = 0;  // all lanes in which it is, by bit, if singular_joint is not -1
  int singular_velocity = -1;   // of that joint, if known
  int contradiction = -1;       // a row of constraints that contradicts others, or -1, the lane, and the others
  int contradiction_lane = 0;
  std::vector<int> contradicted;

 private:
  static constexpr std::align_val_t line{64};
  void grow(std::size_t bytes) {
    const std::size_t size = bytes > 16384 ? bytes : 16384;
    const std::size_t rounded = (size + 63) / 64 * 64;
    void* p = ::operator new(rounded, line, std::nothrow);
    if (p == nullptr && release_blocks() > 0) p = ::operator new(rounded, line, std::nothrow);
    if (p == nullptr) throw std::bad_alloc();
    blocks_.emplace_back(static_cast<char*>(p));
    block_ = static_cast<char*>(p);
    capacity_ = size;
    total_ += size;
    used_ = 0;
  }
  struct Free {
    void operator()(char* p) const { ::operator delete(p, line); }
  };
  std::vector<std::unique_ptr<char, Free>> blocks_;
  char* block_ = nullptr;
  std::size_t capacity_ = 0, used_ = 0, total_ = 0;
};

// The working memory of this thread. Calls nest when a user-defined joint calls back into the library.
class Lease {
 public:
  Lease() : stack_(stack()) {
    if (stack_.depth == stack_.arenas.size()) stack_.arenas.push_back(std::make_unique<Arena>());
    arena_ = stack_.arenas[stack_.depth++].get();
    arena_->singular_joint = -1;
    arena_->contradiction = -1;
  }
  ~Lease() {
    --stack_.depth;
    arena_->trim();
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Arena& operator*() { return *arena_; }

 private:
  struct Stack {
    std::vector<std::unique_ptr<Arena>> arenas;
    std::size_t depth = 0;
  };
  static Stack& stack() {
    thread_local Stack value;
    return value;
  }
  Stack& stack_;
  Arena* arena_;
};

}  // namespace torsor
