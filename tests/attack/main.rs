//! Attacks over real sockets on 127.0.0.1, one file per theme. Each test names the promise it tests; `docs/security.md`
//! lists the promises. The daemon is the program that `LACQUERD` names. A test runs alone, because many tests assert
//! times, unless it takes a shared slot.
#![forbid(unsafe_code)]

mod abandoned;
mod admin;
mod admin_tls;
mod balancing;
mod bombs;
mod concurrency;
mod early_data;
mod early_responses;
mod exhaustion;
mod extended_connect;
mod failing_origins;
mod faulty_origins;
mod foreign_responses;
mod framing;
mod gz;
mod half_closed;
mod holds;
mod http2;
mod http2_origins;
mod http3;
mod jail;
mod keys;
mod limits;
mod management;
mod memory;
mod names;
mod otlp;
mod partial;
mod process_faults;
mod ranges;
mod reuse;
mod rfc9111;
mod shifted_connections;
mod slow;
mod stalled;
mod strict;
mod stuck;
mod tls;
mod tls_clients;
mod tls_origins;
mod unread;
mod upgrades;
mod variants;
