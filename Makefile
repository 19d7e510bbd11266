# Every target sets up .venv when it is missing or out of date, and never twice.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
BENCH_READY := $(VENV)-bench/.ready
PIP := -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs
MINUTES ?= 2
# One process more than there are cores, because tests wait for processes and time-outs.
WORKERS ?= $(shell $(PYTHON) -c "import os; print((os.cpu_count() or 1) + 1)")

.DEFAULT_GOAL := help
.PHONY: help setup demo test thorough fuzz simulation deployment newest examples wheel peers check docs docs-serve format bench beyond privacy results results-short clean

help: ## show this list
	@awk -F':.*## ' '/^[a-z-]+:.*## /{printf "  make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY) ## create .venv and install rfa with everything the tests need

demo: $(READY) ## a quarter of the devices corrupted: FedAvg breaks, RFA stands
	@$(BIN)/rfa demo

test: $(READY) ## run the tests
	@echo "== running the tests"
	@$(BIN)/python -m compileall -q src tests  # or every process that a test starts compiles anew
	@$(BIN)/python -m pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

thorough: $(READY) ## every mix, example, game and kill, of which `make test` does a part: some minutes
	@$(BIN)/python -m pytest -m "thorough or hypothesis" --hypothesis-profile thorough --numprocesses auto tests

fuzz: $(READY) ## send almost valid messages, replies, records and files to everything; MINUTES=2
	@$(BIN)/python -m tests.fuzz --minutes $(MINUTES)

simulation: $(READY) ## run the tests on Flower's simulation engine, which brings Ray
	@$(BIN)/python $(PIP) 'flwr[simulation]'
	@$(BIN)/python -m pytest -m simulation tests/flower

deployment: $(READY) ## run all tests on a real SuperLink and SuperNodes, also that of one that is killed
	@$(BIN)/python -m pytest -m "deployment or not deployment" tests/flower/test_deployment.py

newest: ## run the tests of rfa.flower with the newest Flower that resolves, in an environment of its own
	@test -x $(VENV)-newest/bin/python || $(PYTHON) -m venv $(VENV)-newest
	@$(VENV)-newest/bin/python -m pip install --quiet --disable-pip-version-check --upgrade --editable '.[flower]' pytest pytest-xdist hypothesis
	@$(VENV)-newest/bin/python -m pip show flwr | grep Version
	@$(VENV)-newest/bin/python -m pytest tests/flower

examples: $(READY) ## run the examples and their containers' commands; brings scikit-learn, JAX, transformers and peft
	@$(BIN)/python $(PIP) --editable '.[examples]'
	@$(BIN)/python -m pytest -m "not simulation" tests/flower/test_examples.py tests/flower/test_containers.py

wheel: ## build the wheel, install it into a clean environment, and run it there
	@echo "== building the wheel, and trying it in a clean environment"
	@rm -rf dist $(VENV)-wheel
	@$(PYTHON) -m venv $(VENV)-wheel
	@$(VENV)-wheel/bin/python $(PIP) build twine
	@$(VENV)-wheel/bin/python -m build .
	@$(VENV)-wheel/bin/twine check --strict dist/*
	@$(PYTHON) -m venv --clear $(VENV)-wheel
	@$(VENV)-wheel/bin/python $(PIP) "$$(echo dist/rfa-*.whl)[flower]"
	@$(VENV)-wheel/bin/python -I tests/smoke.py .

peers: $(BENCH_READY) ## compare the numbers of the aggregators with byzfl's
	@$(VENV)-bench/bin/python $(PIP) pytest hypothesis
	@$(VENV)-bench/bin/python -m pytest tests/peers

check: $(READY) ## check format, lint, types, the direction of imports, and the documentation
	@echo "== checking format, lint, types and imports"
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/pyright
	@$(BIN)/lint-imports --no-cache
	@$(MAKE) --no-print-directory docs

docs: $(READY) ## build the documentation site into build/site; broken links and warnings fail
	@echo "== building the documentation"
	@$(MKDOCS) build --strict

docs-serve: $(READY) ## show the documentation at http://127.0.0.1:8000 while you write
	@$(MKDOCS) serve --strict

format: $(READY) ## format the code and apply the safe lint fixes
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

bench: $(BENCH_READY) ## measure against geom_median, byzfl, pfl and Flower; writes docs/benchmarks.md
	@echo "== measuring against peers, which takes some minutes"
	@$(VENV)-bench/bin/python -m benchmarks

beyond: $(READY) ## beyond the paper, behind docs/beyond.md (RFA_DATA; an hour or two)
	@$(BIN)/rfa reproduce arena calls fewer-calls radius radius-deep --page docs/beyond-results.md

privacy: $(READY) ## accuracy against epsilon, behind docs/privacy-results.md (RFA_DATA; some 40 minutes)
	@$(BIN)/rfa reproduce privacy privacy-wide privacy-thousand --page docs/privacy-results.md

results: $(READY) ## the paper at its own horizon, behind docs/results.md: what docs/numbers lack (RFA_DATA; days)
	@$(BIN)/rfa reproduce --scale horizon --numbers-from docs/numbers/horizon --page docs/results.md

results-short: $(READY) ## the paper in shorter runs, behind docs/results-short.md (RFA_DATA; some hours)
	@$(BIN)/rfa reproduce --page docs/results-short.md

clean: ## remove the environments and what the tools left behind
	rm -rf $(VENV) $(VENV)-bench $(VENV)-newest $(VENV)-wheel fuzz-failures build dist .pytest_cache .ruff_cache .hypothesis

$(READY): pyproject.toml constraints.txt
	@echo "== setting up $(VENV) (once; some minutes on a slow network)"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "rfa needs Python 3.11 or newer, and $(PYTHON) is " + sys.version.split()[0] + ": call make with PYTHON=python3.11")'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python $(PIP) --no-compile torch
	@$(BIN)/python $(PIP) --no-compile --editable '.[lab,flower,datasets,dp,tensorboard,wandb,mlflow,docs,dev]'
	@$(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null 2>&1 || true  # by all cores, where pip takes one
	@touch $@

# The peers live in an environment of their own. byzfl comes without its dependencies: it would
# bring torchvision, which its aggregators never use. So does pfl, with just what its import needs:
# it would take packaging back to a version before 26. So would flwr, which comes with what the import
# of its SecAgg+ needs, in versions that it allows.
$(BENCH_READY): pyproject.toml constraints.txt
	@echo "== setting up $(VENV)-bench with the peers (once)"
	@test -x $(VENV)-bench/bin/python || $(PYTHON) -m venv $(VENV)-bench
	@$(VENV)-bench/bin/python $(PIP) torch
	@$(VENV)-bench/bin/python $(PIP) --editable '.[lab]' geom-median==0.1.0 scipy multiprocess==0.70.19 absl-py attrs
	@$(VENV)-bench/bin/python $(PIP) --no-deps byzfl==0.0.11
	@$(VENV)-bench/bin/python $(PIP) --no-deps pfl==0.6.0 dp-accounting==0.6.0 prv-accountant==0.2.0
	@$(VENV)-bench/bin/python $(PIP) --no-deps flwr==1.41.0 pycryptodome==3.24.1 protobuf==6.33.6 grpcio==1.85.1 httpx==0.28.1 idna==3.20 typer==0.20.1 annotated-doc==0.0.6 shellingham==1.5.4 iterators==0.0.2
	@touch $@
