# `make demo` and `make test` need nothing but a Python: the environments are made on first use.
# PYTHON=python3.12 chooses the interpreter that they are made from.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ORACLE_VENV := .oracle
TFMINI_ORACLE ?= $(CURDIR)/$(ORACLE_VENV)/bin/python
JOBS ?= 2

.PHONY: demo test test-slurm test-mpi test-ray test-kubernetes test-hosts bench-hosts chaos-hosts check names bench chaos fuzz soak schedules wheel clean

demo: $(VENV)/.examples
	$(BIN)/tfmini launch --ps 2 --workers 3 examples/digits_async.py

test: $(VENV)/.test $(ORACLE_VENV)/.stamp
	@if [ -x "$(TFMINI_ORACLE)" ] && "$(TFMINI_ORACLE)" -c "import importlib.util as u, sys; sys.exit(u.find_spec('tensorflow') is None)"; then \
		export TFMINI_ORACLE="$(TFMINI_ORACLE)"; \
	else \
		echo "No TensorFlow at $(TFMINI_ORACLE): the differential tests are skipped."; \
		unset TFMINI_ORACLE; \
	fi; \
	$(BIN)/python -m pytest -n $(JOBS) -q; outcome=$$?; \
	if [ $$outcome -eq 1 ]; then \
		echo "Failed beside others. Once more, each alone (docs/contributing.md, \"Unsteady tests\"):"; \
		$(BIN)/python -m pytest -q -rA --show-capture=no --last-failed --last-failed-no-failures=none; outcome=$$?; \
	fi; \
	exit $$outcome

# Clusters whose tasks are on hosts of their own: network namespaces, with cut and slow links. It needs root.
test-hosts: $(VENV)/.test
	@command -v tc >/dev/null || apt-get install -y -q iproute2
	TFMINI_TEST_HOSTS=1 $(BIN)/python -m pytest -q -rs tests/hosts

# Training jobs on such hosts with seeded faults of cables and hosts; CHAOS_HOSTS=--only\ 17 replays one.
CHAOS_HOSTS ?= --count 100
chaos-hosts: $(VENV)/.test
	@command -v tc >/dev/null || apt-get install -y -q iproute2
	$(BIN)/python -m tests.hosts.trials $(CHAOS_HOSTS)

# What such hosts put on the wire, as a table for benchmarks/README.md.
bench-hosts: $(VENV)/.test
	@command -v tc >/dev/null || apt-get install -y -q iproute2
	$(BIN)/python -m tests.hosts.table

# The tests of engines need their schedulers, which these targets install: apt needs root.
INSTALL := DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 -qq install -y --no-install-recommends

# A controller and four node daemons on this machine.
test-slurm: $(VENV)/.test
	@PATH="$$PATH:/usr/sbin" command -v slurmctld munged srun >/dev/null || \
		{ apt-get -qq update && $(INSTALL) slurmctld slurmd slurm-client munge; }
	TFMINI_TEST_ENGINE=slurm $(BIN)/python -m pytest -q tests/engines/test_slurm_jobs.py tests/engines/test_slurm_losses.py

# Open MPI and MPICH.
test-mpi: $(VENV)/.test
	@command -v mpirun.openmpi >/dev/null && command -v mpirun.mpich >/dev/null || \
		{ apt-get -qq update && $(INSTALL) openmpi-bin mpich; }
	TFMINI_TEST_ENGINE=mpi $(BIN)/python -m pytest -q tests/engines/test_mpi_runs.py

# Three nodes of Ray on this machine.
test-ray: $(VENV)/.test
	$(BIN)/pip install --quiet -e '.[ray]'
	TFMINI_TEST_ENGINE=ray $(BIN)/python -m pytest -q tests/engines/test_ray_runs.py tests/engines/test_ray_losses.py

# Manifests against the schemas in CRDS (jobset.yaml and tfjob.yaml, as their projects publish them; they are fetched where
# the network allows it), and the containers' commands on hosts that are network namespaces.
CRDS ?= $(CURDIR)/.crds
GITHUB := https://raw.githubusercontent.com
test-kubernetes: $(VENV)/.test
	$(BIN)/pip install --quiet -e '.[kubernetes]'
	@mkdir -p $(CRDS); cd $(CRDS); \
	test -s jobset.yaml || curl -fsSLo jobset.yaml $(GITHUB)/kubernetes-sigs/jobset/main/config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml || rm -f jobset.yaml; \
	test -s tfjob.yaml || curl -fsSLo tfjob.yaml $(GITHUB)/kubeflow/training-operator/v1.9.0/manifests/base/crds/kubeflow.org_tfjobs.yaml || rm -f tfjob.yaml
	TFMINI_TEST_ENGINE=kubernetes TFMINI_CRDS=$$(test -s $(CRDS)/jobset.yaml && test -s $(CRDS)/tfjob.yaml && echo $(CRDS)) \
		$(BIN)/python -m pytest -q -rs tests/engines/test_manifest.py tests/engines/test_kubernetes.py

check: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/mypy
	@echo "Longer than the house rules allow (tests/test_sizes.py lists them):"; $(BIN)/python tests/test_sizes.py
	$(BIN)/python -m pytest -q tests/test_layering.py tests/test_mirroring.py tests/test_namespace.py tests/test_sizes.py \
		tests/test_docs.py tests/test_named_things.py tests/test_promises.py

# The list of public names that tests/test_namespace.py pins; read its diff before committing it.
names: $(VENV)/.test
	$(BIN)/python tests/test_namespace.py > tests/public_names.txt

bench: $(VENV)/.test $(ORACLE_VENV)/.stamp
	TFMINI_ORACLE="$(TFMINI_ORACLE)" $(BIN)/python benchmarks/run.py

# Real training jobs with seeded kills and stops of their tasks; CHAOS=--only\ 17 replays one.
CHAOS ?= --count 300
chaos: $(VENV)/.test
	$(BIN)/python -m tests.chaos.trials $(CHAOS)

# Random messages to a real server by every transport.
fuzz: $(VENV)/.test
	$(BIN)/python -m tests.fuzz.attack --messages 1000000 --jobs $(JOBS)

# A million steps beside idle clients and clients that are killed: memory, threads and descriptors, with a plot.
soak: $(VENV)/.test
	$(BIN)/python -m tests.soak.soak --steps 1000000 --clients 50

# Whole clusters in virtual time, with seeded faults; SCHEDULES=--only\ 17 replays one.
SCHEDULES ?= --count 100000 --jobs $(JOBS)
schedules: $(VENV)/.test
	$(BIN)/python -m tests.virtual.schedules $(SCHEDULES)

# What `pip install` gets, in dist/. An old build folder may contain files that have gone since.
wheel: $(VENV)/.test
	rm -rf build
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean:
	rm -rf $(VENV) $(ORACLE_VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

# One stamp per extra: a second run installs nothing unless the dependencies have changed.
$(VENV)/.examples: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet -e '.[examples]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet -e '.[test,examples]'
	@touch $@ $(VENV)/.examples

$(VENV)/.dev: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet -e '.[all]'
	@touch $@ $(VENV)/.test $(VENV)/.examples

# TensorFlow lives in an environment of its own (with tf_keras, which its `tf.layers` needs). Where it cannot be installed the stamp is written all the
# same, with a word; `rm -r .oracle` asks for another try.
$(ORACLE_VENV)/.stamp:
	@mkdir -p $(ORACLE_VENV)
	@if [ -x "$(TFMINI_ORACLE)" ]; then echo "Differential tests use $(TFMINI_ORACLE)."; \
	elif $(PYTHON) -m venv $(ORACLE_VENV) && $(ORACLE_VENV)/bin/pip install --quiet 'tensorflow-cpu>=2.16' tf_keras tensorboard; then \
		echo "Installed TensorFlow into $(ORACLE_VENV) for the differential tests."; \
	else echo "TensorFlow could not be installed; going on without it."; fi
	@touch $@
