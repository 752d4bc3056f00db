"""
Write a biLM's vectors for a text to an HDF5 file.

`extract` runs an extraction. Sentences are grouped into batches (`batches`), and their vectors are
computed (`vectors`; for long sentences `chunks`). The text is cut into shards, each of which gets a
file in a folder that survives an interruption (`parts`). They are computed here or by worker
processes (`engine`, `ray_workers`), and finally merged into one file (`layouts`).
"""
