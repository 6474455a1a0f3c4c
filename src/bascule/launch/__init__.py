"""Starting, finding and stopping ranks on the nodes."""
