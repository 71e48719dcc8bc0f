//! `lacquer demo-origin`: a web server to try a cache with. It uses one thread per connection and only the standard
//! library: it demonstrates caching and is not meant to be fast.

mod message;
mod pages;

use crate::args::Values;
use crate::failure::Failure;
use message::{Request, Response};
use std::io::{self, BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::parent_id;
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::thread;
use std::time::Duration;

const DEFAULT_LISTEN: &str = "127.0.0.1:8080";
const IDLE: Duration = Duration::from_mins(1);

/// Variable with the process id of `lacquer run`, which the origin exits with.
const PARENT: &str = "LACQUER_DEMO_PARENT";

/// The start of the first line of output; the address follows.
const GREETING: &str = "The demonstration site is at http://";

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let address = values.one("listen").unwrap_or(DEFAULT_LISTEN);
    let full = if address.starts_with(':') { format!("127.0.0.1{address}") } else { address.to_owned() };
    let listener = TcpListener::bind(&full).map_err(|error| {
        Failure::new(format_args!("cannot listen on {full}: {error}"))
            .hint("choose another address, such as --listen 127.0.0.1:9000")
    })?;
    println!("{GREETING}{}/", listener.local_addr().map_err(Failure::new)?);
    if let Some(parent) = std::env::var(PARENT).ok().and_then(|pid| pid.parse().ok()) {
        thread::spawn(move || end_with(parent));
    }
    for connection in listener.incoming().flatten() {
        thread::spawn(move || serve(&connection));
    }
    Ok(ExitCode::SUCCESS)
}

/// Starts the origin as a child process, on a free port. Returns its address.
pub fn start_child(program: &Path) -> Result<SocketAddr, Failure> {
    let failed =
        |error: io::Error| Failure::new(format_args!("cannot start the demonstration site: {error}"));
    let mut child = Command::new(program)
        .args(["demo-origin", "--listen", "127.0.0.1:0"])
        .env(PARENT, std::process::id().to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut line = String::new();
    if let Some(output) = child.stdout.take() {
        BufReader::new(output).read_line(&mut line).map_err(failed)?;
    }
    let address =
        line.trim_end().strip_prefix(GREETING).and_then(|rest| rest.trim_end_matches('/').parse().ok());
    address.ok_or_else(|| Failure::new("the demonstration site did not start"))
}

fn end_with(parent: u32) {
    while parent_id() == parent {
        thread::sleep(Duration::from_millis(500));
    }
    std::process::exit(0);
}

/// Serves the requests of one connection until either side closes it.
fn serve(connection: &TcpStream) {
    let _ = connection.set_nodelay(true);
    let _ = connection.set_read_timeout(Some(IDLE));
    let mut reader = BufReader::new(connection);
    while let Ok(Some(request)) = Request::read(&mut reader) {
        let response = pages::respond(&request);
        let keep = request.keep_alive;
        if send(connection, &request, &response, keep).is_err() || !keep {
            return;
        }
    }
}

fn send(mut to: &TcpStream, request: &Request, response: &Response, keep: bool) -> io::Result<()> {
    let mut out = response.head(keep).into_bytes();
    if request.method != "HEAD" {
        out.extend_from_slice(&response.body);
    }
    to.write_all(&out)
}
