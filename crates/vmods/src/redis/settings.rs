//! The arguments of `redis.db()`, and what they mean.

use std::time::Duration;

use lacquer_vcl_runtime::Args;

use super::database::{Login, Protocol, Settings};
use super::server::Role;
use super::tls::{Files, Tls};
use crate::support::{shown, word};

/// The time limit in place of none: whatever waits must end.
const LONGEST_WAIT: Duration = Duration::from_mins(1);
/// Limit on the attempts for one command.
const MOST_RETRIES: u32 = 100;

/// Returns a time limit that is given in milliseconds; 0 is the longest.
pub(super) fn milliseconds(number: i64, what: &str) -> Result<Duration, String> {
    match u64::try_from(number) {
        Ok(0) => Ok(LONGEST_WAIT),
        Ok(n) => Ok(Duration::from_millis(n)),
        Err(_) => Err(format!("{what} must not be negative")),
    }
}

/// Returns a number of retries.
pub(super) fn retries(number: i64, what: &str) -> Result<u32, String> {
    let number = u32::try_from(number).ok().filter(|number| *number <= MOST_RETRIES);
    number.ok_or_else(|| format!("{what} must be from 0 to {MOST_RETRIES}"))
}

/// Returns the role that an ENUM names.
pub(super) fn role(word: &str) -> Result<Role, String> {
    match word {
        "master" => Ok(Role::Master),
        "slave" => Ok(Role::Slave),
        "cluster" => {
            Err("Redis Cluster is not supported; use type = auto, master or slave with servers that are \
                          not part of a cluster"
                .to_owned())
        }
        _ => Ok(Role::Unknown),
    }
}

fn seconds(number: i64, what: &str) -> Result<f64, String> {
    if number < 0 { Err(format!("{what} must not be negative")) } else { Ok(number as f64) }
}

/// Reads the settings and the files that they name.
pub(super) fn read(args: &Args<'_>) -> Result<Settings, String> {
    let text = |i| shown(args.str(i)).into_owned();
    let files = Files {
        authorities: text(10),
        folder: text(11),
        certificate: text(12),
        key: text(13),
        name: text(14),
    };
    let tls = if args.bool(9) {
        Some(Tls::read(&files)?)
    } else if [10, 11, 12, 13, 14].iter().any(|i| !text(*i).is_empty()) {
        return Err("arguments for TLS are given, but tls is false".to_owned());
    } else {
        None
    };
    let (user, password) = (text(15), text(16));
    if password.is_empty() && !user.is_empty() {
        return Err("user needs a password".to_owned());
    }
    let protocol = match word(args, 8) {
        "RESP2" => Protocol::Resp2,
        "RESP3" => Protocol::Resp3,
        _ => Protocol::Default,
    };
    let max_connections = usize::try_from(args.int(7)).ok().filter(|n| (1..=100_000).contains(n));
    Ok(Settings {
        connection_timeout: milliseconds(args.int(2), "connection_timeout")?,
        connection_ttl: seconds(args.int(3), "connection_ttl")?,
        command_timeout: milliseconds(args.int(4), "command_timeout")?,
        retries: retries(args.int(5), "max_command_retries")?,
        is_shared: args.bool(6),
        max_connections: max_connections.ok_or("max_connections must be from 1 to 100000")?,
        tls,
        login: Login { protocol, user, password },
        sickness_ttl: seconds(args.int(17), "sickness_ttl")?,
        ignores_slaves: args.bool(18),
        is_debugged: args.bool(19),
    })
}
