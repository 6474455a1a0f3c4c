"""Can these nodes do it at all: checks before anything is started."""
