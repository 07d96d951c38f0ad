"""HTML reports of runs, with charts."""
