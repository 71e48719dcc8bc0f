//! The VCL of each rule, and values that try to become code.

use lacquer_vcl::{NoFiles, Options, compile};

use super::*;
use crate::Offline;

/// Returns a site with these rules, behind one server.
fn site(rules: &[(&str, &str)]) -> Result<Site, Wrong> {
    let mut site = Site::default();
    site.add_backend("127.0.0.1:3000")?;
    for (name, value) in rules {
        site.set(name, value)?;
    }
    site.check()?;
    Ok(site)
}

/// Returns the VCL of a site with these rules. It must be a program.
fn vcl(rules: &[(&str, &str)]) -> String {
    let site = site(rules).unwrap_or_else(|wrong| panic!("{rules:?}: {wrong:?}"));
    compiled(&site)
}

fn compiled(site: &Site) -> String {
    let text = format!("vcl 4.1;\n\n{}", site.vcl());
    let options = Options::new(lacquer_vmods::catalogue(), &NoFiles, &Offline);
    if let Err(errors) = compile("site.vcl", text.as_bytes(), &options) {
        panic!("{}\n{text}", errors[0].pretty());
    }
    text
}

#[test]
fn hostile_values_never_become_code() {
    let code = "backend evil none;";
    let values = [
        format!("/a\"; }} {code} sub x {{ set req.url = \""),
        format!("/a\"}} {code}"),
        format!("/a\"\"\" {code}"),
        format!("/a\\\" {code}"),
        format!("/a*/ {code} /*"),
        format!("/^a\"\\\" {code}/"),
        format!("/^\\\\\" {code}/"),
        format!("/^a{{\" {code} \"}}/"),
        format!("*.jpg # {code}"),
        format!("/a C{{ {code} }}C"),
        format!("/a\u{2028}{code}"),
    ];
    for value in &values {
        let found = vcl(&[("except", value), ("cache", &format!("{value}=1d"))]);
        let options = Options::new(lacquer_vmods::catalogue(), &NoFiles, &Offline);
        let program = compile("site.vcl", found.as_bytes(), &options).expect("a program").program;
        assert!(!format!("{:?}", program.origins.backends).contains("evil"), "{value}: {found}");
        for line in found.lines().filter(|line| line.contains("evil")) {
            let is_safe = line.trim_start().starts_with('#') || line.matches('"').count() % 2 == 0;
            assert!(is_safe, "{value}: {line}");
        }
    }
    for line_break in ["\n", "\r", "\0", "\u{85}", "\x0b"] {
        for name in RULES.iter().filter(|name| **name != "compress") {
            assert!(site(&[(name, &format!("/a{line_break}{code}"))]).is_err(), "{name} {line_break:?}");
        }
    }
    for (name, value) in [
        ("probe", "/a\"; }"),
        ("probe", "/a b"),
        ("ignore-cookies", "a\""),
        ("ignore-cookies", "a{\""),
        ("ignore-cookies", "é"),
        ("stale", "1s; }"),
        ("purge-from", "127.0.0.1\"/8"),
        ("purge-from", "127.0.0.1/+8"),
        ("tags", "x; unset req.url"),
        ("tags", ""),
        ("cache", "type:text/\"html=1s"),
        ("cache", "status:404) {}=1s"),
        ("cache", "*=1s;"),
    ] {
        assert!(site(&[(name, value)]).is_err(), "{name} {value}");
    }
    for backend in ["a\"; }", "a\n:1", "/a\"b", "https://a\"", "a b:1", "a{:1", ""] {
        assert!(Site::default().add_backend(backend).is_err(), "{backend}");
    }
}

#[test]
fn wrong_values_have_a_hint() {
    for (name, value, what) in [
        ("except", "admin", "begins with / or *"),
        ("except", "", "begins with / or *"),
        ("except", "/(/", "missing closing parenthesis"),
        ("except", "/^a\\/", "backslash"),
        ("cache", "*.jpg", "needs a time"),
        ("cache", "*.jpg=60", "is not a time"),
        ("cache", "*.jpg=1e9s", "is not a time"),
        ("cache", "*.jpg=11y", "is not a usable time"),
        ("cache", "*.jpg=-1s", "is not a time"),
        ("cache", "type:html=1s", "is not a media type"),
        ("cache", "status:40=1s", "is not a status"),
        ("cache", "status:9xx=1s", "is not a status"),
        ("stale", "", "is not a time"),
        ("purge-from", "localhost", "not a network"),
        ("purge-from", "10.0.0.1/8", "more bits"),
        ("purge-from", "10.0.0.0/33", "not a network"),
        ("tags", "xkey", "without purge-from"),
        ("tags", "Content-Length", "another meaning"),
        ("tags", "host", "another meaning"),
        ("stale", "1.2345s", "more than 3 decimals"),
        ("cache", "/a=0.0001h", "more than 3 decimals"),
        ("except", "/^[äö]/", "a set has one"),
        ("except", "/^[[:alpha:]\\ä]/", "a set has one"),
    ] {
        let wrong = site(&[(name, value)]).expect_err(value);
        assert!(wrong.what.contains(what) && !wrong.hint.is_empty(), "{name} {value}: {wrong:?}");
    }
}

#[test]
fn each_rule_is_in_the_program() {
    for (rules, expected) in [
        (&[("except", "/admin")][..], "req.url ~ \"^/admin([/?]|$)\""),
        (&[("except", "/admin/")], "req.url ~ \"^/admin/\""),
        (&[("except", "*.php")], "req.url ~ \"^[^?]*\\x2ephp(\\?|$)\""),
        (&[("except", "/^\\/(a|b)\"$/")], "req.url ~ \"^\\/(a|b)\\x22$\""),
        (&[("cache", "*.jpg=1d")], "set beresp.ttl = 1d;"),
        (&[("cache", "/=1.5h")], "set beresp.ttl = 1.5h;"),
        (&[("cache", "type:text/html=60s")], "beresp.http.Content-Type ~ \"(?i)^text/html\\s*(;|$)\""),
        (&[("cache", "status:404=10s")], "beresp.status == 404"),
        (&[("cache", "status:4xx=10s")], "beresp.status >= 400 && beresp.status <= 499"),
        (&[("cache", "/cart=0")], "set beresp.uncacheable = true;"),
        (&[("ignore-cookies", "")], "unset req.http.Cookie;"),
        (&[("ignore-cookies", "*")], "unset req.http.Cookie;"),
        (&[("ignore-cookies", "_ga*,_gid")], "cookie.filter_re(\"^(_ga[^=;]*|_gid)$\")"),
        (&[("ignore-cookies", "!wp-*")], "cookie.filter_re(\"^(?!(wp-[^=;]*)(=|$))([^=;]*)$\")"),
        (&[("stale", "1h")], "set beresp.grace = 1h;"),
        (&[("compress", "")], "set beresp.do_gzip = true;"),
        (&[("purge-from", "10.0.0.0/8"), ("purge-from", "::1")], "\"10.0.0.0\"/8;\n    \"::1\"/128;"),
        (&[("purge-from", "::/0"), ("tags", "Cache-Tag")], "set beresp.http.xkey = beresp.http.Cache-Tag;"),
        (&[("probe", "/health")], ".probe = health;"),
    ] {
        let text = vcl(rules);
        assert!(text.contains(expected), "{rules:?}: {expected}\n{text}");
    }
}

#[test]
fn patterns_contain_the_form_that_clients_send() {
    for (pattern, expected) in [
        ("/käse", "\"^/k(?:ä|(?i:%C3%A4))se([/?]|$)\""),
        ("/a b", "\"^/a(?:\\x20|(?i:%20))b([/?]|$)\""),
        ("/^\\/ä+$/", "\"^\\/(?:ä|(?i:%C3%A4))+$\""),
        ("/^[]a]ä[^]b]ö$/", "\"^[]a](?:ä|(?i:%C3%A4))[^]b](?:ö|(?i:%C3%B6))$\""),
        ("/^[[:alpha:]\\]]€$/", "\"^[[:alpha:]\\]](?:€|(?i:%E2%82%AC))$\""),
    ] {
        let text = vcl(&[("except", pattern)]);
        assert!(text.contains(&format!("req.url ~ {expected}")), "{pattern}\n{text}");
    }
    vcl(&[("except", &format!("/{}", "ä".repeat(499)))]);
}

#[test]
fn rules_that_meet_are_in_the_program() {
    let text =
        vcl(&[("purge-from", "::1"), ("tags", "Cache-Tag"), ("stale", "1h"), ("cache", "status:4xx=9s")]);
    for expected in [
        "set req.http.Host = req.http.Host.lower();",
        "std.collect(req.http.Cache-Tag, \" \");",
        "std.collect(beresp.http.Cache-Tag, \" \");",
        "beresp.http.CDN-Cache-Control !~ \"(?i)(private|no-store)\"",
        "beresp.http.CDN-Cache-Control !~ \"(?i)(no-cache|(must|proxy)-revalidate)\"",
        "beresp.ttl > 0.1s && beresp.status < 400",
        "set beresp.ttl = 9s;\n        return",
    ] {
        assert!(text.contains(expected), "{expected}\n{text}");
    }
    let text = vcl(&[("ignore-cookies", "_ga*"), ("cache", "/req.url=0")]);
    assert!(
        text.contains("if (!(req.url ~ \"^/req\\x2eurl([/?]|$)\")) {\n        if (req.http.Cookie)"),
        "{text}"
    );
    assert!(
        text.contains("if (!(bereq.url ~ \"^/req\\x2eurl([/?]|$)\")) {\n        header.remove("),
        "{text}"
    );
}

#[test]
fn all_rules_and_many_servers_are_a_program() {
    let all = [
        ("probe", "/health"),
        ("except", "/admin"),
        ("cache", "*.jpg=1d"),
        ("cache", "/cart=0"),
        ("cache", "type:text/html=60s"),
        ("cache", "status:404=10s"),
        ("stale", "1h"),
        ("compress", ""),
        ("purge-from", "127.0.0.1"),
        ("tags", "xkey"),
    ];
    for cookies in ["", "_ga*", "!session"] {
        let mut site = site(&[&all[..], &[("ignore-cookies", cookies)]].concat()).expect("correct");
        compiled(&site);
        for backend in ["https://app.example:443", "/run/app.sock", "[::1]:80", "https://app.example:8443"] {
            site.add_backend(backend).expect("correct");
        }
        let text = compiled(&site);
        assert!(
            text.contains("directors.round_robin()")
                && text.contains("set bereq.http.Host = \"app.example\";")
        );
        assert!(text.lines().all(|line| line.len() <= 120 || line.contains('~')), "{text}");
    }
    let mut https = Site::default();
    https.add_backend("https://app.example:443").expect("correct");
    assert!(compiled(&https).contains("sub vcl_pipe"));
}
