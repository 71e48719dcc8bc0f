//! A daemon that obtains its certificates from pebble.

use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use lacquer_testing::daemon::{Daemon, is_root, vcl};
use lacquer_testing::free_address;
use lacquer_testing::origin::Origin;

use crate::pebble::{Pebble, until};

/// The ports of the daemon, which pebble must know.
pub struct Ports {
    pub http: u16,
    pub tls: u16,
}

impl Ports {
    pub fn choose() -> Ports {
        Ports { http: free_address().port(), tls: free_address().port() }
    }
}

/// Responds to every request with the same page.
pub fn respond(_: &str, stream: &mut TcpStream) -> bool {
    let body = "from the origin";
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all((head + body).as_bytes()).is_ok()
}

pub struct Site {
    daemon: Option<Daemon>,
    folder: PathBuf,
    options: Vec<String>,
    origin: Origin,
}

impl Site {
    /// Starts a daemon with these names and further options.
    pub fn start(pebble: &Pebble, ports: &Ports, names: &str, more: &[&str]) -> Site {
        Site::listening(pebble, ports, &format!(",acme={names}"), more)
    }

    /// Starts a daemon without names of certificates, and with further options.
    pub fn on_demand(pebble: &Pebble, ports: &Ports, more: &[&str]) -> Site {
        Site::listening(pebble, ports, "", more)
    }

    fn listening(pebble: &Pebble, ports: &Ports, acme: &str, more: &[&str]) -> Site {
        let folder = std::env::temp_dir().join(format!("lacquer-site-{}-{}", std::process::id(), ports.tls));
        let Ports { http, tls } = ports;
        let mut options = vec!["-a".to_owned(), format!("http=127.0.0.1:{http}")];
        options.extend(["-a".to_owned(), format!("tls=127.0.0.1:{tls},https{acme}")]);
        options.extend(["-p".to_owned(), format!("acme_folder={}", folder.display())]);
        options.extend(pebble.options());
        options.extend(more.iter().map(|&option| option.to_owned()));
        let origin = Origin::start(respond);
        let mut site = Site { daemon: None, folder, options, origin };
        site.restart();
        site
    }

    /// Starts the daemon again.
    pub fn restart(&mut self) {
        self.daemon = None;
        let options: Vec<&str> = self.options.iter().map(String::as_str).collect();
        let vcl = vcl(self.origin.address, "");
        self.daemon = Some(if is_root() {
            // In its jail, the client has to become root for its files.
            Daemon::start_jailed(&vcl, &options, "exec \"$@\"")
        } else {
            Daemon::start(&vcl, &options)
        });
    }

    pub fn daemon(&mut self) -> &mut Daemon {
        self.daemon.as_mut().expect("it runs")
    }

    /// Waits until this number of certificates exists.
    pub fn await_certificates(&mut self, number: usize) {
        let daemon = self.daemon.as_mut().expect("it runs");
        let count = |text: String| text.matches("\tuntil ").count();
        let found = until(Duration::from_secs(90), || {
            let (status, text) = daemon.cli("acme.list");
            status == 200 && count(text) == number
        });
        assert!(found, "{}\n{}", daemon.ok("acme.list"), daemon.stderr());
    }

    /// Returns the files with the account and the certificates.
    pub fn files(&self) -> Vec<PathBuf> {
        let below = |path: &PathBuf| {
            std::fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path())
        };
        let folders: Vec<PathBuf> = below(&self.folder).collect();
        folders.iter().flat_map(below).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if let Some(daemon) = self.daemon.take().filter(|_| std::thread::panicking()) {
            eprintln!("{}", daemon.stderr());
        }
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
