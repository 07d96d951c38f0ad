"""One file per claim; a file that is here is a claim, there is no other list."""
