# The one entry to the project. `make` alone lists the commands.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
MAKEFLAGS += --no-builtin-rules --no-print-directory
# Each program that a test starts would be compiled anew: a third of a test run's processor time.
unexport PYTHONDONTWRITEBYTECODE
.DEFAULT_GOAL := help

BIN := .venv/bin
JS := tests/interop_js
CODE := saps lab research monitoring tests $(wildcard examples benchmarks scripts)

# A stamp is newer than what it was made from, so that a second set-up does nothing.
DEBIAN_DONE := .setup-debian
PYTHON_DONE := .venv/.setup-python
KERNELS_DONE := .venv/.setup-kernels
TESTS_DONE := .venv/.setup-tests
KERNELS := $(shell grep -rl "design.compiled import" --include=*.py saps research)
JS_DONE := $(if $(wildcard $(JS)/package-lock.json),$(JS)/node_modules/.setup-js)

# Test processes, more than processors, as many tests wait; the tests of a module that starts processes are kept
# together on one of them, and given out among the others (tests/conftest.py). BUSY: for tests of which few wait.
WORKERS ?= $(shell n=$$(nproc); echo $$((n < 2 ? 2 : n > 2 ? 6 : 5)))
BUSY := $(shell echo $$(($$(nproc) + 1)))
PYTEST = $(BIN)/pytest -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
ON_A_MESH = $(PYTEST) -n $(BUSY) --mesh 3 tests/frontend/mqtt
NONE_IS_FINE = || test $$? -eq 5
SLOW := simulation or interop or network or chaos or spark or slow

.PHONY: help setup hot ready pure demo lab-demo examples test soak fast slow check lint format bench chaos jepsen reproduce lock \
    deb image pictures clean

help: ## List the commands.
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-9s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: ready ## Install and compile what the project needs; instant when nothing changed.
	@$(MAKE) --silent --jobs 2 $(KERNELS_DONE) hot

hot: # What every publication passes.
	@$(BIN)/python scripts/compile_hot.py --try

ready: $(DEBIAN_DONE) $(PYTHON_DONE) $(JS_DONE)

pure: ## Run everything as Python again, until the next set-up.
	@find saps -name '*.so' -delete && rm -f saps/compiled.json

demo: setup ## Run the smart city with the whole loop: traffic rises, Spark decides, a tree is built and goes; 1 to 2 min.
	@$(BIN)/python -m examples.smart_city $(ARGS)

lab-demo: setup ## Run it on Open vSwitch switches (root): by ALM, ALM-LA and OFM, and moving between them; about 90 s.
	@$(BIN)/python -m examples.lab_city $(ARGS)

examples: setup ## Run five smaller applications, one after the other; about 2 minutes.
	@for name in air_quality traffic_lights parking social_feed replay; do $(BIN)/python -m examples.$$name $(ARGS); done

test: setup ## Run all tests, those of MQTT against a mesh of three brokers as well: about 9 minutes on two processors.
	@$(PYTEST) $(ARGS) $(NONE_IS_FINE)
	@$(ON_A_MESH)

test fast slow soak: $(TESTS_DONE)
fast soak: WORKERS := $(BUSY)
soak: setup ## Draw 40 times as many schedules as `make test`, and fresh ones: about 4,600 in the simulator, over an hour.
	@HYPOTHESIS_PROFILE=soak $(PYTEST) --timeout 7200 -m "simulation or soak" $(ARGS)

fast: ready ## Run the tests that start few programs and take little.
	@$(PYTEST) -m "not ($(SLOW))" $(ARGS) $(NONE_IS_FINE)

slow: setup ## Run all others.
	@$(PYTEST) -m "$(SLOW)" $(ARGS) $(NONE_IS_FINE)
	@$(ON_A_MESH)

check: ready ## Check format, lint and types, and run the fast tests beside it: about 2 minutes on two processors.
	@$(MAKE) --jobs 2 lint fast

lint: ready ## Check format, lint and types only.
	@$(BIN)/ruff format --check $(CODE)
	@$(BIN)/ruff check $(CODE)
	@$(BIN)/mypy

format: ready ## Rewrite the code in the project's format.
	@$(BIN)/ruff format $(CODE)
	@$(BIN)/ruff check --fix $(CODE)

bench: setup ## Measure what users have against other brokers, then count how the overlay grows.
	@$(BIN)/python -m benchmarks.city $(ARGS)
	@$(BIN)/python -m benchmarks.overlay $(OVERLAY_ARGS)

chaos: setup ## Kill, stop, cut off and fill up brokers under traffic, check every delivery: 15 minutes; QUICK=1: 3.
	@$(BIN)/python -m benchmarks.chaos $(if $(QUICK),--loopback --brokers 4 --minutes 1.5) $(ARGS)

jepsen: setup ## The same for 15 minutes with faults that overlap, full syncs, and a history to judge again.
	@$(BIN)/python -m benchmarks.chaos --overlap --sync full --faults 100000 --history jepsen.history $(ARGS)

reproduce: ready ## Compute the papers' evaluations anew, paper and ours, into docs/reproduction.
	@$(BIN)/saps reproduce tdcdoda
	@$(BIN)/saps reproduce saps
	@$(BIN)/saps reproduce sdnps
	@$(BIN)/saps reproduce stateless

lock: ready ## Write uv.lock anew after a change of pyproject.toml.
	@$(BIN)/uv lock

deb: ready ## Build the Debian package, the compiled wheel and the bill of materials, in dist/.
	@scripts/build_deb.sh

image: ## Build the container image `saps`, by podman or docker; BASE=IMAGE is what it begins with.
	@$(firstword $(foreach tool,podman docker,$(shell command -v $(tool))) podman) build -f deploy/Containerfile -t saps \
	    $(if $(BASE),--build-arg BASE=$(BASE)) $(ARGS) .

pictures: ready ## Take the pictures of the operator's page in the documents again, with Chromium.
	@$(BIN)/python -m tests.frontend.web.pictures

clean: pure ## Remove all that the other commands made.
	@rm -rf .venv .setup-* $(JS)/node_modules .mypy_cache .ruff_cache .pytest_cache .hypothesis dist build
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# Status 3: something could not be installed. The set-up goes on, and tries again the next time.
$(DEBIAN_DONE): scripts/setup_debian.sh
	@scripts/setup_debian.sh && touch $@ || test $$? -eq 3

$(PYTHON_DONE): pyproject.toml uv.lock scripts/setup_python.sh | $(DEBIAN_DONE)
	@scripts/setup_python.sh
	@touch $@

$(KERNELS_DONE): $(KERNELS) scripts/compile_kernels.py | $(PYTHON_DONE)
	@$(BIN)/python scripts/compile_kernels.py
	@touch $@

$(TESTS_DONE): | $(PYTHON_DONE) # Test processes that begin together would each compile all tests for themselves.
	@$(BIN)/pytest --collect-only -qq >/dev/null || true
	@touch $@

$(JS)/node_modules/.setup-js: $(JS)/package-lock.json scripts/setup_js.py | $(PYTHON_DONE)
	@$(BIN)/python scripts/setup_js.py $(JS) && touch $@ || test $$? -eq 3
