//! Modules in programs: VCL text, checked against the signatures, compiled and run.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use lacquer_vcl::types::{Action, Method};
use lacquer_vcl_native::LoadedVcl;
use lacquer_vcl_runtime::Ctx;

use crate::host::{Transaction, compile};

fn load(text: &str) -> LoadedVcl {
    let loaded = compile(text);
    let mut host = Transaction::new(Method::Init);
    assert_eq!(loaded.init(&mut host), Ok(()), "{:?}", host.logged());
    loaded
}

fn recv(loaded: &LoadedVcl, headers: &[(&str, &'static str)]) -> (Action, Transaction) {
    let mut request = Transaction::with_headers(Method::Recv, headers);
    let action = loaded.run(Method::Recv, &mut Ctx::new(&mut request, loaded.instance()));
    (action, request)
}

/// Imports every module, evaluates each expression, and compares the texts.
fn evaluate(declarations: &str, cases: &[(&str, &str)]) {
    let mut text = String::new();
    for module in lacquer_vmods::catalogue().modules() {
        if cases.iter().any(|(e, _)| e.contains(&format!("{}.", module.name)))
            || declarations.contains(&format!(" {}.", module.name))
        {
            let _ = writeln!(text, "import {};", module.name);
        }
    }
    text += declarations;
    text += "\nsub vcl_recv {\n";
    for (i, (expression, _)) in cases.iter().enumerate() {
        let _ = writeln!(text, "  set req.http.x{i} = {expression};");
    }
    let (action, request) =
        recv(&load(&(text + "  return (hash);\n}\n")), &[("two", "2"), ("cookie", "a=1; b=2")]);
    assert_eq!(action, Action::Hash, "{:?}", request.logged());
    let found: BTreeMap<&str, String> = cases
        .iter()
        .enumerate()
        .map(|(i, (e, _))| (*e, request.header_text(&format!("x{i}")).unwrap_or_default()))
        .collect();
    for (expression, expected) in cases {
        assert_eq!(found[expression], *expected, "{expression}");
    }
}

/// A client must not hide a text from a filter by one that is expensive to match.
#[test]
fn a_text_beyond_the_limits_of_matching_fails_the_request() {
    for (statement, fault) in [
        ("cookie.filter_re(\"^(a+)+$\");", "Regexp matching failed: match limit exceeded"),
        ("cookie.keep_re(\"^(a+)+$\");", "Regexp matching failed: match limit exceeded"),
        ("set req.http.y = cookie.get_re(\"^(a+)+$\");", "Regexp matching failed: match limit exceeded"),
        ("header.remove(req.http.x, \"^(a+)+$\");", "Regexp matching failed: match limit exceeded"),
        (
            "set req.http.y = header.get(req.http.x, \"^(a+)+$\");",
            "Regexp matching failed: match limit exceeded",
        ),
        ("header.regsub(req, \"(a+)+$\", \"\");", "regsub: Regexp matching returned -47"),
        ("set req.http.y = f.apply(req.http.q);", "Regexp matching failed: match limit exceeded"),
    ] {
        let loaded = load(&format!(
            "import cookie; import header; import querystring;
             sub vcl_init {{ new f = querystring.filter(); f.add_regex(\"^(a+)+$\"); }}
             sub vcl_recv {{ cookie.parse(req.http.cookie); {statement} return (hash); }}"
        ));
        let hostile = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab";
        let headers = [
            ("cookie", &*format!("{hostile}=1").leak()),
            ("x", hostile),
            ("q", &*format!("/?{hostile}").leak()),
        ];
        let (action, request) = recv(&loaded, &headers);
        assert_eq!(action, Action::Fail, "{statement}");
        let logged = request.logged();
        let faults = logged.iter().filter(|line| line.starts_with("VCL_Error "));
        assert_eq!(faults.collect::<Vec<_>>(), [&format!("VCL_Error {fault}")], "{statement}");
    }
}

#[test]
fn functions_of_std_return_their_values() {
    evaluate(
        "sub nothing { }",
        &[
            ("std.integer(req.http.two, 7)", "2"),
            ("std.integer(req.http.none, 7)", "7"),
            ("std.integer(real = 2.9)", "2"),
            ("std.integer(bool = true)", "1"),
            ("std.real(\"1.25\", 0.0)", "1.250"),
            ("std.duration(\"10m\", 1s)", "600.000"),
            ("std.duration(integer = 3)", "3.000"),
            ("std.bytes(\"2k\", 1B)", "2048"),
            ("std.time(\"Sun, 06 Nov 1994 08:49:37 GMT\", now)", "Sun, 06 Nov 1994 08:49:37 GMT"),
            ("std.time(integer = 0)", "Thu, 01 Jan 1970 00:00:00 GMT"),
            ("std.ip(\"192.0.2.1:81\", \"0.0.0.0\", resolve = false)", "192.0.2.1"),
            ("std.port(std.ip(\"192.0.2.1:81\", resolve = false))", "81"),
            ("std.ip(\"127.1\", resolve = false)", "127.0.0.1"),
            ("std.ip(\"::1.2.3.4\", resolve = false)", "::1.2.3.4"),
            ("std.port(std.ip(\"192.0.2.1:\", resolve = false))", "0"),
            ("std.ip(\"nonsense\", \"192.0.2.9\", resolve = false)", "192.0.2.9"),
            ("std.strftime(std.time(integer = 86400), \"%Y-%m-%d\")", "1970-01-02"),
            ("std.fnmatch(\"/a/*\", \"/a/b\")", "true"),
            ("std.fnmatch(\"*b\", \"a/b\", pathname = false)", "true"),
            ("std.toupper(\"a\" + req.http.two + \"b\")", "A2B"),
            ("std.strstr(\"abc\", \"b\")", "bc"),
            ("std.querysort(req.url)", "/a?b=2&c=1&utm_x=3"),
            ("std.syntax(4.1)", "true"),
            ("std.healthy(default)", "true"),
            ("std.file_exists(\"/\")", "true"),
            ("std.round(2.5)", "3.000"),
            ("std.timed_call(nothing) < 1s", "true"),
            ("std.ban_error()", ""),
        ],
    );
}

/// Documents of each size are parsed, also where VCL waits for them.
#[test]
fn small_and_large_documents_are_parsed() {
    let loaded = load(
        "import json;
         sub vcl_recv { json.parse(req.http.x); set req.http.y = json.get(\"n\"); set req.http.z = json.get(\"\"); return (hash); }",
    );
    assert!(loaded.may_suspend(Method::Recv));
    let reactor = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let deep = |open: &str, close: &str| format!("{}0{}", open.repeat(126), close.repeat(126));
    for (size, rest) in [
        (10, "null".to_owned()),
        (100_000, format!("\"{}\"", "x".repeat(100_000))),
        (1, deep("[", "]")),
        (2, deep("{\"a\":", "}")),
    ] {
        let document = &*format!("{{\"n\": {size}, \"rest\": {rest}}}").leak();
        let (_, request) = recv(&loaded, &[("x", document)]);
        assert_eq!(request.header_text("y"), Some(size.to_string()), "where VCL cannot wait");
        let mut request = Transaction::with_headers(Method::Recv, &[("x", document)]);
        let mut ctx = Ctx::new(&mut request, loaded.instance());
        assert_eq!(reactor.block_on(loaded.run_suspendable(Method::Recv, &mut ctx)), Action::Hash);
        assert_eq!(request.header_text("y"), Some(size.to_string()));
    }
}

#[test]
fn blobs_and_digests_return_their_values() {
    evaluate(
        "sub vcl_init { new b = blob.blob(BASE64, \"Zm9v\" + \"YmFy\"); }",
        &[
            ("b.encode()", "foobar"),
            ("b.encode(HEX, UPPER)", "666F6F626172"),
            ("blob.encode(HEX, blob = b.get())", "666f6f626172"),
            (
                "blob.transcode(decoding = HEX, encoding = BASE64URLNOPAD, encoded = \"666f\" + \"6f62\")",
                "Zm9vYg",
            ),
            ("blob.encode(encoding = IDENTITY, blob = blob.sub(b.get(), 3B, 1B))", "oob"),
            ("blob.length(b.get())", "6"),
            ("blob.same(b.get(), b.get())", "true"),
            ("blob.equal(b.get(), blob.decode(encoded = \"foobar\"))", "true"),
            ("digest.hash_md5(\"a\")", "0cc175b9c0f1b6a831c399e269772661"),
            ("digest.hash_sha1(\"abc\")", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("digest.base64_decode(digest.base64(\"TeST\"))", "TeST"),
            ("basicauth.getuser(basicauth.setbasicauth(\"joe\", \"secret\"))", "joe"),
        ],
    );
}

#[test]
fn smaller_modules_return_their_values() {
    evaluate(
        "sub vcl_init {
            new q = querystring.filter(sort = true);
            q.add_glob(\"utm_*\");
            q.add_regex(\"^z\");
            new l = accept.rule(\"en\");
            l.add(\"de\");
        }
        sub vcl_recv { cookie.parse(req.http.cookie); var.set_int(\"n\", 5); var.set(\"s\", \"x\"); }",
        &[
            ("q.apply()", "/a?b=2&c=1"),
            ("q.extract(\"/?utm_a=1&b=2\", mode = keep)", "utm_a=1"),
            ("querystring.sort(\"/?b&a&b\", uniq = true)", "/?a&b"),
            ("querystring.remove()", "/a"),
            ("l.filter(\"fr, de;q=0.5\")", "de"),
            ("l.filter(req.http.none)", "en"),
            ("cookie.get(\"b\")", "2"),
            ("cookie.get_re(\"^b\")", "2"),
            ("cookie.get_string()", "a=1; b=2"),
            ("cookie.format_rfc1123(std.time(integer = 0), 1d)", "Fri, 02 Jan 1970 00:00:00 GMT"),
            ("var.get_int(\"n\")", "5"),
            ("var.get(\"s\")", "x"),
            ("str.split(\"a,b,c\", -1, \",\")", "c"),
            ("str.take(\"abcde\", 2, 1)", "bc"),
            ("str.token_intersect(\"a b\", \"c,b\")", "true"),
            ("vsthrottle.is_denied(\"k\", 1, 100s)", "false"),
            ("vsthrottle.is_denied(\"k\", 1, 100s, 0s)", "true"),
            ("vsthrottle.remaining(\"k\", 1, 100s)", "0"),
            ("math.strfromd(\"%.2f\", math.sqrt(2.0))", "1.41"),
            ("math.approx(math.constant(M_PI), 3.14, 0.01)", "true"),
            ("math.fpclassify(1.5) == math.fpclass(FP_NORMAL)", "true"),
            ("vtc.typesize(\"uzp\")", "24"),
            ("header.get(req.http.cookie, \"b=\")", "a=1; b=2"),
            ("bodyaccess.len_req_body()", "-1"),
        ],
    );
}

const DIRECTORS: &str = "import directors; import saintmode; import std;
         backend a { .host = \"192.0.2.1\"; }
         backend sick { .host = \"192.0.2.2\"; }
         sub vcl_init {
            new rr = directors.round_robin();
            rr.add_backend(sick);
            rr.add_backend(a);
            new rnd = directors.random();
            rnd.add_backend(sick, 10);
            rnd.add_backend(rr.backend(), 1.5);
            new fb = directors.fallback(sticky = true);
            fb.add_backend(rnd.backend());
            new h = directors.hash();
            h.add_backend(a);
            new p = directors.shard_param();
            p.set(by = URL, healthy = ALL);
            new sh = directors.shard();
            sh.set_rampup(0s);
            sh.associate(p.use());
            sh.add_backend(a);
            sh.add_backend(sick, ident = \"other\", weight = 2.0);
            sh.reconfigure(5);
            new sm = saintmode.saintmode(a, 5);
         }
         sub vcl_recv {
            set req.http.healthy = std.healthy(fb.backend());
            set req.http.by = p.get_by();
            set req.http.key = sh.key(\"/\" + \"a\");
            set req.http.saint = sm.is_healthy();
            if (req.http.use == \"fb\") { set req.backend_hint = fb.backend(); }
            if (req.http.use == \"hash\") { set req.backend_hint = h.backend(req.url + \"x\"); }
            if (req.http.use == \"shard\") { set req.backend_hint = sh.backend(); }
            if (req.http.use == \"key\") { set req.backend_hint = sh.backend(by = KEY, key = 1); }
            if (req.http.use == \"bad\") { set req.backend_hint = sh.backend(by = KEY); }
            return (hash);
         }";

/// Returns the backend that a director selects, through other directors.
fn leaf(loaded: &LoadedVcl, request: &mut Transaction) -> String {
    let vcl = loaded.instance();
    let mut id = request.hint;
    loop {
        let cell = vcl.directors.get(id).expect("a backend was chosen");
        if cell.director.kind() == "backend" {
            return cell.director.name().to_owned();
        }
        id = cell.director.resolve(&mut Ctx::new(request, vcl), id);
    }
}

#[test]
fn directors_select_backends() {
    let loaded = load(DIRECTORS);
    let vcl = loaded.instance();
    for (choice, expected) in [("fb", "a"), ("hash", "a"), ("shard", "a"), ("key", "a")] {
        let (action, mut request) = recv(&loaded, &[("use", choice)]);
        assert_eq!(action, Action::Hash, "{:?}", request.logged());
        assert_eq!(request.header_text("healthy").as_deref(), Some("true"));
        assert_eq!(request.header_text("by").as_deref(), Some("URL"));
        assert_eq!(request.header_text("saint").as_deref(), Some("true"));
        assert_eq!(leaf(&loaded, &mut request), expected, "{choice}");
    }
    let (action, request) = recv(&loaded, &[("use", "bad")]);
    assert_eq!(action, Action::Fail);
    assert_eq!(
        request.logged(),
        ["VCL_Error vmod_directors: shard sh: shard.backend() missing key argument with by=KEY"]
    );
    let listed: Vec<(String, String)> = vcl
        .directors
        .all()
        .iter()
        .map(|(_, c)| (c.director.name().to_owned(), c.director.list(vcl, false, false)))
        .filter(|(_, text)| !text.is_empty())
        .collect();
    let wanted = [
        ("rr", "1/2\thealthy"),
        ("rnd", "1/2\thealthy"),
        ("fb", "1/1\thealthy"),
        ("h", "0/0\thealthy"),
        ("sh", "1/2\thealthy"),
        ("sm", "0/0\thealthy"),
    ];
    assert_eq!(listed, wanted.map(|(name, text)| (name.to_owned(), text.to_owned())));
}

/// A client may choose the pattern, and VCL that can wait has a small stack.
#[test]
fn the_deepest_patterns_compile_where_vcl_can_wait() {
    let text = "import re2; import std;
         sub vcl_recv {
            if (req.http.file) { set req.http.text = std.fileread(req.http.file); }
            set req.http.found = re2.match(req.http.pattern, \"aaa\", longest_match = true);
            return (hash);
         }";
    let loaded = load(text);
    assert!(loaded.may_suspend(Method::Recv));
    let reactor = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    for (open, middle, close) in [
        ("(", "a", ")"),
        ("(a", "a", ")"),
        ("(?:a", "a", ")?"),
        ("(b|", "a", ")"),
        ("(a", "a", "a){1,1}"),
        ("(?:(?:a|", "a", ")*c)*"),
        ("(?i:a", "a", "b)+?"),
        ("(a|bc", "d", "e|f)?"),
    ] {
        let nested =
            move |depth: usize| &*format!("{}{middle}{}", open.repeat(depth), close.repeat(depth)).leak();
        // A thread of its own has a large stack, and compiles the pattern for itself only.
        let search = move || {
            let loaded = load(text);
            let compiles = |depth: &usize| recv(&loaded, &[("pattern", nested(*depth))]).0 == Action::Hash;
            (1..300).rev().find(compiles).expect("one compiles")
        };
        let thread = std::thread::Builder::new().stack_size(64 << 20).spawn(search).expect("a thread");
        let deepest = thread.join().expect("the search ends");
        let mut request = Transaction::with_headers(Method::Recv, &[("pattern", nested(deepest))]);
        let mut ctx = Ctx::new(&mut request, loaded.instance());
        let action = reactor.block_on(loaded.run_suspendable(Method::Recv, &mut ctx));
        assert_eq!(action, Action::Hash, "{deepest} times {open}");
    }
}

#[test]
fn headers_are_changed() {
    let loaded = load(
        "import header; import cookie;
         sub vcl_recv {
            header.append(req.http.foo, \"two\" + \"=2\");
            header.remove(req.http.foo, \"^one\");
            header.copy(req.http.foo, req.http.bar);
            header.regsub(req, \"^(?i)baz: a(.*)\", \"baz: \\1\", all = false);
            cookie.parse(\"a=1; b=2; cc=3\");
            cookie.keep_re(\"^[bc]\");
            cookie.filter(\"cc, d\");
            set req.http.cookie = cookie.get_string();
            return (hash);
         }",
    );
    let (action, request) = recv(&loaded, &[("foo", "one=1"), ("baz", "abc")]);
    assert_eq!(action, Action::Hash, "{:?}", request.logged());
    for (name, value) in [("foo", "two=2"), ("bar", "two=2"), ("baz", "bc"), ("cookie", "b=2")] {
        assert_eq!(request.header_text(name).as_deref(), Some(value), "{name}");
    }
}

#[test]
fn names_of_headers_are_computed_at_run_time() {
    let loaded = load(
        "import header; import std;
         sub vcl_recv {
            header.append(header.dyn(req, 35 + 7), \"the answer\");
            header.copy(header.dyn(req, req.http.name), req.http.copy);
            set req.http.text = header.dyn(req, req.http.name + \": and more\");
            set req.http.none = header.dyn(req, \"absent\");
            if (header.dyn(req, \"FOO\") && !header.dyn(req, \"absent\")) {
                set req.http.there = \"yes\";
            }
            set req.http.line = header.get(header.dyn(req, \"\"), \"(?i)^name\");
            header.remove(header.dyn(req, req.http.name), \".\");
            return (hash);
         }",
    );
    let (action, request) = recv(&loaded, &[("name", "foo"), ("foo", "value")]);
    assert_eq!(action, Action::Hash, "{:?}", request.logged());
    for (name, value) in [
        ("42", Some("the answer")),
        ("copy", Some("value")),
        ("text", Some("value")),
        ("none", Some("(undefined)")),
        ("there", Some("yes")),
        ("line", Some("name: foo")),
        ("foo", None),
    ] {
        assert_eq!(request.header_text(name).as_deref(), value, "{name}");
    }
    let long: &str = "x".repeat(200).leak();
    for made in
        ["header.append(header.dyn(req, req.http.none), \"x\");", "std.log(header.dyn(req, req.http.long));"]
    {
        let loaded = load(&format!("import header; import std; sub vcl_recv {{ {made} return (hash); }}"));
        assert_eq!(recv(&loaded, &[("long", long)]).0, Action::Fail);
    }
}

#[test]
fn failed_conversions_fail_the_request() {
    let loaded =
        load("import std; sub vcl_recv { set req.http.x = std.integer(req.http.n); return (hash); }");
    assert_eq!(recv(&loaded, &[("n", "5")]).0, Action::Hash);
    let (action, request) = recv(&loaded, &[("n", "x")]);
    assert_eq!(action, Action::Fail);
    let log = request.logged();
    assert!(log[0].starts_with("VCL_Error std.integer: conversion failed"), "{log:?}");
}
