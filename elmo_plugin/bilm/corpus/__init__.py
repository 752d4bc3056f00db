"""
Embed a corpus with many processes, on one or many machines.

`run` writes a plan (`plan`), which divides the input into shards (`shards`). Each shard becomes one
Parquet file (`embed`, `parquet`). `supervise` assigns shards to workers, which `local_engine` or
`ray_engine` starts.
"""
