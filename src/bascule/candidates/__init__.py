"""Candidates for a model from everywhere: gathered, looked into without pulling, ranked with a reason each."""
