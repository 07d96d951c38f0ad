"""Work on many shards: pools of workers on this machine or on a Ray cluster, and batch work by the verbs of a run."""
