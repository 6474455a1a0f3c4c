"""Serve a GGUF file by llama.cpp's own HTTP server (OpenAI API), which the xllamacpp wheel carries."""

from __future__ import annotations

import argparse
import os
import signal
import threading
from types import FrameType

import xllamacpp  # type: ignore[import-not-found]


def main() -> None:
    """Load the model, print `listening URL` and serve until a signal comes."""
    options = _options()
    server = xllamacpp.Server(_params(options))
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)  # after Server(), which sets handlers of its own
    print(f"listening {server.listening_address}", flush=True)
    threading.Event().wait()


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="the GGUF file")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (%(default)s)")
    parser.add_argument("--port", type=int, default=8080, help="(%(default)s)")
    parser.add_argument("--alias", default="default", help="the model's name in the API (%(default)s)")
    parser.add_argument("--ctx", type=int, default=2048, help="context of one request, in tokens (%(default)s)")
    parser.add_argument("--threads", type=int, default=1, help="(%(default)s)")
    return parser.parse_args()


def _params(options: argparse.Namespace) -> xllamacpp.CommonParams:
    params = xllamacpp.CommonParams()
    params.model.path = options.model
    params.hostnames = [options.host]
    params.port = options.port
    params.model_alias = {options.alias}
    params.n_parallel = 2
    params.n_ctx = options.ctx * params.n_parallel  # llama.cpp shares it out among the parallel requests
    params.cpuparams.n_threads = options.threads
    params.use_jinja = True  # the chat template is the model's own
    params.default_template_kwargs = {"enable_thinking": "true"}  # else llama.cpp closes the think block itself
    params.reasoning_format = xllamacpp.common_reasoning_format.COMMON_REASONING_FORMAT_DEEPSEEK
    params.verbosity = 3  # its log tells of loading
    return params


def _leave(number: int, _frame: FrameType | None) -> None:
    """End at once, with streams cut off: the server has no state to save."""
    os._exit(0 if number == signal.SIGTERM else 128 + number)


if __name__ == "__main__":
    main()
