# Two commands do everything on a fresh Linux machine with Python 3.11 or newer: `make demo` and `make test`.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
DEVELOPED := $(VENV)/.developed
PYTEST := $(BIN)/python -m pytest --numprocesses $(shell expr $$(getconf _NPROCESSORS_ONLN) + 1) --maxprocesses 8 --dist loadfile --no-loadscope-reorder
CLUSTER := $(BIN)/python -m pytest -m cluster tests/test_workers_on_ray.py
# A lock names all that is needed, so that nothing is left to resolve; byte code is made of what is imported, a small part of it.
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile
# Byte code is kept, of the tests too: hundreds of processes are started, and each would compile all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: setup develop demo test test-rest test-core test-cluster lint stubs site bench lock clean

# What the product and the demo need.
setup: $(READY)

# And what the tests, the linters and the measurements need.
develop: $(DEVELOPED)

$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Parityscope needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)" >&2; exit 2; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV) || { echo "the venv module is missing; on Debian and Ubuntu: apt-get install python3-venv" >&2; exit 2; }
	$(INSTALL) --no-deps --require-hashes -r requirements.lock
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

$(DEVELOPED): $(READY) requirements-dev.lock requirements-scale.lock
	$(INSTALL) --no-deps --require-hashes -r requirements-dev.lock -r requirements-scale.lock
	@touch $@

demo: $(READY)
	@$(BIN)/python bench/demo.py

# A process more than there are cores, as an eighth of the time is waiting; each with whole files, so that what a file prepares is
# prepared once; the slowest first (tests/conftest.py).
test: test-cluster
	$(MAKE) test-rest

test-rest: $(DEVELOPED)
	$(PYTEST) --durations 30 -m "not cluster"

# Without the stories of whole commands: what a change is tried with while it is made.
test-core: $(DEVELOPED)
	$(PYTEST) -m "not story and not cluster"

# A Ray cluster of several nodes on this machine: processes that start slowly beside other tests. Ray's head now and then cannot
# start a process (it forks beside threads of its own): a second try tells that from a fault of ours.
test-cluster: $(DEVELOPED)
	$(CLUSTER) || $(CLUSTER)

# Of measurements, which no test runs, what they call and how: a name or an argument that is gone.
SCRIPTS := --explicit-package-bases --allow-untyped-defs --allow-incomplete-defs --check-untyped-defs --no-warn-unused-ignores \
	--cache-dir .mypy_cache/bench $(addprefix --disable-error-code ,arg-type assignment call-overload dict-item import-not-found list-item \
	no-any-return no-untyped-call union-attr var-annotated) bench/*.py

lint: $(DEVELOPED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	MYPYPATH=src:tests:bench:. $(BIN)/mypy $(SCRIPTS)
	$(BIN)/lint-imports

# The TensorRT adapter against the type stubs of three versions; skipped with its reason where they cannot be fetched.
stubs: $(DEVELOPED)
	$(BIN)/python -m proving.tensorrt_replay.stubs

# The documents as a site in build/site, without a network.
site: $(DEVELOPED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

bench: $(DEVELOPED)
	$(BIN)/python bench/main_job.py

# The first holds all of the last, in the same versions, and the second shares its versions.
COMPILE := $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate
lock: $(DEVELOPED)
	$(BIN)/python -m pip install --quiet uv
	$(COMPILE) --extra all --extra tensorrt-rtx --group build --group dev --output-file requirements-dev.lock pyproject.toml
	$(COMPILE) --group scale --group site --extra tables --extra text --extra ray --extra serve --constraint requirements-dev.lock --output-file requirements-scale.lock pyproject.toml
	$(COMPILE) --extra all --group build --constraint requirements-dev.lock --output-file requirements.lock pyproject.toml

clean:
	rm -rf $(VENV) demo-study build .mypy_cache .ruff_cache .pytest_cache .hypothesis
