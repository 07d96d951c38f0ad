"""A run's folder: reading, writing, locking, weights, and starting from another run."""
