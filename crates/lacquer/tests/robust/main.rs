//! The daemon in daily work: VCLs replaced under load, more data than memory, refused options, a quick start. Each
//! test starts `lacquerd` with ephemeral ports on 127.0.0.1 and drives it by plain sockets.

mod memory;
mod refusals;
mod startup;
mod vcl_switch;
mod wakeups;
