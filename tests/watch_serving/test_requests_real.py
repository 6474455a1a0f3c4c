"""Requests that wait at a port, as the kernel of this machine tells them of real connections."""

from __future__ import annotations

import asyncio
import socket
import time
from dataclasses import replace

import pytest

from bascule.remote.local import LocalRunner
from bascule.watch.readings import Garbled, parse_requests
from bascule.watch.sampler import Sampler


def waiting(ranks, port):
    """How many wait at the port, and for how many seconds the first."""

    async def look():
        watched = [replace(one, api_port=port) for one in ranks.watched]
        sampler = Sampler(LocalRunner(ranks.node), ranks.node, watched)
        await sampler.look()
        await sampler.settle()
        (sample,) = await sampler.look()
        await sampler.close()
        return sample

    sample = asyncio.run(look())
    return sample.values["requests"], sample.at - sample.values["request_since"]


def test_a_request_waits_until_a_byte_of_its_answer_was_sent(ranks):
    ranks.start("sleep 100")
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client, server.accept()[0] as peer:
            assert waiting(ranks, port)[0] == 0, "connected, and nothing asked"
            client.sendall(b"POST /v1/completions HTTP/1.1\r\n\r\n")
            time.sleep(0.3)
            count, age = waiting(ranks, port)
            assert count == 1
            assert 0.2 < age < 30
            time.sleep(0.05)
            peer.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
            time.sleep(0.05)
            assert waiting(ranks, port)[0] == 0
            client.sendall(b"POST /v1/completions HTTP/1.1\r\n\r\n")
            time.sleep(0.05)
            assert waiting(ranks, port)[0] == 1, "the second one over the same connection"


def test_answers_about_requests_are_read_strictly():
    assert parse_requests("=== requests\nwaiting 3 61500\n=== end\n") == (3, 61.5)
    assert parse_requests("=== requests\n=== end\n") is None
    with pytest.raises(Garbled):
        parse_requests("=== requests\nwaiting many 1\n=== end\n")
