//! std.syslog: sends one datagram to the local syslog service. As with syslog(3), a missing service is not an error.

use std::os::unix::net::UnixDatagram;
use std::sync::OnceLock;

use lacquer_vcl_runtime::{Args, Ctx};

use crate::support::{CallResult, DONE};

const SERVICE: &str = "/dev/log";
const IDENTITY: &str = "lacquerd";

fn socket() -> Option<&'static UnixDatagram> {
    static SOCKET: OnceLock<Option<UnixDatagram>> = OnceLock::new();
    let open = || {
        let socket = UnixDatagram::unbound().ok()?;
        // If the queue is full, the message is lost instead of delaying requests.
        socket.set_nonblocking(true).ok()?;
        Some(socket)
    };
    SOCKET.get_or_init(open).as_ref()
}

/// Returns a priority that syslog(3) accepts. A bare level gets the facility local0, which Varnish also uses.
fn with_facility(priority: i64) -> i64 {
    const FACILITIES: i64 = 0x3f8;
    const LOCAL0: i64 = 16 << 3;
    let priority = priority & 0x3ff;
    if priority & FACILITIES == 0 { priority | LOCAL0 } else { priority }
}

pub fn syslog<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let priority = with_facility(args.int(0));
    let mut message = format!("<{priority}>{IDENTITY}[{}]: ", std::process::id()).into_bytes();
    message.extend(args.joined(1));
    if let Some(socket) = socket() {
        let _ = socket.send_to(&message, SERVICE);
    }
    DONE
}

#[cfg(test)]
mod tests {
    use super::with_facility;

    #[test]
    fn a_level_without_a_facility_gets_local0() {
        assert_eq!([0, 6, 8, 14, 191].map(with_facility), [128, 134, 8, 14, 191]);
    }
}
