//! `lacquer check`: compiles a VCL file with the daemon's own compiler and prints the diagnostics.
//! Everything the compiler asks of the machine (files, names) is answered here.

use crate::args::Values;
use crate::failure::Failure;
use lacquer_vcl::{Diagnostic, Files, Options, Resolver, Severity, SocketKind};
use std::fs;
use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::process::ExitCode;

/// So many errors are shown at once; after more, later ones are mostly echoes.
const MAX_ERRORS: usize = 10;

pub fn run(values: &Values) -> Result<ExitCode, Failure> {
    let file = values.operand.as_deref().unwrap_or("-");
    let text = read(file)?;
    let name = if file == "-" { "<stdin>" } else { file };
    let diagnostics = diagnose(name, &text);
    for d in &diagnostics {
        println!("{}", d.pretty());
    }
    let errors = count(&diagnostics, Severity::Error);
    let warnings = count(&diagnostics, Severity::Warning);
    println!("{name}: {}", verdict(errors, warnings));
    Ok(if errors > 0 { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn read(file: &str) -> Result<String, Failure> {
    let bytes = if file == "-" {
        let mut bytes = Vec::new();
        io::stdin().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(file)
    };
    let bytes = bytes.map_err(|error| Failure::new(format_args!("{file}: {error}")))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Errors and warnings, in the order of the text.
fn diagnose(name: &str, text: &str) -> Vec<Diagnostic> {
    let machine = Machine;
    let mut options = Options::new(lacquer_vmods::catalogue(), &machine, &machine);
    options.max_errors = MAX_ERRORS;
    match lacquer_vcl::compile(name, text, &options) {
        Ok(compiled) => compiled.warnings,
        Err(diagnostics) => diagnostics,
    }
}

fn count(diagnostics: &[Diagnostic], severity: Severity) -> usize {
    diagnostics.iter().filter(|d| d.severity == severity).count()
}

fn verdict(errors: usize, warnings: usize) -> String {
    let plural = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    match (errors, warnings) {
        (0, 0) => "correct".to_owned(),
        (0, w) => format!("correct, with {}", plural(w, "warning")),
        (e, 0) => plural(e, "error"),
        (e, w) => format!("{}, {}", plural(e, "error"), plural(w, "warning")),
    }
}

/// This machine as the compiler sees it.
struct Machine;

impl Files for Machine {
    fn read(&self, path: &str) -> Result<String, String> {
        let bytes = fs::read(path).map_err(|e| words(&e))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn exists(&self, path: &str) -> bool {
        Path::new(path).exists()
    }

    /// Patterns stand in the last part of the path only, which is how `include +glob` is used.
    fn glob(&self, pattern: &str) -> Result<Vec<String>, String> {
        let (folder, last) = pattern.rsplit_once('/').unwrap_or((".", pattern));
        let entries = match fs::read_dir(if folder.is_empty() { "/" } else { folder }) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(words(&error)),
        };
        let names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
        let hidden = |name: &str| name.starts_with('.') && !last.starts_with('.');
        let matching = names.filter(|name| !hidden(name) && matches(last.as_bytes(), name.as_bytes()));
        let mut found: Vec<String> = matching.map(|name| format!("{folder}/{name}")).collect();
        found.sort();
        Ok(found)
    }

    fn socket(&self, path: &str) -> SocketKind {
        match fs::metadata(path) {
            Ok(meta) if meta.file_type().is_socket() => SocketKind::Socket,
            Ok(_) => SocketKind::NotASocket,
            Err(error) => match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied => {
                    SocketKind::NotYet(words(&error))
                }
                _ => SocketKind::Unusable(words(&error)),
            },
        }
    }
}

impl Resolver for Machine {
    fn resolve(&self, host: Option<&str>, port: &str) -> Result<Vec<SocketAddr>, String> {
        let port: u16 = match port {
            "http" | "" => 80,
            "https" => 443,
            digits => digits.parse().map_err(|_| "Servname not supported for ai_socktype".to_owned())?,
        };
        let Some(host) = host else { return Ok(vec![(Ipv4Addr::UNSPECIFIED, port).into()]) };
        let found = (host, port).to_socket_addrs().map_err(|_| "Name or service not known".to_owned())?;
        Ok(found.collect())
    }
}

/// The system's words for an error, without the number the standard library adds.
fn words(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// A shell pattern of `*` and `?`.
fn matches(pattern: &[u8], name: &[u8]) -> bool {
    match (pattern.split_first(), name.split_first()) {
        (None, None) => true,
        (Some((b'*', rest)), _) => {
            matches(rest, name) || name.split_first().is_some_and(|(_, n)| matches(pattern, n))
        }
        (Some((b'?', p)), Some((_, n))) => matches(p, n),
        (Some((a, p)), Some((b, n))) => a == b && matches(p, n),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn diagnostics_name_place_and_problem() {
        let good =
            "vcl 4.1;\nimport std;\nbackend b { .host = \"127.0.0.1\"; }\nsub vcl_recv { std.log(\"x\"); }\n";
        assert_eq!(
            count(&diagnose("good.vcl", good), Severity::Error),
            0,
            "{:?}",
            diagnose("good.vcl", good)
        );
        let bad = "vcl 4.1;\nbackend b { .host = \"127.0.0.1\"; }\nsub vcl_recv { set req.nothing = 1; }\n";
        let found = diagnose("bad.vcl", bad);
        assert_eq!(count(&found, Severity::Error), 1);
        assert!(found[0].pretty().contains("bad.vcl:3"), "{}", found[0].pretty());
    }

    #[test]
    fn shell_patterns() {
        assert!(matches(b"*.vcl", b"a.vcl") && matches(b"a?c*", b"abc"));
        assert!(!matches(b"*.vcl", b"a.vcl~") && !matches(b"?", b""));
    }
}
