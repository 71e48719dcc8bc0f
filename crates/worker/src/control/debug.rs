//! The commands `debug.*`, which only tests use.

use std::fmt::Write;

use lacquer_cli::link::ListenAddress;
use lacquer_cli::status;
use lacquer_engine::knobs;
use lacquer_params::number::parse_duration;

use super::{Reply, panics};
use crate::process::Process;
use crate::vcl_life;

pub fn command(process: &Process, what: &str, args: &[String]) -> Reply {
    let first = args.first().map(String::as_str);
    match (what, first) {
        ("xid", _) => xid(process, args),
        ("listen_address", _) => listen_address(process),
        ("srandom", _) => {
            lacquer_vmods::random::seed(first.map_or(1, leading_number) as u32);
            Reply::ok("")
        }
        ("panic.worker", _) => panics::die(&panics::failed_check(
            "debug.panic.worker",
            file!(),
            line!(),
            "(strcmp(\"\", \"You asked for it\")) == 0",
        )),
        ("vmod", _) => vmods(process),
        ("jail", _) => {
            lacquer_system::confine::try_to_execute();
            Reply::ok("The jail does not forbid the worker to start programs")
        }
        ("fragfetch", Some(size)) => {
            knobs::set_fetch_fragment(leading_number(size));
            Reply::ok("")
        }
        ("reqpool.fail", Some(plan)) => {
            knobs::set_refusals(plan);
            Reply::ok("")
        }
        ("shutdown.delay", Some(time)) => match parse_duration(time) {
            Ok(seconds) => {
                knobs::set_shutdown_delay(seconds);
                Reply::ok("")
            }
            Err(why) => Reply::error(status::PARAM, why),
        },
        ("fragfetch" | "reqpool.fail" | "shutdown.delay", None) => {
            Reply::error(status::TOO_FEW, "Too few parameters\n")
        }
        _ => Reply::unknown(),
    }
}

fn xid(process: &Process, args: &[String]) -> Reply {
    if let Some(next) = args.first() {
        knobs::set_xid_chunk(args.get(1).map_or(1, |chunk| leading_number(chunk) as u32));
        process.shared().vxids().restart_at(leading_number(next).max(1));
    }
    Reply::ok(format!("XID is {} chunk {}", process.shared().vxids().peek(), knobs::xid_chunk()))
}

fn listen_address(process: &Process) -> Reply {
    let mut out = String::new();
    for socket in process.sockets() {
        let _ = match &socket.address {
            ListenAddress::Ip(addr) => writeln!(out, "{} {} {}", socket.name, addr.ip(), addr.port()),
            ListenAddress::Unix(_) => writeln!(out, "{} {} -", socket.name, socket.endpoint),
        };
    }
    Reply::ok(out)
}

fn vmods(process: &Process) -> Reply {
    let version = env!("CARGO_PKG_VERSION");
    let mut out = String::new();
    for (name, users) in vcl_life::modules_in_use(process) {
        let _ =
            writeln!(out, "{users:5} {name} (path=\"<built in>\", version=\"Lacquer {version}\", vcs=\"\")");
    }
    Reply::ok(out)
}

/// Parses the number at the start of a text as C does: hexadecimal after `0x`, octal after `0`. Returns 0 if there is
/// none.
fn leading_number(text: &str) -> u64 {
    let text = text.trim_start();
    let (digits, radix) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(rest) => (rest, 16),
        None if text.starts_with('0') => (text, 8),
        None => (text, 10),
    };
    let digits = digits.chars().map_while(|c| c.to_digit(radix));
    digits.fold(0, |n: u64, digit| n.saturating_mul(u64::from(radix)).saturating_add(u64::from(digit)))
}

#[cfg(test)]
mod tests {
    use super::leading_number;

    #[test]
    fn numbers_are_parsed_as_in_c() {
        let read = ["1000", "0x10", "017", "0", "12ab", "x", "", "99999999999999999999"].map(leading_number);
        assert_eq!(read, [1000, 16, 15, 0, 12, 0, 0, u64::MAX]);
    }
}
