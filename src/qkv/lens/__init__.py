"""Looking inside: what attention looked at, and pictures of it."""
