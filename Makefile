# Everything is installed into .venv at the versions of constraints.txt, from
# wherever the user's pip is configured to look.

PYTHON ?= python3
VENV := .venv
OLDEST_VENV := .venv-oldest
NEWEST_VENV := .venv-newest
DOCS_VENV := .venv-docs

# The fastest to test with first, as it runs all tests.
BACKENDS := $(or $(BACKEND),torch jax tensorflow)
FUZZ_SECONDS ?= 3600
QUICKSTART_BACKEND := $(or $(KERAS_BACKEND),$(BACKEND),jax)

# Without the extras that bring TensorFlow: of it the group for CPUs is taken.
EXTRAS := data,cv,plots,explain,tensorboard,export,hub,serve,storage,streams,text
OLDEST_EXTRAS := jax,data,tensorboard,hub,serve,storage

# JAX and NumPy stop early for old Pythons, so that the newest one is asked for.
NEWEST_PYTHON ?= python3.13
NEWEST_GROUPS := $(addprefix --group ,test tensorflow $(BACKENDS))
NEWEST := $(NEWEST_VENV)/.$(subst $() ,-,$(BACKENDS))

# Three workers for two cores, as tests of servers and processes wait, each with a
# file of tests at a time.
PYTEST_FLAGS := --numprocesses 3 --dist loadfile \
	$(if $(CI),--color=no -o console_output_style=classic)

# Tests of what no backend of Keras has a part in: with the first one alone.
ONCE := tests/data tests/planning $(addprefix tests/, \
	$(addprefix auditing/test_, \
		label_errors.py near_duplicates.py odd_images.py) \
	$(addprefix analysis/test_, \
		accessibility.py analysis_plots.py page_in_browser.py plots.py \
		report.py \
		report_extremes.py result_plots.py) \
	$(addprefix checkpoints/test_, \
		augreg_names.py catalog.py dialects.py download.py \
		export_folders.py fetch.py \
		fuzz.py https.py memory.py messages.py modern_weights.py \
		npz.py resample.py rubbish.py rubbish_safetensors.py \
		save_every_option.py) \
	$(addprefix evaluation/test_, \
		classification.py files.py imagenet.py metrics.py \
		picture_rows.py together.py) \
	$(addprefix exporting/test_, \
		browser_page.py cells.py comparison.py openvino.py) \
	$(addprefix prediction/test_, \
		explain.py explained_run.py resampling.py) \
	$(addprefix recipes/test_, \
		commands.py first_hour.py fractal_examples.py fractals.py guides.py \
		kaggle.py \
		masked_patch_batches.py more_configs.py \
		noisy_student.py paper_cells.py paper_configs.py \
		paper_sections.py reproduce.py small_scale.py sweep.py vtab.py \
		vtab_data.py vtab_labels.py vtab_names.py vtab_table.py wheel.py) \
	$(addprefix serving/test_, \
		batching.py docker.py hostile.py page.py requests.py stopping.py) \
	$(addprefix sharing/test_, folder.py kaggle.py push.py) \
	text/test_tokenizers.py \
	$(addprefix robustness/test_, \
		fuzz.py paths.py security.py surfaces.py) \
	$(addprefix training/test_, \
		config.py plan.py run_folder.py run_lock.py run_store.py \
		checkpoint_shards.py \
		tensorboard.py) \
	$(addprefix test_, \
		additions.py architecture.py cli_files.py compiled_programs.py \
		documents.py \
		decode_predictions.py files.py \
		labels.py model_pages.py packaging.py readme.py speed_results.py \
		tables.py workflows.py))

# These build models, but meet no operation of a backend that others do not test
# on each: all names of public checkpoints, files, commands, figures.
FIRST := $(addprefix tests/, auditing/test_audit.py \
	$(addprefix analysis/test_, \
		attention_page.py compute.py distance.py feature_maps.py \
		overview.py rollout.py weights_analysis.py) \
	$(addprefix applications/test_, \
		application_errors.py parameter_counts.py) \
	$(addprefix checkpoints/test_, \
		adapters.py agreement.py export.py fuzz_keras.py \
		hugging_face_kinds.py keras_folder.py layouts.py mutations.py \
		open_clip.py opened_once.py original_names.py read_by_others.py \
		replaced_heads.py \
		rubbish_keras.py sam.py strictness.py timm_kinds.py \
		wrapped_names.py) \
	conformance/test_keras_applications.py \
	$(addprefix evaluation/test_, \
		class_metrics.py few_shot.py few_shot_inputs.py probes.py) \
	$(addprefix models/test_, golden.py options.py) \
	$(addprefix prediction/test_, \
		command.py embed.py embeddings_file.py predict.py search.py \
		trained_as.py) \
	$(addprefix recipes/test_, \
		competition.py cross_validate.py evaluate.py few_shot.py \
		finetune_cli.py noisy_student_parts.py regression.py smoke.py) \
	$(addprefix robustness/test_, findings.py mishaps.py refusals.py) \
	serving/test_search.py \
	$(addprefix training/test_, \
		changed_data.py collapse.py explained_checkpoints.py fields.py \
		longer_runs.py run_reader.py trackers.py) \
	test_cli.py test_preprocessing_errors.py)

# $(call create,VENV,CONSTRAINTS): the pip of an old Python knows no --group.
create = $(PYTHON) -m venv $(1) && $(1)/bin/python -m pip install --quiet \
	--upgrade --constraint $(2) pip
# $(call install,VENV,CONSTRAINTS): --build-constraint pins hatchling as well.
install = $(1)/bin/python -m pip install --quiet \
	--constraint $(2) --build-constraint $(2)

.DELETE_ON_ERROR:
.NOTPARALLEL:
.PHONY: help quickstart test test-all check test-oldest test-newest fuzz \
	mutants conformance real-weights public-goldens release-check notebooks \
	docs clean

help: ## list the targets
	@awk -F ': .*## ' '/^[a-z-]+: .*## / {printf "%-14s %s\n", $$1, $$2}' Makefile

quickstart: $(VENV)/.quickstart-$(QUICKSTART_BACKEND) ## fine-tune a small model on KERAS_BACKEND (jax) and report
	KERAS_BACKEND=$(QUICKSTART_BACKEND) $(VENV)/bin/python \
		recipes/finetune.py --config recipes/configs/quickstart.yaml \
		--run_dir runs/quickstart

test: MARKERS := not slow
test test-newest: ONCE += $(FIRST)
test test-newest: LATER := not slow and not once
test: check run-tests ## check, then test on each backend, or on one: BACKEND=jax
test-all: check run-tests ## the same with the slow tests

# The same computation is compiled once, for all models, files and workers.
run-tests test-newest: export JAX_COMPILATION_CACHE_DIR ?= \
	$(CURDIR)/.pytest_cache/jax
run-tests test-newest: export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS ?= 0
run-tests test-newest: export JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES ?= -1
# So is Python's code, even where PYTHONDONTWRITEBYTECODE is set.
run-tests test-newest: export PYTHONDONTWRITEBYTECODE :=

# $(call run_tests,VENV): on each backend, after failures too but for Ctrl-C;
# those of ONCE, and where LATER leaves them out single tests of other files, on
# the first.
define run_tests
	@left_out=; failed=0; markers="$(MARKERS)"; for backend in $(BACKENDS); do \
		echo "backend: $$backend"; \
		OMP_NUM_THREADS=1 KERAS_BACKEND=$$backend \
			$(1)/bin/python -m pytest $(PYTEST_FLAGS) -m "$$markers" \
			$$left_out || failed=$$?; \
		[ $$failed -ne 2 ] || exit 2; \
		left_out="$(addprefix --ignore=,$(ONCE))"; markers="$(LATER)"; \
	done; exit $$failed
endef

.PHONY: run-tests
run-tests: $(VENV)/.full
	$(call run_tests,$(VENV))

check: $(VENV)/.full ## format, lint, types, workflows and what GitHub and Zenodo read
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/ruff check .
	$(VENV)/bin/pyright --pythonpath $(VENV)/bin/python
	$(VENV)/bin/zizmor --offline --quiet .github
	$(call schema,github-workflows,.github/workflows/*.yml)
	$(call schema,github-issue-forms,.github/ISSUE_TEMPLATE/[bf]*.yml)
	$(call schema,github-issue-config,.github/ISSUE_TEMPLATE/config.yml)
	$(call schema,dependabot,.github/dependabot.yml)
	$(call schema,citation-file-format,CITATION.cff)

schema = $(VENV)/bin/check-jsonschema --quiet --builtin-schema vendor.$(1) $(2)

test-oldest: $(OLDEST_VENV)/.full ## test with the oldest Keras, JAX and NumPy supported
	KERAS_BACKEND=jax $(OLDEST_VENV)/bin/python -m pytest \
		$(PYTEST_FLAGS) -m "not slow"

test-newest: MARKERS := not slow
test-newest: $(NEWEST) ## test with the newest release of everything, on NEWEST_PYTHON (python3.13)
	$(call run_tests,$(NEWEST_VENV))

fuzz: $(VENV)/.full ## fuzz configs, commands, files, run folders, requests for FUZZ_SECONDS (3600)
	$(VENV)/bin/python tests/robustness/fuzz.py --seconds $(FUZZ_SECONDS)

mutants: $(VENV)/.full ## draw 100 small faults, count those that the tests find (hours)
	$(VENV)/bin/python tools/mutants.py --count 100 \
		--output benchmarks/results/mutants.json

conformance: $(VENV)/.full ## run others' tests on our models, or one suite: SUITE="timm, steps"; write docs/conformance.md
	$(VENV)/bin/python tools/conformance.py --only "$(SUITE)" \
		$(if $(CLONES),--clones $(CLONES))

real-weights: $(VENV)/.full ## rebuild two real encoders and compare them on each backend, write docs/weights.md
	$(VENV)/bin/python tools/real_weights.py build build/weights
	for backend in $(BACKENDS); do KERAS_BACKEND=$$backend \
		$(VENV)/bin/python tools/real_weights.py check build/weights || exit 1; \
	done
	$(VENV)/bin/python tools/real_weights.py page build/weights

public-goldens: $(VENV)/.full ## compare public weights with the numbers of others' tests (downloads 1.2 GB), print a table to post
	$(VENV)/bin/python tools/public_goldens.py

release-check: $(VENV)/.full ## use the sdist and the wheel in fresh environments of each Python and backend
	$(VENV)/bin/python tools/release_check.py

notebooks: $(VENV)/.full ## make the .ipynb files from the scripts beside them
	$(VENV)/bin/python tools/make_notebooks.py

docs: $(DOCS_VENV)/.full ## make the site in site/, links checked
	NO_MKDOCS_2_WARNING=1 $(DOCS_VENV)/bin/mkdocs build --strict

clean: ## remove environments, caches and builds, but no runs
	rm -rf $(VENV) $(OLDEST_VENV) $(NEWEST_VENV) $(DOCS_VENV) \
		build dist site \
		.hypothesis .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/.pip: constraints.txt
	$(call create,$(VENV),constraints.txt)
	touch $@

# What a first run needs: one backend, and no tools of the developers.
$(VENV)/.quickstart-%: $(VENV)/.pip pyproject.toml
	$(call install,$(VENV),constraints.txt) -e ".[plots]" --group $*
	touch $@

$(VENV)/.full: $(VENV)/.pip pyproject.toml
	$(call install,$(VENV),constraints.txt) -e ".[$(EXTRAS)]" --group dev
	$(call install,$(VENV),constraints.txt) --no-deps timm
	touch $@ $(addprefix $(VENV)/.quickstart-,tensorflow jax torch)

$(OLDEST_VENV)/.full: pyproject.toml constraints-oldest.txt
	$(call create,$(OLDEST_VENV),constraints-oldest.txt)
	$(call install,$(OLDEST_VENV),constraints-oldest.txt) \
		-e ".[$(OLDEST_EXTRAS)]" --group test --group tensorflow
	touch $@

# Nothing is pinned: what breaks with a release of this week is seen here first.
$(NEWEST): PYTHON := $(NEWEST_PYTHON)
$(NEWEST): pyproject.toml
	$(call create,$(NEWEST_VENV),/dev/null)
	$(call install,$(NEWEST_VENV),/dev/null) \
		-e ".[$(OLDEST_EXTRAS)]" $(NEWEST_GROUPS)
	touch $@

$(DOCS_VENV)/.full: pyproject.toml constraints.txt
	$(call create,$(DOCS_VENV),constraints.txt)
	$(call install,$(DOCS_VENV),constraints.txt) --group docs
	touch $@
