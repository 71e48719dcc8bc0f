//! Checks the backends of a site, and the page of its probe.

use super::wrong::Wrong;

/// Refuses characters that have a meaning within a string of VCL.
pub fn check(backend: &str) -> Result<(), Wrong> {
    if backend.is_empty() || backend.contains('"') || backend.chars().any(char::is_control) {
        return Err(Wrong::new("a backend has no quotes or line breaks", "write http://HOST:PORT"));
    }
    let address = backend.strip_prefix("https://").unwrap_or(backend);
    let is_allowed = |c: char| c.is_alphanumeric() || "-._:[]".contains(c);
    if !address.starts_with('/') && !address.chars().all(is_allowed) {
        return Err(Wrong::new("it is not the name or address of a server", "write http://HOST:PORT"));
    }
    Ok(())
}

/// Returns the page for probes.
pub fn page(value: &str) -> Result<String, Wrong> {
    if value.starts_with('/') && value.chars().all(|c| c.is_ascii_graphic() && !"\"\\".contains(c)) {
        return Ok(value.to_owned());
    }
    Err(Wrong::new("it is not a page of the web server", "write a path such as /health"))
}
