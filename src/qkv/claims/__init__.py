"""Claims of the literature as small experiments that anyone can rerun; one file per claim in library/."""
