# Each target is one line that works without make as well.
.PHONY: run setup test lint fmt torture soak bench bench-large bench-streams bench-smoke ghz ci

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

torture: ## the long forms, for about an hour on two cores; a failure prints its A2AD_SEED
	.ci/setup
	A2AD_TORTURE=1 cargo test --test it -- $(TORTURE)

soak: ## twenty minutes of mixed load, after which memory is where it was
	A2AD_TORTURE=1 cargo test --test it -- soak:: --nocapture

bench: ## what it costs beside the limit; about five minutes
	cargo bench --bench load -- run

bench-large: ## the same with a database of 1,000,000 tasks, and the pictures of the docs
	cargo bench --bench load -- large --docs

bench-streams: ## how soon updates reach subscribers of another server, and what idle ones cost
	cargo bench --bench streams

bench-smoke: ## the same, too short to tell anything: it still works
	.ci/run bench

ghz: ## load a release build with ghz; STORE=postgres://... for another store than SQLite
	bench/ghz/run $(STORE)

ci:
	.ci/run
