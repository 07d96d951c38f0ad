"""`qkv bench`: speed and memory, also side by side with other toolkits."""
