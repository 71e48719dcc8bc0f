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

pub fn syslog<'a>(_ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let priority = args.int(0) & 0x3ff;
    let mut message = format!("<{priority}>{IDENTITY}[{}]: ", std::process::id()).into_bytes();
    message.extend(args.joined(1));
    if let Some(socket) = socket() {
        let _ = socket.send_to(&message, SERVICE);
    }
    DONE
}
