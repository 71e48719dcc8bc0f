//! The new names of variables.

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

/// Returns what the value of a variable has become.
pub fn value(name: &str, context: Context) -> New {
    let same = New::Name(rename(name, context));
    match name {
        "req.backend.healthy" if context.is_backend() => {
            New::With("std", "std.healthy(bereq.backend)".to_owned())
        }
        "req.backend.healthy" => New::With("std", "std.healthy(req.backend_hint)".to_owned()),
        "beresp.cacheable" => New::Name("(beresp.ttl > 0s)".to_owned()),
        "obj.cacheable" if context == Context::Fetch => New::Name("(beresp.ttl > 0s)".to_owned()),
        "obj.cacheable" => New::Name("(obj.ttl > 0s)".to_owned()),
        "server.port" => New::With("std", "std.port(server.ip)".to_owned()),
        "client.port" => New::With("std", "std.port(client.ip)".to_owned()),
        _ => gone(name).map_or(same, New::Gone),
    }
}

/// Returns the new name of a variable that is set or unset.
pub fn target(name: &str, context: Context) -> New {
    gone(name).map_or_else(|| New::Name(rename(name, context)), New::Gone)
}

fn gone(name: &str) -> Option<&'static str> {
    Some(match name {
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
        ("req", Context::Fetch | Context::BackendError) => "bereq",
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
