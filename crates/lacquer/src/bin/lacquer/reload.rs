//! `lacquer reload`: loads a VCL file into a running daemon, over its management port.

use std::fs;
use std::io::{BufRead, BufReader, Error, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lacquer_cli::{auth, status};
use lacquer_manager::{show as print, working_directory};

use crate::args::Values;
use crate::failure::Failure;

/// The time to wait for a reply. A large VCL takes seconds to compile, and the names of its backends are looked up.
const PATIENCE: Duration = Duration::from_secs(90);
/// The longest reply and the longest published argument in bytes.
const LONGEST: u64 = 1 << 20;
/// The names of programs that this command has loaded begin with this.
const PREFIX: &str = "reload_";

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let file = values.operand().unwrap_or_default();
    let file = fs::canonicalize(file).map_err(|error| Failure::new(format_args!("{file}: {error}")))?;
    let directory = working_directory(values.one("name"));
    let mut port = Port::login(&directory)?;
    let millis = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis());
    let name = format!("{PREFIX}{millis}");
    let warnings = port.ok(&format!("vcl.load {name} {}", quoted(&file)?))?;
    if let Err(failure) = port.ok(&format!("vcl.use {name}")) {
        let _ = port.ok(&format!("vcl.discard {name}"));
        return Err(failure);
    }
    let list = port.ok("vcl.list")?;
    // A label may refer to one of them, or it may still be in use: it then remains.
    for old in replaced(&list, &name) {
        let _ = port.send(&format!("vcl.discard {old}"));
    }
    let warnings = warnings.trim().trim_end_matches("VCL compiled.").trim();
    if !warnings.is_empty() {
        eprintln!("{warnings}");
    }
    print(&format!("{} is in use as {name}\n", file.display()));
    Ok(ExitCode::SUCCESS)
}

/// Returns a path in quotes, as a word of a command.
fn quoted(file: &Path) -> Result<String, Failure> {
    let is_plain = |text: &&str| !text.contains(|c: char| c.is_control());
    let text = file.to_str().filter(is_plain).ok_or_else(|| {
        Failure::new(format_args!("{}: such a name cannot be sent to the daemon", file.display()))
            .hint("rename the file")
    })?;
    Ok(format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\"")))
}

/// Returns the programs of a list that earlier reloads have loaded.
fn replaced<'a>(list: &'a str, current: &str) -> Vec<&'a str> {
    let words = list.lines().filter_map(|line| line.split_whitespace().nth(4));
    words.filter(|name| name.starts_with(PREFIX) && *name != current).collect()
}

/// A connection to the management port.
struct Port {
    stream: BufReader<TcpStream>,
}

impl Port {
    fn login(directory: &Path) -> Result<Port, Failure> {
        let shown = directory.display();
        let none = || {
            Failure::new(format_args!("no daemon runs in {shown}, or its files cannot be read"))
                .hint("--name DIR names the working directory of the daemon, its option -n")
        };
        let address = published(directory, "-T").and_then(|text| address(&text)).ok_or_else(none)?;
        let secret = published(directory, "-S").map(PathBuf::from);
        let stream = TcpStream::connect_timeout(&address, PATIENCE)
            .and_then(|stream| stream.set_read_timeout(Some(PATIENCE)).map(|()| stream))
            .map_err(|error| Failure::new(format_args!("cannot reach the daemon at {address}: {error}")))?;
        let mut port = Port { stream: BufReader::new(stream) };
        let (code, text) = port.reply().map_err(Failure::new)?;
        if code == status::AUTH {
            let secret = secret.ok_or_else(none)?;
            let bytes = fs::read(&secret)
                .map_err(|error| Failure::new(format_args!("{}: {error}", secret.display())))?;
            let challenge = text.lines().next().unwrap_or_default();
            port.ok(&format!("auth {}", auth::response(challenge, &bytes)))?;
        }
        Ok(port)
    }

    /// Sends a command. Fails with the text of the reply if the daemon refuses it.
    fn ok(&mut self, command: &str) -> Result<String, Failure> {
        match self.send(command) {
            Ok((status::OK, text)) => Ok(text),
            Ok((_, text)) => Err(Failure::new(text.trim())),
            Err(error) => Err(Failure::new(format_args!("the daemon does not reply: {error}"))),
        }
    }

    fn send(&mut self, command: &str) -> std::io::Result<(u16, String)> {
        self.stream.get_mut().write_all(format!("{command}\n").as_bytes())?;
        self.reply()
    }

    fn reply(&mut self) -> std::io::Result<(u16, String)> {
        read_reply(&mut self.stream)
    }
}

/// Reads the status and the text of a reply.
fn read_reply(from: &mut impl BufRead) -> std::io::Result<(u16, String)> {
    let mut head = [0; lacquer_cli::frame::HEAD];
    from.read_exact(&mut head)?;
    let head = String::from_utf8_lossy(&head);
    let mut words = head.split_whitespace();
    let code = words.next().and_then(|word| word.parse().ok());
    let length = words.next().and_then(|word| word.parse::<u64>().ok()).filter(|length| *length < LONGEST);
    let (Some(code), Some(length)) = (code, length) else {
        return Err(Error::new(ErrorKind::InvalidData, "its reply has another format"));
    };
    let mut text = Vec::new();
    from.take(length + 1).read_to_end(&mut text)?;
    if text.len() as u64 != length + 1 {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    text.pop();
    Ok((code, String::from_utf8_lossy(&text).into_owned()))
}

/// Reads an argument that the daemon publishes in its working directory.
fn published(directory: &Path, option: &str) -> Option<String> {
    let shared = directory.join("_.vsm_mgt");
    let index = fs::read_to_string(shared.join("_.index")).ok()?;
    let file = shared.join(file_of(&index, option)?);
    let mut bytes = Vec::new();
    fs::File::open(file).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
    String::from_utf8(bytes).ok()
}

/// Finds the file of an argument in the index: the last line that adds it.
fn file_of<'a>(index: &'a str, option: &str) -> Option<&'a str> {
    let ending = format!(" Arg {option}");
    let line = index.lines().rfind(|line| line.starts_with('+') && line.ends_with(&ending))?;
    line.split_whitespace().nth(1).filter(|name| !name.contains('/'))
}

/// Parses the first of the published addresses: address and port, separated by a space.
fn address(published: &str) -> Option<SocketAddr> {
    let (ip, port) = published.lines().next()?.split_once(' ')?;
    Some(SocketAddr::new(ip.parse().ok()?, port.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_of_any_bytes_are_read_or_refused() {
        let read = |bytes: &[u8]| read_reply(&mut BufReader::new(bytes));
        assert!(read(b"200 2       \nok\n").is_ok_and(|reply| reply == (200, "ok".to_owned())));
        for wrong in [
            b"".as_slice(),
            b"200 2       \no",
            b"200 99999999\n",
            b"HTTP/1.1 400 Bad Request",
            b"200 -1      \n",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn published_arguments_are_found() {
        let index = "# 1 1\n+ _.a 0 5 Arg -T\n+ _.b 0 5 Arg -S\n- _.a 0 5 Arg -T\n+ _.c 0 5 Arg -T\n+ ../x 0 5 Arg -i\n";
        assert_eq!(file_of(index, "-T"), Some("_.c"));
        assert_eq!(file_of(index, "-i"), None, "a path outside of the directory");
        assert_eq!(file_of("+\n+ Arg -T\n\n", "-T"), Some("Arg"));
        assert_eq!(address("127.0.0.1 80\n::1 80\n"), "127.0.0.1:80".parse().ok());
        assert_eq!(address("::1 80"), "[::1]:80".parse().ok());
        assert!(address("").is_none() && address("a b").is_none() && address("1.2.3.4 70000").is_none());
    }

    #[test]
    fn only_programs_of_earlier_reloads_are_replaced() {
        let list =
            "active    auto warm 0 reload_2\navailable auto cold 0 reload_1\n\navailable auto warm 0 boot\n";
        assert_eq!(replaced(list, "reload_2"), ["reload_1"]);
        assert_eq!(quoted(Path::new("/a \"b\".vcl")), Ok("\"/a \\\"b\\\".vcl\"".to_owned()));
        assert!(quoted(Path::new("/a\nb")).is_err());
    }
}
