"""Compiled loops over words, in numba: they let go of the GIL, so that threads train together (Recht et al. 2011, Hogwild)."""
