"""
Write a corpus's vectors to Parquet files.

`embed` writes a plan (`plan`), which divides the input into shards (`shards`). Each shard becomes
one Parquet file (`parquet`). `extraction.engine` computes them with many processes.
"""
