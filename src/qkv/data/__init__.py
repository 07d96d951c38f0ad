"""From checked text to batches: the tokenised cache, the order of an epoch, packed rows."""
