// Memory for large results. The operating system zeroes fresh pages one by one at their first use, which takes longer
// than most kernels need to fill them. So blocks that are given back are kept, up to a limit, for later results of the
// same size. All functions may be called from any thread, and by a process that forks.
#pragma once
#include <cstddef>

namespace torsor {

constexpr std::size_t kLeastBlock = std::size_t(1) << 16;  // bytes; smaller blocks are not kept

// At least `bytes` bytes of uninitialised memory, aligned to cache lines; null if there is no memory left.
void* take_block(std::size_t bytes) noexcept;
// Gives back a block that was taken with the same number of bytes.
void give_back_block(void* block, std::size_t bytes) noexcept;
// Frees all blocks that are kept and returns their total size in bytes; take_block does the same before it fails.
std::size_t release_blocks() noexcept;

}  // namespace torsor
