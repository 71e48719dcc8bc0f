//! The daemon under faults: killed workers, VCLs replaced under load, more data than memory, idle and slow
//! clients, broken origins and hostile requests. Each test starts `lacquerd` with ephemeral ports on
//! 127.0.0.1 and drives it by plain sockets; they run one at a time, so that one does not disturb another.

mod bad_origin;
mod burdens;
mod client;
mod daemon;
mod memory;
mod origin;
mod refusals;
mod smuggling;
mod startup;
mod vcl_switch;
mod worker_death;
