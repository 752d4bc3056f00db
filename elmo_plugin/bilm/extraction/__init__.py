"""
Write a biLM's vectors for a text to an HDF5 file.

`extract` runs an extraction. Sentences are grouped into batches (`batches`), and their vectors are
computed (`vectors`; for long sentences `chunks`). Results are collected in a folder that survives
an interruption (`journal`), and are finally copied to one file (`layouts`).
"""
