"""
Write a corpus's vectors to Parquet files: `embed` writes a plan (`plan`), which divides the input
into shards (`shards`), each of which becomes one file (`parquet`).
"""
