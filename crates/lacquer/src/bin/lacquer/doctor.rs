//! `lacquer doctor`: reads the facts that `lacquer_tools::doctor` judges, and prints what it finds.

use std::fs::{self, File};
use std::io::{IsTerminal, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use lacquer_manager::{show as print, working_directory};
use lacquer_params::number::parse_bytes;
use lacquer_tools::doctor::{FILES, Facts, Grade, Origin, Secret, Store, examine, json, sysctl_file, text};

use crate::args::Values;
use crate::colors;
use crate::failure::Failure;
use crate::spec::parse_backend;

/// The working directory of the service of the Debian package.
const SERVICE: &str = "/run/lacquer";
/// The longest part of a file that is read.
const LONGEST: u64 = 1 << 16;
/// The time for a connection to a web server, and for its response.
const PATIENCE: Duration = Duration::from_secs(3);

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let origins = values.many("backend").iter().map(|url| parse_backend(url));
    let origins: Vec<String> = origins.collect::<Result<_, _>>()?;
    let mut facts = machine();
    service(values.one("name"), &mut facts);
    facts.origins = origins.iter().map(|origin| ask(origin)).collect();
    let findings = examine(&facts);
    let report = if values.has("fix") {
        sysctl_file(&findings)
    } else if values.has("json") {
        json(&findings)
    } else {
        text(&findings, colors::wanted(std::io::stdout().is_terminal()))
    };
    print(&report);
    let is_bad = findings.iter().any(|finding| finding.grade == Grade::Bad);
    Ok(if is_bad && !values.has("fix") { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0.0, |since| since.as_secs_f64())
}

/// Returns the beginning of a file, with replacements for bytes that are not text.
fn read(path: impl AsRef<Path>) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

fn machine() -> Facts {
    let files = FILES.iter().filter_map(|path| Some(((*path).to_owned(), read(path)?))).collect();
    Facts { files, limits: read("/proc/self/limits"), now: now(), ..Facts::default() }
}

/// Adds the facts of a daemon, if one runs in the working directory.
fn service(name: Option<&str>, facts: &mut Facts) {
    let is_service = name.is_none() && Path::new(SERVICE).join("_.pid").exists();
    let directory = if is_service { PathBuf::from(SERVICE) } else { working_directory(name) };
    facts.workdir = directory.display().to_string();
    let pid = read(directory.join("_.pid")).and_then(|text| text.trim().parse::<u32>().ok());
    let Some(pid) = pid.filter(|pid| Path::new(&format!("/proc/{pid}")).exists()) else { return };
    facts.has_daemon = true;
    facts.limits = read(format!("/proc/{pid}/limits"));
    let line = read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let options = Options::of(&line);
    let own = directory.join("_.secret");
    let secrets = match options.secret {
        Some(given) if given != "none" => vec![PathBuf::from(given)],
        _ if own.exists() => vec![own],
        _ => Vec::new(),
    };
    let mode =
        |path: &PathBuf| fs::metadata(path).map(|found| found.mode()).map_err(|error| error.to_string());
    facts.secrets =
        secrets.iter().map(|path| Secret { path: path.display().to_string(), mode: mode(path) }).collect();
    facts.storage_memory = options.memory;
    facts.stores = options.stores.iter().map(|(path, wanted)| store(path, *wanted)).collect();
}

/// The files and the memory that the command line of a daemon names.
#[derive(Debug, Default, PartialEq)]
struct Options {
    secret: Option<String>,
    memory: u64,
    /// Paths and sizes.
    stores: Vec<(String, u64)>,
}

impl Options {
    /// Parses a command line whose words end with NUL.
    fn of(line: &str) -> Options {
        let mut options = Options::default();
        let mut words = line.split('\0').skip(1);
        while let Some(word) = words.next() {
            let mut value = |rest: &str| {
                if rest.is_empty() { words.next().unwrap_or_default().to_owned() } else { rest.to_owned() }
            };
            if let Some(rest) = word.strip_prefix("-S") {
                options.secret = Some(value(rest));
            } else if let Some(rest) = word.strip_prefix("-s") {
                options.add_storage(&value(rest));
            } else if word.len() == 2 && "-a-A-b-f-h-i-I-j-l-M-n-P-p-r-T-t-W".contains(word) {
                words.next();
            }
        }
        options
    }

    fn add_storage(&mut self, spec: &str) {
        let mut fields = spec.split(',');
        let kind = fields.next().unwrap_or_default();
        let kind = kind.split_once('=').map_or(kind, |(_, kind)| kind);
        let size = |text: &str| parse_bytes(text, None).unwrap_or(0);
        match kind {
            "malloc" | "default" | "umem" => {
                self.memory = self.memory.saturating_add(fields.next().map_or(0, size));
            }
            "file" => {
                let path = fields.next().unwrap_or_default().to_owned();
                self.stores.push((path, fields.next().map_or(0, size)));
            }
            "disk" => {
                let path = fields.next().unwrap_or_default().to_owned();
                let wanted = fields.find_map(|field| field.strip_prefix("size=")).map_or(0, size);
                self.stores.push((path, wanted));
            }
            _ => {}
        }
    }
}

fn store(path: &str, wanted: u64) -> Store {
    let found = fs::metadata(path);
    let is_device = found.as_ref().is_ok_and(|found| found.file_type().is_block_device());
    let exists = found.as_ref().is_ok_and(|found| found.is_file() || is_device);
    let folder = match &found {
        Ok(_) => Path::new(path),
        Err(_) => Path::new(path).parent().unwrap_or(Path::new("/")),
    };
    let free = match rustix::fs::statvfs(folder) {
        _ if is_device => Ok(None),
        Ok(system) => Ok(Some(system.f_bavail.saturating_mul(system.f_frsize))),
        Err(error) => Err(std::io::Error::from(error).to_string()),
    };
    Store { path: path.to_owned(), free, exists, wanted }
}

/// Asks a web server for the head of its front page. Over TLS and through a socket's path, only connects.
fn ask(origin: &str) -> Origin {
    let start = Instant::now();
    let mut date = None;
    let outcome = if origin.starts_with('/') {
        std::os::unix::net::UnixStream::connect(origin).map(drop)
    } else if let Some(address) = origin.strip_prefix("https://") {
        connect(address).map(drop)
    } else {
        connect(origin).and_then(|stream| head(stream, origin)).map(|theirs| {
            date = theirs.map(|theirs| (theirs, now()));
        })
    };
    let reached = outcome.map(|()| start.elapsed().as_millis() as u64).map_err(|error| error.to_string());
    Origin { name: origin.to_owned(), reached, date }
}

fn connect(address: &str) -> std::io::Result<TcpStream> {
    let mut last = std::io::Error::other("the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, PATIENCE) {
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sends a request. Returns the `Date` of the response.
fn head(mut stream: TcpStream, host: &str) -> std::io::Result<Option<f64>> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let request =
        format!("HEAD / HTTP/1.1\r\nHost: {host}\r\nUser-Agent: lacquer-doctor\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let (mut bytes, mut buffer) = (Vec::new(), [0; 4096]);
    let end = Instant::now() + PATIENCE;
    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") && (bytes.len() as u64) < LONGEST {
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(std::io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut buffer)? {
            0 => break,
            length => bytes.extend_from_slice(&buffer[..length]),
        }
    }
    let response = String::from_utf8_lossy(&bytes);
    if !response.starts_with("HTTP/") {
        return Err(std::io::Error::other("the response is not one of HTTP/1"));
    }
    Ok(date_of(&response))
}

fn date_of(response: &str) -> Option<f64> {
    let fields = response.lines().skip(1).filter_map(|line| line.split_once(':'));
    let mut dates = fields.filter(|(name, _)| name.eq_ignore_ascii_case("date"));
    lacquer_http::date::parse(dates.next()?.1.trim().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_of_daemons_are_read() {
        for (line, secret, memory, stores) in [
            ("lacquerd\0-F\0-s\0malloc,1G\0-S/etc/s\0", Some("/etc/s"), 1 << 30, &[][..]),
            ("lacquerd\0-sa=malloc,1M\0-s\0default,1M\0-S\0x\0", Some("x"), 2 << 20, &[]),
            ("lacquerd\0-s\0disk,/d,memory=1G,size=2G\0", None, 0, &[("/d", 2 << 30)]),
            ("lacquerd\0-s\0file,/f,1M\0-s\0b=disk,/e\0", None, 0, &[("/f", 1 << 20), ("/e", 0)]),
            ("lacquerd\0-n\0-S\0-f\0-s\0", None, 0, &[]),
            ("lacquerd\0-s", None, 0, &[]),
            ("\0\0\0-S", Some(""), 0, &[]),
            ("", None, 0, &[]),
        ] {
            let stores = stores.iter().map(|(path, size)| ((*path).to_owned(), *size)).collect();
            let expected = Options { secret: secret.map(str::to_owned), memory, stores };
            assert_eq!(Options::of(line), expected, "{line:?}");
        }
    }

    #[test]
    fn dates_of_any_response() {
        let date = "HTTP/1.1 200 OK\r\nserver: x\r\ndate: Thu, 01 Jan 1970 00:00:10 GMT\r\n\r\n";
        assert_eq!(date_of(date), Some(10.0));
        for other in ["", "HTTP/1.1", "HTTP/1.1 200 OK\r\nDate: never\r\n\r\n", "HTTP/1.1 200\r\nDate\r\n"] {
            assert_eq!(date_of(other), None, "{other:?}");
        }
    }
}
