"""Word vectors: made from text, kept, asked, judged, and carried to and from other tools."""
