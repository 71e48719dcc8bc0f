//! Reads the lines that a peer logs to a syslog socket and discards them, at the least possible cost.

use crate::options::Options;
use std::os::unix::net::UnixDatagram;
use std::{fs, os::unix::fs::PermissionsExt};

pub fn run(options: &Options) -> Result<(), String> {
    let path = options.text("socket", "syslog");
    let failed = |error: std::io::Error| format!("{path}: {error}");
    let socket = UnixDatagram::bind(path).map_err(failed)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o666)).map_err(failed)?;
    let mut line = [0; 8192];
    loop {
        socket.recv(&mut line).map_err(failed)?;
    }
}
