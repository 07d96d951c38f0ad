"""Compiled training loops in numba; they release the GIL, so that threads train in parallel (Hogwild, Recht et al. 2011)."""
