# make demo and make test work on a machine with Python and nothing else prepared.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/ready
PEERS := .venv-peers
PEERS_READY := $(PEERS)/ready

# One test process per core: the libraries in it use one thread, calibrant two, to test both. Each
# process takes a run of consecutive tests, so that most fixtures of a module are built once.
PYTEST := OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 NUMBA_NUM_THREADS=2 $(BIN)/python -m pytest
IN_PARALLEL := -n auto --dist worksteal

# Install a Debian package, where that is possible.
INSTALL = { [ "$$(id -u)" = 0 ] && apt-get update -qq && apt-get install -y -qq $(1) > /dev/null; }

FASHION_MNIST = [ -e /usr/share/datasets/fashion-mnist ] || $(call INSTALL,dataset-fashion-mnist) \
  || echo "Fashion-MNIST could not be installed, so what needs it is skipped: on Debian, apt-get install dataset-fashion-mnist"

.PHONY: help demo test test-slow test-properties test-hostile test-browser lint style types format bench bench-peers peers scoreboard docs experiments train-real reproduce-quick clean

help: ## show the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 18

demo: $(READY) ## train four networks, calibrate each, and write pages to look at
	$(BIN)/calibrant demo --out out/demo

# mypy takes one core for a minute, so the types are checked beside the tests, and shown if they are wrong.
test: style $(READY) ## lint, types, unit tests, contracts and doctests
	@mkdir -p out
	@$(MAKE) --no-print-directory types > out/types.log 2>&1 & types=$$!; \
	  $(PYTEST) $(IN_PARALLEL); tests=$$?; \
	  wait $$types; types=$$?; [ $$types = 0 ] || cat out/types.log; exit $$((tests + types))

test-slow: $(READY) ## distributed, Dask, resume, docs build, exports, large networks, hostile input
	$(PYTEST) $(IN_PARALLEL) --hypothesis-profile many -m 'slow or hostile' tests docs/production.md

test-properties: $(READY) ## the property tests on more examples
	$(PYTEST) $(IN_PARALLEL) --hypothesis-profile many -m hypothesis tests

test-hostile: $(READY) ## bad files, signals, full disks, missing packages, open ports
	$(PYTEST) $(IN_PARALLEL) -m hostile tests/hostile

test-browser: $(READY) ## the report page in a real browser, which is installed if it is missing
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt playwright
	@command -v chromium || command -v chromium-browser || command -v google-chrome \
	  || $(call INSTALL,chromium) \
	  || echo "no browser was found or could be installed, so nothing is tested: on Debian, apt-get install chromium"
	$(PYTEST) -m browser tests/browser

lint: style types ## ruff, mypy strict, and the layers

style: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

format: $(READY) ## let ruff rewrite the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY) ## speed side by side with what one would otherwise use
	$(BIN)/python -m benchmarks

peers: $(PEERS_READY) ## numbers side by side with other packages, in an environment of their own
	$(PEERS)/bin/python -m pytest tests/peers -q -m ""

bench-peers: $(PEERS_READY) ## speed side by side with other packages
	$(PEERS)/bin/python -m benchmarks
	$(PEERS)/bin/python -m benchmarks.temperature_peers

scoreboard: $(PEERS_READY) ## every calibrator, and those of other packages, on real networks
	$(PEERS)/bin/python -m experiments scoreboard

docs: $(READY) ## the documentation, into docs/_build/html
	$(BIN)/sphinx-build -W -q -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

experiments: $(READY) ## the papers' tables and figures: what there is
	$(BIN)/python -m experiments --list

train-real: $(READY) ## train small networks on every real data set with all losses; four hours
	@$(FASHION_MNIST)
	$(BIN)/python -m experiments trained

reproduce-quick: $(READY) ## every result of the papers that takes minutes, checked
	@$(FASHION_MNIST)
	$(BIN)/python -m experiments quick

clean: ## remove the environment and everything made
	rm -rf $(VENV) $(PEERS) out docs/_build docs/api build dist

# One environment for all of it. The constraints pin every version, and torch to the release
# that has a CPU build.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "calibrant needs Python 3.11 or newer; found $$($(PYTHON) --version). Set PYTHON=..."; exit 1; }
	@$(PYTHON) -m venv $(VENV) \
	  || { echo "python -m venv failed: on Debian, apt-get install python3-venv"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[all,dev]'
	@touch $@

$(PEERS_READY): pyproject.toml constraints.txt peers-requirements.txt
	@$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check -r peers-requirements.txt
	@touch $@
