"""What runs on a node during a copy; sent over ssh to its python3, standard library only, Python 3.9."""
