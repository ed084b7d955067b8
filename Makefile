# Each target is one line that works without make as well.
.PHONY: run setup test lint fmt torture ci

run: ## serve on 127.0.0.1:50051
	cargo run --release -- serve

setup: ## install what the tests need beside Rust
	.ci/setup

test: ## install what is missing, then run every test
	.ci/run setup test

lint:
	.ci/run lint

fmt:
	cargo fmt

torture: ## the long forms: many more rounds, seeds and tasks
	.ci/setup
	A2AD_TORTURE=1 cargo test --test it

ci:
	.ci/run
