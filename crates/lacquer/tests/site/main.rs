//! `lacquer run` without VCL: the tasks of a newcomer, as commands and requests.

mod admin;
mod config;
mod documents;
mod errors;
mod logs;
mod rules;
mod tasks;

use std::fs;
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use lacquer_testing::client::{Client, Response};
use lacquer_testing::daemon::{signal, until};
use lacquer_testing::origin::Origin;
use lacquer_testing::{Folder, Ran, free_address};

/// Daemons run one after the other: a free port is chosen before it is used.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

fn command(folder: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_lacquer"));
    command.args(words).current_dir(folder).stdin(Stdio::null()).env_remove("NO_COLOR");
    command
}

/// Runs `lacquer` with these words. Returns its code and outputs.
pub fn lacquer(folder: &Folder, words: &[&str]) -> (Option<i32>, String, String) {
    let Ran { code, out, err } = Ran::of(&mut command(folder, words));
    (code, out, err)
}

/// `lacquer run` in front of an origin.
pub struct Site {
    pub address: SocketAddr,
    pub folder: Folder,
    process: Child,
    _turn: MutexGuard<'static, ()>,
}

impl Site {
    /// Starts a site with these options, in a folder with these files.
    pub fn start(options: &[&str], files: &[(&str, &str)]) -> Site {
        let turn = turn();
        let folder = Folder::new("site");
        for (name, text) in files {
            folder.file(name, text);
        }
        let address = free_address();
        let listen = address.to_string();
        let name = folder.join("instance").display().to_string();
        let file = |name| fs::File::create(folder.join(name)).expect("it can be created");
        let words = [&["run", "--listen", &listen, "--name", &name][..], options].concat();
        let mut starting = command(&folder, &words);
        let starting = starting.stdout(file("out")).stderr(file("err")).process_group(0);
        let process = starting.spawn().expect("it starts");
        let mut site = Site { address, folder, process, _turn: turn };
        let mut is_up = || {
            let has_ended = site.process.try_wait().is_ok_and(|end| end.is_some());
            assert!(!has_ended, "{}", site.folder.read("err"));
            // With an access log, the announcement is on standard error.
            ["out", "err"].iter().any(|name| site.folder.read(name).contains("Lacquer is serving"))
        };
        // A busy machine takes its time.
        let is_up = (0..4).any(|_| until(&mut is_up));
        assert!(is_up, "{}", site.folder.read("err"));
        site
    }

    /// Sends a request, with more headers.
    pub fn ask(&self, method: &str, path: &str, more: &str) -> Response {
        self.ask_host("a.example", method, path, more)
    }

    pub fn ask_host(&self, host: &str, method: &str, path: &str, more: &str) -> Response {
        let mut client = Client::connect(self.address).expect("it listens");
        let request = format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\n{more}Connection: close\r\n\r\n");
        client.send(&request).expect("it reads");
        client.response_to(method).expect("it responds")
    }

    pub fn get(&self, path: &str) -> String {
        self.ask("GET", path, "").text()
    }

    /// Ends the daemon by a signal to its process group, as a terminal does. Returns its exit code.
    pub fn end_group(&mut self, name: &str) -> Option<i32> {
        let group = format!("-{}", self.process.id());
        let sent = Command::new("kill").args([name, "--", &group]).status();
        assert!(sent.is_ok_and(|sent| sent.success()));
        let mut end = None;
        until(|| {
            end = self.process.try_wait().ok().flatten();
            end.is_some()
        });
        end.expect("it ends").code()
    }

    /// Ends the daemon by a signal.
    pub fn end(&mut self, name: &str) {
        signal(self.process.id(), name);
        assert!(until(|| self.process.try_wait().is_ok_and(|end| end.is_some())));
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        if self.process.try_wait().is_ok_and(|end| end.is_none()) {
            signal(self.process.id(), "-TERM");
            if !until(|| self.process.try_wait().is_ok_and(|end| end.is_some())) {
                let _ = self.process.kill();
            }
        }
    }
}

/// The text of a response.
pub trait Text {
    fn text(&self) -> String;
}

impl Text for Response {
    fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// An origin that numbers its pages, and that may be broken.
pub struct App {
    pub origin: Origin,
    broken: &'static AtomicBool,
}

impl App {
    /// Starts an origin whose pages have these headers, each ending with a line break.
    pub fn start(headers: &'static str) -> App {
        let broken: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let count = AtomicUsize::new(0);
        let origin = Origin::by_method(move |request, stream| {
            let number = count.fetch_add(1, Ordering::SeqCst) + 1;
            let path = request.split(' ').nth(1).unwrap_or_default();
            let (status, body) = match path {
                _ if broken.load(Ordering::SeqCst) => ("500 Broken", "broken".to_owned()),
                _ if path.starts_with("/none") => ("404 Not Found", format!("none {number}")),
                "/long" => ("200 OK", "long ".repeat(2000)),
                _ => ("200 OK", format!("page {number}")),
            };
            let length = body.len();
            let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n{headers}\r\n");
            write!(stream, "{head}{body}").is_ok()
        });
        App { origin, broken }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.origin.address)
    }

    pub fn set_broken(&self, is_broken: bool) {
        self.broken.store(is_broken, Ordering::SeqCst);
    }
}
