"""
Numbers that were measured, each with what it was measured on. None changes a result, but for
rounding.

Unless said otherwise: two cores of an AMD EPYC with AVX-512, torch 2.11, 2026-11
(`benchmarks/reports/`).
"""

# Tokens of about the same length that the token layer computes at a time: memory stays small, and
# few convolutions run past the end of their word.
TOKENS_AT_ONCE = 64
# So many where freed memory is kept (`allocator.py`): extraction takes 1.5% less time. This number
# and the other of its kind were measured on an Intel with AMX.
TOKENS_AT_ONCE_KEPT = 256
# With gradients each time has its own of every parameter, to be added up.
TRAINED_TOKENS_AT_ONCE = 256
# On a GPU what takes time is the number of operators. Reasoned, not measured.
TOKENS_AT_ONCE_ON_GPU = 1024

# oneDNN prepares itself for each number of rows that it has not met yet (0.2 to 0.4 ms), which
# takes longer than a few more rows: worth padding to a multiple of this where the number varies.
ROWS_IN_STEPS_OF = 8
# The same for windows of a token.
POSITIONS_IN_STEPS_OF = 4

# Input products of an LSTM are taken for several steps at a time: about this many elements (8 MB),
# large enough for a fast product, small enough for the processor's cache, and for the allocator to
# keep instead of asking the system for it again.
INPUT_PRODUCT_ELEMENTS = 1 << 22
# 64 MB where freed memory is kept: 3% less.
INPUT_PRODUCT_ELEMENTS_KEPT = 1 << 24
# On a GPU as many as are run at once, for the Original 134 MB. Reasoned, not measured.
INPUT_PRODUCT_ELEMENTS_ON_GPU = 1 << 25

# Where no gradient is wanted, so many sentences and so many of their tokens are run at a time, at
# most: what is held beside the layers themselves grows neither with the batch nor with a sentence.
# Products are hardly faster with more.
LSTM_SENTENCES_AT_ONCE = 256
LSTM_TOKENS_AT_ONCE = 2048

# Weights of so many elements (32 MB) are not copied for products of many rows, where a copy would
# gain a tenth. Of fewer rows than the second number oneDNN adds up in another order then: true of
# the released biLMs' shapes, where smaller weights and some other widths would need more.
LARGE_WEIGHT, LEAST_ROWS = 1 << 23, 32

# Numbers of rows that are tried for products whose last bits depend on it; on AMD with AVX-512 and
# on Intel with AMX 16 rows were always enough, from 1 to 1,600.
TRIED_ROWS = (*range(1, 18), 20, 24, 28, 31)

# Fewer rows than this are multiplied faster where they are than in oneDNN's tensors.
CONVERTED_ROWS = 32

# What MKL packs a weight for; the faster way of many rows, and as fast for one.
MKL_PACKED_FOR_ROWS = 64

# With so many rows, the last and some others, products of bfloat16 may be the same to the bit; on
# Intel with AMX those of 26 and more. A product is taken of as many at most.
STEADY_ROWS = (1, 8, 16, 26, 32, 40, 48, 64)
# Where all of these are, as many are tried too.
MANY_STEADY_ROWS = 1024

# Weights of fewer elements stay in the processor's cache in float32 too (Small's, 2 MB): to halve
# them gains nothing.
LEAST_HALVED = 1 << 21

# Layers in C++ whose state weight has no more elements (Small's) run in float32 in every `dtype`:
# 64 sentences as fast as in bfloat16, 32 in 0.9 of its time, one in 0.4. (Intel with AMX.)
MOST_EXACT = 1 << 19

# From so many sentences on a step that all have in common is taken once, in calls of its own: 64
# take 0.96 of the time then, 32 as long, eight 1.09.
LEAST_SHARED = 48

# What the token cache may take; 30,000 tokens of the Original biLM.
TOKEN_CACHE_BYTES = 64 << 20

# Columns of a Triton program: 128 threads with 16 bytes of float32 each. Reasoned, not measured.
BLOCK = 512
