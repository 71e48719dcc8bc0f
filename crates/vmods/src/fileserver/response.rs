//! The response for a file.

use std::fs::{File, Metadata, OpenOptions};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::UNIX_EPOCH;

use lacquer_http::{conditional, date};
use rustix::fs::OFlags;

use super::request::Request;
use super::root::Root;
use super::target;

/// The head of a response, without the empty line, and the file with the length of its body.
pub(super) struct Response {
    pub head: Vec<u8>,
    pub body: Option<(File, u64)>,
}

/// A response without a body.
fn bare(status: &str) -> Response {
    Response { head: format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n").into_bytes(), body: None }
}

/// Returns the response for a request, or the reason why the fetch fails.
pub(super) fn respond(root: &Root, request: &Request) -> Result<Response, String> {
    if request.method != "GET" && request.method != "HEAD" {
        return Ok(bare("405 Method Not Allowed"));
    }
    let Some(path) = target::file(&root.path, &request.target) else { return Ok(bare("404 Not Found")) };
    let unreadable = |error: io::Error| format!("file {} cannot be read: {error}", path.display());
    // A pipe without a writer must not block.
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let file = match OpenOptions::new().read(true).custom_flags(nonblock).open(&path) {
        Ok(file) => file,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
            // Without its folder, nothing is known of a file.
            return root.check().map(|()| bare("404 Not Found"));
        }
        Err(error) => return Err(unreadable(error)),
    };
    let facts = file.metadata().map_err(unreadable)?;
    if !facts.is_file() {
        return Err(format!("file {} is not a regular file", path.display()));
    }
    let etag = etag(&facts);
    let modified = facts.modified().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let modified = modified.map_or(0, |time| time.as_secs());
    let is_current = is_current(request, &etag, modified);
    let mut head = Vec::new();
    if is_current {
        head.extend_from_slice(b"HTTP/1.1 304 Not Modified\r\n");
    } else {
        head.extend_from_slice(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n", facts.len()).as_bytes());
    }
    head.extend_from_slice(format!("ETag: {etag}\r\nLast-Modified: ").as_bytes());
    head.extend_from_slice(&date::format(modified as f64));
    head.extend_from_slice(b"\r\n");
    let extension = path.extension().and_then(|extension| extension.to_str());
    if let Some(kind) = extension.and_then(|extension| root.types.of(extension)).filter(|_| facts.len() > 0) {
        head.extend_from_slice(format!("Content-Type: {kind}\r\n").as_bytes());
    }
    let has_body = request.method == "GET" && !is_current;
    Ok(Response { head, body: has_body.then_some((file, facts.len())) })
}

fn etag(facts: &Metadata) -> String {
    let mut hasher = DefaultHasher::new();
    (facts.ino(), facts.len(), facts.mtime(), facts.mtime_nsec()).hash(&mut hasher);
    format!("\"{}\"", hasher.finish())
}

/// Returns whether the requester has this version of the file. A date is only compared if there is no ETag.
fn is_current(request: &Request, etag: &str, modified: u64) -> bool {
    if let Some(known) = &request.if_none_match {
        return conditional::contains_tag(known, etag.as_bytes());
    }
    let since = request.if_modified_since.as_deref().and_then(date::parse);
    since.is_some_and(|since| since >= modified as f64)
}
