//! Files that an `include` inside a subroutine reads.

use super::{BACKEND, MARK, loads};
use crate::upgrade::upgrade;

/// Returns the new text and the subroutine that it was read as a part of.
fn part(old: &str, sub: Option<&str>) -> (String, Option<String>) {
    let new = upgrade("old.vcl", old.as_bytes(), sub).unwrap_or_else(|d| panic!("{old}\n{}", d.pretty()));
    (String::from_utf8(new.text).unwrap(), new.part_of)
}

/// Statements, the subroutine that they are a part of, and what they become.
const PARTS: &[(&str, &str, &str)] = &[
    (
        "# posts\n  if (req.request == \"POST\") { return (lookup); }  set req.backend = web;\n",
        "vcl_recv",
        "# posts\n  if (req.method == \"POST\") { return (hash); }  set req.backend_hint = web;\n",
    ),
    (
        "include \"a.vcl\"; if (beresp.http.a || req.url ~ \"x\") { return (hit_for_pass); }",
        "vcl_fetch",
        "include \"a.vcl\"; if (beresp.http.a || bereq.url ~ \"x\") { return (pass(120s)); }",
    ),
    ("if (!obj.cacheable) { pass; }", "vcl_fetch", "if (!(beresp.ttl > 0s)) { return (pass(120s)); }"),
    (
        "set obj.http.a = \"b\"; synthetic {\"x\"} obj.status;",
        "vcl_error",
        "set resp.http.a = \"b\"; synthetic({\"x\"} + resp.status);",
    ),
    (
        "if (obj.hits > 0) { set resp.http.X = \"HIT\"; }",
        "vcl_deliver",
        "if (obj.hits > 0) { set resp.http.X = \"HIT\"; }",
    ),
    ("hash_data(req.url req.http.a); hash;", "vcl_hash", "hash_data(req.url + req.http.a); return (lookup);"),
    ("pass;", "vcl_recv", "return (pass);"),
    ("if (obj.ttl > 0s) { return (deliver); }", "vcl_hit", "if (obj.ttl > 0s) { return (deliver); }"),
    ("if (obj.ttl < 2m) { set obj.ttl = 2m; }", "vcl_fetch", "if (beresp.ttl < 2m) { set beresp.ttl = 2m; }"),
    (
        "if (bereq.retries > 0) { return (abandon); } set bereq.http.X = \"1\";",
        "vcl_backend_fetch",
        "if (bereq.retries > 0) { return (abandon); } set bereq.http.X = \"1\";",
    ),
    (
        "if (bereq.retries < 2) { return (retry); }",
        "vcl_backend_response",
        "if (bereq.retries < 2) { return (retry); }",
    ),
    (
        "set bereq.http.connection = \"close\"; pipe;",
        "vcl_pipe",
        "set bereq.http.connection = \"close\"; return (pipe);",
    ),
    (
        "if (bereq.request == \"GET\") { fetch; }",
        "vcl_miss",
        "if (req.method == \"GET\") { return (fetch); }",
    ),
    ("new d = directors.random();", "vcl_init", "new d = directors.random();"),
    ("std.syslog(1, req.url \"x\"); # end", "vcl_recv", "std.syslog(1, req.url + \"x\"); # end"),
];

#[test]
fn statements_without_a_subroutine_are_a_part_of_one() {
    for (old, sub, expected) in PARTS {
        assert_eq!(part(old, None), ((*expected).to_owned(), Some((*sub).to_owned())), "{old}");
    }
    // It loads with the file that includes it.
    let (new, _) = part("set beresp.ttl = 5m; unset beresp.http.Set-Cookie; return (deliver);", None);
    loads(&format!("vcl 4.0;\n{BACKEND}sub vcl_backend_response {{ {new} }}\n"));
}

#[test]
fn a_part_of_one_of_several_subroutines_needs_a_name() {
    for old in ["set bereq.http.connection = \"close\";", "if (bereq.http.a) { return (fetch); }"] {
        let error = upgrade("old.vcl", old.as_bytes(), None).expect_err(old);
        assert!(error.pretty().contains("name the subroutine with --in"), "{}", error.pretty());
        for sub in ["vcl_pipe", "vcl_backend_fetch"] {
            assert_eq!(part(old, Some(sub)), (old.to_owned(), Some(sub.to_owned())));
        }
    }
}

#[test]
fn the_subroutine_of_a_part_can_be_named() {
    let old = "if (req.url ~ \"a\") { error 404; }";
    for (sub, expected) in [
        ("vcl_recv", "if (req.url ~ \"a\") { return (synth(404)); }"),
        ("vcl_fetch", "if (bereq.url ~ \"a\") { return (error(404)); }"),
        ("vcl_backend_response", "if (bereq.url ~ \"a\") { return (error(404)); }"),
    ] {
        assert_eq!(part(old, Some(sub)), (expected.to_owned(), Some(sub.to_owned())));
    }
    let error = "synthetic {\"x\"} obj.status;";
    assert_eq!(part(error, Some("vcl_backend_error")).0, "synthetic({\"x\"} + beresp.status);");
    assert_eq!(part("# nothing yet\n", Some("vcl_recv")).0, "# nothing yet\n");
    assert_eq!(part("# nothing yet", None).0, "# nothing yet");
}

#[test]
fn a_part_names_the_modules_that_it_needs() {
    let (new, _) = part("log \"a\";\nif (req.url ~ \"x\") { purge; }\n", Some("vcl_hit"));
    let needs =
        |module| format!("{MARK} the file that includes this needs, at its beginning: import {module};\n");
    let expected = format!(
        "{}{}std.log(\"a\");\nif (req.url ~ \"x\") {{ purge_module.hard(); }}\n",
        needs("purge as purge_module"),
        needs("std")
    );
    assert_eq!(new, expected);
    assert_eq!(upgrade("old.vcl", b"log \"a\";", None).unwrap().open, 1);
}

#[test]
fn a_part_contains_no_declarations() {
    for old in ["set req.http.a = \"1\"; sub x { }", "pass; acl a { \"::1\"; }", "call x; vcl 4.0;"] {
        let error = upgrade("old.vcl", old.as_bytes(), None).expect_err(old);
        assert!(error.pretty().contains("a part of vcl_recv cannot contain a declaration"), "{old}");
    }
    for old in ["set a = 1", "if (a) { set b }", "unset", "pass; }", "set a = 1; \"x\";"] {
        assert!(upgrade("old.vcl", old.as_bytes(), Some("vcl_recv")).is_err(), "{old}");
    }
}
