"""One file per kind of training run: what it reads, what it builds, what it does at the end."""
