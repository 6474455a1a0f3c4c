"""What a person asks for: schema, loading, the commented example."""
