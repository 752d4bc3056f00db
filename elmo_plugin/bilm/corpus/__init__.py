"""
Many files, many processes, many machines: a plan cuts the input into shards (`shards`, `plan`),
each shard becomes one Parquet file by one pure function (`embed`, `parquet`), workers are given one
after the other (`supervise`, by `local_engine` or `ray_engine`), and all that is started by `run`.
"""
