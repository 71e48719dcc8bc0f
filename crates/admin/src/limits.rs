//! The limits on what clients of the admin listener can occupy.

use std::time::Duration;

/// Connections in total.
pub const CONNECTIONS: usize = 2048;
/// Connections that have not shown a token yet. A further one replaces the oldest.
pub const STRANGERS: usize = 256;
/// Streams of events. The others are refused with 503.
pub const STREAMS: usize = 1024;
/// The head of a request in bytes, and its fields.
pub const HEAD: usize = 16 << 10;
pub const FIELDS: usize = 64;
/// The body of a request in bytes: of one with a VCL program, and of any other.
pub const VCL_BODY: usize = 4 << 20;
pub const BODY: usize = 64 << 10;
/// The time for a TLS handshake, and for the head of a request, also the next one on a connection.
pub const HEAD_TIME: Duration = Duration::from_secs(15);
/// The time for its body.
pub const BODY_TIME: Duration = Duration::from_secs(20);
/// The time for which a client may accept no byte of a response.
pub const STALL: Duration = Duration::from_secs(20);
/// Commands that wait for the manager. The others are refused with 503.
pub const COMMANDS: usize = 32;
/// The time for a command.
pub const COMMAND_TIME: Duration = Duration::from_secs(65);
/// Lines of the live log that a stream gets in a second. The others are dropped and counted.
pub const LINES: u32 = 100;
/// The time for which the head of a stream waits until the log is read for it.
pub const LOG_TIME: Duration = Duration::from_secs(1);
/// Events that wait for a client that reads slowly.
pub const QUEUE: usize = 128;
/// The log is read for this long after somebody has last asked for metrics: longer than any interval of exports.
pub const INTEREST: Duration = Duration::from_mins(6);
/// Requests that one reply about the log contains.
pub const LOG_LINES: usize = 10_000;

const _: () = assert!(STRANGERS < CONNECTIONS && STREAMS < CONNECTIONS && BODY < VCL_BODY);
