//! Names of origins: their addresses, which are looked up again by their TTL, on a thread of its own.
//!
//! The order of sources is that of most systems: `/etc/hosts`, then the servers of `/etc/resolv.conf` with its search
//! list, `ndots`, timeouts and attempts. Both files are read again when they change. A lookup that fails keeps the last
//! addresses, whatever the reason: an origin is not lost because its name service is. A record type that a name lacks is
//! asked for again when the negative answer expires.
#![forbid(unsafe_code)]

// Its feature of the workspace removes the messages of hickory from release builds.
use tracing as _;

mod found;
mod hosts;
mod keeper;
mod known;
mod lookup;
mod name;
mod servers;
mod settings;
mod transport;

pub use found::{Failure, Found, LONGEST_ANSWER, Place};
pub use keeper::Names;
pub use known::LONGEST_TEXT;
pub use name::{Answer, Listener, Name, Refresh, TtlFrom};
pub use settings::Settings;

/// Reads the system's files, and answers of another process, for the fuzz targets; not part of a normal build.
#[cfg(feature = "fuzzing")]
pub fn fuzz(hosts: &[u8], resolv_conf: &[u8], servers: &str) {
    let _ = known::Known::read(servers).take("localhost", name::Kind::Host);
    let _ = hosts::Hosts::parse(hosts).find("localhost");
    let _ = settings::configuration(servers, resolv_conf);
}
