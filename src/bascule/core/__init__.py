"""Pure nouns and rules; imports nothing of ours."""
