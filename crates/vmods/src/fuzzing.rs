//! Entries to the parsers of modules for the fuzz targets; not part of a normal build.

use crate::{json, jwt, netmapper, re2, redis};

/// Parses the input as a document, and finds values in it.
pub fn json(path: &str, document: &[u8]) {
    if let Ok(document) = json::parse(document)
        && let Some(found) = json::find(&document, path)
    {
        let _ = json::shown(found, false);
    }
}

/// Parses the input as a token, and verifies it with a key in JSON.
pub fn jwt(key: &[u8], token: &[u8]) {
    jwt::fuzz(key, token);
}

/// Parses the input as a file of networks, and looks up an address.
pub fn netmapper(json: &[u8], ip: std::net::IpAddr) {
    netmapper::fuzz(json, ip);
}

/// Compiles the input as a pattern, and matches and rewrites a text with it.
pub fn re2(options: u16, pattern: &[u8], text: &[u8]) {
    re2::fuzz(options, pattern, text);
}

/// Parses the input as replies of a Redis server, which arrive in pieces of this size.
pub fn redis(piece: usize, bytes: &[u8]) {
    redis::fuzz(piece, bytes);
}
