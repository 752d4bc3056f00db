// Code that all variants share: a test of which variants this processor can run, a pool of threads, and scratch memory.
//
// The items of a job are divided among the threads. A thread that has finished its own items takes over some of another's. The caller waits for
// items, not for threads: a thread that the system does not schedule delays only the items that it has claimed. Waiting threads spin for microseconds
// and then sleep, to leave the processor to the threads that work.

#include "library.h"

#include <atomic>
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

// glibc 2.34 moved these into libc. Their older versions are in every glibc, so that a library that was built on a new system runs on an old one.
#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))
#if defined(__x86_64__)
#define FIRST_GLIBC "@GLIBC_2.2.5"
#else
#define FIRST_GLIBC "@GLIBC_2.17"
#endif
__asm__(".symver pthread_create,pthread_create" FIRST_GLIBC);
__asm__(".symver pthread_key_create,pthread_key_create" FIRST_GLIBC);
__asm__(".symver pthread_getspecific,pthread_getspecific" FIRST_GLIBC);
__asm__(".symver pthread_setspecific,pthread_setspecific" FIRST_GLIBC);
__asm__(".symver pthread_mutex_trylock,pthread_mutex_trylock" FIRST_GLIBC);
#endif

#if defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#elif defined(__aarch64__) && defined(__APPLE__)
#include <sys/sysctl.h>
#endif

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#if defined(__linux__)
#include <sys/syscall.h>
#endif
#endif

namespace {

constexpr int MAX_THREADS = 256;
// Bytes of a huge page of Linux.
constexpr int64_t HUGE_PAGE = 2 << 20;
constexpr int64_t SPIN_NANOSECONDS = 50000;
// A thread claims 1 / PARTS of the items that are left, whether they are its own or another thread's.
constexpr int64_t PARTS = 4;

struct alignas(64) Claim {
  // Upper half: the number of the job. Lower half: how many of this thread's items have been claimed.
  std::atomic<uint64_t> state;
};

struct Pool {
  // Locked by the caller whose jobs run.
  pthread_mutex_t owner;
  // Guards `sleeping`, `caller_sleeps` and the two condition variables.
  pthread_mutex_t mutex;
  pthread_cond_t job_posted, job_done;
  alignas(64) std::atomic<uint32_t> job{0};
  std::atomic<int> sleeping{0};
  std::atomic<JobBody> body;
  std::atomic<const void*> context;
  std::atomic<int64_t> count;
  std::atomic<int> threads;
  int workers;
  alignas(64) std::atomic<int64_t> done{0};
  std::atomic<int> caller_sleeps{0};
  Claim claims[MAX_THREADS];
};

Pool pool;

// Resets the pool, at the start and in the child after a fork. The child has none of its parent's threads, and its locks may be in any state.
void reset() {
  pthread_mutex_init(&pool.owner, nullptr);
  pthread_mutex_init(&pool.mutex, nullptr);
  pthread_cond_init(&pool.job_posted, nullptr);
  pthread_cond_init(&pool.job_done, nullptr);
  pool.sleeping = 0;
  pool.caller_sleeps = 0;
  pool.workers = 0;
  // New workers then wait for a job of this process, and do not join a job that was running in the parent.
  pool.job = 0;
}

pthread_key_t scratch_key;

__attribute__((constructor)) void start() {
  reset();
  pthread_atfork(nullptr, nullptr, reset);
  pthread_key_create(&scratch_key, free);
}

int64_t nanoseconds() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1000000000ll + now.tv_nsec;
}

inline void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Returns true as soon as the condition holds, or false if it does not hold within SPIN_NANOSECONDS.
template <class Condition>
bool spin_until(const Condition& condition) {
  const int64_t end = nanoseconds() + SPIN_NANOSECONDS;
  do {
    for (int i = 0; i < 16; ++i) {
      if (condition()) return true;
      pause_briefly();
    }
  } while (nanoseconds() < end);
  return false;
}

// Works on a job until no item is left to claim. A thread begins with its own items, which are the same in every job, so that their weights may still
// be in its cache. If a claim succeeds, the fields read here belong to this job: posting the next job first makes all claims on this one fail.
void take_part(uint32_t job, int thread) {
  const JobBody body = pool.body;
  const void* const context = pool.context;
  const int64_t count = pool.count;
  const int threads = pool.threads;
  if (thread >= threads) return;
  for (int i = 0; i < threads; ++i) {
    const int other = (thread + i) % threads;
    const int64_t first = other * count / threads, size = (other + 1) * count / threads - first;
    std::atomic<uint64_t>& state = pool.claims[other].state;
    uint64_t claim = state;
    while (true) {
      if (claim >> 32 != job) return;
      const int64_t begin = claim & 0xffffffff;
      if (begin >= size) break;
      const int64_t taken = maximum(1, (size - begin) / PARTS);
      if (!state.compare_exchange_weak(claim, claim + taken)) continue;
      body(context, first + begin, first + begin + taken, thread);
      if (pool.done.fetch_add(taken) + taken == count && pool.caller_sleeps) {
        pthread_mutex_lock(&pool.mutex);
        pthread_cond_signal(&pool.job_done);
        pthread_mutex_unlock(&pool.mutex);
      }
      claim = state;
    }
  }
}

void* work(void* number) {
  const int thread = static_cast<int>(reinterpret_cast<intptr_t>(number));
  uint32_t seen = 0;
  while (true) {
    const auto posted = [&] { return pool.job != seen; };
    if (!spin_until(posted)) {
      pthread_mutex_lock(&pool.mutex);
      ++pool.sleeping;
      while (!posted()) pthread_cond_wait(&pool.job_posted, &pool.mutex);
      --pool.sleeping;
      pthread_mutex_unlock(&pool.mutex);
    }
    seen = pool.job;
    take_part(seen, thread);
  }
  return nullptr;
}

// Starts the workers that are missing. Returns the number of threads, which is smaller than `threads` if the system starts no more.
int with_workers(int threads) {
  for (; pool.workers < threads - 1; ++pool.workers) {
    pthread_attr_t detached;
    pthread_attr_init(&detached);
    pthread_attr_setdetachstate(&detached, PTHREAD_CREATE_DETACHED);
    pthread_t worker;
    const int failed = pthread_create(&worker, &detached, work, reinterpret_cast<void*>(static_cast<intptr_t>(pool.workers + 1)));
    pthread_attr_destroy(&detached);
    if (failed) break;
  }
  return minimum(threads, pool.workers + 1);
}

#if defined(__x86_64__)

bool has_tiles() {
#if defined(__linux__)
  unsigned a, b, c, d = 0;
  constexpr unsigned BFLOAT16 = 1u << 22, TILE = 1u << 24, INT8 = 1u << 25, ALL = BFLOAT16 | TILE | INT8;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || (d & ALL) != ALL) return false;
  // Linux allows the tile registers only to a process that asks: ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA.
  return syscall(SYS_arch_prctl, 0x1023, 18) == 0;
#else
  return false;
#endif
}

bool has_avx_vnni() {
  unsigned a = 0, b, c, d;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) && (a & 1u << 4);
}

#endif

#if defined(__aarch64__)
// Returns whether the processor has an extension: by its bit of an entry of Linux's auxiliary vector, or by its name in macOS.
bool has_extension([[maybe_unused]] int entry, [[maybe_unused]] int bit, [[maybe_unused]] const char* name) {
#if defined(__linux__)
  return getauxval(entry) >> bit & 1;
#elif defined(__APPLE__)
  int found = 0;
  size_t size = sizeof(found);
  return sysctlbyname(name, &found, &size, nullptr, 0) == 0 && found;
#else
  return false;
#endif
}
#endif

}  // namespace

extern "C" {

// Version of the entry points; `library.py` expects the same.
int elmo_abi() { return ELMO_ABI; }

// Returns whether this processor can run a variant.
int elmo_supports(const char* variant) {
#if defined(__x86_64__)
  __builtin_cpu_init();
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512cd") &&
                      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool vnni = avx512 && __builtin_cpu_supports("avx512vnni");
  if (!strcmp(variant, "x86-64-v3")) return avx2;
  if (!strcmp(variant, "x86-64-v3-vnni")) return avx2 && has_avx_vnni();
  if (!strcmp(variant, "x86-64-v4")) return avx512;
  if (!strcmp(variant, "x86-64-v4-vnni")) return vnni;
  if (!strcmp(variant, "x86-64-v4-bf16")) return vnni && __builtin_cpu_supports("avx512bf16");
  if (!strcmp(variant, "x86-64-v4-amx")) return vnni && __builtin_cpu_supports("avx512bf16") && has_tiles();
#elif defined(__aarch64__)
  // Entries and bits are those of Linux's asm/hwcap.h; older headers lack their names.
  constexpr int HWCAP = 16, HWCAP2 = 26;
  const bool dot_product = has_extension(HWCAP, 20, "hw.optional.arm.FEAT_DotProd");
  if (!strcmp(variant, "aarch64-dotprod")) return dot_product;
  if (!strcmp(variant, "aarch64-bf16"))
    return dot_product && has_extension(HWCAP2, 13, "hw.optional.arm.FEAT_I8MM") && has_extension(HWCAP2, 14, "hw.optional.arm.FEAT_BF16");
#endif
  return !strcmp(variant, "portable");
}

int elmo_enter_pool(int64_t wanted) {
  if (wanted <= 1 || pthread_mutex_trylock(&pool.owner)) return 1;
  const int threads = with_workers(minimum(wanted, MAX_THREADS));
  if (threads == 1) pthread_mutex_unlock(&pool.owner);
  return threads;
}

void elmo_leave_pool(int threads) {
  if (threads > 1) pthread_mutex_unlock(&pool.owner);
}

void elmo_run(int threads, int64_t count, JobBody body, const void* context) {
  if (threads == 1 || count <= 1) {
    if (count > 0) body(context, 0, count, 0);
    return;
  }
  const uint32_t job = pool.job + 1;
  const uint64_t number = static_cast<uint64_t>(job) << 32;
  // Makes claims on the last job fail, and allows none on this job until its fields are set.
  for (int i = 0; i < threads; ++i) pool.claims[i].state = number | 0xffffffff;
  pool.body = body;
  pool.context = context;
  pool.count = count;
  pool.threads = threads;
  pool.done = 0;
  for (int i = 0; i < threads; ++i) pool.claims[i].state = number;
  pool.job = job;
  if (pool.sleeping) {
    pthread_mutex_lock(&pool.mutex);
    pthread_cond_broadcast(&pool.job_posted);
    pthread_mutex_unlock(&pool.mutex);
  }
  take_part(job, 0);
  const auto finished = [&] { return pool.done == count; };
  if (spin_until(finished)) return;
  pthread_mutex_lock(&pool.mutex);
  pool.caller_sleeps = 1;
  while (!finished()) pthread_cond_wait(&pool.job_done, &pool.mutex);
  pool.caller_sleeps = 0;
  pthread_mutex_unlock(&pool.mutex);
}

float* elmo_scratch(int64_t count) {
  struct Memory {
    alignas(64) int64_t count;
  };
  auto* memory = static_cast<Memory*>(pthread_getspecific(scratch_key));
  if (memory == nullptr || memory->count < count) {
    free(memory);
    pthread_setspecific(scratch_key, nullptr);
    void* place = nullptr;
    const int64_t size = round_up(sizeof(Memory) + count * sizeof(float), 64);
    if (posix_memalign(&place, size < HUGE_PAGE ? 64 : HUGE_PAGE, size)) return nullptr;
#if defined(__linux__)
    // Huge pages cause fewer TLB misses and page faults. Linux may be built without them.
    if (size >= HUGE_PAGE) madvise(place, size, MADV_HUGEPAGE);
#endif
    memory = static_cast<Memory*>(place);
    memory->count = count;
    pthread_setspecific(scratch_key, memory);
  }
  return reinterpret_cast<float*>(memory + 1);
}

}  // extern "C"
