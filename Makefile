# `make demo` and `make test` need nothing but a Python: the environments are made on first use.
# PYTHON=python3.12 chooses the interpreter that they are made from.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
ORACLE_VENV := .oracle
TFMINI_ORACLE ?= $(CURDIR)/$(ORACLE_VENV)/bin/python
# TensorFlow 1.15 needs a Python 3.7, and knows only an older numpy and protobuf.
PYTHON37 ?= $(firstword $(wildcard $(HOME)/.pyenv/versions/3.7*/bin/python) $(shell command -v python3.7))
ORACLE_1X_VENV := .oracle1x
TFMINI_ORACLE_1X ?= $(CURDIR)/$(ORACLE_1X_VENV)/bin/python
JOBS ?= 2

# Else each process of a cluster would compile all modules when it starts, which takes longer than all else there.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test coverage docs house install-hosts install-slurm install-mpi install-apt install-ray install-kubernetes test-slurm test-mpi test-ray test-kubernetes test-hosts bench-hosts chaos-hosts check names bench gpu-check chaos fuzz fuzz-kernels fuzz-readers programs soak moving schedules wheel clean

demo: $(VENV)/.examples
	$(BIN)/tfmini launch --ps 2 --workers 3 examples/digits_async.py

# Exports TFMINI_ORACLE and TFMINI_ORACLE_1X where they have TensorFlow.
exported = if [ -x "$($1)" ] && "$($1)" -c "import importlib.util as u, sys; sys.exit(u.find_spec('tensorflow') is None)"; then \
		export $1="$($1)"; \
	else \
		echo "No TensorFlow at $($1): the tests that compare with it are skipped."; \
		unset $1; \
	fi
oracle = $(call exported,TFMINI_ORACLE); $(call exported,TFMINI_ORACLE_1X)

test: $(VENV)/.test $(ORACLE_VENV)/.stamp $(ORACLE_1X_VENV)/.stamp
	@$(oracle); $(BIN)/python -m pytest -n $(JOBS) -q $(if $(REST),$(COVERED:%=--ignore=%))

# The lines of tfmini that its unit tests reach. It makes tests take about half as long again, so `make test` does not
# measure; `make test REST=1` runs what this leaves.
COVERED := tests/checkpoint tests/graph tests/numerics tests/placement tests/protos tests/values
coverage: $(VENV)/.test $(ORACLE_VENV)/.stamp $(ORACLE_1X_VENV)/.stamp
	@$(oracle); $(BIN)/python -m pytest -n $(JOBS) -q --cov=tfmini --cov-report=term:skip-covered $(COVERED)

# The tests of engines need their schedulers, which these targets install: apt needs root. SELECT="-m ci" is the short
# selection of .ci/engines. Only here does what has failed run once more, alone, and that decides: a scheduler's own daemons
# share two cores with the job, and give up a node or a step that they do not hear in time; no test can change their limits.
SELECT ?=
twice = run() { $(BIN)/python -m pytest -q $(SELECT) $(1) "$$@"; }; run -rs || \
	{ [ $$? -eq 1 ] && echo "Failed. Once more:" && run -rA --show-capture=no --last-failed --last-failed-no-failures=none; }
# Without a network apt gives up within seconds.
APT := DEBIAN_FRONTEND=noninteractive RES_OPTIONS="timeout:3 attempts:1" apt-get -qq -o DPkg::Lock::Timeout=100 -o Acquire::Retries=0 \
	-o Acquire::http::Timeout=5 -o Acquire::https::Timeout=5 -o APT::Update::Error-Mode=any
apt_install = timeout 60 env $(APT) update && $(APT) install -y --no-install-recommends $(1)
PIP := $(BIN)/pip install --quiet --timeout 10 --retries 1
HAS := export PATH="$$PATH:/usr/sbin"; has() { for each; do command -v $$each >/dev/null || return 1; done; }; has

install-hosts:
	@$(HAS) ip tc || { $(call apt_install,iproute2); }

install-slurm:
	@$(HAS) slurmctld slurmd srun munged || { $(call apt_install,slurmctld slurmd slurm-client munge); }

# Open MPI and MPICH.
install-mpi:
	@$(HAS) mpirun.openmpi mpirun.mpich || { $(call apt_install,openmpi-bin mpich); }

# All of these at once.
install-apt:
	@$(HAS) ip tc slurmctld slurmd srun munged mpirun.openmpi mpirun.mpich || \
		{ $(call apt_install,iproute2 slurmctld slurmd slurm-client munge openmpi-bin mpich); }

install-ray: $(VENV)/.test
	@$(BIN)/python -c "import ray" 2>/dev/null || $(PIP) -e '.[ray]'

install-kubernetes: $(VENV)/.test
	@$(BIN)/python -c "import kubernetes, kubernetes_validate, jsonschema" 2>/dev/null || $(PIP) -e '.[kubernetes]'

# Clusters whose tasks are on hosts of their own: network namespaces, with cut and slow links. It needs root.
test-hosts: $(VENV)/.test install-hosts
	export TFMINI_TEST_HOSTS=1; $(call twice,tests/hosts)

# Training jobs on such hosts with seeded faults of cables and hosts; CHAOS_HOSTS=--only\ 17 replays one.
CHAOS_HOSTS ?= --count 100
chaos-hosts: $(VENV)/.test install-hosts
	$(BIN)/python -m tests.hosts.trials $(CHAOS_HOSTS)

# What such hosts put on the wire, as a table for benchmarks/README.md.
bench-hosts: $(VENV)/.test install-hosts
	$(BIN)/python -m tests.hosts.table

# A controller and four node daemons on this machine.
test-slurm: $(VENV)/.test install-slurm
	export TFMINI_TEST_ENGINE=slurm; $(call twice,tests/launch/test_mpi_slurm_jobs.py tests/launch/test_mpi_slurm_losses.py)

test-mpi: $(VENV)/.test install-mpi
	export TFMINI_TEST_ENGINE=mpi; $(call twice,tests/launch/test_mpi_runs.py)

# Three nodes of Ray on this machine.
test-ray: $(VENV)/.test install-ray
	export TFMINI_TEST_ENGINE=ray; $(call twice,tests/launch/test_ray_runs.py tests/launch/test_ray_losses.py)

# Manifests against the schemas in CRDS (jobset.yaml and tfjob.yaml, as their projects publish them; they are fetched where
# the network allows it), and the containers' commands on hosts that are network namespaces.
CRDS ?= $(CURDIR)/.crds
CURL := curl -fsSL --connect-timeout 5 --max-time 30 -o
GITHUB := https://raw.githubusercontent.com
test-kubernetes: $(VENV)/.test install-kubernetes
	@mkdir -p $(CRDS); cd $(CRDS); \
	test -s jobset.yaml || $(CURL) jobset.yaml $(GITHUB)/kubernetes-sigs/jobset/main/config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml || rm -f jobset.yaml; \
	test -s tfjob.yaml || $(CURL) tfjob.yaml $(GITHUB)/kubeflow/training-operator/v1.9.0/manifests/base/crds/kubeflow.org_tfjobs.yaml || rm -f tfjob.yaml
	export TFMINI_TEST_ENGINE=kubernetes TFMINI_CRDS=$$(test -s $(CRDS)/jobset.yaml && test -s $(CRDS)/tfjob.yaml && echo $(CRDS)); \
		$(call twice,tests/launch/test_manifest.py tests/launch/test_kubernetes.py)

# All that can be told without running anything. `examples` and the code in `docs` have shorter lines than the formatter's.
check: $(VENV)/.dev
	$(BIN)/ruff format --check tfmini tests benchmarks docs/site
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m tests.house

# What follows from the @export marks: the table of public names, the stubs, and the list that tests/test_namespace.py
# pins; and the signatures of all ops. Read the diff of the lists before committing them.
names: $(VENV)/.test
	$(BIN)/python -m tests.api_generator
	$(BIN)/python -m tests.test_namespace > tests/public_names.txt

# On a machine with a GPU, where an environment with JAX for it is active; it needs no network and ends within 8 minutes.
gpu-check:
	$(or $(PYTHON_WITH_GPU),python) -m benchmarks.gpu_check --out gpu-check.txt

bench: $(VENV)/.test $(ORACLE_VENV)/.stamp $(ORACLE_1X_VENV)/.stamp
	@$(oracle); $(BIN)/python benchmarks/run.py

# The site, in build/docs/html; see docs/site/assemble.py. It needs no network; a warning is an error.
docs: $(VENV)/.docs
	$(BIN)/python -m docs.site.assemble build/docs/source
	$(BIN)/python -m sphinx -q -W --keep-going -c docs/site build/docs/source build/docs/html
	@echo "The site is build/docs/html/index.html."

# How large and how tangled the library is, beside its budgets (tests/house.py).
house: $(VENV)/.test
	$(BIN)/python -m tests.house

# Real training jobs with seeded kills and stops of their tasks; CHAOS=--only\ 17 replays one.
CHAOS ?= --count 300
chaos: $(VENV)/.test
	$(BIN)/python -m tests.chaos.trials $(CHAOS)

# Random programs with conditionals and loops, on one and on three tasks, beside TensorFlow; PROGRAMS=--only\ 17 replays one.
PROGRAMS ?= --count 2000
programs: $(VENV)/.test $(ORACLE_VENV)/.stamp
	TFMINI_ORACLE="$(TFMINI_ORACLE)" $(BIN)/python -m tests.programs.random_programs $(PROGRAMS)

# Random messages to a real server by every transport.
fuzz: $(VENV)/.test
	$(BIN)/python -m tests.fuzz.attack --messages 1000000 --jobs $(JOBS)

# Damaged files and texts to everything that reads some; FUZZ_READERS=--only\ 17 replays one.
FUZZ_READERS ?= --inputs 100000 --jobs $(JOBS)
fuzz-readers: $(VENV)/.test
	$(BIN)/python -m tests.fuzz.readers $(FUZZ_READERS)

# Mutated samples of all ops on guarded memory; FUZZ_KERNELS=--only\ 17 replays one.
FUZZ_KERNELS ?= --count 100000
fuzz-kernels: $(VENV)/.test
	$(BIN)/python -m tests.fuzz.kernels $(FUZZ_KERNELS)

# A million steps beside idle clients and clients that are killed: memory, threads and descriptors, with a plot.
soak: $(VENV)/.test
	$(BIN)/python -m tests.soak.soak --steps 1000000 --clients 50

# A hundred thousand additions to counters that move from ps to ps all the time: none is lost, none made twice.
moving: $(VENV)/.test
	$(BIN)/python -m tests.soak.moving --additions 100000

# Whole clusters in virtual time, with seeded faults; SCHEDULES=--only\ 17 replays one.
SCHEDULES ?= --count 100000 --jobs $(JOBS)
schedules: $(VENV)/.test
	$(BIN)/python -m tests.virtual.schedules $(SCHEDULES)

# What `pip install` gets, in dist/. An old build folder may contain files that have gone since.
wheel: $(VENV)/.test
	rm -rf build
	$(BIN)/python -m pip wheel --quiet --no-deps --no-build-isolation --wheel-dir dist .

clean:
	rm -rf $(VENV) $(ORACLE_VENV) $(ORACLE_1X_VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage

$(BIN)/pip:
	$(PYTHON) -m venv $(VENV)

# One stamp per extra: a second run installs nothing unless the dependencies have changed.
$(VENV)/.examples: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet -e '.[examples]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet -e '.[test,examples]'
	@touch $@ $(VENV)/.examples

$(VENV)/.docs: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet -e '.[docs]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/pip
	$(BIN)/pip install --quiet -e '.[all]'
	@touch $@ $(VENV)/.test $(VENV)/.examples $(VENV)/.docs

# TensorFlow lives in an environment of its own (with tf_keras, which its `tf.layers` needs). Where it cannot be installed the stamp is written all the
# same, with a word; `rm -r .oracle` asks for another try.
$(ORACLE_VENV)/.stamp:
	@mkdir -p $(ORACLE_VENV)
	@if [ -x "$(TFMINI_ORACLE)" ]; then echo "Differential tests use $(TFMINI_ORACLE)."; \
	elif $(PYTHON) -m venv $(ORACLE_VENV) && $(ORACLE_VENV)/bin/pip install --quiet 'tensorflow-cpu>=2.16' tf_keras tensorboard; then \
		echo "Installed TensorFlow into $(ORACLE_VENV) for the differential tests."; \
	else echo "TensorFlow could not be installed; going on without it."; fi
	@touch $@

$(ORACLE_1X_VENV)/.stamp:
	@mkdir -p $(ORACLE_1X_VENV)
	@if [ -x "$(TFMINI_ORACLE_1X)" ]; then echo "Differential tests use $(TFMINI_ORACLE_1X)."; \
	elif [ -z "$(PYTHON37)" ]; then echo "No Python 3.7 was found for TensorFlow 1.15; PYTHON37=PATH names one."; \
	elif $(PYTHON37) -m venv $(ORACLE_1X_VENV) && \
		$(ORACLE_1X_VENV)/bin/pip install --quiet 'tensorflow==1.15.5' 'protobuf<3.21' 'numpy<1.19'; then \
		echo "Installed TensorFlow 1.15 into $(ORACLE_1X_VENV) for the differential tests."; \
	else echo "TensorFlow 1.15 could not be installed; going on without it."; fi
	@touch $@
