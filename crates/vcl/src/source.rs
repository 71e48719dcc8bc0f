//! The sources of a program, and the caller's access to files and names.

use std::net::SocketAddr;

use crate::diagnostics::{LastLine, Place, display_column};
use crate::program::{At, IdentityPem, Source};
use crate::text::Text;

/// The caller's file system. Errors are the system's texts, such as `No such file or directory`.
pub trait Files {
    fn read(&self, path: &str) -> Result<Vec<u8>, String>;
    fn exists(&self, path: &str) -> bool;
    /// Returns the matching names, sorted. The list is empty if there are none.
    fn glob(&self, pattern: &str) -> Result<Vec<String>, String>;
    /// Returns the kind of file at the path of a backend's UNIX socket.
    fn socket(&self, path: &str) -> SocketKind;
    /// Returns the certificates of trusted authorities in PEM's format: those of a file, or of the system's trust
    /// store. Fails if there are none.
    fn authorities(&self, path: Option<&str>) -> Result<Vec<u8>, String>;
    /// Returns a client certificate and its key. The key is in the certificate's file if it has none of its own. Fails
    /// if they do not belong together.
    fn identity(&self, certificate: &str, key: Option<&str>) -> Result<IdentityPem, String>;
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SocketKind {
    Socket,
    NotASocket,
    /// Missing or not accessible. This is a warning, because the socket may be created later. The text is the system's.
    NotYet(String),
    Unusable(String),
}

/// The caller's name service, like `getaddrinfo` for stream sockets; passive if `host` is `None`.
/// The error is `gai_strerror`'s text.
pub trait Resolver {
    fn resolve(&self, host: Option<&str>, port: &str) -> Result<Vec<SocketAddr>, String>;
}

/// A resolver of numeric addresses only, for tests and quick checks.
pub struct NumericResolver;

impl Resolver for NumericResolver {
    fn resolve(&self, host: Option<&str>, port: &str) -> Result<Vec<SocketAddr>, String> {
        let unknown = || "Name or service not known".to_owned();
        let port = port.parse().map_err(|_| "Servname not supported for ai_socktype".to_owned())?;
        let host = match host {
            Some("localhost") => "127.0.0.1",
            Some(host) => host,
            None => "0.0.0.0",
        };
        let ip = host.parse().map_err(|_| unknown())?;
        Ok(vec![SocketAddr::new(ip, port)])
    }
}

/// A file system without files.
pub struct NoFiles;

impl Files for NoFiles {
    fn read(&self, _path: &str) -> Result<Vec<u8>, String> {
        Err("No such file or directory".to_owned())
    }

    fn exists(&self, _path: &str) -> bool {
        false
    }

    fn glob(&self, _pattern: &str) -> Result<Vec<String>, String> {
        Ok(Vec::new())
    }

    fn socket(&self, _path: &str) -> SocketKind {
        SocketKind::NotYet("No such file or directory".to_owned())
    }

    fn authorities(&self, _path: Option<&str>) -> Result<Vec<u8>, String> {
        Err("No such file or directory".to_owned())
    }

    fn identity(&self, _certificate: &str, _key: Option<&str>) -> Result<IdentityPem, String> {
        Err("No such file or directory".to_owned())
    }
}

/// One text with an index of its lines.
pub(crate) struct SourceText {
    pub name: String,
    pub text: Text,
    /// The source that includes this one, and the offset of the file name there.
    pub parent: Option<(u32, u32)>,
    pub builtin: bool,
    /// Whether the text was not read from a file.
    pub inline: bool,
    line_starts: Vec<u32>,
}

impl SourceText {
    pub fn new(name: &str, text: Text, parent: Option<(u32, u32)>) -> SourceText {
        let mut line_starts = vec![0];
        line_starts.extend(text.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(i, _)| i as u32 + 1));
        SourceText { name: name.to_owned(), text, parent, builtin: false, inline: false, line_starts }
    }

    /// Returns the source for the program.
    pub fn finish(self, included_at: u32) -> Source {
        let parent = self.parent.map(|(index, _)| index);
        Source { name: self.name, text: self.text, parent, included_at, builtin: self.builtin }
    }

    /// Returns the index of the line that contains the offset.
    fn line_of(&self, offset: u32) -> usize {
        self.line_starts.partition_point(|start| *start <= offset) - 1
    }

    fn line_text(&self, line: usize) -> &[u8] {
        let start = self.line_starts[line] as usize;
        let end = self.line_starts.get(line + 1).map_or(self.text.len(), |next| *next as usize - 1);
        &self.text[start..end]
    }
}

/// Returns the sources for the program.
pub(crate) fn finish(sources: Vec<SourceText>) -> Vec<Source> {
    let line = |s: &SourceText| s.parent.map_or(0, |(by, at)| sources[by as usize].line_of(at) as u32 + 1);
    let lines: Vec<u32> = sources.iter().map(line).collect();
    sources.into_iter().zip(lines).map(|(source, line)| source.finish(line)).collect()
}

/// A span of bytes in one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    pub source: u32,
    pub start: u32,
    pub end: u32,
}

pub(crate) fn at(sources: &[SourceText], span: Span) -> At {
    let source = &sources[span.source as usize];
    let line = source.line_of(span.start);
    let offset = span.start as usize - source.line_starts[line] as usize;
    // Long lines are generated code, whose columns do not matter.
    let text = source.line_text(line);
    let column = if offset > 10_000 { offset as u32 + 1 } else { display_column(text, offset) };
    At { source: span.source, line: line as u32 + 1, column }
}

pub(crate) fn place(sources: &[SourceText], span: Span) -> Place {
    range(sources, span, span, false)
}

/// Returns the range from the start of one span to the end of another.
pub(crate) fn place_between(sources: &[SourceText], first: Span, last: Span) -> Place {
    range(sources, first, last, true)
}

fn range(sources: &[SourceText], first: Span, last: Span, is_range: bool) -> Place {
    let source = &sources[first.source as usize];
    let line = source.line_of(first.start);
    let last_source = if first.source == last.source { source } else { &sources[last.source as usize] };
    let last_line = last_source.line_of(last.end.saturating_sub(1));
    let same = first.source == last.source && line == last_line;
    let mut included_from = Vec::new();
    let mut parent = source.parent;
    while let Some((by, offset)) = parent {
        let by = &sources[by as usize];
        included_from.push((by.name.clone(), by.line_of(offset) as u32 + 1));
        parent = by.parent;
    }
    Place {
        file: source.name.clone(),
        line: line as u32 + 1,
        start: (first.start - source.line_starts[line]) as usize,
        end: (last.end - last_source.line_starts[last_line]) as usize,
        text: source.line_text(line).into(),
        last: (!same).then(|| LastLine {
            file: last_source.name.clone(),
            line: last_line as u32 + 1,
            text: last_source.line_text(last_line).into(),
        }),
        range: is_range,
        included_from,
    }
}
