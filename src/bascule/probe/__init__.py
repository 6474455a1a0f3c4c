"""Does this very engine know this model? Read from files, without a GPU and without importing anything."""
