//! `lacquer run`: translates a few simple options to the daemon's, checks for common mistakes, prints
//! what is served and what to try, and then executes `lacquerd`.

use crate::args::Values;
use crate::check;
use crate::demo;
use crate::failure::Failure;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Duration;

const DEFAULT_LISTEN: &str = ":6081";
const DEFAULT_STORAGE: &str = "malloc,256M";

/// An address that clients connect to.
#[derive(Debug, PartialEq)]
enum Listen {
    Tcp { host: String, port: u16 },
    Socket(PathBuf),
}

/// The origin of the cached pages.
enum Source {
    Backend(String),
    Vcl(PathBuf),
    Demo,
}

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let listens = listens(values)?;
    let storage = storage(values.one("storage"))?;
    let source = source(values)?;
    let daemon = sibling("lacquerd")?;
    for listen in &listens {
        check_free(listen)?;
    }
    let name = instance_folder(values.one("name"), &listens[0])?;

    let mut command = Command::new(&daemon);
    command.arg("-F").arg("-n").arg(&name).arg("-s").arg(&storage);
    for listen in &listens {
        command.arg("-a").arg(listen.argument());
    }
    let is_demo = matches!(source, Source::Demo);
    let origin = match source {
        Source::Backend(backend) => {
            warn_unreachable_backend(&backend);
            command.arg("-b").arg(&backend);
            backend
        }
        Source::Vcl(file) => {
            command.arg("-f").arg(&file);
            format!("the backends of {}", file.display())
        }
        Source::Demo => {
            let address = demo::start_child(&std::env::current_exe().map_err(Failure::new)?)?;
            command.arg("-b").arg(address.to_string());
            format!("the demonstration site (http://{address}/)")
        }
    };
    print!("{}", banner(&listens, &origin, &storage, &name, is_demo));
    let error = command.exec();
    Err(Failure::new(format_args!("cannot start {}: {error}", daemon.display())))
}

fn listens(values: &Values) -> Result<Vec<Listen>, Failure> {
    match values.many("listen") {
        [] => Ok(vec![parse_listen(DEFAULT_LISTEN)?]),
        given => given.iter().map(|text| parse_listen(text)).collect(),
    }
}

fn parse_listen(text: &str) -> Result<Listen, Failure> {
    if text.starts_with('/') {
        return Ok(Listen::Socket(text.into()));
    }
    let (host, port) = text.rsplit_once(':').unwrap_or(("", text));
    let port: u16 = port.parse().ok().filter(|p| *p > 0).ok_or_else(|| {
        Failure::new(format_args!("--listen {text}: `{port}` is not a port"))
            .hint("write a port from 1 to 65535, such as :8000 or 127.0.0.1:8000, or the path of a socket")
    })?;
    Ok(Listen::Tcp { host: host.to_owned(), port })
}

impl Listen {
    fn argument(&self) -> String {
        match self {
            Self::Tcp { host, port } => format!("{host}:{port}"),
            Self::Socket(path) => path.display().to_string(),
        }
    }

    /// Returns the arguments of curl for a request to this address.
    fn curl(&self) -> String {
        match self {
            Self::Tcp { host, port } => {
                let host = if matches!(host.as_str(), "" | "0.0.0.0" | "[::]") { "localhost" } else { host };
                format!("http://{host}:{port}/")
            }
            Self::Socket(path) => format!("--unix-socket {} http://localhost/", path.display()),
        }
    }
}

/// Binds the address and releases it, so that common failures are reported before anything starts.
fn check_free(listen: &Listen) -> Result<(), Failure> {
    let Listen::Tcp { host, port } = listen else { return Ok(()) };
    let name = if host.is_empty() { "0.0.0.0" } else { host.trim_matches(['[', ']']) };
    let Err(error) = TcpListener::bind((name, *port)) else { return Ok(()) };
    let failure = Failure::new(format_args!("cannot listen on {}: {error}", listen.argument()));
    Err(match error.kind() {
        io::ErrorKind::AddrInUse => failure.hint(format_args!(
            "another program uses port {port}; choose one with --listen :{}",
            port.checked_add(1).unwrap_or(8080)
        )),
        io::ErrorKind::PermissionDenied => {
            failure.hint("ports below 1024 are reserved for root; try --listen :8080")
        }
        _ => failure.hint("the address must belong to this machine; :PORT means all addresses"),
    })
}

fn source(values: &Values) -> Result<Source, Failure> {
    match (values.one("backend"), values.one("vcl")) {
        (Some(_), Some(_)) => Err(Failure::new("--backend and --vcl cannot be combined")
            .hint("a VCL file defines its own backends: backend default { .host = \"…\"; }")),
        (Some(url), None) => parse_backend(url).map(Source::Backend),
        (None, Some(file)) => vcl_file(file).map(Source::Vcl),
        (None, None) => Ok(Source::Demo),
    }
}

/// Converts a URL, address or path to `host:port`, `https://host:port` or a socket's path, as lacquerd's `-b` requires.
fn parse_backend(url: &str) -> Result<String, Failure> {
    let wrong = |why: &str| Failure::new(format_args!("--backend {url}: {why}"));
    if let Some(path) = url.strip_prefix("unix:").or_else(|| url.starts_with('/').then_some(url)) {
        return if path.starts_with('/') {
            Ok(path.to_owned())
        } else {
            Err(wrong("a socket needs an absolute path"))
        };
    }
    let (scheme, address) = match url.strip_prefix("https://") {
        Some(address) => ("https://", address),
        None => ("", url.strip_prefix("http://").unwrap_or(url)),
    };
    let default_port = if scheme.is_empty() { 80 } else { 443 };
    if let Some((scheme, _)) = address.split_once("://") {
        let hint = "only http:// and https:// addresses can be cached";
        return Err(wrong(&format!("{scheme} is not supported")).hint(hint));
    }
    let (address, path) = address.split_once('/').unwrap_or((address, ""));
    if !path.is_empty() {
        return Err(wrong("a backend is a server, without a path").hint(format_args!(
            "write --backend {}{address}; VCL can rewrite paths",
            if scheme.is_empty() { "http://" } else { scheme }
        )));
    }
    let is_port = |text: &str| text.parse::<u16>().is_ok_and(|p| p > 0);
    let bare = address.strip_prefix(':').unwrap_or(address);
    if is_port(bare) {
        return Ok(format!("{scheme}127.0.0.1:{bare}"));
    }
    match address.rsplit_once(':') {
        Some((host, port)) if !host.ends_with(':') && (!host.contains(':') || host.ends_with(']')) => {
            if is_port(port) {
                Ok(format!("{scheme}{address}"))
            } else {
                Err(wrong(&format!("`{port}` is not a port")))
            }
        }
        _ if address.is_empty() => Err(wrong("no server is given")),
        _ => Ok(format!("{scheme}{address}:{default_port}")),
    }
}

fn vcl_file(file: &str) -> Result<PathBuf, Failure> {
    check::ensure_correct(file)?;
    Path::new(file).canonicalize().map_err(|error| Failure::new(format_args!("{file}: {error}")))
}

/// Converts a size to the argument of `-s` for memory. Returns any other text unchanged.
fn storage(given: Option<&str>) -> Result<String, Failure> {
    let Some(spec) = given else { return Ok(DEFAULT_STORAGE.to_owned()) };
    let digits = spec.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    if spec.starts_with(|c: char| c.is_ascii_digit()) {
        let unit = spec[digits.len()..].to_ascii_uppercase();
        if digits.parse::<f64>().is_ok()
            && ["K", "M", "G", "T", "KB", "MB", "GB", "TB"].contains(&unit.as_str())
        {
            return Ok(format!("malloc,{digits}{unit}"));
        }
        return Err(Failure::new(format_args!("--storage {spec}: not a size")).hint("write 512M or 4G"));
    }
    Ok(spec.to_owned())
}

/// Prints a warning if the origin does not accept connections yet, as it may be started later.
fn warn_unreachable_backend(backend: &str) {
    if backend.starts_with('/') {
        return;
    }
    let backend = backend.strip_prefix("https://").unwrap_or(backend);
    let reach = |addr: SocketAddr| TcpStream::connect_timeout(&addr, Duration::from_millis(500)).is_ok();
    match backend.to_socket_addrs() {
        Ok(mut addresses) => {
            if !addresses.any(reach) {
                eprintln!(
                    "lacquer: nothing accepts connections at {backend} yet; until it does, visitors see an error page"
                );
            }
        }
        Err(error) => eprintln!("lacquer: cannot resolve {backend}: {error}"),
    }
}

fn sibling(program: &str) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(Failure::new)?;
    let path = own.with_file_name(program);
    if path.exists() {
        return Ok(path);
    }
    Err(Failure::new(format_args!("{} is missing", path.display()))
        .hint("lacquer and lacquerd must be in the same directory; cargo build creates both"))
}

/// Returns the instance's working directory. It is the same for every run on a port, so that log tools find it.
fn instance_folder(given: Option<&str>, first: &Listen) -> Result<PathBuf, Failure> {
    if let Some(dir) = given {
        return std::path::absolute(dir).map_err(Failure::new);
    }
    let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(|dir| dir.is_dir());
    let id = match first {
        Listen::Tcp { port, .. } => port.to_string(),
        Listen::Socket(path) => path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
    };
    let folder = base.unwrap_or_else(std::env::temp_dir).join(format!("lacquer-{id}"));
    // In a directory that everyone may write to, another user could have created this name first.
    let own = std::fs::metadata("/proc/self").map_err(Failure::new)?.uid();
    match std::fs::symlink_metadata(&folder) {
        Ok(meta) if !meta.is_dir() || meta.uid() != own => {
            Err(Failure::new(format_args!("{} belongs to another user", folder.display()))
                .hint("choose another directory with --name DIR"))
        }
        _ => Ok(folder),
    }
}

/// Returns what to try first: a slow page of the demonstration site, or the front page of another origin.
fn first_steps(place: &str, is_demo: bool) -> String {
    if is_demo {
        format!(
            "  curl -i {place}slow
      twice: the first response takes a second, the second comes from the cache at once;
      a browser at the address above shows more"
        )
    } else {
        format!(
            "  curl -i {place}
      twice: if X-Varnish then has two numbers, the response came from the cache; Age is its age in seconds"
        )
    }
}

/// Returns a note on where to find the log tools, which Lacquer does not contain, unless they are installed.
fn tools_note() -> &'static str {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if std::env::split_paths(&path).any(|dir| dir.join("varnishlog").exists()) {
        ""
    } else {
        "  (these tools are part of Varnish 7.3 to 8.0: in Debian, the package varnish)\n"
    }
}

fn banner(listens: &[Listen], origin: &str, storage: &str, name: &Path, is_demo: bool) -> String {
    let steps = first_steps(&listens[0].curl(), is_demo);
    let places: Vec<String> = listens.iter().map(Listen::curl).collect();
    let places = places.join("\n                     ");
    let name = name.display();
    let tools = tools_note();
    format!(
        "
Lacquer is serving   {places}
in front of          {origin}
with storage         {storage}

Try:
{steps}
  varnishlog -n {name}
      shows every request; varnishncsa and varnishstat work in the same way
  varnishadm -n {name} ban 'req.url ~ .'
      empties the cache
{tools}
Ctrl-C ends it. The daemon's own output follows.

"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_forms_of_backends_are_parsed() {
        for (given, expected) in [
            ("http://localhost:3000", "localhost:3000"),
            ("http://localhost:3000/", "localhost:3000"),
            ("app.example", "app.example:80"),
            ("3000", "127.0.0.1:3000"),
            (":3000", "127.0.0.1:3000"),
            ("http://[::1]:8080", "[::1]:8080"),
            ("http://[::1]", "[::1]:80"),
            ("unix:/run/app.sock", "/run/app.sock"),
            ("https://app.example/", "https://app.example:443"),
            ("https://app.example:8443", "https://app.example:8443"),
            ("https://[::1]", "https://[::1]:443"),
        ] {
            assert_eq!(parse_backend(given).as_deref(), Ok(expected), "{given}");
        }
        for wrong in ["https://", "ftp://a", "http://a/path", "a:b", "", "unix:app.sock"] {
            assert!(parse_backend(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn listen_addresses_are_parsed() {
        let tcp = |host: &str, port| Ok(Listen::Tcp { host: host.to_owned(), port });
        assert_eq!(parse_listen(":80"), tcp("", 80));
        assert_eq!(parse_listen("8000"), tcp("", 8000));
        assert_eq!(parse_listen("[::1]:8000"), tcp("[::1]", 8000));
        assert_eq!(parse_listen("/run/l.sock"), Ok(Listen::Socket("/run/l.sock".into())));
        assert!(parse_listen("localhost").is_err());
        assert!(parse_listen(":0").is_err());
    }

    #[test]
    fn storage_sizes_are_parsed() {
        assert_eq!(storage(Some("2g")).as_deref(), Ok("malloc,2G"));
        assert_eq!(storage(Some("file,/tmp/x,1G")).as_deref(), Ok("file,/tmp/x,1G"));
        assert!(storage(Some("12")).is_err());
    }
}
