//! Tests that lints warn about harmful programs, and only about those.

mod common;

use common::program;
use lacquer_vcl::{Diagnostic, lint};

fn lints(text: &str) -> Vec<String> {
    lint(&program(text)).iter().map(Diagnostic::message).collect()
}

/// Programs, and the lint that warns about each.
const HURT: &[(&str, &str)] = &[
    ("sub vcl_recv { return (pass); set req.http.a = \"1\"; }", "[unreachable]"),
    (
        "sub vcl_recv { if (req.url) { return (pass); } else { return (hash); } if (req.url) { unset req.http.a; } }",
        "[unreachable]",
    ),
    (
        "sub vcl_backend_response { if (beresp.status > 500) { set beresp.ttl = 0s; return (deliver); } }",
        "[zero-ttl]",
    ),
    ("sub vcl_recv { ban(\"req.url ~ \" + req.url); }", "[ban-req]"),
    ("sub vcl_recv { ban(\"obj.status == 200 && req.http.host == a\"); }", "[ban-req]"),
    ("sub vcl_recv { set req.http.a = \"at \" + std.real2time(1.0, now); }", "[deprecated]"),
    ("sub vcl_recv { if (now > std.real2time(1.0, now)) { return (pass); } }", "[deprecated]"),
    ("sub vcl_hash { hash_data(req.http.User-Agent); }", "[raw-hash]"),
    ("sub vcl_backend_response { set beresp.ttl = 1h; return (deliver); }", "[cached-cookie]"),
    (
        "backend a { .host = \"192.0.2.1\"; .ssl = 1; } sub vcl_recv { set req.backend_hint = a; }",
        "[unchecked-host]",
    ),
];

const FINE: &[&str] = &[
    "backend a { .host = \"192.0.2.1\"; .ssl = 1; .ssl_verify_host = 1; } sub vcl_recv { set req.backend_hint = a; }",
    "backend a { .host = \"192.0.2.1\"; .ssl = 1; .ssl_verify_peer = 0; } sub vcl_recv { set req.backend_hint = a; }",
    "sub vcl_hash { hash_data(regsub(req.http.cookie, \"^.*lang=([a-z]+).*$\", \"\\1\")); hash_data(req.http.X-Forwarded-Proto); }",
    "sub vcl_recv { if (req.url) { return (pass); } set req.http.a = \"1\"; return (hash); }",
    "sub vcl_recv { return (hash); }",
    "sub vcl_backend_response { set beresp.ttl = 0s; }",
    "sub vcl_backend_response { if (beresp.status > 500) { set beresp.ttl = 0s; set beresp.uncacheable = true; return (deliver); } }",
    "sub vcl_recv { ban(\"obj.http.x-url ~ \" + req.url); }",
    "sub vcl_recv { set req.http.Device = \"pc\"; } sub vcl_hash { hash_data(req.http.device); hash_data(req.http.host); }",
    "sub vcl_backend_response { unset beresp.http.set-cookie; set beresp.ttl = 1h; return (deliver); }",
    "sub vcl_backend_response { if (beresp.http.Set-Cookie) { return (pass(1m)); } return (deliver); }",
];

#[test]
fn lints_warn_about_harmful_programs() {
    for (text, expected) in HURT {
        let found = lints(text);
        assert!(found.len() == 1 && found[0].contains(expected), "{text}\n{found:?}");
    }
}

#[test]
fn lints_do_not_warn_about_other_programs() {
    for text in FINE {
        assert_eq!(lints(text), [] as [String; 0], "{text}");
    }
}

#[test]
fn a_lint_shows_its_statement() {
    let p = program("\nsub vcl_recv {\n\treturn (pass);\n\tset req.http.a = \"1\";\n}");
    let pretty = lint(&p)[0].pretty();
    assert!(pretty.starts_with("warning: This statement is never reached [unreachable]\n"), "{pretty}");
    assert!(pretty.contains("--> <vcl.inline>:4:9\n"), "{pretty}");
    assert!(pretty.contains("  4 |     set req.http.a = \"1\";\n"), "{pretty}");
    assert!(pretty.contains("    |     ^^^^^^^^^^^^^^^^^^^^^\n"), "{pretty}");
}
