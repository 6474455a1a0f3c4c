"""Which engines might serve this model, and what the model is."""
