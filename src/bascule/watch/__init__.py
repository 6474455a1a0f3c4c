"""What all ranks say while they start, and what it means."""
