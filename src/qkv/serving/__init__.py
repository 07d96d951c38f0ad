"""An HTTP service for trained runs: batching, LibreTranslate's and OpenAI's APIs, and a web page."""
