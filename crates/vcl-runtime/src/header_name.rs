//! Names of headers, prepared for lookup.

use lacquer_http::OwnedName;

/// A header name as the program contains it, and its form for lookups.
#[derive(Clone, Debug)]
pub struct HeaderName {
    pub name: OwnedName,
    /// The name in lower case.
    pub lower: String,
}

impl HeaderName {
    pub fn new(name: &str) -> HeaderName {
        HeaderName { name: OwnedName::new(name), lower: name.to_ascii_lowercase() }
    }
}
