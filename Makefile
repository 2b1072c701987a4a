# `make demo` and `make test` set up what they need: Python 3.11 with pip is enough.

PYTHON3 ?= python3
WORKERS ?= auto
SEEDS ?= 0:2000
TASK ?= Say hello in one short sentence.
KILLS ?= 300
MINUTES ?= 10
ENGINE ?= postgres temporal

VENV := .venv
BIN := $(VENV)/bin
PIP := $(PYTHON3) -m pip --python $(BIN)/python --disable-pip-version-check
INSTALL := $(PIP) install --quiet --compile
# The tests find the programs that the environment brings along. What Python compiled is kept, even
# where a container says otherwise: to compile all the tests anew in each worker takes a long time.
PYTEST = PYTHONDONTWRITEBYTECODE= PATH="$(abspath $(BIN)):$$PATH" $(BIN)/python -m pytest -n $(WORKERS)

# Two stamps: to run the demo takes a few packages, to develop takes the tools as well.
RUN := $(VENV)/.ready-to-run
DEV := $(VENV)/.ready-to-develop
LOCAL := $(VENV)/.ready-for-local

.DEFAULT_GOAL := help
.PHONY: help setup demo test compiled-tests test-again check lint types fast docs-code format budgets bench bench-peers bench-fleet bench-looks bench-faults \
	docs cli-reference simulate modelcheck crash fleet soak scale mutants openapi replicas live prices \
	audit audit-update release-check browser proxies sandboxes pooler page-types screenshots recording wheels mcp-servers node-clients local local-weights bench-local bench-tokens eval-example test-local lock clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(DEV) ## create .venv with everything pinned; does nothing when it is up to date

demo: $(RUN) ## watch an agent run, with no key and no network
	@$(BIN)/windlass demo

# Most of the time the tests wait for processes and servers, so there are two workers for each core.
test: WORKERS = $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))
test: $(DEV) ## all the tests
	$(PYTEST) --dist worksteal

compiled-tests: $(DEV) ## import all the tests once, so that each worker finds them compiled
	@$(PYTEST) -n 0 -qq --collect-only >/dev/null

test-again: $(DEV) ## only the tests that failed in the last run
	$(PYTEST) --last-failed --last-failed-no-failures none

check: lint types fast docs-code ## what a change must pass: format, lint, layers, types, fast tests, docs

lint: $(DEV) ## format, lint, import layers
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/lint-imports

types: $(DEV) ## strict types
	$(BIN)/pyright --project pyproject.toml --pythonpath $(BIN)/python

fast: $(DEV) ## the fast tests: nothing that starts servers, shells or other programs
	$(PYTEST) --dist worksteal -q -m "not slow"

docs-code: $(DEV) ## run every code block of the docs, and every example
	$(PYTEST) --dist worksteal -q tests/test_docs.py

format: $(DEV) ## format, and mend what can be mended
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

budgets: $(DEV) ## what following, loading and running the code costs, beside its budgets
	@PYTHONPATH=. $(BIN)/python tests/test_budgets.py

bench: $(DEV) ## the cost of a delta, a step and a session, as ratios
	$(BIN)/python bench/run.py

bench-peers: $(DEV) ## the same work by Windlass and six other runtimes: make bench-peers BENCH=--quick
	@$(BIN)/python bench/peers/roster.py
	$(BIN)/python bench/peers/run.py $(BENCH)

bench-tokens: $(DEV) ## the error of token estimates, against real tokenizers
	$(BIN)/python bench/tokens/run.py $(BENCH)

bench-fleet: $(DEV) ## how workers scale, what a run costs them, and how fast they take over
	$(BIN)/python bench/fleet/run.py

bench-looks: $(DEV) ## what a look for work and a claim read, with up to a million sessions
	$(BIN)/python bench/scale/looks.py

bench-faults: $(DEV) ## the same faults of the wire, and a kill, for all of them
	@$(BIN)/python bench/peers/roster.py
	$(BIN)/python bench/faults/run.py $(BENCH)

docs: $(DEV) ## the documentation as a site, in .cache/site; a broken link fails
	@$(BIN)/python tools/cli_reference.py --check
	@$(BIN)/python tools/phase_diagram.py --check
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet
	@echo "Open .cache/site/index.html"

cli-reference: $(DEV) ## generate docs/cli_reference.md from the commands' own help
	@$(BIN)/python tools/cli_reference.py

simulate: $(DEV) ## random runs with faults and crashes: make simulate SEEDS=0:2000
	$(BIN)/python -m proof.simulate --seeds $(SEEDS)

modelcheck: $(DEV) ## all interleavings of two drivers, two posters, a crash and a partition
	$(BIN)/python -m proof.modelcheck

crash: $(DEV) ## kill a real process at random moments, and count what it cost: make crash KILLS=300
	$(BIN)/python -m proof.crash --kills $(KILLS)
	$(BIN)/python -m proof.crash --kills $(KILLS) --keep-open
	$(BIN)/python -m proof.crash.speaking --kills $(KILLS)
	$(BIN)/python -m proof.crash.speaking --kills $(KILLS) --store postgres

fleet: $(DEV) ## workers killed, stopped, cut off and upgraded: make fleet MINUTES=10 ENGINE="postgres temporal"
	for engine in $(ENGINE); do $(BIN)/python -m proof.fleet --minutes $(MINUTES) --engine $$engine || exit 1; done

soak: $(DEV) ## sessions, faults, kills and people for a long time: what grows? make soak MINUTES=10
	$(BIN)/python bench/soak/run.py --minutes $(MINUTES)

scale: $(DEV) ## 10,000 sessions in one process, 100,000 in one file: what stays flat
	$(BIN)/python bench/scale/run.py

mutants: $(DEV) ## plant each known bug in turn and show that the tests notice
	$(BIN)/python proof/mutants/run.py

openapi: $(DEV) ## each operation of the service against its document, by an independent tool (minutes)
	WINDLASS_TEST_DEEP=1 $(PYTEST) -n 0 -q tests/server/test_openapi.py

replicas: $(DEV) ## the socket tests of the service against two replicas on Postgres behind a proxy
	WINDLASS_TEST_REPLICAS=1 $(PYTEST) --dist worksteal -q -m "slow and not one_process" tests/server

live: $(DEV) ## talk to real providers: those whose key is set
	$(PYTEST) -m live --live tests/live

prices: ## take prices and windows anew from a maintained price package
	$(PYTHON3) tools/prices.py

mcp-servers: $(DEV) ## fetch the MCP servers that the tests talk to into .cache/mcp
	$(BIN)/python tests/support/mcp_servers.py

node-clients: $(DEV) ## fetch the clients of other protocols from npm into .cache/node_clients
	$(BIN)/python tests/support/node_clients.py

browser: ## the browser that the tests of the page drive, with fonts, from the system's own packages
	@command -v chromium >/dev/null || { \
		sudo=$$(test $$(id -u) = 0 || echo sudo); \
		$$sudo apt-get update -qq && \
		$$sudo apt-get install -y -qq --no-install-recommends \
			chromium fonts-inter fonts-jetbrains-mono >/dev/null; }

sandboxes: ## a container engine and an SSH server for the tests of sandboxes, from the system's own packages
	@{ command -v podman && command -v sshd; } >/dev/null || { \
		sudo=$$(test $$(id -u) = 0 || echo sudo); \
		$$sudo apt-get update -qq && \
		$$sudo apt-get install -y -qq --no-install-recommends \
			podman runc busybox-static openssh-server >/dev/null; }

proxies: ## nginx, for the tests of a service behind it, from the system's own packages
	@PATH="$$PATH:/usr/sbin" command -v nginx >/dev/null || { \
		sudo=$$(test $$(id -u) = 0 || echo sudo); \
		$$sudo apt-get update -qq && \
		$$sudo apt-get install -y -qq --no-install-recommends nginx-light >/dev/null; }

pooler: ## pgbouncer for the tests of Postgres behind a transaction pooler, from the system's own packages
	@{ command -v pgbouncer || test -x /usr/sbin/pgbouncer; } >/dev/null || { \
		sudo=$$(test $$(id -u) = 0 || echo sudo); \
		$$sudo apt-get update -qq && \
		$$sudo apt-get install -y -qq --no-install-recommends pgbouncer >/dev/null; }

page-types: $(DEV) ## the types of the page's modules, by TypeScript from npm, pinned
	$(BIN)/python tests/support/page_types.py

screenshots: $(DEV) browser ## every view of the page, light, dark and on a phone, into docs/images
	$(BIN)/python tools/screenshots.py

recording: $(DEV) ## the demo in a pseudo-terminal, as the animated picture of the README
	$(BIN)/python tools/terminal_recording.py docs/img/kill.svg $(BIN)/windlass demo

wheels: $(DEV) ## build the wheel and try it alone, on each Python that is here
	$(BIN)/python tools/try_wheel.py python3.11 python3.12 python3.13 python3.14

local-weights: ## fetch the small model's weights into .cache/local
	@$(PYTHON3) tools/local_weights.py

local: $(LOCAL) local-weights ## an agent with a tool and a small model on this machine: no key
	@WINDLASS_LOCAL_WEIGHTS=.cache/local $(BIN)/python examples/local_model.py --model local:smollm2
	@WINDLASS_LOCAL_WEIGHTS=.cache/local $(BIN)/windlass run --tools none "$(TASK)"

eval-example: $(LOCAL) local-weights ## five prompts for the small local model, compared: docs/evaluation_example.md
	WINDLASS_LOCAL_WEIGHTS=.cache/local $(BIN)/python tools/eval_example.py

bench-local: $(LOCAL) ## ten tool tasks for small local models, by protocol (an hour): BENCH="--model …"
	@$(PYTHON3) tools/local_weights.py smollm2
	@$(PYTHON3) tools/local_weights.py qwen2.5-coder-0.5b || echo "LEFT OUT: Qwen2.5-Coder-0.5B, no weights"
	@$(PYTHON3) tools/local_weights.py qwen2.5-coder-1.5b || echo "LEFT OUT: Qwen2.5-Coder-1.5B, no weights"
	WINDLASS_LOCAL_THREADS=1 $(BIN)/python bench/local/run.py $(BENCH)

test-local: $(LOCAL) local-weights ## the wire against a real server with real weights, on this machine
	WINDLASS_TEST_LOCAL=1 $(BIN)/python -m pytest -m local tests/local

release-check: $(DEV) ## all that a release needs, without publishing it; what was built is left in dist
	$(BIN)/python tools/release_check.py dist

audit: $(DEV) ## licences and advisories of what is pinned, against the snapshot in requirements/audit.json
	$(BIN)/python tools/dependency_audit.py check

audit-update: $(DEV) ## make that snapshot anew after `make lock`; advisories with SOURCE=, an index with PyPI's JSON interface
	$(BIN)/python tools/dependency_audit.py update --source "$(SOURCE)"

lock: ## pin anew after a change of dependencies (needs uv)
	$(LOCK) --output-file requirements/run.txt
	$(LOCK) --constraints requirements/run.txt --extra dev $(addprefix --extra ,$(EXTRAS)) --output-file requirements/dev.txt
	$(LOCK) --constraints requirements/run.txt --extra local --output-file requirements/local.txt

clean: ## remove what the tools leave behind; keeps .venv
	rm -rf build dist htmlcov .coverage* .hypothesis .import_linter_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -prune -exec rm -rf {} +

# The extras that the tests try.
EXTRAS = acp azure bedrock browser cedar documents eval inspect jwt keyring knowledge mcp otel postgres serve temporal vertex
LOCK = uv pip compile pyproject.toml requirements/build.in --quiet --universal \
	--python-version 3.11 --generate-hashes --strip-extras --custom-compile-command "make lock"

$(BIN)/python:
	@echo "Creating $(VENV)"
	@$(PYTHON3) -m venv --without-pip $(VENV)

$(RUN): requirements/run.txt pyproject.toml | $(BIN)/python
	@echo "Installing what Windlass needs"
	@$(INSTALL) --require-hashes --only-binary :all: -r $<
	@$(INSTALL) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m compileall -q src
	@touch $@

$(DEV): requirements/dev.txt $(RUN)
	@echo "Installing what its tests need"
	@$(INSTALL) --require-hashes --only-binary :all: -r $<
	@touch $@

$(LOCAL): requirements/local.txt $(DEV)
	@echo "Installing the embedded model server"
	@$(INSTALL) --require-hashes --only-binary :all: -r $<
	@touch $@
