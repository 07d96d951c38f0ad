"""Model inspection: attention weights, rollout, attribution and head patterns, as values, pictures and a page."""
