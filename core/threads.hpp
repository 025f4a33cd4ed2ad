// A pool of threads that outlives calls: starting a thread costs more than many a batch.
#pragma once
#include <functional>

namespace torsor {

// Calls `work` from this thread and from up to threads - 1 others at once; returns when all have returned. `work` shares
// out what there is to do by itself and must not throw. threads = 0 means one for each core, which is also the most.
void in_parallel(int threads, const std::function<void()>& work);

}  // namespace torsor
