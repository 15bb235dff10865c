# make run    sets everything up and opens the Lab
# make dev    the same, and the page follows a change of the code
# make models brings a real model into models/, as make run does; with ALL=1 a decoder and one that reads pictures too
# make quick  format, lint, and the tests that answer within half a minute: for every change
# make test   sets everything up, the browser included, and runs the tests that find most faults in a minute
# make test-all runs all tests, and takes each feature away in turn: before a release
# make without FEATURE=circuits checks that everything else stands without a feature; with ALL=1 by every test
# make newest runs the tests with Streamlit's newest release, or with STREAMLIT=1.67.0 that one; ARGS=tests/pages/server/test_turns.py narrows them
# make check  format, lint, types, tests, and what a commit touched taken away; with MARKS= by all tests, as in CI
# make lock   writes the versions and hashes of everything, after a change of requirements*.txt
# make audit  what is known against what is locked, and a list of it (sbom.json)
# make decisions checks the decision records in docs/decisions and writes their index
# make plotly fetches Plotly's script for the page anew, for another version of the package
# make demo   writes the demo without a server into site/; with LAB=https://… it links to a full Lab
# make bench  how fast it is, against others, in three quarters of an hour; with ARGS=--quick in a quarter

PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
# Where torch comes from: an index; nothing means pip's own, which serves Linux a build with CUDA; auto means the CPU
# builds where their index answers in three seconds.
TORCH_INDEX ?= auto
CPU_INDEX = https://download.pytorch.org/whl/cpu
PATIENCE = 3
# How many tests run at a time. Each worker has a server and a browser, which wait for each other half of the time.
WORKERS ?= $(shell $(PYTHON) -c "import os; print(os.cpu_count() + 1)")
# Every file is one whose hash is locked; what would have to be built from source would fetch its builder without one.
PIP = python -m pip install --quiet --disable-pip-version-check --require-hashes --no-deps --only-binary :all:

# Where models come to lie, and what brings them.
MODELS = models
GET_MODELS = $(BIN)/python .ci/get_models.py

.PHONY: run dev models quick test test-all without newest check lint types format browser demo bench lock audit plotly decisions clean

# Who runs the Lab here may open any model that is here, so only this machine reaches it; with ADDRESS=0.0.0.0 others do, and may not.
ADDRESS ?= localhost
OWN = $(filter localhost 127.0.0.1 ::1,$(ADDRESS))
PATHS = $(if $(OWN),yes,no)
# Others reach it through nginx, which bounds what each of them may cost; without nginx it says so, and runs.
RUN = $(if $(OWN),$(BIN)/streamlit run app.py --server.address=$(ADDRESS),$(BIN)/python deploy/front.py)
# A trace may take what the memory of one's own machine allows; for others the limits of a server hold.
TRACE_MB = $(if $(OWN),auto,128)

# Without a model, or with models of one's own, it runs as well.
dev: WATCH = --server.fileWatcherType=poll --server.runOnSave=true
run dev: $(VENV)/.run
	@[ -n "$$LAB_MODELS" ] || $(GET_MODELS) minilm $(MODELS) || true
	LAB_ALLOW_LOCAL_MODELS=$${LAB_ALLOW_LOCAL_MODELS-$(PATHS)} LAB_MAX_TRACE_MB=$${LAB_MAX_TRACE_MB-$(TRACE_MB)} \
	  $(RUN) $(WATCH)

models: $(VENV)/.run
	@$(GET_MODELS) $(if $(ALL),all,minilm) $(MODELS)

# tests/quick.py decides which these are. Two workers, since each needs six seconds to import everything.
quick: lint
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -q -n 2 -m quick --durations=3

# The tests of models are about a real one, and fail without it.
# What is compiled is kept, also where the environment says otherwise: three workers and a dozen servers would compile it anew.
# With MARKS= all of them.
MARKS = not long
test: $(VENV)/.dev browser
	@$(GET_MODELS) minilm $(MODELS) || true
	PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest -n $(WORKERS) -m "$(MARKS)"

test-all: MARKS =
test-all: test
	$(BIN)/python .ci/without.py --each

# Without a name: the features that the last commits touched.
without: $(VENV)/.dev
	$(BIN)/python .ci/without.py $(FEATURE) $(if $(ALL),--all)

# An environment of its own; everything but Streamlit, and what its release requires, is as it is locked.
NEWEST ?= $(VENV)/newest
newest: browser
	@[ -x $(NEWEST)/bin/python ] || { echo "Making a virtual environment in $(NEWEST) ..."; $(PYTHON) -m venv $(NEWEST); }
	@$(NEWEST)/bin/python .ci/get_torch.py "$(TORCH_INDEX)" "$(CPU_INDEX)" $(PATIENCE)
	@echo "Installing what the Lab and its tests need ..."
	@$(NEWEST)/bin/$(PIP) -r lock/run.txt -r lock/dev.txt
	@$(NEWEST)/bin/python -m pip install --quiet --disable-pip-version-check --upgrade streamlit$(if $(STREAMLIT),==$(STREAMLIT))
	@$(NEWEST)/bin/python -c "from importlib.metadata import version; print('Testing with Streamlit', version('streamlit'))"
	@$(NEWEST)/bin/python .ci/get_models.py minilm $(MODELS) || true
	PYTHONDONTWRITEBYTECODE= $(NEWEST)/bin/python -m pytest -n $(WORKERS) $(ARGS)

check: lint types test without

lint: $(VENV)/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/hadolint Dockerfile

types: $(VENV)/.dev
	$(BIN)/mypy

format: $(VENV)/.dev
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The browser tests drive the system's Chromium, some through nginx. Where these cannot be had they fail; they are never skipped.
browser:
	@PATH="$$PATH:/usr/sbin"; wanted=; \
	command -v "$${CHROMIUM:-chromium}" >/dev/null || wanted="chromium"; \
	command -v "$${NGINX:-nginx}" >/dev/null || wanted="$$wanted nginx"; \
	[ -n "$$NGINX" ] || [ -e /usr/lib/nginx/modules/ngx_stream_module.so ] || wanted="$$wanted libnginx-mod-stream"; \
	[ -z "$$wanted" ] || { \
	  echo "Installing for the browser tests: $$wanted ..."; \
	  sudo=$$( [ "$$(id -u)" = 0 ] || echo sudo ); \
	  $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq $$wanted >/dev/null && \
	  case "$$wanted" in *nginx*) $$sudo systemctl disable --now nginx >/dev/null 2>&1 || true ;; esac; } || \
	  { echo "The browser tests need $$wanted, which could not be installed with apt-get. Install it, or name it: make test CHROMIUM=/path/to/chromium NGINX=/path/to/nginx" >&2; exit 1; }

# A folder of files that any web space serves, and a browser opens without one. Without a model it has two states less.
SITE = site
demo: $(VENV)/.run
	@$(GET_MODELS) minilm $(MODELS) || true
	$(BIN)/python -m attention.demo $(SITE) $(if $(LAB),--lab $(LAB)) --models $(MODELS)

# Every part runs, also after one that has not reached its floors.
bench: $(VENV)/.dev browser
	@$(GET_MODELS) minilm $(MODELS) || true
	@failed=0; for part in backend start fifty since speed models mosaic compare corpus training training_film; do [ -f benchmarks/$$part.py ] || continue; echo; echo "benchmarks.$$part"; \
	  $(BIN)/python -m benchmarks.$$part $(ARGS) || failed=1; done; exit $$failed

# Versions and hashes of everything, also of what our requirements require; with ARGS=--upgrade the newest that these allow.
lock: $(VENV)/.dev
	@$(BIN)/python .ci/lock.py $(CPU_INDEX) $(ARGS)

# Its tools are no part of .dev, which CI installs each time. Strict: a package that could not be looked up is not one without faults.
audit: $(VENV)/.run $(VENV)/audit/.audit
	@$(VENV)/audit/bin/cyclonedx-py environment --pyproject pyproject.toml --output-reproducible --output-file sbom.json $(BIN)/python
	@echo "What is installed, with its licences: sbom.json. What is known against what is locked:"
	@failed=0; for part in run torch cluster dev models gguf audit; do echo "lock/$$part.txt"; \
	  $(VENV)/audit/bin/pip-audit --strict --progress-spinner off --disable-pip --require-hashes -r lock/$$part.txt || failed=1; done; exit $$failed

decisions:
	@$(PYTHON) .ci/decisions.py

# Plotly's script for the page, in the version that the Python package has. Needs npm, whose word for the file is here:
# npm view plotly.js-cartesian-dist-min@VERSION dist.integrity
PLOTLY_INTEGRITY = sha512-o8GrFeusncwBIxbBynRJpY4pkgVB6caM+JLpwrLYbbsO7dZ8FJ+SVN2Fr+L7kiG/Z6w4P5O0Jus/Qr5EefHVeg==
VENDOR = attention/pictures/figure/vendor
plotly: $(VENV)/.run
	@version=$$($(BIN)/python -c "from plotly.offline import get_plotlyjs_version; print(get_plotlyjs_version())"); \
	folder=$$(mktemp -d); trap "rm -rf $$folder" EXIT; \
	npm pack --silent --pack-destination $$folder plotly.js-cartesian-dist-min@$$version >/dev/null || exit 1; \
	got=sha512-$$(openssl dgst -sha512 -binary $$folder/*.tgz | openssl base64 -A); \
	[ "$$got" = "$(PLOTLY_INTEGRITY)" ] || { echo "Expected $(PLOTLY_INTEGRITY), got $$got for version $$version: if the version is another one, put its integrity into the Makefile." >&2; exit 1; }; \
	tar -xzf $$folder/*.tgz -C $(VENDOR) --strip-components=1 package/plotly-cartesian.min.js package/LICENSE

clean:
	rm -rf $(VENV) sbom.json site .mypy_cache .pytest_cache .ruff_cache .hypothesis

$(VENV)/.venv:
	@echo "Making a virtual environment in $(VENV) ..."
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.run: $(VENV)/.venv lock/run.txt lock/torch.txt lock/cpu.txt
	@$(BIN)/python .ci/get_torch.py "$(TORCH_INDEX)" "$(CPU_INDEX)" $(PATIENCE)
	@echo "Installing what the Lab needs ..."
	@$(BIN)/$(PIP) -r lock/run.txt
	@touch $@

$(VENV)/.dev: $(VENV)/.run lock/dev.txt
	@echo "Installing what the tests need ..."
	@$(BIN)/$(PIP) -r lock/dev.txt
	@touch $@

$(VENV)/audit/.audit: lock/audit.txt
	@echo "Installing what the audit needs ..."
	@$(PYTHON) -m venv $(VENV)/audit
	@$(VENV)/audit/bin/$(PIP) -r lock/audit.txt
	@touch $@
