# Thin on purpose: set-up and test runs live in scripts/, the build in CMake presets.
.DEFAULT_GOAL := help
.PHONY: help setup build demo test test-long bench gpu asan tsan format lint clean

help: ## Print this list
	@echo 'Spillway: what make can do'
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' Makefile

setup: ## Install what is missing for all of this: Debian packages, and torch and HiGHS in .venv
	@scripts/setup.sh

build: setup ## Build everything; programs are in build/release/bin
	@cmake --preset release
	@cmake --build --preset release

demo: ## Set up what the program needs, build the program, and train a small transformer within a third of its memory
	@scripts/setup.sh demo
	@cmake --preset release
	@cmake --build --preset release --target spillway
	@scripts/demo.sh

test: setup ## Set up, build, and run every test, also under ThreadSanitizer, AddressSanitizer and UBSan
	@scripts/test.sh release tsan asan

test-long: setup ## The same, with all cases of all tests
	@SPILLWAY_TEST_LONG=1 scripts/test.sh release tsan asan

bench: build ## Measure transfers beside bare copies, and steps without and with a session or a budget, in C++ and in Python
	@build/release/bin/bench_transfer
	@build/release/bin/bench_layers
	@build/release/bin/bench_budget
	@scripts/python_package.sh
	@$${SPILLWAY_VENV:-.venv}/bin/python bench/python/layers.py

gpu: build ## Run what needs a GPU: its tests, alone and under compute-sanitizer, and several ranks on it
	@scripts/python_package.sh
	@scripts/gpu.sh tests stress sanitize ranks

asan: setup ## Run the tests of the parts without torch, the planner included, under AddressSanitizer and UBSan
	@scripts/test.sh asan

tsan: setup ## Run the tests of the parts that have threads, and of sessions, under ThreadSanitizer
	@scripts/test.sh tsan

format: setup ## Format all C++ sources
	@scripts/lint.sh format

lint: build ## Check format and words, and run clang-tidy
	@scripts/lint.sh check

clean: ## Remove what was built; .venv stays
	rm -rf build
