//! Names of headers as programs write them.

use lacquer_http::OwnedName;

/// A header name as the program writes it, with what look-ups need prepared.
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
