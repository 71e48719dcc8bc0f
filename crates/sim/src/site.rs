//! The pages of the world. The first part of a path decides how the VCL treats a page and which rules apply to it.

use crate::page::SHORTEST;
use crate::wire::{Chance, below, one_of};

/// Kinds of pages that are cached, and may be banned and purged.
const CHANGING: [&str; 10] =
    ["/p/", "/p/", "/p/", "/zip/", "/unzip/", "/slow/", "/again/", "/esi/", "/esi/", "/part/"];
/// Kinds of pages whose responses are each for one request.
const PRIVATE: [&str; 3] = ["/pass/", "/hfm/", "/hfp/"];
/// The kind of pages that are cached for longer than the world lasts, and never fail.
const CALM: &str = "/calm/";
/// The page that most clients request in some worlds.
pub const FAVOURITE: &str = "/p/0";
/// The kind of pages that VCL generates.
pub const SYNTHETIC: &str = "/synth/";

fn page(kind: &str, chance: &Chance, pages: u64) -> String {
    format!("{kind}{}", below(chance, pages))
}

/// Chooses a page to request.
pub fn any(chance: &Chance, pages: u64) -> String {
    let kind = match below(chance, 20) {
        0..10 => one_of(chance, &CHANGING),
        10..14 => CALM,
        14..16 => "/pass/",
        16..19 => one_of(chance, &PRIVATE),
        _ => SYNTHETIC,
    };
    page(kind, chance, pages)
}

/// Returns the path, or that of a page which the VCL does not restart.
pub fn without_restart(path: String) -> String {
    match path.strip_prefix("/again/") {
        Some(page) => format!("/p/{page}"),
        None => path,
    }
}

/// Chooses a page that may be banned or purged.
pub fn changing(chance: &Chance, pages: u64) -> String {
    page(one_of(chance, &CHANGING), chance, pages)
}

pub fn is_changing(path: &str) -> bool {
    CHANGING.iter().any(|kind| path.starts_with(kind))
}

/// Returns whether each response to the page is for one request only.
pub fn is_private(path: &str) -> bool {
    PRIVATE.iter().any(|kind| path.starts_with(kind))
}

pub fn is_passed(path: &str) -> bool {
    path.starts_with("/pass/")
}

pub fn is_calm(path: &str) -> bool {
    path.starts_with(CALM)
}

pub fn is_synthetic(path: &str) -> bool {
    path.starts_with(SYNTHETIC)
}

/// Returns whether responses to the page include others.
pub fn is_composed(path: &str) -> bool {
    path.starts_with("/esi/") || path.starts_with("/part/")
}

/// Returns whether the page comes from the origin that allows only a few simultaneous requests. Further requests wait
/// for a limited time.
pub fn is_limited(path: &str) -> bool {
    path.ends_with(['1', '3', '5', '7', '9'])
}

/// A page that is included at a position of another.
#[derive(Clone, Debug)]
pub struct Include {
    pub at: usize,
    pub path: String,
}

/// Chooses the includes of a page of `length` bytes.
pub fn includes(path: &str, length: usize, chance: &Chance, pages: u64) -> Vec<Include> {
    if !is_composed(path) {
        return Vec::new();
    }
    let kinds: &[&str] = if path.starts_with("/esi/") {
        &["/part/", "/part/", "/p/", "/zip/", "/slow/", "/pass/", CALM, SYNTHETIC]
    } else {
        &["/p/", "/p/", "/unzip/", "/hfm/", "/pass/", CALM]
    };
    let mut places: Vec<usize> = (0..below(chance, 4))
        .map(|_| SHORTEST + below(chance, (length - SHORTEST) as u64) as usize)
        .collect();
    places.sort_unstable();
    places.into_iter().map(|at| Include { at, path: page(one_of(chance, kinds), chance, pages) }).collect()
}

/// Returns the text of a page with ESI markup for its includes. Braces mark the beginning and end of each.
pub fn markup(text: &[u8], includes: &[Include]) -> Vec<u8> {
    let (mut bytes, mut done) = (Vec::new(), 0);
    for Include { at, path } in includes {
        bytes.extend(&text[done..*at]);
        bytes.extend(format!("{{<esi:include src=\"{path}\"/>}}").bytes());
        done = *at;
    }
    bytes.extend(&text[done..]);
    bytes
}
