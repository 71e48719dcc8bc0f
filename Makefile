# Commands for users and contributors. `make` without a target lists them.

BUILD_PACKAGES = gcc libc6-dev
TEST_PACKAGES  = $(BUILD_PACKAGES) patch python3 util-linux valgrind strace redis-server

.PHONY: help run test build tester dist deb static image install book attack deep simulate conformance http3-clients grpc-clients websocket-clients cache-tests bench bench-guard fuzz-smoke loom miri tsan clean

help:
	@sed -n 's/^## //p' $(MAKEFILE_LIST)

## make run                   build, and serve a demonstration site on http://localhost:6081
run: build
	@target/release/lacquer run

## make test                  all tests; installs the Debian packages that they need
test: cargo
	@scripts/need $(TEST_PACKAGES)
	@tests/run

## make build                 the optimized programs: target/release/lacquerd and lacquer
build: cargo
	@scripts/need $(BUILD_PACKAGES)
	cargo build --release -p lacquer

## make tester                the program behind `lacquer test`: target/release/lacquer-test
tester: cargo
	@scripts/need $(BUILD_PACKAGES)
	cargo build --release -p lacquer-vcl-test

## make dist                  the programs to install, compiled with a traffic profile, in target/dist
dist: cargo
	@scripts/need $(BUILD_PACKAGES) nghttp2-client openssl python3 util-linux wrk
	@scripts/dist

## make deb                   Debian packages in target/deb, from the programs of make dist; PROGRAMS=DIR names others
deb: $(if $(PROGRAMS),,dist)
	@scripts/need binutils dpkg-dev python3 xz-utils
	@scripts/deb $(if $(PROGRAMS),--programs $(PROGRAMS)) $(ARGS)

## make static                both programs without shared libraries (musl), in target/static
static: cargo
	@scripts/need $(BUILD_PACKAGES) binutils python3
	@scripts/static

## make image                 a container image, from the programs of make dist; PROGRAMS=DIR names others
image: $(if $(PROGRAMS),,dist)
	@scripts/need binutils ca-certificates
	@scripts/image $(if $(PROGRAMS),--programs $(PROGRAMS)) $(ARGS)

## make install PREFIX=DIR    the programs of make dist, manual pages, completions, unit and settings; also DESTDIR,
##                            and PROGRAMS=DIR for other programs
install:
	@scripts/install --prefix "$(or $(PREFIX),/usr/local)" --destdir "$(DESTDIR)" $(if $(PROGRAMS),--programs $(PROGRAMS))

## make book                  the documentation as a site, in target/book
book: cargo
	@scripts/need $(BUILD_PACKAGES) python3
	@scripts/book

## make attack                the tests of tests/attack in full; make test runs a short form
attack: build
	@scripts/need $(TEST_PACKAGES)
	@ATTACK=whole LACQUERD=$(CURDIR)/target/release/lacquerd cargo test -p lacquer-attack --test attack $(ARGS)

## make simulate              simulated worlds for SIMULATE_SECONDS (600), or the one of SIMULATE_SEED
simulate: cargo
	@scripts/need $(BUILD_PACKAGES)
	@SIMULATE_SECONDS=$${SIMULATE_SECONDS:-600} cargo test --release -p lacquer-sim --test simulation every_world -- --nocapture

## make deep                  the long tests: attacks in full, fuzzing, public clients of HTTP/3, gRPC and WebSocket, a
##                            Prometheus, the dashboard in Chromium, simulated worlds and the bugs that they must find,
##                            Miri, ThreadSanitizer, loom with more thread switches, the packages, the book, and the
##                            public suites (VC=DIR CT=DIR). STEPS selects some
deep: cargo
	@VC="$(VC)" CT="$(CT)" scripts/deep $(STEPS)

## make conformance VC=DIR    Varnish's own cases, from a checkout of varnish-cache at tag varnish-7.7.0
conformance: build
	@scripts/need $(TEST_PACKAGES)
	@test -n "$(VC)" || { echo 'VC is not set: make conformance VC=/path/to/varnish-cache'; exit 2; }
	@VARNISH_TOOLS=$$(conformance/fetch-tools) conformance/vtc --suite $(VC) $(ARGS)

## make http3-clients         public clients of HTTP/3: aioquic, headless Chromium and, if Go is installed, quic-go
http3-clients: build
	@scripts/need python3-venv chromium
	@conformance/http3-clients $(ARGS)

## make grpc-clients          gRPC's own client and server, through lacquerd
grpc-clients: build
	@scripts/need python3-venv
	@conformance/grpc-clients $(ARGS)

## make websocket-clients     public implementations of WebSocket, over HTTP/1.1, HTTP/2 and HTTP/3
websocket-clients: build
	@scripts/need python3-venv
	@conformance/websocket-clients $(ARGS)

## make cache-tests CT=DIR    the RFC 9111 suite, from a checkout of http-tests/cache-tests
cache-tests: build
	@test -n "$(CT)" || { echo 'CT is not set: make cache-tests CT=/path/to/cache-tests'; exit 2; }
	@conformance/cache-tests --suite $(CT) $(ARGS)

## make bench                 all benchmarks against the peers: an hour on a quiet machine
bench: dist
	@bench/setup
	@LACQUERD=$(CURDIR)/target/dist/lacquerd bench/run $(SCENARIOS) $(ARGS)

## make bench-guard           the cost of a request in instructions and calls, against its budget
bench-guard: build
	@scripts/need $(TEST_PACKAGES)
	@bench/guard

## make fuzz-smoke            each fuzz target for a minute; needs a nightly toolchain
fuzz-smoke: cargo
	@scripts/need $(BUILD_PACKAGES) g++
	@fuzz/smoke

## make loom                  code shared by threads, in every order that the memory model allows
loom: cargo
	@scripts/need $(BUILD_PACKAGES)
	@scripts/loom

## make miri                  the crates that contain or call unsafe code, under Miri
miri: cargo
	@scripts/need $(BUILD_PACKAGES)
	@scripts/miri $(ARGS)

## make tsan                  the stress tests under ThreadSanitizer
tsan: cargo
	@scripts/need $(BUILD_PACKAGES)
	@scripts/tsan

## make clean                 remove build output and results
clean:
	cargo clean
	rm -rf results

.PHONY: cargo
cargo:
	@command -v cargo >/dev/null || { echo "Rust 1.95 or newer is needed: https://rustup.rs"; exit 2; }
