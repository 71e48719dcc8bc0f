//! Old texts and what becomes of them.

mod directors;
mod fetch_end;
mod parts;
mod shared;

use super::{MARK, upgrade};
use lacquer_vcl::signature::{ModuleSignatures, parse_module};
use lacquer_vcl::{Catalogue, NoFiles, NumericResolver, Options, Severity, compile};

struct Modules;

impl Catalogue for Modules {
    fn module(&self, name: &str) -> Option<ModuleSignatures> {
        let text = match name {
            "std" => {
                "$Function VOID log(STRANDS s)\n$Function BOOL healthy(BACKEND b)\n$Function INT port(IP ip)\n$Function VOID rollback(HTTP h)\n"
            }
            "purge" => "$Function INT hard()\n$Restrict vcl_hit vcl_miss\n",
            "directors" => {
                "$Object round_robin()\n$Method VOID .add_backend(BACKEND)\n$Method BACKEND .backend()\n\
                 $Object random()\n$Method VOID .add_backend(BACKEND, REAL)\n$Method BACKEND .backend()\n\
                 $Object hash()\n$Method VOID .add_backend(BACKEND, REAL)\n$Method BACKEND .backend(STRING)\n"
            }
            _ => return None,
        };
        Some(parse_module(name, text).expect("the notation is valid"))
    }

    fn names(&self) -> Vec<&str> {
        vec!["std", "purge", "directors"]
    }
}

fn upgraded(old: &str) -> String {
    let new = upgrade("old.vcl", old.as_bytes(), None).unwrap_or_else(|d| panic!("{old}\n{}", d.pretty()));
    String::from_utf8(new.text).unwrap()
}

/// Returns the new text, which is a program.
fn loads(old: &str) -> String {
    let new = upgraded(old);
    let mut options = Options::new(&Modules, &NoFiles, &NumericResolver);
    options.err_unref = false;
    if let Err(errors) = compile("new.vcl", &*new, &options) {
        let shown: String = errors
            .iter()
            .filter(|d| d.severity == Severity::Error)
            .map(lacquer_vcl::Diagnostic::pretty)
            .collect();
        panic!("{new}\n{shown}");
    }
    new
}

const BACKEND: &str = "backend default { .host = \"127.0.0.1\"; .port = \"8080\"; }\n";

/// Statements of the old text in a subroutine, and what they become.
const STATEMENTS: &[(&str, &str, &str)] = &[
    ("vcl_recv", "return (lookup);", "return (hash);"),
    ("vcl_recv", "lookup;", "return (hash);"),
    ("vcl_recv", "if (req.request != \"GET\") { pass; }", "if (req.method != \"GET\") { return (pass); }"),
    ("vcl_recv", "remove req.http.Cookie;", "unset req.http.Cookie;"),
    ("vcl_recv", "error 404 \"Not found\";", "return (synth(404, \"Not found\"));"),
    ("vcl_recv", "error (404) \"x\";", "return (synth(404, \"x\"));"),
    ("vcl_recv", "error(404, \"x\");", "return (synth(404, \"x\"));"),
    ("vcl_recv", "error (405);", "return (synth(405));"),
    ("vcl_recv", "error 750 req.url;", "return (synth(750, req.url));"),
    ("vcl_recv", "error;", "return (synth(503));"),
    ("vcl_recv", "set req.backend = default;", "set req.backend_hint = default;"),
    (
        "vcl_recv",
        "if (req.backend.healthy) { set req.grace = 30s; }",
        "if (std.healthy(req.backend_hint)) { set req.grace = 30s; }",
    ),
    ("vcl_recv", "purge(\"req.url == \" req.url);", "ban(\"req.url == \" + req.url);"),
    ("vcl_recv", "purge_url(req.url);", "ban(\"req.url ~ \" +req.url);"),
    ("vcl_recv", "set req.http.x = \"a\" req.url \"b\";", "set req.http.x = \"a\" + req.url + \"b\";"),
    ("vcl_recv", "set req.http.x = req.restarts \"b\";", "set req.http.x = \"\" + req.restarts + \"b\";"),
    (
        "vcl_recv",
        "set req.http.x = regsub(req.url, \"a\" \"b\", \"\") \"c\";",
        "set req.http.x = regsub(req.url, \"a\" + \"b\", \"\") + \"c\";",
    ),
    ("vcl_recv", "log \"a\" req.url;", "std.log(\"a\" + req.url);"),
    ("vcl_recv", "if (server.port == 80) { }", "if (std.port(server.ip) == 80) { }"),
    ("vcl_recv", "rollback;", "std.rollback(req);"),
    ("vcl_hash", "set req.hash += req.url;", "hash_data(req.url);"),
    ("vcl_hash", "hash_data(req.http.host); return (hash);", "hash_data(req.http.host); return (lookup);"),
    (
        "vcl_hit",
        "set obj.ttl = 0s; error 200 \"Purged.\";",
        "purge.hard(); return (synth(200, \"Purged.\"));",
    ),
    ("vcl_hit", "purge; error 200 \"Purged.\";", "purge.hard(); return (synth(200, \"Purged.\"));"),
    ("vcl_hit", "if (!obj.cacheable) { return (pass); }", "if (!true) { return (pass); }"),
    (
        "vcl_miss",
        "purge; error 404 \"Not in cache.\";",
        "purge.hard(); return (synth(404, \"Not in cache.\"));",
    ),
    ("vcl_miss", "return (fetch);", "return (fetch);"),
    ("vcl_miss", "if (bereq.http.a) { return (error); }", "if (req.http.a) { return (synth(503)); }"),
    ("vcl_pass", "return (pass);", "return (fetch);"),
    ("vcl_pass", "pass;", "return (fetch);"),
    (
        "vcl_fetch",
        "if (beresp.http.a) { set beresp.ttl = 10s; return (hit_for_pass); }",
        "if (beresp.http.a) { set beresp.ttl = 10s; return (pass(beresp.ttl)); }",
    ),
    (
        "vcl_fetch",
        "set beresp.ttl = 10s; if (beresp.http.a) { set beresp.ttl = 0s; return (hit_for_pass); }",
        "set beresp.ttl = 10s; if (beresp.http.a) { set beresp.ttl = 0s; return (pass(120s)); }",
    ),
    (
        "vcl_fetch",
        "if (!beresp.cacheable) { return (hit_for_pass); }",
        "if (!(beresp.ttl > 0s)) { return (pass(120s)); }",
    ),
    ("vcl_fetch", "if (!obj.valid) { error obj.status; }", "if (!true) { return (error(beresp.status)); }"),
    ("vcl_fetch", "return (pass);", "return (pass(120s));"),
    ("vcl_fetch", "set beresp.cacheable = false;", "set beresp.uncacheable = true;"),
    (
        "vcl_fetch",
        "if (req.url ~ \"x\" && obj.status == 200) { esi; }",
        "if (bereq.url ~ \"x\" && beresp.status == 200) { set beresp.do_esi = true; }",
    ),
    ("vcl_fetch", "if (req.restarts < 2) { restart; }", "if (bereq.retries < 2) { return (retry); }"),
    ("vcl_fetch", "error 503 \"x\";", "return (error(503, \"x\"));"),
    ("vcl_fetch", "unset beresp.http.Set-Cookie; insert;", "unset beresp.http.Set-Cookie; return (deliver);"),
    ("vcl_deliver", "set resp.http.X-Hits = obj.hits;", "set resp.http.X-Hits = obj.hits;"),
    (
        "vcl_deliver",
        "if (obj.hits > 0) { set resp.http.X = \"HIT\"; }",
        "if (obj.hits > 0) { set resp.http.X = \"HIT\"; }",
    ),
    ("vcl_deliver", "restart;", "return (restart);"),
];

#[test]
fn statements_have_their_new_form_and_load() {
    for (sub, old, expected) in STATEMENTS {
        let new = loads(&format!("{BACKEND}sub {sub} {{\n    {old}\n}}\n"));
        assert!(new.contains(&format!("    {expected}\n")), "{old}\n{new}");
        assert!(!new.contains(MARK), "{new}");
    }
}

/// Lifetimes that the text has set make no error page cacheable.
#[test]
fn cacheable_depends_on_the_status_after_a_change_of_the_lifetime() {
    let statuses = [200, 203, 300, 301, 302, 404, 410].map(|status| format!("beresp.status == {status}"));
    let condition = format!("if (!({})) {{ return (pass(120s)); }}", statuses.join(" || "));
    let test = "if (!obj.cacheable) { pass; }";
    for old in [
        // MediaWiki's
        format!("sub vcl_fetch {{ if (obj.ttl < 48h) {{ set obj.ttl = 48h; }} {test} }}"),
        format!("sub vcl_fetch {{ set beresp.ttl = 1h; }}\nsub vcl_fetch {{ {test} }}"),
        format!("sub vcl_fetch {{ call h; {test} }}\nsub h {{ set obj.ttl = 1h; }}"),
        format!("sub h {{ {test} }}\nsub vcl_fetch {{ set obj.ttl = 1h; call h; }}"),
    ] {
        let new = loads(&format!("{BACKEND}{old}\n"));
        assert!(new.contains(&condition), "{new}");
    }
    for old in [
        format!("sub vcl_fetch {{ {test} set obj.ttl = 1h; }}"),
        format!("sub h {{ }}\nsub vcl_fetch {{ call h; {test} }}"),
        format!("sub vcl_fetch {{ set obj.http.ttl = \"1\"; {test} }}"),
        format!("sub vcl_hit {{ set obj.ttl = 1h; }}\nsub vcl_fetch {{ {test} }}"),
    ] {
        let new = loads(&format!("{BACKEND}{old}\n"));
        assert!(new.contains("if (!(beresp.ttl > 0s)) { return (pass"), "{new}");
    }
}

#[test]
fn errors_of_both_sides_remain() {
    let old = format!(
        "{BACKEND}sub vcl_error {{\n    set obj.http.Content-Type = \"text/html\";\n    synthetic {{\"<h1>\"}} obj.status \" \" obj.response {{\"</h1>\"}};\n\
         \x20   if (req.restarts == 0) {{ restart; }}\n    return (deliver);\n}}\n"
    );
    let new = loads(&old);
    for part in [
        "sub vcl_synth {",
        "set resp.http.Content-Type = \"text/html\";",
        "synthetic({\"<h1>\"} + resp.status + \" \" + resp.reason + {\"</h1>\"});",
        "if (req.restarts == 0) { return (restart); }",
        "sub vcl_backend_error {",
        "synthetic({\"<h1>\"} + beresp.status + \" \" + beresp.reason + {\"</h1>\"});",
        "if (bereq.retries == 0) { return (retry); }",
    ] {
        assert!(new.contains(part), "{part}\n{new}");
    }
}

/// Errors of the client's side are not stored, but those of fetches are.
#[test]
fn lifetimes_of_errors_remain_for_fetches() {
    for name in ["ttl", "grace"] {
        let new = loads(&format!("{BACKEND}sub vcl_error {{\n    set obj.{name} = 5s;\n    deliver;\n}}\n"));
        assert!(new.contains(&format!("    # set obj.{name} = 5s;\n    return (deliver);")), "{new}");
        assert!(new.contains(&format!("vcl_backend_error {{\n    set beresp.{name} = 5s;\n")), "{new}");
        assert_eq!(new.matches(MARK).count(), 1, "{new}");
    }
}

/// A retry runs no vcl_recv, where the text selects another backend.
#[test]
fn restarts_of_fetches_are_marked_if_the_other_side_counts_them() {
    let choice = "{ if (req.restarts == 1) { set req.backend = default; } }";
    let recv = format!("sub vcl_recv {choice}");
    for old in [
        format!("{recv}\nsub vcl_fetch {{\n    restart;\n}}"),
        format!("sub vcl_fetch {{\n    return (restart);\n}}\nsub h {choice}\nsub vcl_recv {{ call h; }}"),
        format!("{recv}\nsub vcl_error {{\n    restart;\n}}"),
    ] {
        let new = loads(&format!("{BACKEND}{old}\n"));
        assert_eq!(new.matches(MARK).count(), 1, "{new}");
        let mark = new.find("    # UPGRADE: vcl_recv does not run again").expect("a mark");
        assert!(new[mark..].contains("bereq.retries\n    return (retry);\n"), "{new}");
    }
    // The copy of vcl_error counts retries itself.
    let new = loads(&format!("{BACKEND}sub vcl_error {{ if (req.restarts == 0) {{ restart; }} }}\n"));
    assert!(!new.contains(MARK), "{new}");
}

/// The request of vcl_backend_response is a copy, which the client's side does not see.
#[test]
fn changes_of_the_clients_request_in_a_fetch_are_marked_if_others_read_it() {
    let deliver = "sub vcl_deliver { set resp.http.Y = req.http.x; }\n";
    for change in ["set req.http.X = \"1\";", "unset req.http.X;"] {
        let fetch = format!("{BACKEND}sub vcl_fetch {{\n    {change}\n}}\n");
        let new = loads(&format!("{fetch}{deliver}"));
        let change = change.replace("req.", "bereq.");
        assert!(
            new.contains(&format!("change beresp, and read resp in vcl_deliver\n    {change}\n")),
            "{new}"
        );
        assert_eq!(new.matches(MARK).count(), 1, "{new}");
        for unread in ["", "sub vcl_deliver { set req.http.X = req.http.Z; }\n"] {
            assert!(!loads(&format!("{fetch}{unread}")).contains(MARK), "{unread}");
        }
    }
    let error = format!("{BACKEND}{deliver}sub vcl_error {{ set req.http.X = \"1\"; }}\n");
    assert_eq!(loads(&error).matches(MARK).count(), 1, "only the copy of vcl_error is a fetch");
}

#[test]
fn headers_that_fetches_remove_are_marked() {
    for header in ["Cache-Control", "Range", "if-modified-since", "If-None-Match", "Proxy-Authorization"] {
        let test = format!("if (req.http.{header} ~ \"a\") {{ }}");
        let new = loads(&format!("{BACKEND}sub vcl_fetch {{\n    {test}\n}}\nsub vcl_recv {{ {test} }}\n"));
        assert_eq!(new.matches(MARK).count(), 1, "{new}");
        assert!(new.contains(&format!("have no {header}: copy it")), "{new}");
    }
    // A mark between the values of a sum moves their text.
    let new = loads(&format!(
        "{BACKEND}sub vcl_fetch {{\n    error 503 req.http.Range \"b\" obj.status \"c\";\n}}\n"
    ));
    let expected = "return (error(503, bereq.http.Range + \"b\" + beresp.status + \"c\"));\n";
    assert!(new.contains(expected), "{new}");
    // vcl_miss has them still, and requests of passes too.
    let new = loads(&format!("{BACKEND}sub vcl_miss {{\n    set bereq.http.X = req.http.Range;\n}}\n"));
    assert!(
        new.contains("{\n    # UPGRADE: this had") && new.contains("    set req.http.X = req.http.Range;"),
        "{new}"
    );
    let new = loads(&format!("{BACKEND}sub vcl_miss {{\n    set bereq.http.Range = req.http.Range;\n}}\n"));
    assert!(new.contains("{\n    # UPGRADE: fetches into the cache remove this"), "{new}");
    let new = loads(&format!("{BACKEND}sub vcl_pass {{\n    set bereq.http.X = req.http.Range;\n}}\n"));
    assert!(new.contains("set bereq.http.X = bereq.http.Range;") && !new.contains(MARK), "{new}");
}

#[test]
fn a_hit_that_fetched_restarts_with_a_miss() {
    let new = loads(&format!(
        "vcl 4.0;\n{BACKEND}sub vcl_hit {{\n    if (obj.ttl < 1s) {{\n        return (miss);\n    }}\n}}\n"
    ));
    assert!(new.contains("        set req.hash_always_miss = true;\n        return (restart);\n"), "{new}");
    assert!(new.starts_with("vcl 4.1;\n"), "{new}");
}

#[test]
fn directors_become_objects() {
    let old = "director cluster round-robin {\n  { .backend = a; }\n  { .backend = { .host = \"127.0.0.2\"; } }\n}\n\
        backend a { .host = \"127.0.0.1\"; .saintmode_threshold = 5; }\ndirector stable client { { .backend = a; .weight = 2; } }\n\
        sub vcl_recv { set req.backend = cluster; if (req.url ~ \"x\") { set req.backend = stable; } }\n";
    let new = loads(old);
    for part in [
        "import directors;",
        "backend cluster_2 { .host = \"127.0.0.2\"; }",
        "new cluster = directors.round_robin();\n    cluster.add_backend(a);\n    cluster.add_backend(cluster_2);",
        "new stable = directors.hash();\n    stable.add_backend(a, 2.0);",
        "set req.backend_hint = cluster.backend();",
        "set req.backend_hint = stable.backend(client.identity);",
    ] {
        assert!(new.contains(part), "{part}\n{new}");
    }
}

#[test]
fn helpers_follow_their_callers() {
    let old = format!(
        "{BACKEND}sub helper {{ set beresp.http.url = req.url; }}\nsub vcl_fetch {{ call helper; }}\n"
    );
    assert!(loads(&old).contains("set beresp.http.url = bereq.url;"));
}

#[test]
fn what_has_no_counterpart_is_left_to_a_human() {
    let old = format!(
        "C{{ int x; }}C\n{BACKEND}sub vcl_recv {{\n    C{{ x = 1;\n    y; }}C\n    set req.esi = false; set req.http.a = \"1\";\n}}\n\
         sub vcl_hit {{ set obj.ttl = 5m; }}\nsub vcl_timeout {{ discard; }}\n# end\n"
    );
    let new = loads(&old);
    assert_eq!(new.matches(MARK).count(), 5, "{new}");
    assert!(
        new.contains("# C{ x = 1;") && new.contains("set req.http.a = \"1\";") && new.ends_with("# end\n"),
        "{new}"
    );
    let found = upgrade("old.vcl", old.as_bytes(), None).unwrap();
    assert_eq!(found.open, 5);
}

/// Varnish 3's own default.vcl, shortened where it is only long.
#[test]
fn the_default_of_varnish_3_loads() {
    let new = loads(&format!(
        "{BACKEND}sub vcl_recv {{ if (req.request != \"GET\") {{ return (pipe); }} return (lookup); }}\n\
         sub vcl_pipe {{ return (pipe); }}\nsub vcl_pass {{ return (pass); }}\n\
         sub vcl_hash {{ hash_data(req.url); return (hash); }}\nsub vcl_hit {{ return (deliver); }}\n\
         sub vcl_miss {{ return (fetch); }}\nsub vcl_fetch {{\n    if (beresp.ttl <= 0s) {{\n\
         \t\tset beresp.ttl = 120 s;\n\t\treturn (hit_for_pass);\n    }}\n    return (deliver);\n}}\n\
         sub vcl_deliver {{ return (deliver); }}\nsub vcl_init {{ return (ok); }}\nsub vcl_fini {{ return (ok); }}\n"
    ));
    assert!(new.contains("sub vcl_pass { return (fetch); }") && !new.contains(MARK), "{new}");
    assert!(new.contains("\t\treturn (pass(beresp.ttl));"), "{new}");
}

#[test]
fn changes_of_the_backends_request_move_to_its_subroutine() {
    let new = loads(&format!(
        "{BACKEND}sub vcl_miss {{\n    # why\n    set bereq.http.X = req.http.X \"y\";\n    if (req.url ~ \"b\") {{ error 404 \"gone\"; }}\n\
         \x20   if (req.http.a) {{ unset bereq.http.range; }} else {{ set bereq.first_byte_timeout = 10s; }}\n    fetch;\n}}\n\
         sub vcl_pass {{ set bereq.http.P = \"1\"; return (pass); }}\n"
    ));
    let expected = "sub vcl_miss {\n    if (req.url ~ \"b\") { return (synth(404, \"gone\")); }\n    return (fetch);\n}\n\n\
        # Changes of the backend's request, which had been in vcl_miss.\nsub vcl_backend_fetch {\n    if (!bereq.uncacheable) {\n    # why\n\
        \x20   set bereq.http.X = bereq.http.X + \"y\";\n    if (bereq.http.a) { unset bereq.http.range; } \
        else { set bereq.first_byte_timeout = 10s; }\n    }\n}\n\
        sub vcl_pass { return (fetch); }\n\n# Changes of the backend's request, which had been in vcl_pass.\n\
        sub vcl_backend_fetch {\n    if (bereq.uncacheable) { set bereq.http.P = \"1\";\n    }\n}\n";
    assert!(new.ends_with(expected), "{new}");
    assert!(!new.contains(MARK), "{new}");
}

/// Statements of vcl_miss that depend on others remain there and change the client's request.
#[test]
fn changes_that_only_some_fetches_have_are_marked() {
    for (old, expected) in [
        (
            "if (req.http.a) { set bereq.http.b = \"1\"; return (fetch); }",
            "set req.http.b = \"1\"; return (fetch);",
        ),
        ("if (req.http.a) { return (fetch); } set bereq.http.b = \"1\";", "set req.http.b = \"1\";"),
        ("if (req.restarts == 0) { unset bereq.http.b; }", "unset req.http.b;"),
        (
            "if (req.restarts == 0) { set bereq.first_byte_timeout = 5s; }",
            "# set bereq.first_byte_timeout = 5s;",
        ),
        ("set bereq.http.b = req.esi_level;", "set req.http.b = req.esi_level;"),
        // The two would change places.
        (
            "set bereq.http.b = \"1\"; if (req.restarts == 0) { set bereq.http.B = \"2\"; }",
            "set req.http.B = \"2\";",
        ),
        ("call h; set bereq.http.b = \"1\";", "set req.http.b = \"1\";"),
    ] {
        let new = loads(&format!("{BACKEND}sub h {{ }}\nsub vcl_miss {{\n    {old}\n}}\n"));
        assert!(new.contains(expected) && !new.contains("vcl_backend_fetch {"), "{old}\n{new}");
        assert_eq!(new.matches(MARK).count(), old.matches("set bereq").count(), "{new}");
    }
    let new = loads(&format!(
        "{BACKEND}sub vcl_miss {{\n    unset bereq.http.Cookie;\n    set bereq.http.C = req.http.cookie;\n}}\n"
    ));
    assert!(
        new.contains("    set req.http.C = req.http.cookie;") && new.contains("unset bereq.http.Cookie;"),
        "{new}"
    );
    assert_eq!(new.matches(MARK).count(), 1, "{new}");
}

#[test]
fn a_director_that_was_the_default_remains_it() {
    let members = "{ .backend = { .host = \"127.0.0.2\"; } }";
    let choice = "sub vcl_recv {\n    set req.backend_hint = pool.backend();\n}\n";
    let new = loads(
        &format!("director pool round-robin {{ {members} }}\n{BACKEND}sub vcl_recv {{ lookup; }}\n")
            .replace("backend default", "backend other"),
    );
    assert!(new.contains(choice) && new.find(choice) < new.find("return (hash)"), "{new}");
    // It is not the default.
    for old in [
        format!("backend a {{ .host = \"127.0.0.1\"; }}\ndirector pool round-robin {{ {members} }}\n"),
        format!("director pool round-robin {{ {members} }}\n{BACKEND}"),
    ] {
        let new = loads(&old);
        assert!(!new.contains("backend_hint"), "{new}");
    }
    let new = loads(&format!(
        "backend a {{ .host = \"127.0.0.1\"; }}\ndirector default random {{ {members} }}\n\
         director hh hash {{ {members} }}\n\
         sub vcl_recv {{ if (req.http.a) {{ set req.backend = default; }} if (req.backend == default) {{ pass; }} }}\n"
    ));
    for part in [
        "    new default_director = directors.random();\n    default_director.add_backend(default_1, 1.0);\n",
        "sub vcl_recv {\n    set req.backend_hint = default_director.backend();\n}\n",
        "{ set req.backend_hint = default_director.backend(); } if (req.backend_hint == default_director.backend())",
    ] {
        assert!(new.contains(part), "{part}\n{new}");
    }
    let old = format!("director hh hash {{ {members} }}\n");
    assert_eq!(upgrade("old.vcl", old.as_bytes(), None).unwrap().open, 1, "the choice is made early");
    assert!(loads(&old).contains(MARK));
}

#[test]
fn directors_choose_by_the_request_of_the_fetch_in_a_fetch() {
    let new = loads(&format!(
        "{BACKEND}director h hash {{ {{ .backend = default; }} }}\nsub vcl_recv {{ set req.backend = h; }}\n\
         sub vcl_fetch {{ set req.backend = h; restart; }}\n"
    ));
    for part in [
        "sub vcl_recv { set req.backend_hint = h.backend(req.http.host + req.url); }",
        "sub vcl_backend_response { set bereq.backend = h.backend(bereq.http.host + bereq.url); return (retry); }",
    ] {
        assert!(new.contains(part), "{part}\n{new}");
    }
}

#[test]
fn a_choice_before_changes_of_its_values_is_marked() {
    let member = "{ { .backend = default; } }";
    let declared = format!(
        "{BACKEND}director c client {member}\ndirector h hash {member}\ndirector r random {member}\n\
         sub urls {{ set req.url = \"/\"; }}\n"
    );
    for (old, marks) in [
        ("sub vcl_recv { set req.backend = c; set client.identity = req.http.a; }", 1),
        ("sub vcl_recv { set client.identity = req.http.a; set req.backend = c; }", 0),
        ("sub vcl_recv { set req.backend = c; set req.url = \"/a\"; call urls; }", 0),
        ("sub vcl_recv { if (req.http.a) { set req.backend = h; } set req.http.HOST = \"a\"; }", 1),
        ("sub vcl_recv { set req.backend = h; } sub vcl_recv { set req.url = \"/a\"; }", 1),
        ("sub vcl_recv { set req.backend = h; call urls; }", 1),
        ("sub vcl_recv { call urls; set req.backend = h; }", 0),
        ("sub choose { set req.backend = h; } sub vcl_recv { call choose; set req.url = \"/a\"; }", 1),
        ("sub vcl_recv { set req.backend = r; set req.url = \"/a\"; set client.identity = \"a\"; }", 0),
    ] {
        let new = loads(&format!("{declared}{old}\n"));
        assert_eq!(new.matches(MARK).count(), marks, "{new}");
    }
}

#[test]
fn names_that_no_longer_exist_are_marked() {
    for (sub, old) in [
        ("vcl_fetch", "if (req.esi_level == 0) { esi; }"),
        ("vcl_fetch", "if (beresp.backend.port == 80) { esi; }"),
        ("vcl_fetch", "if (req.can_gzip) { esi; }"),
        ("vcl_fetch", "set req.grace = 30s;"),
        ("vcl_fetch", "set req.hash_always_miss = true;"),
        ("vcl_fetch", "set beresp.http.a = bereq.backend.name;"),
        ("vcl_recv", "set req.http.a = req.backend.name;"),
        ("vcl_fetch", "set beresp.storage_hint = beresp.http.a;"),
        ("vcl_fetch", "set beresp.http.a = beresp.backend.ip \"b\";"),
        ("vcl_recv", "set req.http.x-forwarded-for = client.ip;"),
    ] {
        let new = upgraded(&format!("{BACKEND}sub {sub} {{\n    {old}\n}}\n"));
        assert_eq!(new.matches(MARK).count(), 1, "{old}\n{new}");
    }
    let new = loads(&format!("{BACKEND}sub vcl_fetch {{\n    set req.grace = 30s;\n}}\n"));
    assert!(new.contains("    # set req.grace = 30s;\n}"), "{new}");
    // A mark before the first value of a sum moves the text of the sum.
    let new = upgraded(&format!(
        "{BACKEND}sub vcl_fetch {{\n    set beresp.http.a = beresp.backend.ip \"b\";\n}}\n"
    ));
    assert!(new.contains("    set beresp.http.a = \"\" + beresp.backend.ip + \"b\";\n"), "{new}");
    let old = format!(
        "vcl 4.0;\n{BACKEND}sub vcl_backend_response {{ if (beresp.backend.ip == \"::1\") {{ }} }}\n"
    );
    assert_eq!(upgraded(&old).matches(MARK).count(), 1);
    let old =
        format!("vcl 4.0;\n{BACKEND}sub vcl_backend_response {{ set beresp.storage_hint = \"disk\"; }}\n");
    let new = upgrade("old.vcl", old.as_bytes(), None).unwrap();
    assert_eq!((new.open, new.storages), (1, vec!["disk".to_owned()]));
    assert!(upgraded(&old).contains("    set beresp.storage = storage.disk;"));
}

#[test]
fn a_subroutine_of_both_sides_is_marked() {
    let old = format!(
        "{BACKEND}sub deep {{ set req.http.X = \"1\"; }}\nsub common {{ call deep; }}\nsub one {{ set req.http.Y = \"1\"; }}\n\
         sub vcl_recv {{ call common; call one; }}\nsub vcl_fetch {{ call common; }}\n"
    );
    let new = upgraded(&old);
    assert_eq!(new.matches(MARK).count(), 2, "{new}");
    for sub in ["deep", "common"] {
        assert!(new.contains(&format!("for the backend's side\nsub {sub} {{")), "{new}");
    }
}

/// Time must grow with the length of the text, not with its square.
#[test]
fn long_texts_are_upgraded_soon() {
    let headers: Vec<String> = (0..10_000).map(|n| format!("set bereq.http.h{n} = \"1\"; ")).collect();
    let headers = headers.concat();
    let lost = format!(".retries = 5 /* {} */; ", "comment ".repeat(15));
    for old in [
        format!("{BACKEND}sub vcl_hit {{ {} }}\n", "purge; ".repeat(60_000)),
        format!("{BACKEND}sub vcl_miss {{ {headers} }}\n"),
        format!("{BACKEND}director d random {{ {} }}\n", lost.repeat(40_000)),
        format!("{BACKEND}sub vcl_fetch {{ {} }}\n", "set beresp.ttl = 1h; ".repeat(20_000)),
    ] {
        let start = std::time::Instant::now();
        upgraded(&old);
        assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    }
}

#[test]
fn the_name_of_a_module_may_be_taken() {
    let old = format!(
        "{BACKEND}acl purge {{ \"10.0.0.1\"; }}\nsub vcl_hit {{ if (client.ip ~ purge) {{ purge; error 200 \"x\"; }} }}\n"
    );
    let new = loads(&old);
    assert!(
        new.contains("import purge as purge_module;") && new.contains("{ purge_module.hard(); "),
        "{new}"
    );
    // Another file has the name.
    for old in [
        "include \"./acl.vcl\";\nsub vcl_hit { purge; }\n",
        "sub vcl_recv { if (!client.ip ~ purge) { pass; } }\nsub vcl_hit { purge; }\n",
        "sub vcl_recv { if (client.ip !~ purge) { pass; } }\nsub vcl_hit { purge; }\n",
        "sub vcl_hit { purge; }\n",
    ] {
        let new = upgraded(old);
        assert!(new.contains("import purge as purge_module;\n") && !new.contains(" purge.hard"), "{new}");
    }
}

#[test]
fn a_text_without_structure_is_refused() {
    let refused = [
        "sub x {",
        "}",
        "sub x { set a = 1 }",
        "( ]",
        "sub x { \"a\"; }",
        "\"x\"",
        "director d random ;",
        "\u{e9}",
    ];
    for text in refused {
        assert!(upgrade("old.vcl", text.as_bytes(), None).is_err(), "{text}");
    }
    assert!(upgrade("old.vcl", "{".repeat(100_000).as_bytes(), None).is_err());
    assert!(
        upgrade("old.vcl", format!("sub x {{ set a = {}; }}", "(".repeat(9999)).as_bytes(), None).is_err()
    );
    assert_eq!(upgraded(""), "vcl 4.1;\n");
}
