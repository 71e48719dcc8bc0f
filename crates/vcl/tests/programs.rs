//! Tests of the checked programs that are compiled from correct text.

mod common;

use std::net::IpAddr;

use common::{Memory, body, compile_text, program, recv, with_head, with_options};
use lacquer_vcl::program::AclEntry;
use lacquer_vcl::types::{Method, Type};
use lacquer_vcl::{compile, vcc_text};

#[test]
fn strings_are_joined_and_converted() {
    assert_eq!(
        recv(r#"set req.http.A = "a" + "b" + req.url + 5 + client.ip; set req.http.a += "x";"#),
        [r#"Req.A = STRING["ab" req.url str(INT:5) str(client.ip)]"#, r#"Req.A = STRING[Req.A "x"]"#,]
    );
    assert_eq!(recv("set req.url = req.http.\"quoted\";"), ["req.url Assign Req.quoted"]);
    assert_eq!(recv("std.log(req.url);"), ["log(STRANDS[req.url])"]);
    assert_eq!(recv("set req.http.x = req.url.lower().upper();"), ["Req.x = up(low(req.url))"]);
}

#[test]
fn numbers_are_converted_to_one_representation() {
    let cases = [
        ("if (1 + 2 == 3) {}", "if Eq(INT:Add(INT:1 INT:2) INT:3) {} else {}"),
        ("if (1 + 0.5 > 1.0) {}", "if Gt(REAL:Add(REAL:1 REAL:0.5) REAL:1) {} else {}"),
        ("if (7 % 3 == 1) {}", "if Eq(INT:Mod(INT:7 INT:3) INT:1) {} else {}"),
        ("set req.ttl = 2s * 3;", "req.ttl Assign DURATION:Mul(DURATION:2 REAL:3)"),
        ("set req.ttl = 1.5h - 30m;", "req.ttl Assign DURATION:Sub(DURATION:5400 DURATION:1800)"),
        ("set req.ttl = now - req.time;", "req.ttl Assign DURATION:Sub(now req.time)"),
        ("if (now + 1d > req.time) {}", "if Gt(TIME:Add(now DURATION:86400) req.time) {} else {}"),
        ("set req.ttl *= 2;", "req.ttl Mul REAL:2"),
    ];
    for (text, expected) in cases {
        assert_eq!(recv(text), [expected], "{text}");
    }
    let bytes = recv("if (storage.s0.free_space > 1KB * 2 + 1.5MB) {}");
    assert!(bytes[0].contains(" REAL:Add(REAL:Mul(REAL:1024 REAL:2) REAL:1572864)"), "{bytes:?}");
    let rounded = recv("set req.http.size = param.transit_buffer * 2 / 3;");
    assert_eq!(
        rounded,
        ["Req.size = str(BYTES(REAL:Div(REAL:Mul(REAL(param.transit_buffer) REAL:2) REAL:3)))"]
    );
}

#[test]
fn conditions_are_converted_to_bool() {
    let cases = [
        ("if (req.http.a) {}", "if defined(Req.a) {} else {}"),
        ("if (!req.http.a && req.restarts) {}", "if and(!defined(Req.a) Ne(req.restarts INT:0)) {} else {}"),
        ("if (req.url ~ \"^/a\" + \"b\") {}", "if match(req.url /^/ab/) {} else {}"),
        ("if (req.url == \"a\" + req.url) {}", "if Eq(STRING[req.url] STRING[\"a\" req.url]) {} else {}"),
        (
            "if (true) {} elsif (false) {} elif (true) {} else if (false) {} else {}",
            "if true {} elif false {} elif true {} elif false {} else {}",
        ),
    ];
    for (text, expected) in cases {
        assert_eq!(recv(text), [expected], "{text}");
    }
    let either = recv("if (req.ttl || req.backend_hint) {}");
    assert!(either[0].starts_with("if or(Gt(req.ttl DURATION:0) defined("), "{either:?}");
}

#[test]
fn arguments_are_assigned_to_their_slots() {
    let cases = [
        ("if (std.fnmatch(\"a\", req.url)) {}", "if fnmatch(\"a\" req.url true false) {} else {}"),
        (
            "if (std.fnmatch(subject=req.url, noescape=true, pattern=\"a\")) {}",
            "if fnmatch(\"a\" req.url true true) {} else {}",
        ),
        ("if (std.integer(\"1\", real=2) == 1) {}", "if Eq(integer(\"1\" - - REAL:2) INT:1) {} else {}"),
        ("set req.http.x = std.upper(req.url);", "Req.x = toupper(STRANDS[req.url])"),
        ("std.collect(req.http.Cookie, \"; \");", "collect(&Req.Cookie \"; \")"),
        ("std.rollback(req);", "rollback(&Req)"),
        ("set req.http.x = std.fileread(\"/a\");", "Req.x = fileread#0(\"/a\")"),
    ];
    for (text, expected) in cases {
        assert_eq!(recv(text), [expected], "{text}");
    }
    let pick = recv("if (std.pick() > 0) {}");
    assert!(pick[0].contains("pick(Enum(\"ONE\") NoBackend)"), "{pick:?}");
}

#[test]
fn objects_are_created_and_their_methods_called() {
    let p = program(
        "backend b2 { .host = \"192.0.2.1\"; .port = \"81\"; .max_connections = 5; }
         sub vcl_init { new d = directors.random(); d.add_backend(b2, 2); }
         sub vcl_recv { set req.backend_hint = d.backend(); }",
    );
    assert_eq!(body(&p, "vcl_init"), ["new d random/0", "d.add_backend(b2 REAL:2)"]);
    assert_eq!(body(&p, "vcl_recv"), ["req.backend_hint Assign d.backend()"]);
    assert_eq!(p.origins.backends[1].address.ipv4, Some("192.0.2.1:81".parse().unwrap()));
    assert_eq!(p.origins.default_backend, Some(0));
    assert_eq!(p.modules.functions.len(), 2);
    assert_eq!(p.modules.imports.len(), 2);
}

#[test]
fn backends_limit_their_connections() {
    let p = program(
        "backend b2 { .host = \"192.0.2.1\"; .max_age = 2m; .max_requests = 100; }
         sub vcl_recv { set req.backend_hint = b2; }
         sub vcl_backend_response { set beresp.stale_if_error = beresp.stale_if_error * 2; }",
    );
    let limits = &p.origins.backends[1].limits;
    assert_eq!((limits.max_age, limits.max_requests), (Some(120.0), Some(100)));
    assert_eq!(
        body(&p, "vcl_backend_response"),
        ["beresp.stale_if_error Assign DURATION:Mul(beresp.stale_if_error REAL:2)"]
    );
}

#[test]
fn the_default_host_is_the_text_of_the_declaration() {
    for (fields, host) in [
        (".host = \"192.0.2.1:8080\";", "192.0.2.1:8080"),
        (".host = \"192.0.2.1\"; .port = \"8080\";", "192.0.2.1"),
        (".host = \"[2001:db8::1]:8080\";", "[2001:db8::1]:8080"),
        (".host = \"localhost:8080\";", "localhost:8080"),
        (".host = \"192.0.2.1:8080\"; .host_header = \"own.example\";", "own.example"),
        (".path = \"/run/socket\";", "0.0.0.0"),
    ] {
        let text = format!("backend b {{ {fields} }} sub vcl_recv {{ set req.backend_hint = b; }}");
        let backend = &program(&text).origins.backends[1];
        assert_eq!(backend.host_header.as_deref(), Some(host.as_bytes()), "{fields}");
    }
}

#[test]
fn backends_with_tls_share_files() {
    let mut files = Memory::default();
    for name in ["/ca.pem", "/trust.pem", "/id.pem", "/id.key"] {
        files.0.insert(name.to_owned(), format!("<{name}>"));
    }
    let text = with_head(
        "backend a { .host = \"192.0.2.1\"; .ssl = 1; .host_header = \"a.example:8443\"; .certificate = \"/id.pem\"; }
         backend b { .host = \"192.0.2.2\"; .port = \"8443\"; .ssl = 1; .ssl_nosni = 1; .ssl_verify_host = 1; }
         backend c { .host = \"[2001:db8::1]\"; .ssl = 1; .ssl_ca_file = \"/ca.pem\"; .certificate = \"/id.pem\"; .private_key = \"/id.key\"; }
         backend d { .host = \"192.0.2.4:90\"; .ssl = 1; .ssl_noverify = 1; .ssl_verify_peer = 0; }
         backend e { .host = \"192.0.2.5\"; .ssl_verify_peer = 0; }
         sub vcl_recv { set req.backend_hint = a; set req.backend_hint = b; set req.backend_hint = c;
           set req.backend_hint = d; set req.backend_hint = e; }",
    );
    let compiled =
        with_options(&files, |options| compile("<vcl.inline>", text.as_bytes(), &options)).unwrap();
    let warnings = vcc_text(&compiled.warnings);
    assert!(warnings.starts_with("ssl_* options have no effect without .ssl = 1\n("), "{warnings}");
    assert_eq!(compiled.warnings.len(), 1, "{warnings}");
    let p = &compiled.program;
    let shown = |i: usize| {
        let address = p.origins.backends[i].address.ipv4.or(p.origins.backends[i].address.ipv6).unwrap();
        let Some(tls) = &p.origins.backends[i].tls else { return format!("{address}") };
        let flags = [tls.sends_name, tls.verifies_peer, tls.verifies_host].map(u8::from);
        format!("{address} {} {flags:?} {:?} {:?}", tls.server_name, tls.authorities, tls.identity)
    };
    assert_eq!(shown(1), "192.0.2.1:443 a.example [1, 1, 0] Some(0) Some(0)");
    assert_eq!(shown(2), "192.0.2.2:8443 192.0.2.2 [0, 1, 1] Some(0) None");
    assert_eq!(shown(3), "[2001:db8::1]:443 2001:db8::1 [1, 1, 0] Some(1) Some(1)");
    assert_eq!(shown(4), "192.0.2.4:90 192.0.2.4 [1, 0, 0] None None");
    assert_eq!(shown(5), "192.0.2.5:80");
    assert_eq!(p.origins.tls.authorities[0].pem, b"</trust.pem>");
    assert_eq!(p.origins.tls.identities[1].pem.key, b"</id.key>");
    assert!(!format!("{p:?}").contains("id.key>"), "keys are not printed");
}

#[test]
fn backends_state_their_protocol() {
    let text = with_head(
        "backend a { .host = \"192.0.2.1\"; .proto = \"h2\"; }
         backend b { .host = \"192.0.2.2\"; .proto = \"http/1.1\"; .proxy_header = 1; }
         sub vcl_recv { set req.backend_hint = a; set req.backend_hint = b; }",
    );
    let program = compile_text(&text).unwrap().program;
    let protocols: Vec<bool> = program.origins.backends.iter().map(|backend| backend.http2).collect();
    assert_eq!(protocols[1..], [true, false]);
}

/// A system without a trust store is a warning, because `vcl.load` must work there.
#[test]
fn a_missing_trust_store_is_a_warning() {
    let compiled = compile_text(&with_head(
        "backend a { .host = \"192.0.2.1\"; .ssl = 1; }
        sub vcl_recv { set req.backend_hint = a; }",
    ))
    .unwrap();
    let warnings = vcc_text(&compiled.warnings);
    assert!(
        warnings.starts_with("The certificates of backends can not be verified: No such file"),
        "{warnings}"
    );
    assert!(compiled.program.origins.tls.authorities[0].pem.is_empty());
}

#[test]
fn backends_keep_the_order_of_their_definitions() {
    let text = "vcl 4.1; sub vcl_recv { set req.backend_hint = z; set req.backend_hint = a; } probe default { .url = \"/p\"; }
        backend a { .host = \"192.0.2.1\"; .connect_timeout = 1.5s; .probe = default; }
        backend default { .path = \"/run/s\"; .proxy_header = 2; .preamble = :aGk=:; }
        backend z { .host = \"h\"; .host = \"h\"; }";
    assert!(compile_text(text).is_err());
    let p = compile_text(&text.replace(".host = \"h\"; .host = \"h\";", ".host = \"[2001:db8::1]:90\";"));
    let p = p.map_err(|e| vcc_text(&e)).unwrap().program;
    let names: Vec<&str> = p.origins.backends.iter().map(|b| b.name.as_str()).collect();
    assert_eq!(names, ["a", "default", "z"]);
    assert_eq!(p.origins.default_backend, Some(1));
    assert_eq!(p.origins.backends[0].probe, p.origins.backends[2].probe);
    assert_eq!(p.origins.backends[1].preamble.as_deref(), Some(&b"hi"[..]));
    assert_eq!(p.origins.backends[2].address.ipv6, Some("[2001:db8::1]:90".parse().unwrap()));
}

#[test]
fn acl_entries_are_in_the_order_of_matching() {
    let p = program(
        "acl a +log -fold -pedantic { \"10\"; ! \"10.1.2.3\"; \"10.1.0.0\"/16; \"2001:db8::\"/32; \"10.9.9.9\"/24; }
         sub vcl_recv { if (client.ip !~ a) {} }",
    );
    let entries: Vec<String> = p.acls[0]
        .entries
        .iter()
        .map(|e| format!("{}{}/{} {}", if e.negated { "!" } else { "" }, e.address, e.bits, e.text))
        .collect();
    assert_eq!(
        entries,
        [
            "!10.1.2.3/32 \"10.1.2.3\"",
            "10.1.0.0/16 \"10.1.0.0\"/16",
            "10.9.9.0/24 \"10.9.9.9\"/24 fixed: 10.9.9.0/24",
            "10.0.0.0/8 \"10\"",
            "2001:db8::/32 \"2001:db8::\"/32",
        ]
    );
    assert!(p.acls[0].log);
}

#[test]
fn networks_are_folded_with_warnings_unless_flags_say_otherwise() {
    let folded = |flags: &str| {
        let text = with_head(&format!(
            "acl a {flags} {{ \"10.0.0.0\"/9; \"10.128.0.0\"/9; \"10.1.0.0\"/16; }}
             sub vcl_recv {{ if (client.ip ~ a) {{}} }}"
        ));
        let compiled = compile_text(&text).unwrap();
        (compiled.program.acls[0].entries.len(), compiled.warnings.len())
    };
    assert_eq!(folded(""), (1, 2));
    assert_eq!(folded("+fold"), (1, 2));
    assert_eq!(folded("+fold(+report)"), (1, 2));
    assert_eq!(folded("+fold(-report)"), (1, 0));
    assert_eq!(folded("-fold"), (3, 0));
}

#[test]
fn folding_keeps_exceptions() {
    let text = with_head(
        "acl a +fold { ! \"10.0.0.0\"/23; \"10.0.3.0\"/24; \"10.0.2.0\"/23; ! \"10.1.0.0\"/23; \"10.1.3.0\"/24;
         \"10.1.0.0\"/22; } sub vcl_recv { if (client.ip ~ a) {} }",
    );
    let compiled = compile_text(&text).unwrap();
    let entries = compiled.program.acls[0].entries.iter();
    let shown: Vec<_> = entries.map(|e| (e.negated, e.address.to_string(), e.bits)).collect();
    let expected =
        [(true, "10.0.0.0", 23), (false, "10.0.2.0", 23), (true, "10.1.0.0", 23), (false, "10.1.0.0", 22)];
    assert_eq!(shown, expected.map(|(negated, address, bits)| (negated, address.to_owned(), bits)));
}

/// Returns the entries of an ACL, or `None` if it is refused.
fn acl_entries(flags: &str, entries: &[String]) -> Option<Vec<AclEntry>> {
    let entries = entries.join("");
    let text = format!("acl a {flags} {{ {entries} }} sub vcl_recv {{ if (client.ip ~ a) {{}} }}");
    Some(compile_text(&with_head(&text)).ok()?.program.acls.remove(0).entries)
}

/// Returns whether the first entry that contains the address is a positive one.
fn matches(entries: &[AclEntry], address: [u8; 4]) -> bool {
    let contains = |entry: &&AclEntry| {
        let IpAddr::V4(network) = entry.address else { return false };
        let difference = u32::from(network) ^ u32::from_be_bytes(address);
        difference.checked_shr(32 - u32::from(entry.bits)).unwrap_or(0) == 0
    };
    entries.iter().find(contains).is_some_and(|entry| !entry.negated)
}

/// Folding changes neither which addresses match nor which ACLs are accepted, whatever the order of the entries.
#[test]
fn folding_changes_no_result() {
    let known = [
        "\"10.0.0.0\"/8; \"10.1.2.3\"; ! \"10.1.0.0\"/16;",
        "\"10.0.0.0\"/8; ! \"10.0.0.0\"/23; \"10.0.0.0\"/24; \"10.0.1.0\"/24;",
        "\"10.0.2.0\"/24; \"10.0.3.0\"/24; ! \"10.0.2.0\"/24;",
    ];
    let mut cases: Vec<Vec<String>> = known.map(|text| vec![text.to_owned()]).to_vec();
    let mut state = 1_u32;
    let mut random = |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    for _ in 0..2000 {
        let entry = |_| {
            let bits = 26 + random(7);
            let address = random(64) & (64_u32 - (1 << (32 - bits)));
            let negation = if random(3) == 0 { "! " } else { "" };
            format!("{negation}\"10.0.0.{address}\"/{bits}; ")
        };
        cases.push((0..6).map(entry).collect());
    }
    let mut accepted = 0;
    for case in &cases {
        let (folded, plain) = (acl_entries("+fold", case), acl_entries("-fold", case));
        assert_eq!(folded.is_some(), plain.is_some(), "{case:?}");
        let (Some(folded), Some(plain)) = (folded, plain) else { continue };
        accepted += 1;
        let addresses = (0..=255).map(|last| [10, 0, 0, last]);
        for address in addresses.chain([[10, 0, 1, 0], [10, 1, 2, 3], [10, 1, 2, 4], [10, 2, 0, 0]]) {
            assert_eq!(matches(&folded, address), matches(&plain, address), "{address:?} {case:?}");
        }
    }
    assert!(accepted > cases.len() / 2, "{accepted} of {} ACLs are accepted", cases.len());
}

#[test]
fn definitions_may_be_declared_unused() {
    let text = with_head(
        "backend b2 none; probe p { } acl unused { \"10.0.0.0\"/8; } sub s { }
         unused p; unused b2; unused unused; unused s;",
    );
    let compiled = compile_text(&text).unwrap();
    assert!(!vcc_text(&compiled.warnings).contains("Unused"), "{}", vcc_text(&compiled.warnings));
}

#[test]
fn folding_joins_neighbours_with_a_warning() {
    let text = with_head(
        "acl a +fold { \"10.0.0.0\"/24; \"10.0.1.0\"/24; \"10.0.0.7\"; } sub vcl_recv { if (client.ip ~ a) {} }",
    );
    let compiled = compile_text(&text).unwrap();
    let entry = &compiled.program.acls[0].entries[0];
    assert_eq!((entry.address, entry.bits), (IpAddr::from([10, 0, 0, 0]), 23));
    assert_eq!(entry.text, "\"10.0.0.0\"/23 fixed: folded");
    let warnings = vcc_text(&compiled.warnings);
    assert!(warnings.contains("removing the latter and expanding mask of the former by one to /23"));
    assert!(warnings.contains("supersedes / removes:"), "{warnings}");
}

#[test]
fn subroutines_are_extended_and_record_their_callers() {
    let p = program(
        "sub shared { if (req.url == \"/x\") { return (synth(700, \"no\")); } }
         sub vcl_recv { call shared; } sub vcl_recv { return (pass); }
         sub vcl_miss { call shared; }
         sub vcl_req_host { return; }",
    );
    let shared = p.subs.iter().find(|s| s.name == "shared").unwrap();
    assert_eq!(shared.reachable_from, 1 << Method::Recv as u32 | 1 << Method::Miss as u32);
    assert_ne!(shared.allowed & 1 << Method::Deliver as u32, 0);
    assert_eq!(shared.allowed & 1 << Method::BackendFetch as u32, 0);
    assert_eq!(body(&p, "vcl_recv"), ["call shared", "return Plain(Pass)"]);
    assert_eq!(body(&p, "vcl_req_host")[0], "return FromSub");
    assert_eq!(p.method(Method::Miss).unwrap().name, "vcl_miss");
    assert!(p.subs.iter().any(|s| s.name == "vcl_builtin_recv"));
}

#[test]
fn returns_contain_their_arguments() {
    let p = program(
        "sub s { } sub vcl_backend_response { if (beresp.ttl < 1s) { return (pass(10s)); } }
         sub vcl_recv { std.timed_call(s); if (req.restarts > 1) { return (fail(\"x\" + req.url)); } return (vcl(other)); }
         sub vcl_synth { set resp.body = \"a\"; synthetic(\"b\" + resp.status); }",
    );
    assert_eq!(p.labels, ["other"]);
    assert!(body(&p, "vcl_backend_response")[0].contains("PassFor"));
    assert_eq!(
        body(&p, "vcl_synth"),
        ["resp.body Assign \"a\"", "synthetic STRANDS[\"b\" str(resp.status)]"]
    );
}

#[test]
fn language_versions_differ() {
    let v40 = |text: &str| compile_text(&format!("vcl 4.0; backend be none; {text}"));
    assert!(v40("sub vcl_recv { set req.esi = false; }").is_ok());
    assert!(v40("sub vcl_recv { set req.http.x = sess.xid; }").is_err());
    assert!(v40("sub be { } acl be { } sub vcl_recv { if (client.ip ~ be) { } }").is_err());
    assert!(v40("sub vcl_backend_response { set beresp.storage_hint = \"x\"; }").is_ok());
    assert!(v40("sub vcl_recv { set req.http.\"x\" = \"a\"; }").is_err());
}

#[test]
fn every_expression_has_the_expected_type() {
    let p = program("sub vcl_hash { hash_data(req.url + 1); } sub vcl_recv { ban(\"a\" + req.url); }");
    let hash = p.method(Method::Hash).unwrap();
    let typed = hash.body.iter().any(
        |s| matches!(s, lacquer_vcl::program::Stmt::HashData { value, .. } if value.ty == Type::Strands),
    );
    assert!(typed);
    assert_eq!(body(&p, "vcl_recv"), ["ban STRING[\"a\" req.url]"]);
}

#[test]
fn sources_and_literals_are_bytes() {
    let text = b"vcl 4.1; # caf\xe9\nbackend b { .host = \"127.0.0.1\"; .host_header = \"h\xe9te\"; }\n\
        sub vcl_recv { if (req.url ~ \"[\xe0-\xef]\") { set req.http.x = \"\xe9\" + {\"\xff\"}; } }";
    let compiled = common::with_options(&common::Memory::default(), |options| {
        lacquer_vcl::compile("<vcl.inline>", &text[..], &options)
    });
    let program = compiled.unwrap_or_else(|errors| panic!("{}", vcc_text(&errors))).program;
    assert_eq!(&*program.sources[0].text, text);
    assert_eq!(&*program.regexes[0], b"[\xe0-\xef]");
    assert_eq!(program.origins.backends[0].host_header.as_deref(), Some(&b"h\xe9te"[..]));
    let lacquer_vcl::program::Stmt::If { arms, .. } = &program.method(Method::Recv).unwrap().body[1] else {
        panic!("no condition")
    };
    assert!(format!("{:?}", arms[0].1).contains("Str(\"\u{fffd}\u{fffd}\")"), "{:?}", arms[0].1);
    assert_eq!(postcard_round(&program), format!("{program:?}"));
}

fn postcard_round(program: &lacquer_vcl::program::Program) -> String {
    let bytes = postcard::to_stdvec(program).unwrap();
    format!("{:?}", postcard::from_bytes::<lacquer_vcl::program::Program>(&bytes).unwrap())
}
