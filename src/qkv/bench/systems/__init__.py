"""One file for each system: `make(job)` gives what `worker.py` drives. Those of peers do without qkv."""
