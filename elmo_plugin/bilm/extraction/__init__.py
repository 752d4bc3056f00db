"""
Write a biLM's vectors for a text to an HDF5 file.

`extract` groups sentences into batches (`batches`) and computes their vectors (`vectors`, `chunks`)
shard by shard, here or in worker processes (`engine`, `ray_workers`). Each shard is a file that
survives an interruption (`parts`); at the end they are merged (`layouts`).
"""
