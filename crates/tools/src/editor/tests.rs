//! Tests of the answers for editors.

use super::*;
use lacquer_vcl::NoModules;

const TEXT: &str = "vcl 4.1;
import std;
import directors as d;
include \"./parts.vcl\";
probe health { .url = \"/h\"; }
backend app { .host = \"a\"; .probe = health; }
acl office { \"192.0.2.0\"/24; }
sub helper { set req.url = \"/\"; }
sub vcl_recv {
    if (client.ip ~ office) { set req.backend_hint = app; call helper; }
    std.log(\"app\" + req.http.X-A);
}
sub vcl_init { new pool = d.random(); pool.add_backend(app, weight = 1); }
";

/// Returns the mentions of a name, each with its line from 0.
fn lines_of(name: &str) -> Vec<usize> {
    let lines = Lines::of(TEXT);
    let mentions = Outline::of(TEXT).mentions.into_iter().filter(|mention| mention.name == name);
    mentions.map(|mention| lines.position(TEXT, mention.span.start, Encoding::Utf8).line).collect()
}

#[test]
fn names_are_found_where_they_are_declared_and_used() {
    let outline = Outline::of(TEXT);
    let declared: Vec<(&str, Kind)> = outline.declared.iter().map(|d| (&d.name[..], d.kind)).collect();
    assert_eq!(
        declared,
        [
            ("std", Kind::Module),
            ("d", Kind::Module),
            ("health", Kind::Probe),
            ("app", Kind::Backend),
            ("office", Kind::Acl),
            ("helper", Kind::Sub),
            ("vcl_recv", Kind::Sub),
            ("vcl_init", Kind::Sub),
            ("pool", Kind::Object),
        ]
    );
    assert!(outline.has_version);
    assert_eq!(outline.includes[0].path, "./parts.vcl");
    assert_eq!(outline.calls, [("vcl_recv".to_owned(), "helper".to_owned())]);
    assert_eq!(lines_of("app"), [5, 9, 12]);
    assert_eq!(lines_of("health"), [4, 5]);
    assert_eq!(lines_of("helper"), [7, 9]);
    assert_eq!(lines_of("pool"), [12, 12]);
    assert_eq!((lines_of("weight"), lines_of("host")), (vec![], vec![]));
}

#[test]
fn actions_and_the_own_names_of_modules_are_no_mentions() {
    let text = "vcl 4.1;
import purge as clean;
acl purge { \"192.0.2.1\"; }
acl pass { \"192.0.2.2\"; }
sub vcl_recv {
    if (client.ip ~ purge) { return (purge); }
    if (client.ip ~ pass) { return (pass(1s)); }
}
";
    let mentions = Outline::of(text).mentions;
    let at = |name: &str| {
        let found = mentions.iter().filter(|mention| mention.name == name);
        found.map(|mention| text[..mention.span.start].lines().count()).collect::<Vec<_>>()
    };
    assert_eq!((at("purge"), at("pass"), at("clean")), (vec![3, 6], vec![4, 7], vec![2]));
}

#[test]
fn damaged_texts_have_names() {
    let damaged = TEXT.replace("std.log(\"app\"", "std.log(\"app");
    let outline = Outline::of(&damaged);
    assert!(outline.declared.iter().any(|d| d.name == "pool"), "{outline:?}");
    for text in ["", "sub", "sub x {", "}}}", "backend", "import", "\"", "{\"", "new a = b.", "/*"] {
        Outline::of(text);
    }
    let open = "sub vcl_recv { set ";
    assert_eq!(Outline::of(open).sub_at(open.len()).map(|sub| &sub.name[..]), Some("vcl_recv"));
}

#[test]
fn positions_count_as_the_editor_does() {
    let text = "a\nb\u{e9}\u{1F600}c\n";
    let lines = Lines::of(text);
    let end = text.find('c').expect("it has one");
    for (encoding, character) in [(Encoding::Utf8, 7), (Encoding::Utf16, 4)] {
        let at = Position { line: 1, character };
        assert_eq!(lines.position(text, end, encoding), at);
        assert_eq!(lines.offset(text, at, encoding), end);
    }
    let far = Position { line: 1, character: 99 };
    assert_eq!(lines.offset(text, far, Encoding::Utf16), end + 1);
    assert_eq!(lines.offset(text, Position { line: 9, character: 0 }, Encoding::Utf16), text.len());
}

fn labels(text: &str) -> Vec<String> {
    let whole = format!("{TEXT}{text}");
    let outline = Outline::of(&whole);
    let found = complete(&whole, whole.len(), &outline, &[&outline], &NoModules);
    found.into_iter().map(|candidate| candidate.label).collect()
}

#[test]
fn only_allowed_words_follow() {
    let has = |text: &str, label: &str| labels(text).iter().any(|found| found == label);
    assert!(has("sub vcl_recv { set re", "req.url") && has("sub vcl_recv { set req.h", "req.http."));
    assert!(
        !has("sub vcl_recv { set b", "beresp.ttl") && has("sub vcl_backend_response { set b", "beresp.ttl")
    );
    assert!(!has("sub vcl_recv { set c", "client.ip") && has("sub vcl_recv { if (c", "client.ip"));
    assert!(has("sub vcl_recv { set req.http.ho", "req.http.Host"));
    assert!(has("sub vcl_recv { return (", "pass") && !has("sub vcl_recv { return (", "deliver"));
    assert_eq!(labels("sub vcl_recv { call "), ["helper", "vcl_init", "vcl_recv"]);
    assert!(
        has("sub vcl_recv { set req.backend_hint = a", "app")
            && has("sub vcl_recv { if (client.ip ~ o", "office")
    );
    assert!(
        has("backend b { .probe = h", "health") && has("su", "sub") && has("sub vcl_b", "vcl_backend_error")
    );
    // The subroutine is called by vcl_recv only.
    let helper = TEXT.replace("sub helper { set ", "sub helper { set be");
    let outline = Outline::of(&helper);
    let at = helper.find("set be").expect("it has one") + "set be".len();
    assert_eq!(complete(&helper, at, &outline, &[&outline], &NoModules), []);
}

#[test]
fn the_manual_describes_names() {
    let outline = Outline::of(TEXT);
    let declared: Vec<_> = outline.declared.iter().collect();
    let about = |name: &str| {
        let at = TEXT.find(name).expect("it has one") + name.len() - 1;
        hover(TEXT, &word_at(TEXT, at), &declared, &NoModules).unwrap_or_default()
    };
    assert!(about("req.backend_hint").contains("BACKEND req.backend_hint"), "{}", about("req.backend_hint"));
    assert!(about("req.http.X-A").contains("Headers of `req`"));
    assert!(about("~ office").contains("acl office"));
    assert!(about("sub vcl_recv").contains("May return"));
    assert_eq!(hover("", &word_at("", 0), &[], &NoModules), None);
}
