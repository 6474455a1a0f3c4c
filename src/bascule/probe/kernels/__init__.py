"""Which GPUs the compiled code of an engine runs on, from its libraries' own bytes."""
