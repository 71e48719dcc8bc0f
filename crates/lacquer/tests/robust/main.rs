//! The daemon in operation: it is drained at SIGTERM, VCLs are replaced under load, data exceeds memory, bad options are refused, startup is
//! fast. Each test starts `lacquerd` with ephemeral ports on 127.0.0.1 and sends it requests over plain sockets.

mod bans;
mod devices;
mod disk;
mod disk_large;
mod disk_lent;
mod disk_streamed;
mod disk_tags;
mod disk_waits;
mod drain;
mod file;
mod identity;
mod kills;
mod memory;
mod notify;
mod refusals;
mod several_disks;
mod startup;
mod survive;
mod tls_sessions;
mod upgrade;
mod upgrade_fails;
mod vcl_switch;
mod wakeups;
