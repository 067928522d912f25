# `make` alone lists the targets. Everything works in a fresh clone: each target creates what it needs.
SHELL := /bin/bash
.DEFAULT_GOAL := help

NODES ?= 3
FAKE_NODES ?= 0
CONTEXT ?=
ARCHIVE ?=
KEEP ?= 0
PYTEST_ARGS ?=
WORKERS ?= 3
E2E_WORKERS ?= 8

PYTHON ?= $(firstword $(foreach p,python3.11 python3.12 python3.13 python3,$(shell command -v $(p))))
export CONTEXT PYTHON
# Tests start many Python processes, and each of them would compile the project again.
unexport PYTHONDONTWRITEBYTECODE
DEVCLUSTER := $(PYTHON) -m hack.devcluster
VENV := .venv/.stamp
PYTEST := .venv/bin/python -m pytest $(PYTEST_ARGS)

.PHONY: help
help: ## show this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-18s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '\n  variables: NODES=%s FAKE_NODES=%s CONTEXT= ARCHIVE= KEEP=%s IMAGE_PREFIX= PYTEST_ARGS=\n' \
	  '$(NODES)' '$(FAKE_NODES)' '$(KEEP)'

.PHONY: venv
venv: $(VENV) ## .venv with the project and its tools
$(VENV): pyproject.toml $(wildcard constraints.txt)
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "missing: Python 3.11 or newer (found: $(PYTHON)); set PYTHON=/path/to/python3.11"; exit 2; }
	@test -x .venv/bin/python || $(PYTHON) -m venv .venv
	.venv/bin/python -m pip install -q $(addprefix -c ,$(wildcard constraints.txt)) -e '.[dev]'
	@touch $@

.PHONY: cluster cluster-down load images doctor
cluster: ## a real cluster: NODES=3, FAKE_NODES=0, or an existing CONTEXT=
	@$(DEVCLUSTER) up --nodes $(NODES) --fake-nodes $(FAKE_NODES) $(addprefix --context ,$(CONTEXT))
cluster-down: ## delete it and all that belongs to it (builds stay cached)
	@$(DEVCLUSTER) down
load: ## put an image on every node: ARCHIVE=image.tar (docker save)
	@test -n '$(ARCHIVE)' || { echo 'usage: make load ARCHIVE=image.tar'; exit 2; }
	@$(DEVCLUSTER) load '$(ARCHIVE)'
images: $(VENV) ## build the project's images: build/*.tar
	@.venv/bin/python -m hack.devcluster images
doctor: ## list what this machine has and lacks
	@$(DEVCLUSTER) doctor

.PHONY: deploy undeploy demo
deploy: $(VENV) ## build, load and install the project on the cluster
	@.venv/bin/python -m hack.devcluster deploy
undeploy: ## delete it again, Jobs included
	@$(DEVCLUSTER) undeploy
demo: $(VENV) ## the main job on real nodes, from nothing; KEEP=1 keeps the cluster
	@hack/devcluster/with-cluster $(KEEP) $(NODES) .venv/bin/python -m hack.devcluster demo

.PHONY: check language test-unit test-simulation-long test-contract test-integration test-integration-long test-e2e test-e2e-long test-browser test
check: $(VENV) ## ruff, mypy --strict, import rules, rules of language
	.venv/bin/ruff check .
	.venv/bin/ruff format --check .
	.venv/bin/mypy --strict
	.venv/bin/lint-imports
	$(PYTEST) tests/unit/test_language.py -q
language: $(VENV) ## list violations of the rules of language
	@.venv/bin/python -m tests.unit.language
test-unit: $(VENV) ## simulated clusters included; real are only shells, under which scripts run
	tests/once-more unit $(PYTEST) tests/unit tests/simulation tests/fuzz -n $(WORKERS) -m 'not on_demand'
test-simulation-long: $(VENV) ## simulated clusters of 1,000 nodes, not in `make test`
	$(PYTEST) tests/simulation -m on_demand
test-contract: $(VENV) ## against a scripted API server in the same process
	tests/once-more contract $(PYTEST) tests/contract -n $(WORKERS)
test-integration: $(VENV) ## against a real kube-apiserver and etcd
	KUBEBUILDER_ASSETS=$$($(DEVCLUSTER) binaries) tests/once-more integration $(PYTEST) tests/integration -n $(WORKERS) -m 'not on_demand'
test-integration-long: $(VENV) ## integration tests that take minutes each, not in `make test`
	KUBEBUILDER_ASSETS=$$($(DEVCLUSTER) binaries) $(PYTEST) tests/integration -m on_demand -s
test-e2e: $(VENV) ## on real nodes; creates a cluster unless there is one; KEEP=1 keeps it
	@hack/devcluster/with-cluster $(KEEP) $(NODES) tests/e2e/run $(E2E_WORKERS) 'not on_demand' $(PYTEST)
test-e2e-long: $(VENV) ## end-to-end tests that take minutes each, not in `make test`
	@hack/devcluster/with-cluster $(KEEP) $(NODES) tests/e2e/run $(E2E_WORKERS) on_demand $(PYTEST)
test-browser: $(VENV) ## the page of kubectl dsjob report --html in headless Chromium; not in `make test`
	@command -v chromium chromium-browser google-chrome >/dev/null || \
	  { echo 'missing: Chromium (on Debian: apt-get install chromium fonts-dejavu-core)'; exit 2; }
	$(PYTEST) tests/browser
test: check ## check and all rings of tests
	+@tests/run '$(MAKE)'
.PHONY: test-long
test-long: test-simulation-long test-integration-long test-e2e-long ## what `make test` leaves out: an hour and a half

.PHONY: lock
lock: ## images/requirements.txt: what the images install, by hash, from constraints.txt
	@$(PYTHON) -m venv build/lock
	build/lock/bin/pip install -q pip-tools
	CUSTOM_COMPILE_COMMAND='make lock' build/lock/bin/pip-compile -q --generate-hashes \
	  --strip-extras --no-emit-index-url --no-emit-trusted-host --no-emit-find-links \
	  -c constraints.txt -o images/requirements.txt pyproject.toml

.PHONY: man
man: $(VENV) ## write docs/man and docs/reference/cli.md from the help of kubectl dsjob
	.venv/bin/python -m tests.unit.cli.man_pages
	.venv/bin/python -m tests.unit.cli.reference

.PHONY: simulate
SEEDS ?= 100000
simulate: $(VENV) ## run more simulated clusters: SEEDS=1000000
	.venv/bin/python -m tests.simulation --seeds $(SEEDS)

.PHONY: fuzz
SECONDS ?= 60
TARGET ?=
FUZZ := .venv/.fuzz
$(FUZZ): $(VENV)
	.venv/bin/python -m pip install -q $(addprefix -c ,$(wildcard constraints.txt)) -e '.[dev,fuzz]'
	@touch $@
fuzz: $(FUZZ) ## parsers and decide, guided by coverage: SECONDS=60 for each, TARGET=
	@.venv/bin/python -m tests.fuzz --seconds $(SECONDS) $(TARGET)

.PHONY: mutate
MUTATIONS ?= 500
SEED ?= 0
MUTATE_ARGS ?=
mutate: $(VENV) ## try edge values of the API, and mutated Jobs: MUTATIONS=500 SEED=0; on a busy machine MUTATE_ARGS="--patience 3"
	KUBEBUILDER_ASSETS=$$($(DEVCLUSTER) binaries) \
	  .venv/bin/python -m tests.mutation --edges --mutations $(MUTATIONS) --seed $(SEED) $(MUTATE_ARGS)

.PHONY: schema
schema: $(VENV) ## generate spec.template in crds/jobs.yaml, and with it crds/scheduledjobs.yaml
	@set -o pipefail; KUBEBUILDER_ASSETS=$$($(DEVCLUSTER) binaries) \
	  .venv/bin/python -m tests.integration.openapi | .venv/bin/python crds/generate.py
	@.venv/bin/python -m crds.generate_scheduled

.PHONY: soak
HOURS ?= 8
SOAK_ARGS ?=
soak: $(VENV) ## run many Jobs with disturbances, and check for growth: HOURS=8, SOAK_ARGS=
	@$(DEVCLUSTER) up --nodes $(NODES) --fake-nodes $(if $(filter-out 0,$(FAKE_NODES)),$(FAKE_NODES),20)
	@.venv/bin/python -m hack.devcluster deploy
	@eval "$$($(DEVCLUSTER) env)"; .venv/bin/python -m benchmarks.soak --hours $(HOURS) $(SOAK_ARGS)

# What is created is in build/: the numbers as JSON, and plots. Nothing else may use the machine meanwhile.
BENCH := .venv/bin/python -m benchmarks
KINDS := template,watched,template-watched,small,1MiB,results,exit,gated
.PHONY: bench bench-full
bench: $(VENV) ## a Job against a bare DaemonSet on 1,003 nodes, about 12 minutes; nothing else may run meanwhile
	@mkdir -p build
	@$(DEVCLUSTER) up --nodes $(NODES) --fake-nodes 1000
	@.venv/bin/python -m hack.devcluster deploy
	@$(BENCH).sweep --nodes 1000 --kinds template-watched,small,exit --out build/bench-1000.json
	@$(BENCH).sweep_plot build/bench-1000.json > build/bench-1000.svg
	@echo 'build/bench-1000.json, build/bench-1000.svg'
bench-full: $(VENV) ## all kinds of runs on 203, 1,003 and 5,003 nodes, and 100 Jobs at once: hours
	@mkdir -p build
	@set -e; for nodes in 200 1000 5000; do \
	  $(DEVCLUSTER) up --nodes $(NODES) --fake-nodes $$nodes; \
	  .venv/bin/python -m hack.devcluster deploy; \
	  $(BENCH).sweep --nodes $$nodes --kinds $(KINDS) --repeat 5 --out build/bench-$$nodes.json; \
	  $(BENCH).sweep_plot build/bench-$$nodes.json > build/bench-$$nodes.svg; \
	  [ $$nodes = 200 ] || $(BENCH).many_jobs --out build/bench-many-$$nodes.json; \
	done
	@$(BENCH).sweep_plot build/bench-{200,1000,5000}.json > build/bench-by-nodes.svg
	@$(BENCH).decisions --out build/bench-decisions.json
	@$(BENCH).start_up
	@echo 'build/bench-*.json, build/bench-*.svg'

.PHONY: clean
clean: ## remove builds and caches of tools; cluster and .venv stay
	rm -rf build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache htmlcov .coverage
	find . -name __pycache__ -type d -not -path './.venv/*' -prune -exec rm -rf {} +
