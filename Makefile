# make run      serve the small model on this machine and show one conversation
# make test     lint, types, unit and integration tests (about 20 minutes)
# make check    the fast part of it (a minute)
# make install  only make .venv
# make dashboards  write what Grafana and Prometheus read from dashboards/*.py
# make lock     renew the pinned lists in requirements/ from pyproject.toml
SHELL := /bin/bash
.SHELLFLAGS := -o pipefail -c
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
LISTS := requirements/cpu.txt requirements/dev.txt

CONFIG ?= serve.yaml
run_options := --config $(CONFIG) $(if $(MODEL),--model $(MODEL)) $(if $(PORT),--port $(PORT))

.PHONY: run test check lint unit integration install lock dashboards prometheus chromium

run: $(VENV)/ready
	@exec $(BIN)/python -m serve_app.run $(run_options)

install: $(VENV)/ready

test: lint unit integration

UNITS := not integration
check: UNITS := not integration and not slow
check: lint unit

lint: $(VENV)/ready
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy

unit: $(VENV)/ready prometheus
	$(BIN)/pytest -q -n 2 --dist loadfile -m "$(UNITS)"

integration: $(VENV)/ready prometheus chromium
	$(BIN)/pytest -v -m integration

dashboards: $(VENV)/ready
	$(BIN)/python -m dashboards.render

# For the tests: promtool checks the rules, Prometheus scrapes a running service. Only the programs
# are wanted, so a service that Debian starts is stopped.
SUDO := $(if $(filter 0,$(shell id -u)),,sudo -n)

prometheus:
	@command -v promtool >/dev/null || { echo "installing Debian's prometheus" && \
		$(SUDO) apt-get update -qq && \
		$(SUDO) apt-get install -y -qq --no-install-recommends prometheus >/dev/null && \
		{ ! test -d /run/systemd/system || $(SUDO) systemctl disable -q --now prometheus; }; } || \
		{ echo "install prometheus and promtool: the tests need them" >&2; exit 1; }

# For the tests: a browser opens the page of sessions.
chromium:
	@command -v chromium >/dev/null || { echo "installing Debian's chromium" && \
		$(SUDO) apt-get update -qq && \
		$(SUDO) apt-get install -y -qq --no-install-recommends chromium >/dev/null; } || \
		{ echo "install chromium: the tests need it" >&2; exit 1; }

# The lists are complete, so pip need not resolve (and could not: see requirements/overrides.txt).
$(VENV)/ready: pyproject.toml $(LISTS)
	@echo "installing packages into $(VENV), once (2 to 3 minutes, 4 GB)"
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --no-deps $(addprefix --requirement ,$(LISTS)) | awk \
		'/^(Collecting|Processing)/ && ++n % 40 == 0 { print "  " n " found"; fflush() } \
		/^Installing/ { print "  " n " found; installing"; fflush() }'
	@$(BIN)/pip install --quiet --no-deps --no-build-isolation --editable .
	@touch $@

COMPILE = $(BIN)/uv pip compile --quiet pyproject.toml --python-version 3.11 --no-emit-find-links \
	--custom-compile-command "make lock" $(if $(UPGRADE),--upgrade)

lock: $(VENV)/ready
	$(COMPILE) --extra cpu --override requirements/overrides.txt -o requirements/cpu.txt
	$(COMPILE) --extra dev --constraint requirements/cpu.txt -o requirements/dev.txt
	UV_FIND_LINKS= $(COMPILE) --extra gpu --python-platform x86_64-manylinux_2_28 \
		-o requirements/gpu.txt
