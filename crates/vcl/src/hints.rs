//! Suggestions for errors: similar names, and replacements for words of older versions and other dialects.

use crate::diagnostics::Diagnostic;
use crate::lexer::Tok;
use crate::symbols::{Fmt, Symbols, UseKind};
use crate::types::{Action, Method};
use lacquer_params::nearest;

/// Names that are invalid after an upgrade, and their replacements.
const REPLACED: &[(&str, &str)] = &[
    ("req.backend", "use 'req.backend_hint'; set it to a backend or a director's .backend()"),
    ("req.request", "use 'req.method'"),
    ("bereq.request", "use 'bereq.method'"),
    ("obj.response", "use 'resp.reason' in vcl_synth or 'beresp.reason' in vcl_backend_error"),
    ("beresp.response", "use 'beresp.reason'"),
    ("resp.response", "use 'resp.reason'"),
    ("beresp.cacheable", "set 'beresp.uncacheable' to true for responses that must not be cached"),
    ("beresp.saintmode", "use the module saintmode, or return (retry) and a director"),
    ("beresp.backend.port", "use 'beresp.backend'"),
    ("obj.lastuse", "it has no replacement; 'obj.age' and 'obj.hits' are similar"),
    ("obj.cacheable", "use 'obj.uncacheable' in vcl_deliver"),
    ("req.hash", "call hash_data() in vcl_hash"),
    ("server.port", "import std and use 'std.port(server.ip)'"),
    ("client.port", "import std and use 'std.port(client.ip)'"),
    ("client.bandwidth", "it has no replacement"),
    ("obj.http", "use 'resp.http' in vcl_synth and vcl_deliver, 'beresp.http' on the backend's side"),
    ("error", "use 'return (synth(status, \"reason\"));'"),
    ("remove", "use 'unset'"),
    ("purge", "use 'return (purge);' in vcl_recv"),
    ("esi", "use 'set beresp.do_esi = true;'"),
    ("rollback", "import std and use 'std.rollback(req);'"),
    ("panic", "import vtc and use 'vtc.panic()'"),
    ("log", "import std and use 'std.log()'"),
    ("std.time2integer", "use 'std.integer(time=...)'"),
    ("std.time2real", "use 'std.real(time=...)'"),
    ("std.real2integer", "use 'std.integer(real=...)'"),
    ("std.real2time", "use 'std.time(real=...)'"),
    ("std.duration2integer", "use 'std.integer(duration=...)'"),
    ("ban_url", "use 'ban(\"req.url ~ \" + ...)'"),
    ("fastly_info", "this is Fastly's dialect; the variable does not exist here"),
    ("fastly", "this is Fastly's dialect; the variable does not exist here"),
    (
        "table",
        "Fastly's tables have no equivalent here; use a header map in a subroutine or a module's lookup",
    ),
    ("declare", "Fastly's local variables: use the module var, or a header that you unset afterwards"),
    ("goto", "use subroutines and 'call'"),
    ("switch", "use 'if' and 'elseif'"),
];

/// Returns the hint for an unknown name.
pub(crate) fn for_unknown_symbol(name: &str, symbols: &Symbols) -> Option<String> {
    if let Some((_, hint)) = REPLACED.iter().find(|(old, _)| *old == name) {
        return Some((*hint).to_owned());
    }
    let module = name.split_once('.').map(|(first, _)| first);
    if let Some(module) = module.filter(|m| MODULES.contains(m) && !symbols.full_names().any(|n| n == *m)) {
        return Some(format!("add 'import {module};'"));
    }
    let names: Vec<String> = symbols.full_names().filter(|n| !n.is_empty()).collect();
    nearest(name, names.iter().map(String::as_str)).map(|near| format!("did you mean '{near}'?"))
}

const MODULES: &[&str] = &[
    "std",
    "directors",
    "blob",
    "cookie",
    "purge",
    "unix",
    "proxy",
    "vtc",
    "h2",
    "math",
    "header",
    "var",
    "str",
    "bodyaccess",
    "vsthrottle",
    "xkey",
    "saintmode",
    "accept",
    "tcp",
    "digest",
    "basicauth",
    "geoip2",
    "querystring",
    "re2",
    "selector",
    "querysort",
    "uuid",
    "netmapper",
    "geoip",
    "json",
    "jwt",
    "awsrest",
    "reqwest",
    "s3",
];

/// Modules that users of Varnish know and that do not exist here, and their replacements.
const ABSENT_MODULES: &[(&[&str], &str)] = &[
    (
        &["goto", "named", "activedns", "unidirectors", "udo"],
        "import dynamic for hosts that a request decides; the hosts of declared backends are looked up again by their TTL",
    ),
    (
        &["leastconn", "vslp", "fsdirector"],
        "import directors: its shard, random and round_robin select backends",
    ),
    (
        &["kvstore", "keystore", "memstore"],
        "import var for values shared by all tasks, or selector for fixed tables",
    ),
    (&["valkey"], "import redis, which speaks the protocol of both"),
    (
        &["memcached", "mongodb", "sqlite3"],
        "of databases, VCL reaches those that speak Redis's protocol; import redis",
    ),
    (&["http", "curl", "lambda"], "import reqwest, which sends requests of VCL"),
    (
        &["edgestash", "mustache", "esicookies", "pesi"],
        "build pages from parts with ESI: set beresp.do_esi = true;",
    ),
    (&["urlplus", "uri", "queryfilter", "querymodifier", "parsereq"], "import querystring, querysort or re2"),
    (&["boltsort", "urlsort"], "import querysort, or use std.querysort()"),
    (&["headerplus"], "import header"),
    (&["cookieplus"], "import cookie"),
    (&["xbody", "parseform"], "import bodyaccess, or json for documents"),
    (&["jq"], "import json"),
    (&["ykey", "cachetag"], "import xkey"),
    (&["softpurge", "stale"], "import purge: purge.soft()"),
    (&["mmdb", "maxminddb", "ip2location"], "import geoip2, or geoip"),
    (&["re", "pcre2", "rewrite"], "use the operator ~ and regsub(), or import re2"),
    (&["aclplus"], "import netmapper, which reads networks from a file"),
    (&["tbf", "throttle", "ratelimit"], "import vsthrottle"),
    (&["taskvar", "constant", "globalvar", "types"], "import var"),
    (&["file", "cfg"], "use std.fileread()"),
    (&["urlcode"], "import blob: blob.transcode(decoding=IDENTITY, encoding=URL, encoded=...)"),
    (&["lua", "mruby", "javascript", "tinykvm", "riscv"], "programs in other languages cannot be run"),
    (&["brotli", "image", "slicer"], "bodies can be changed by gzip, gunzip and ESI only"),
];

/// Returns the hint for a module that users of Varnish know and that does not exist here.
pub(crate) fn for_absent_module(name: &str) -> Option<&'static str> {
    ABSENT_MODULES.iter().find(|(names, _)| names.contains(&name)).map(|(_, hint)| *hint)
}

/// Returns the hint for a word that cannot start a declaration.
pub(crate) fn for_unknown_declaration(word: &str) -> Option<&'static str> {
    Some(match word {
        "director" => {
            "directors are objects now: import directors; in vcl_init: new d = directors.round_robin(); \
             d.add_backend(b);"
        }
        "table" => {
            "Fastly's tables have no equivalent here; use a subroutine that sets a header, or a module's lookup"
        }
        "include" => "an include needs a file: include \"file.vcl\";",
        "set" | "unset" | "if" | "call" | "return" => {
            "statements belong into a subroutine: sub vcl_recv { ... }"
        }
        "penaltybox" | "ratecounter" => "this is Fastly's dialect; the module vsthrottle counts rates",
        "function" => "use 'sub'",
        _ => return None,
    })
}

/// The bytes that some editors write at the beginning of a file.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

const BYTE_ORDER_MARK_HINT: &str = "the file begins with a byte order mark (BOM), which editors do not show; \
    remove it: sed -i '1s/^\\xef\\xbb\\xbf//' FILE";

/// Returns the hint for text that cannot be lexed at an offset: at a byte order mark, and depending on the declaration
/// before it, as a colon in a Fastly table does not start a BLOB.
pub(crate) fn for_lexical_error(text: &[u8], at: usize) -> Option<String> {
    let (before, rest) = text.split_at_checked(at)?;
    if rest.starts_with(BYTE_ORDER_MARK) {
        return Some(BYTE_ORDER_MARK_HINT.to_owned());
    }
    let mut lines = before.rsplit(|b| *b == b'\n').map(<[u8]>::trim_ascii_start);
    let begins = |line: &[u8], word: &str| {
        line.strip_prefix(word.as_bytes()).is_some_and(|r| r.first() == Some(&b' '))
    };
    let declarations = ["acl", "backend", "import", "probe", "sub", "table", "vcl"];
    let word = lines.find_map(|line| declarations.into_iter().find(|word| begins(line, word)))?;
    (word == "table").then(|| for_unknown_declaration("table").map(str::to_owned)).flatten()
}

/// The hint for a text of an older version.
pub(crate) const OLD_VERSION: &str = "lacquer upgrade-vcl FILE > new.vcl rewrites VCL of versions 2 and 3";

/// Returns the hint for a subroutine with an unknown reserved name.
pub(crate) fn for_unknown_method(name: &str) -> Option<String> {
    Some(match name {
        "vcl_fetch" => {
            format!("vcl_fetch became vcl_backend_response; req.* is bereq.* there; {OLD_VERSION}")
        }
        "vcl_error" => {
            format!("vcl_error became vcl_synth and, for failed fetches, vcl_backend_error; {OLD_VERSION}")
        }
        "vcl_log" => "log from vcl_deliver, with std.log()".to_owned(),
        "vcl_timeout" | "vcl_prefetch" | "vcl_discard" => format!("{name} no longer exists"),
        name => {
            let methods = Method::ALL.iter().map(|m| m.sub_name());
            format!("did you mean '{}'?", nearest(name, methods)?)
        }
    })
}

/// Returns the hint for an unknown word after `return (`.
pub(crate) fn for_unknown_return(word: &str, method: Option<Method>) -> Option<String> {
    Some(match (word, method) {
        ("miss", Some(Method::Hit)) => {
            "vcl_hit cannot turn into a miss: use return (restart) with req.hash_always_miss set, \
             or return (pass)"
                .to_owned()
        }
        ("miss", _) => "there is no return (miss); set req.hash_always_miss in vcl_recv".to_owned(),
        ("hit_for_pass", _) => {
            "use 'return (pass(120s));' or set beresp.uncacheable and return (deliver)".to_owned()
        }
        ("error", _) => "use 'return (synth(status, \"reason\"));'".to_owned(),
        ("esi", _) => "use 'set beresp.do_esi = true;'".to_owned(),
        _ => {
            let near = nearest(word, Action::ALL.iter().map(|a| a.name()))?;
            format!("did you mean 'return ({near})'?")
        }
    })
}

/// Returns the hint for a return that the subroutine does not allow.
pub(crate) fn for_illegal_return(action: Action, legal: u32) -> Option<&'static str> {
    let is = |other: Action| legal & 1 << other as u32 != 0;
    Some(match action {
        Action::Fetch if is(Action::Deliver) && is(Action::Restart) => {
            "a hit delivers, also stale within grace; for a fresh fetch use return (restart) with \
             req.hash_always_miss set, or return (pass)"
        }
        Action::Lookup if is(Action::Hash) => "in vcl_recv, return (lookup) became return (hash)",
        Action::Hash if is(Action::Lookup) => "in vcl_hash, return (hash) became return (lookup)",
        Action::Deliver if is(Action::Fetch) => "a miss or pass continues with return (fetch)",
        Action::Error if is(Action::Synth) => "on the client's side use return (synth(status, \"reason\"))",
        Action::Synth if is(Action::Abandon) => {
            "on the backend's side use return (error(status, \"reason\")), or abandon in vcl_backend_error"
        }
        Action::Restart if is(Action::Retry) => "on the backend's side use return (retry)",
        Action::Retry if is(Action::Restart) => "on the client's side use return (restart)",
        _ => return None,
    })
}

pub(crate) const ASSIGNMENT_IN_CONDITION: &str = "a comparison is written with ==";

const NAME_OF_BACKEND: &str = "compare the backend's name: \"\" + req.backend_hint == req.http.x";

pub(crate) const DURATION_WITHOUT_UNIT: &str =
    "a duration needs a unit: 10s, 5m, 1.5h; std.duration() converts a number";

/// Returns the hint for a token that cannot stand where another one is expected.
pub(crate) fn for_unexpected_token(expected: Tok, found: Tok) -> Option<&'static str> {
    Some(match (expected, found) {
        (Tok::RParen, Tok::Assign) => ASSIGNMENT_IN_CONDITION,
        (Tok::Semi, Tok::Cstr) => "join strings with +",
        (Tok::Assign, Tok::Eq) => "a variable is set with =",
        (Tok::LBrace, Tok::Cstr) => "write a blank between { and \"; together they begin a long string",
        _ => return None,
    })
}

/// Returns the hint for a string where a duration is needed.
pub(crate) fn for_quoted_duration(literal: &str) -> String {
    let digits = literal.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let is_duration = digits.len() < literal.len() && digits.parse::<f64>().is_ok();
    if is_duration {
        format!("write a duration without quotes: {literal}")
    } else {
        "a duration is written without quotes, such as 10s; std.duration() converts a string".to_owned()
    }
}

/// Returns whether values of a type are texts.
pub(crate) fn is_text(fmt: Fmt) -> bool {
    matches!(fmt, Fmt::String | Fmt::Strings | Fmt::Strands | Fmt::Header)
}

/// Returns the hint for a comparison of two types.
pub(crate) fn for_different_types(left: Fmt, right: Fmt, is_literal: bool) -> Option<&'static str> {
    Some(match (left, right) {
        (Fmt::Backend, right) if is_text(right) && !is_literal => NAME_OF_BACKEND,
        (Fmt::Backend, right) if is_text(right) => "write the name of a backend without quotes",
        (left, Fmt::Backend) if is_text(left) => "a name compares with a text in quotes: == \"name\"",
        (Fmt::Ip, right) if is_text(right) => "use an acl: client.ip ~ name",
        (Fmt::Int | Fmt::Real | Fmt::Bytes, right) if is_text(right) => {
            "write the number without quotes; std.integer() converts a string"
        }
        (left, Fmt::Int | Fmt::Real) if is_text(left) => {
            "write the number in quotes; std.integer() converts a string"
        }
        (Fmt::Duration, Fmt::Int | Fmt::Real) => DURATION_WITHOUT_UNIT,
        (Fmt::Duration, right) if is_text(right) => "write a duration without quotes: 10s",
        _ => return None,
    })
}

/// Returns the hint for a variable that no subroutine can set.
pub(crate) fn for_read_only(name: &str) -> String {
    match name.strip_prefix("obj.") {
        Some(rest) => {
            format!("a stored object does not change; set 'beresp.{rest}' in vcl_backend_response")
        }
        None => "no subroutine can set it; copy it to a header and change that".to_owned(),
    }
}

/// Returns the hint for a variable or an action that a method does not allow. `mask` has the bits of the methods that
/// allow it.
pub(crate) fn for_illegal_use(name: &str, what: UseKind, mask: u32, method: Method) -> Option<String> {
    let allowed: Vec<&str> =
        Method::ALL.iter().filter(|m| mask & 1 << **m as u32 != 0).map(|m| m.sub_name()).collect();
    let is_backend = matches!(method, Method::BackendFetch | Method::BackendResponse | Method::BackendError);
    let other = match name.split_once('.') {
        Some(("req", rest)) if is_backend => Some(format!("bereq.{rest}")),
        Some(("bereq", rest)) if !is_backend => Some(format!("req.{rest}")),
        _ => None,
    };
    let verb = match what {
        UseKind::Read => "read",
        UseKind::Write => "set",
        UseKind::Unset => "unset",
        UseKind::Action => "used",
    };
    let (last, others) = allowed.split_last()?;
    if let Some(other) = other {
        return Some(format!("use '{other}' in {}", method.sub_name()));
    }
    if others.len() > 6 {
        return None;
    }
    let places =
        if others.is_empty() { (*last).to_owned() } else { format!("{} or {last}", others.join(", ")) };
    Some(format!("it can be {verb} in {places}"))
}

/// Adds hints that depend only on the message.
pub(crate) fn improve(diagnostic: &mut Diagnostic) {
    if diagnostic.hint.is_some() {
        return;
    }
    let message = diagnostic.message();
    let words: Vec<&str> = message.split(' ').collect();
    let hint = match words.as_slice() {
        ["Name", name, "must", "have", "type", ..] if RESERVED.contains(name) => {
            "this word is reserved; choose another name"
        }
        ["VCL", "version", "declaration", "missing", ..] => "the first line of a VCL file is 'vcl 4.1;'",
        ["Operator", "~" | "!~", "not", "possible", "on", "INT"] => {
            "~ matches a string or an address: \"\" + number ~ \"pattern\""
        }
        ["INT", "+" | "-", "STRING", ..] => "start with the string: \"\" + number + \"text\"",
        ["Unterminated", "long-string,", ..] => {
            "{\" begins a string that ends with \"}; for a block, write a blank between { and \""
        }
        ["Unterminated", "string,", ..] => "write strings of several lines as {\"...\"} or \"\"\"...\"\"\"",
        _ => return,
    };
    diagnostic.hint = Some(hint.to_owned());
}

const RESERVED: &[&str] = &[
    "acl",
    "backend",
    "ban",
    "call",
    "default",
    "false",
    "hash_data",
    "if",
    "import",
    "new",
    "now",
    "probe",
    "regsub",
    "regsuball",
    "return",
    "set",
    "sub",
    "synthetic",
    "true",
    "unset",
    "vcl",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absent_modules_are_not_among_those_that_exist() {
        for (names, _) in ABSENT_MODULES {
            assert!(names.iter().all(|name| !MODULES.contains(name)), "{names:?}");
        }
        assert_eq!(for_absent_module("std"), None);
    }
}
