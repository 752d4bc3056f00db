"""
Tuned sizes, such as the number of rows to compute at a time. They change results only within the
precision of the chosen `dtype`.

Unless a comment says otherwise, they were measured on two cores of an AMD EPYC with AVX-512, with
torch 2.11 in 2026-11 (`benchmarks/reports/`).
"""

# Number of tokens that PyTorch's token layer computes at a time. They have similar lengths, so that
# few windows hold only padding.
TOKENS_AT_ONCE = 64
# `TOKENS_AT_ONCE` in training, where the gradients of each group must be summed.
TRAINED_TOKENS_AT_ONCE = 256
# Number of tokens that the C++ library computes at a time. The limit saves memory.
TOKENS_AT_ONCE_IN_LIBRARY = 1024
# `TOKENS_AT_ONCE` on a GPU, where larger groups need fewer kernel launches. An estimate, not
# measured.
TOKENS_AT_ONCE_ON_GPU = 1024

# Up to so many tokens, a GPU computes repeated ones again, which takes less time than to find them.
# An estimate, not measured.
FEW_TOKENS_ON_GPU = 128

# Number of elements of input projections `W x + b` that an LSTM layer computes at a time: enough
# for a fast GEMM, but few enough to fit the cache and let the allocator reuse the memory.
INPUT_PRODUCT_ELEMENTS = 1 << 22
# `INPUT_PRODUCT_ELEMENTS` on a GPU: 134 MB. An estimate, not measured.
INPUT_PRODUCT_ELEMENTS_ON_GPU = 1 << 25

# Number of steps, and largest number of sentences, in a CUDA graph of the frozen LSTM. From
# `LEAST_SORTED_ON_GPU` sentences on, those that have ended are left out, for which Python waits
# for their lengths. Estimates, not measured.
STEPS_IN_GRAPH = 4
MOST_ROWS_IN_GRAPH = 512
LEAST_SORTED_ON_GPU = 128

# Weights with fewer elements, such as those of the Small biLM's LSTM, ignore `"float16"`: in
# float32 they fit the CPU's cache, so that float16 is not faster.
LEAST_HALVED = 1 << 21

# LSTM layers whose state weight has at most this many elements run in float32 for every `dtype`,
# which is faster for them. Measured on an Intel CPU with AMX.
MOST_EXACT = 1 << 19

# Size of the token cache: enough for 30,000 tokens of the Original biLM.
TOKEN_CACHE_BYTES = 64 << 20

# Bytes of an allocation that glibc keeps, once freed, for a later one.
MOST_REUSED = 32 << 20

# Columns per Triton program: 128 threads with 16 bytes of float32 each. An estimate, not measured.
BLOCK = 512
