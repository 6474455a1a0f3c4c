"""Hosts for rehearsal and tests on one Linux machine: each with its own network, sshd and dockerd."""
