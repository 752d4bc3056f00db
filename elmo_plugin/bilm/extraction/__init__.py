"""
Write a biLM's vectors for a text to an HDF5 file.

`extract` groups sentences into batches (`batches`), computes their vectors (`vectors`, `chunks`)
shard by shard, here or in worker processes (`engine`, `ray_workers`), into files that survive an
interruption (`parts`), and merges these (`layouts`).
"""
