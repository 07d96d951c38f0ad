"""qkv's own workers: each file has `make(job)`, which returns what `worker.py` runs. Those of peers are in benchmarks/systems."""
