//! The new names of variables.

use lacquer_http::{Filter, HeaderName};

use super::context::Context;

/// The replacement of a variable.
#[derive(Debug, PartialEq)]
pub enum New {
    /// It has this name, or is this expression.
    Name(String),
    /// As `Name`, and the expression needs the module.
    With(&'static str, String),
    /// It has no counterpart, for this reason.
    Gone(&'static str),
}

/// The responses that were cacheable in Varnish 2 when `vcl_fetch` began.
const CACHEABLE: &str = "(beresp.status == 200 || beresp.status == 203 || beresp.status == 300 || beresp.status == 301 || \
    beresp.status == 302 || beresp.status == 404 || beresp.status == 410)";

/// Returns what the value of a variable has become. `may_have_lifetime` is whether the text may have set the lifetime of
/// the response before.
pub fn value(name: &str, context: Context, may_have_lifetime: bool) -> New {
    let same = New::Name(rename(name, context));
    match name {
        "req.backend.healthy" if context.is_backend() => {
            New::With("std", "std.healthy(bereq.backend)".to_owned())
        }
        "req.backend.healthy" => New::With("std", "std.healthy(req.backend_hint)".to_owned()),
        // Other objects are not stored. The ttl of a stored object is negative during grace.
        "obj.cacheable" if context != Context::Fetch => New::Name("true".to_owned()),
        // Responses that could not be read did not reach the subroutine.
        "obj.valid" | "beresp.valid" => New::Name("true".to_owned()),
        "obj.cacheable" | "beresp.cacheable" if may_have_lifetime => New::Name(CACHEABLE.to_owned()),
        "obj.cacheable" | "beresp.cacheable" => New::Name("(beresp.ttl > 0s)".to_owned()),
        "server.port" => New::With("std", "std.port(server.ip)".to_owned()),
        "client.port" => New::With("std", "std.port(client.ip)".to_owned()),
        _ => gone(name, context).map_or(same, New::Gone),
    }
}

/// Returns the new name of a variable that is set or unset.
pub fn target(name: &str, context: Context) -> New {
    gone(name, context).map_or_else(|| New::Name(rename(name, context)), New::Gone)
}

fn gone(name: &str, context: Context) -> Option<&'static str> {
    Some(match name {
        "req.esi_level" if context.is_backend() => {
            "there is no bereq.esi_level; set a header from req.esi_level in vcl_recv and compare that"
        }
        "req.can_gzip" | "req.grace" | "req.keep" | "req.hash_always_miss" | "req.hash_ignore_busy"
            if context.is_backend() =>
        {
            "bereq has no such field: set it in vcl_recv; to read it, set a header from it there and read that"
        }
        "obj.ttl" | "obj.grace" | "obj.keep" if context == Context::Error => {
            "vcl_synth has no lifetime: its responses are not stored; those of vcl_backend_error are"
        }
        "beresp.backend.ip" => "there is no beresp.backend.ip in VCL 4.1; compare beresp.backend.name",
        "beresp.backend.port" => "there is no beresp.backend.port; compare beresp.backend.name",
        "bereq.backend.name" | "req.backend.name" => {
            "a backend is its own name as text: set a header to bereq.backend and compare that"
        }
        "beresp.storage_hint" => "there is no beresp.storage_hint; read beresp.storage",
        "bereq.connect_timeout" | "bereq.first_byte_timeout" | "bereq.between_bytes_timeout"
            if context.lost_bereq() =>
        {
            "set it in vcl_backend_fetch"
        }
        "obj.lastuse" | "beresp.lastuse" => "there is no obj.lastuse; obj.age and obj.hits are similar",
        "beresp.saintmode" => "saint mode is the module saintmode now; return (retry) tries again",
        "req.esi" => "there is no req.esi; set resp.do_esi in vcl_deliver",
        "obj.prefetch" | "beresp.prefetch" => "there is no prefetch; grace fetches in the background",
        "client.bandwidth" => "there is no client.bandwidth",
        "req.hash" => "there is no req.hash outside of vcl_hash",
        _ => return None,
    })
}

fn rename(name: &str, context: Context) -> String {
    let Some((first, rest)) = name.split_once('.') else { return name.to_owned() };
    let message = match (first, context) {
        ("req", Context::Fetch | Context::BackendError | Context::BackendFetch) => "bereq",
        ("bereq", Context::Miss | Context::Pass) => "req",
        ("obj", Context::Fetch | Context::BackendError) => "beresp",
        ("obj", Context::Error) => "resp",
        (first, _) => first,
    };
    let rest = match (message, rest) {
        ("req" | "bereq", "request") => "method",
        ("req", "backend") => "backend_hint",
        ("bereq", "restarts") => "retries",
        ("resp" | "beresp" | "obj", "response") => "reason",
        (_, rest) => rest,
    };
    format!("{message}.{rest}")
}

/// Returns the name of a header of the client's request that requests of fetches do not have.
pub fn removed_header(variable: &str, filter: Filter) -> Option<&str> {
    let (message, header) = variable.split_at_checked("req.http.".len())?;
    let is_removed = HeaderName::new(header.as_bytes()).is_filtered(filter);
    (message.eq_ignore_ascii_case("req.http.") && is_removed).then_some(header)
}
