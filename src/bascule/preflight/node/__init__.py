"""What runs on a node to prove its addresses: sent there over standard input, for python3 or for perl."""
