//! Attacks over real sockets on 127.0.0.1, one file per theme. Each test names the promise it tests; the promises
//! are listed in `docs/security.md`. The daemon is the program that `LACQUERD` names. A test runs alone, because many
//! assert times, unless it asks for a turn beside others.
#![forbid(unsafe_code)]

mod abandoned;
mod bombs;
mod concurrency;
mod exhaustion;
mod faulty_origins;
mod foreign_answers;
mod framing;
mod gz;
mod half_closed;
mod holds;
mod http2;
mod jail;
mod keys;
mod limits;
mod lost_evidence;
mod management;
mod memory;
mod process_faults;
mod reuse;
mod slow;
mod stalled;
mod strict;
mod stuck;
mod unread;
