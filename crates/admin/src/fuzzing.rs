//! Entries for the fuzz targets; not part of a normal build.

use crate::metrics::Format;
use crate::request::Values;
use crate::routes_table::find;

/// Reads a request as the server does, up to the parameters of its route.
pub fn request(method: &str, path: &str, query: &str, body: &[u8], accept: &str) {
    let _ = Format::of(accept).media();
    let Ok(found) = find(method, path) else { return };
    let Ok(values) = Values::read(found.route, &found.variables, query, body) else { return };
    for parameter in found.route.parameters {
        let name = parameter.name;
        let _ = (values.is_set(name), values.number(name), values.list(name));
        assert!(!parameter.is_required || values.text(name).is_some() || !values.list(name).is_empty());
    }
}
