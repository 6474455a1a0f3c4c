# The one door for tasks; `make` lists them.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1

help:  ## list the tasks
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 18

install: $(VENV)/installed  ## make .venv with the bascule command
$(VENV)/installed: pyproject.toml
	@echo "install: .venv with bascule and its tools"
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "error[python]: Python 3.11 or newer is needed; set PYTHON")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --editable '.[dev]'
	@touch $@

engines: install .engines/adder.gguf  ## build the engine environments of the demo and the tests (3 GB, in .engines)
	@$(PYTHON) engines/build.py
.engines/adder.gguf: models/adder/model.safetensors models/to_gguf.py
	@$(PYTHON) engines/build.py
	.engines/llamacpp/bin/python models/to_gguf.py models/adder $@.new && mv $@.new $@

demo: engines  ## serve a real model over two nodes of this machine, past candidates that can't
	@sh examples/demo.sh

test: install  ## install, lint, check types, run all tests
	@sh tests/side_by_side.sh $(BIN)/pytest "$(MAKE)"

drills: engines  ## every fault of a real engine over two hosts, also those that take minutes (root, half an hour)
	$(BIN)/pytest -m '' -rP tests/drills

test-fast: install  ## the tests that start no engine
	$(BIN)/pytest -m 'not engine'

lint: install  ## ruff, import contracts, shell scripts
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports --no-logo

types: install  ## mypy --strict
	$(BIN)/mypy

format: install  ## let ruff arrange the code
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: install  ## write the generated pages of docs/ anew
	$(BIN)/python docs/generate.py

adder: engines  ## train the model in models/adder anew
	.engines/vllm-0.32.0/bin/python models/make_adder.py models/adder

lab: install  ## two hosts on this machine, each with its own network, sshd and dockerd (needs root)
	$(BIN)/bascule lab up 2

bench-doctor: install  ## how long `bascule doctor` takes for 2 and for 32 nodes (root, docker)
	@$(BIN)/python benchmarks/doctor.py

bench-startup: install  ## how long `bascule --help` and `bascule status` take
	@$(BIN)/python benchmarks/startup.py

bench-copy: install  ## images between lab hosts against docker save | ssh docker load (root, docker)
	@$(BIN)/python benchmarks/copy_images.py

bench-weights: install  ## weights between two lab hosts against rsync and ssh cat (root, rsync)
	@$(BIN)/python benchmarks/weights.py

bench-probe: engines  ## what the probe of an image, an environment, a wheel and a registry takes (root, docker)
	@$(BIN)/python benchmarks/probe.py

bench-watch: engines  ## how soon a stalled or dead rank is told, false alarms, and what looking costs
	@$(BIN)/python benchmarks/watch.py

bench-search: install  ## finding, probing and ranking 20 candidates against a local registry (docker-registry)
	@$(BIN)/python benchmarks/search.py

clean:  ## remove what was installed into the checkout
	rm -rf $(VENV) .engines

.PHONY: help install engines demo test drills test-fast lint types format docs adder lab bench-doctor bench-startup bench-copy bench-weights bench-probe bench-watch bench-search clean
