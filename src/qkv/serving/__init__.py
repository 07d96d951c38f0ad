"""A trained run as a service: an engine that batches, HTTP that people's clients know, a page."""
