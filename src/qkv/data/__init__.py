"""From checked text to batches: the cache of token ids, the order of an epoch, packed rows."""
