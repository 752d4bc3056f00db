// Code that all variants of the kernels share: a pool of threads, and scratch memory. `library.cpp` implements it, compiled for the baseline of the
// architecture. A variant is `kernels.cpp` compiled for one instruction set. Outside its anonymous namespace a variant defines only its entry points:
// of inline functions with the same name the linker would keep one, perhaps with instructions that the processor lacks.

#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

// Function that computes items `begin` to `end` of a job, in one thread.
typedef void (*JobBody)(const void* job, int64_t begin, int64_t end, int thread);

extern "C" {
// Reserves the pool and returns the number of threads that the caller gets, itself included: up to `threads`, or one while another caller has the
// pool.
int elmo_enter_pool(int64_t threads);
void elmo_leave_pool(int threads);
// Runs each item of a job once, on this many threads, and returns when all are done.
void elmo_run(int threads, int64_t count, JobBody body, const void* job);
// Returns scratch memory of this thread for `count` floats, aligned to a cache line, or null if there is none. The thread's next call reuses it.
float* elmo_scratch(int64_t count);
}

namespace {

// What entry points return: whether there was memory, for which `library.py` raises a `MemoryError`, and whether a frozen layer gave NaN.
enum Status { DONE, NO_MEMORY, HAS_NAN };

// Reserves threads of the pool during one call of a kernel.
struct Team {
  int threads;

  explicit Team(int64_t wanted) : threads(elmo_enter_pool(wanted)) {}
  ~Team() { elmo_leave_pool(threads); }
  Team(const Team&) = delete;

  // Calls `range(begin, end, thread)` for disjoint ranges that cover all `count` items.
  template <class Range>
  void ranges(int64_t count, const Range& range) const {
    const JobBody body = [](const void* job, int64_t begin, int64_t end, int thread) {
      (*static_cast<const Range*>(job))(begin, end, thread);
    };
    elmo_run(threads, count, body, &range);
  }

  // Calls `item(index, thread)` for all `count` items.
  template <class Item>
  void each(int64_t count, const Item& item) const {
    ranges(count, [&](int64_t begin, int64_t end, int thread) {
      for (int64_t index = begin; index < end; ++index) item(index, thread);
    });
  }
};

inline int64_t minimum(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t maximum(int64_t a, int64_t b) { return a > b ? a : b; }
// Rounds up to a multiple of `step`.
inline int64_t round_up(int64_t value, int64_t step) { return (value + step - 1) / step * step; }

}  // namespace
