//! A client of a daemon's admin listener (`-w`).

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;

use crate::client::{Client, Response};
use crate::daemon::{Daemon, until};
use crate::management::published;

/// The address of the listener, and the token that the daemon has made.
#[derive(Clone, Debug)]
pub struct AdminPort {
    pub address: SocketAddr,
    pub token: String,
}

impl AdminPort {
    /// Finds the listener of the daemon with this working directory.
    pub fn of(directory: &Path) -> Option<AdminPort> {
        let published = published(directory, "-w")?;
        let (_, place) = published.lines().next()?.split_once("://")?;
        let address = place.strip_suffix('/')?.parse().ok()?;
        let token = fs::read_to_string(directory.join("_.token")).ok()?.trim().to_owned();
        Some(AdminPort { address, token })
    }

    /// Finds the listener of a daemon, and waits until it is ready.
    pub fn when_ready(daemon: &Daemon) -> AdminPort {
        let port = AdminPort::of(&daemon.directory()).expect("the daemon publishes its listener");
        let is_ready = || port.ask_openly("/readyz").is_ok_and(|ready| ready.status == 200);
        assert!(until(is_ready), "{}", daemon.stderr());
        port
    }

    /// Returns a request with the token. A body is JSON.
    pub fn request(&self, method: &str, path: &str, body: &str) -> String {
        let media = if body.is_empty() { "" } else { "Content-Type: application/json\r\n" };
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\n{media}Content-Length: {}\r\n\r\n{body}",
            self.address,
            self.token,
            body.len()
        )
    }

    /// Sends a request with the token on a new connection.
    pub fn ask(&self, method: &str, path: &str, body: &str) -> io::Result<Response> {
        Client::connect(self.address)?.ask(&self.request(method, path, body))
    }

    /// Sends a request without the token on a new connection.
    pub fn ask_openly(&self, path: &str) -> io::Result<Response> {
        Client::connect(self.address)?.ask(&format!("GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.address))
    }
}
