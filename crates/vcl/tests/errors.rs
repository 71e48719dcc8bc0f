//! Tests of errors in programs: the traditional text, and hints.

mod common;

use common::{Memory, compile_text, error, whole_error, with_head, with_options};
use lacquer_testing::Random;
use lacquer_vcl::{Diagnostic, Options, Severity, compile, compile_file, vcc_text, vcl_load_text};

/// Declarations after the usual head, and a part of the error text.
const WRONG: &[(&str, &str)] = &[
    ("sub vcl_recv { set req.foo = 1; }", "Symbol not found: 'req.foo'\nAt: ('<vcl.inline>' Line 1 Pos "),
    ("sub vcl_recv { set obj.ttl = 1s; }", "Not available in subroutine 'vcl_recv'."),
    ("sub vcl_hit { set obj.ttl = 1s; }", "Variable is read only.\n"),
    ("sub vcl_recv { set resp.http.a = \"b\"; }", "Cannot be set in subroutine 'vcl_recv'."),
    ("sub vcl_recv { unset req.url; }", "Variable cannot be unset.\n"),
    ("sub vcl_recv { hash_data(\"a\"); }", "Not a valid action in subroutine 'vcl_recv'."),
    ("sub vcl_recv { return (deliver); }", "Invalid return \"deliver\"\n"),
    ("sub vcl_recv { return (deliver); }", "Legal returns are: \"fail\" \"hash\" \"pass\" \"pipe\""),
    ("sub a { return (lookup); } sub vcl_recv { call a; }", "\n...called from \"vcl_recv\"\n"),
    (
        "sub a { set beresp.ttl = 1s; } sub vcl_recv { call a; }",
        "from subroutine 'vcl_recv'.\n\n...in subroutine \"a\"\n",
    ),
    ("sub a { call b; } sub b { call a; } sub vcl_recv { call a; }", "Subroutine recurses on\n"),
    ("sub a { } ", "Unused sub a, defined:\n"),
    ("acl a { } ", "Unused acl a, defined:\n"),
    ("sub vcl_recv { call a; }", "Undefined sub a, first reference:\n"),
    ("sub vcl_recv { if (client.ip ~ a) { } }", "Undefined acl a, first reference:\n"),
    ("sub a { } sub a { }", "Subroutine 'a' redefined\n"),
    ("sub vcl_foo { }", "The names 'vcl_*' are reserved for subroutines.\n"),
    ("acl vcl_a { }", "Symbols named 'vcl_*' are reserved.\nAt:"),
    ("backend be none;", "Backend 'be' redefined.\n"),
    ("acl be { }", "Name 'be' already defined.\n"),
    ("acl if { }", "Name if must have type 'action'.\n"),
    ("sub a.b { }", "Name of subroutine, 'a.b', contains illegal character '.'\n"),
    ("sub vcl_recv { if (req.url == 1) { } }", "Comparison of different types: STRING '==' INT\n"),
    ("sub vcl_recv { if (client.ip > client.ip) { } }", "Operator > not possible on IP\n"),
    ("sub vcl_recv { if (1.5) { } }", "Expression has type REAL, expected BOOL\n"),
    ("sub vcl_recv { if (1.5 && true) { } }", "'&&' must be preceded by BOOL, found REAL.\n"),
    ("sub vcl_recv { if (true || 1.5) { } }", "'||' must be followed by BOOL, found REAL.\n"),
    ("sub vcl_recv { if (!1.5) { } }", "'!' must be followed by BOOL, found REAL.\n"),
    ("sub vcl_recv { set req.http.a = 7 / 0; }", "Division by zero.\n"),
    ("sub vcl_recv { set req.http.a = 7 % 0; }", "Division by zero.\n"),
    ("sub vcl_recv { call call vcl_pass; }", "Expected ';' got 'vcl_pass'\n"),
    ("sub vcl_recv { set req.ttl = 1 + 1s; }", "INT + DURATION not possible.\n"),
    ("sub vcl_recv { set req.ttl = 1k; }", "Unknown duration unit 'k'\nLegal duration units are"),
    ("sub vcl_recv { set req.http.a = req; }", "Cannot convert HTTP to STRING.\n"),
    ("sub vcl_recv { set req.http.a = -(req.url); }", "Operator - not possible on type STRING.\n"),
    ("sub vcl_recv { set req.http.a = req.http; }", "'req.http' is not a value"),
    ("sub vcl_recv { set req.http.a = std.log(\"b\"); }", "Function returns VOID:\n"),
    (
        "sub vcl_recv { set req.http.a = vcl_recv; }",
        "Symbol 'vcl_recv' can only be used as a SUB expression\n",
    ),
    ("sub vcl_recv { set req.http.a = default; }", "Symbol 'default' is a reserved word.\n"),
    ("sub vcl_recv { if (req.url ~ \"(\") { } }", "Regexp compilation error:\n\nmissing closing parenthesis"),
    ("sub vcl_recv { std.log(); }", "Argument 's' missing\n"),
    ("sub vcl_recv { std.log(s=\"a\", s=\"b\"); }", "Argument 's' already used\n"),
    ("sub vcl_recv { std.log(t=\"a\"); }", "Unknown argument 't'\n"),
    ("sub vcl_recv { if (std.pick(THREE) > 0) { } }", "Wrong enum value.  Expected one of:\n\tONE\n\tTWO\n"),
    ("sub vcl_recv { std.late(true); }", "Not available in subroutine 'vcl_recv'."),
    ("sub vcl_backend_fetch { if (std.top(1) > 0) { } }", "Not available in subroutine 'vcl_backend_fetch'."),
    ("sub vcl_recv { new x = directors.random(); }", "Not a valid action in subroutine 'vcl_recv'."),
    ("sub vcl_init { new x = directors.randum(); }", "Symbol not found: 'directors.randum'"),
    (
        "sub vcl_init { new x = directors.random(); x.add(); }",
        "Unknown property 'add' for type directors.random\n",
    ),
    ("sub vcl_recv { directors.random.backend(); }", "Syntax error."),
    ("sub vcl_recv { return (synth); }", "Missing argument.\n"),
    ("sub vcl_recv { return (hash(1)); }", "Arguments not allowed.\n"),
    ("sub vcl_recv { return (vcl(nolabel)); }", "Symbol not found: 'nolabel'"),
    ("sub vcl_recv { if (true) { } else foo; }", "'else' must be followed by 'if' or '{'\n"),
    ("sub vcl_recv { 1; }", "Expected an action, 'if', '{' or '}'\n"),
    ("sub vcl_recv { C{ x }C }", "Inline-C not allowed\n"),
    ("C{ x }C", "Inline-C not allowed\n"),
    ("sub vcl_recv {", "Symbol cannot be used here.\n('<builtin>'"),
    (
        "zool { }",
        "Expected one of\n\t'acl', 'sub', 'backend', 'probe', 'import',  or 'vcl'\nFound: 'zool' at\n",
    ),
    ("import nosuch;", "Could not find VMOD nosuch\n"),
    ("import std as directors;", "Another module already imported as directors.\n"),
    ("import std fro \"x\";", "Expected 'from path ...'\n"),
    ("import std from \"/x/libvmod_directors.so\";", "Wrong file for VMOD std\n"),
    (
        "backend x { .host = \"h:1\"; }",
        "could not be resolved to an IP address:\n\tName or service not known\n",
    ),
    ("backend x { .port = \"1\"; }", "Expected .host or .path.\n"),
    ("backend x { .path = \"/etc/passwd\"; }", "Backend path: Not a socket:\n"),
    ("backend x { .path = \"run\"; }", "Backend path: Must be a valid path or abstract socket:\n"),
    ("backend x { .host = \"192.0.2.1\"; .path = \"/a\"; }", "Address redefinition at:\n"),
    ("backend x { .host = \"192.0.2.1\"; .hots = \"a\"; }", "Unknown field: 'hots' at\n"),
    ("backend x { .host = \"192.0.2.1\"; .port = \"1\"; .port = \"2\"; }", "Field 'port' redefined at:\n"),
    ("backend x { .host = \"192.0.2.1\"; .proxy_header = 3; }", ".proxy_header must be 1 or 2\n"),
    ("backend x { .host = \"192.0.2.1\"; .max_requests = 1s; }", "Expected"),
    ("backend x { .host = \"192.0.2.1\"; .max_age = 1; }", "Expected"),
    ("sub vcl_recv { set beresp.stale_if_error = 1s; }", "Cannot be set in"),
    (
        "backend x { .host = \"192.0.2.1\"; .via = be; }",
        ".host used as authority can not be an ip address with .via.\n",
    ),
    (
        "backend x { .host = \"192.0.2.1\"; .ssl = 1; .ssl_nosni = 0; .ssl_sni = 0; }",
        "Setting of field 'ssl_sni' conflicts with field 'ssl_nosni'.\n(",
    ),
    (
        "backend x { .host = \"192.0.2.1\"; .ssl = 1; .ssl_sni = 0; .ssl_nosni = 0; }",
        "Setting of field 'ssl_nosni' conflicts with field 'ssl_sni'.\n(",
    ),
    (
        "backend x { .host = \"192.0.2.1\"; .ssl = 1; .ssl_verify_peer = 0; .ssl_noverify = 0; }",
        "Setting of field 'ssl_noverify' conflicts with field 'ssl_verify_peer'.\n(",
    ),
    (
        "backend x { .host = \"192.0.2.1\"; .ssl = 1; .ssl_noverify = 0; .ssl_verify_peer = 0; }",
        "Setting of field 'ssl_verify_peer' conflicts with field 'ssl_noverify'.\n(",
    ),
    ("backend x { .path = \"/run/s\"; .ssl = 1; }", ".ssl can not be used with .path.\n("),
    (
        "backend x { .host = \"192.0.2.1\"; .ssl = 0; .ssl_verify_host = 1; }",
        "ssl_* options can not be used without .ssl enabled\n(",
    ),
    (
        "backend x { .host = \"192.0.2.1\"; .ssl_ca_file = \"/a\"; }",
        "Certificates and keys can not be used without .ssl = 1\n(",
    ),
    (
        "backend x { .host = \"192.0.2.1\"; .ssl = 1; .ssl_ca_file = \"/a\"; }",
        ".ssl_ca_file /a: No such file or directory\n(",
    ),
    (
        "backend x { .host = \"192.0.2.1\"; .ssl = 1; .ssl_ca_file = \"a\"; }",
        ".ssl_ca_file must be an absolute path.\n(",
    ),
    (
        "backend x { .host = \"192.0.2.1\"; .ssl = 1; .ssl_noverify = 1; .ssl_ca_file = \"/a\"; }",
        ".ssl_ca_file has no effect if .ssl_verify_peer is 0\n(",
    ),
    (
        "backend x { .host = \"192.0.2.1\"; .ssl = 1; .private_key = \"/a\"; }",
        ".private_key can not be used without .certificate\n(",
    ),
    (
        "backend x { .host = \"192.0.2.1\"; .ssl = 1; .host_header = \"a..b:443\"; }",
        "'a..b' can not be a server name in TLS.\nHint: configure .host_header",
    ),
    ("backend x { .host = \"192.0.2.1\"; .probe = 1; }", "Expected '{' or name of probe, got '1' at\n"),
    ("probe p { .window = 65; .threshold = 1; }", "Window must be 64 or less.\n"),
    ("probe p { .window = 5; .threshold = 6; }", "Threshold cannot be greater than window.\n"),
    ("probe p { .window = 5; }", "Must specify .threshold with .window\n"),
    ("probe p { .url = \"/\"; .request = \"a\"; }", "Probe request redefinition at:\n"),
    ("probe p { .expected_response = 99; }", "exactly three digits"),
    ("acl a { \"10.0.0.1\"/24; }", "Non-zero bits in masked part, (maybe use 10.0.0.0/24 ?)\n"),
    ("acl a { \"10.0.0.0\"/33; }", "Too wide mask (/33) for IPv4 address\n"),
    ("acl a { \"::\"/129; }", "Too wide mask (/129) for IPv6 address\n"),
    ("acl a { \"10.0.0.0/x\"; }", ".../mask is not numeric.\n"),
    ("acl a { \"10.0.0.0/8\"/8; }", "/mask only allowed once.\n"),
    ("acl a { \"10.0.0.2\"; ! \"10.0.0.2\"; }", "Conflicting ACL entries:\n"),
    ("acl a { \"no.such.host\"; }", "DNS lookup(no.such.host): Name or service not known\n"),
    ("acl a +foo { }", "Unknown ACL flag. Valid ACL flags are `log`, `fold`, `pedantic` and `table`:\n"),
    ("acl a -fold(+report) { }", "-fold(...) is invalid, use -fold:\n"),
    ("acl a +fold(+x) { }", "The only ACL fold sub-flag is `report`:\n"),
    ("acl a +fold(report) { }", "The only ACL fold sub-flag is `report`:\n"),
    ("acl a +fold( { }", "The only ACL fold sub-flag is `report`:\n"),
    ("acl a +fold(- report) { }", "Expected a flag at:\n"),
    ("acl a +fold(-report { }", "Expected ')'"),
];

#[test]
fn errors_have_the_texts_of_varnish() {
    for (text, expected) in WRONG {
        let error = error(text);
        assert!(error.contains(expected), "{text}\n{error}");
    }
}

#[test]
fn the_version_comes_first() {
    assert!(whole_error("backend be none;").starts_with("VCL version declaration missing\n"));
    assert!(whole_error("vcl 9.9; backend be none;").starts_with("VCL version 9.9 not supported.\n"));
    assert!(whole_error("vcl 4.10; backend be none;").starts_with("Don't play silly buggers"));
    assert!(
        whole_error("vcl 4.0; vcl 4.1;")
            .starts_with("VCL version 4.1 higher than the top level version 4.0\n")
    );
    assert!(whole_error("vcl 4.1;").starts_with("No backends or directors found in VCL program"));
    let late = whole_error("vcl 4.0; backend be none; sub vcl_recv { set req.http.a = local.socket; }");
    assert!(late.contains("(Only available when 4.1 <= VCL syntax)"), "{late}");
}

#[test]
fn a_text_of_an_older_version_can_be_upgraded() {
    let hint = |text: &str| {
        let errors = compile_text(text).unwrap_err();
        errors.into_iter().find_map(|error| error.hint).unwrap_or_default()
    };
    for old in [
        "backend be none; sub vcl_fetch { }",
        "backend be none; sub vcl_error { }",
        "sub vcl_recv { if (req.request == \"GET\") { } }",
        "sub vcl_recv { remove req.http.a; }",
        "sub vcl_recv { error 404; }",
        "director d random { }",
        "vcl 4.0; backend be none; sub vcl_fetch { }",
        "vcl 4.0; backend be none; sub vcl_error { }",
        "vcl 3.0; backend be none;",
    ] {
        assert!(hint(old).contains("lacquer upgrade-vcl FILE > new.vcl"), "{old}: {}", hint(old));
    }
    let new = "backend be none; sub vcl_recv { set req.http.request = \"remove error\"; }";
    assert_eq!(hint(new), "the first line of a VCL file is 'vcl 4.1;'");
}

#[test]
fn the_text_of_vcl_load_is_that_of_varnish() {
    let errors =
        compile_text("vcl 4.1;\nbackend be none;\nsub vcl_recv { set req.http.a = 1 + ; }\n").unwrap_err();
    let expected = "Message from VCC-compiler:\nUnknown token ';' when looking for INT\n\n\
        ('<vcl.inline>' Line 3 Pos 37)\nsub vcl_recv { set req.http.a = 1 + ; }\n\
        ------------------------------------#--\n\n\
        Running VCC-compiler failed, exited with 2\nVCL compilation failed";
    assert_eq!(vcl_load_text(&errors), expected);
    assert_eq!((errors[0].line(), errors[0].column()), (Some(3), Some(37)));
}

#[test]
fn warnings_do_not_fail_the_load() {
    let text = with_head("sub a { } ( backend");
    let files = Memory::default();
    let run = |text: &str| {
        with_options(&files, |o| compile("<vcl.inline>", text, &Options { err_unref: false, ..o }))
    };
    assert!(run(&text).is_err());
    let compiled = run(&with_head("sub a { } backend b { .path = \"/no/such\"; }")).unwrap();
    let text = vcc_text(&compiled.warnings);
    assert!(compiled.warnings.iter().all(|w| w.severity == Severity::Warning));
    assert!(text.starts_with("Backend path: Cannot stat: No such file or directory\n"), "{text}");
    assert!(text.ends_with("(That was just a warning)\n"), "{text}");
    assert!(text.contains("Unused sub a, defined:\n"), "{text}");
}

/// Programs that fail after an upgrade, and a part of the hint.
const UPGRADES: &[(&str, &str)] = &[
    ("sub vcl_hit { return (miss); }", "hash_always_miss"),
    ("sub vcl_hit { return (fetch); }", "hash_always_miss"),
    ("sub vcl_fetch { }", "vcl_backend_response"),
    ("sub vcl_error { }", "vcl_synth"),
    ("sub vcl_recv { set req.backend = be; }", "req.backend_hint"),
    ("sub vcl_recv { if (req.request == \"GET\") { } }", "req.method"),
    ("sub vcl_recv { set req.http.a = std.time2integer(now, 0); }", "std.integer(time="),
    ("acl ban { }", "choose another name"),
    ("director d round-robin { }", "directors.round_robin"),
    ("table t { }", "Fastly"),
    ("\ntable t {\n  \"a\": \"b\",\n}", "Fastly"),
    ("sub vcl_recv { remove req.http.a; }", "unset"),
    ("sub vcl_recv { error 404; }", "synth"),
    ("sub vcl_recv { return (lookup); }", "return (hash)"),
    ("C{ int x; }C", "without a C compiler"),
    ("sub vcl_recv { cookie.parse(req.http.cookie); }", "import cookie;"),
    ("sub vcl_recv { set req.http.a = req.ulr; }", "did you mean 'req.url'?"),
    ("sub vcl_recv { std.logg(\"a\"); }", "did you mean 'std.log'?"),
    ("sub vcl_init { new x = directors.random(); x.add_backed(be, 1); }", "did you mean 'add_backend'?"),
    ("sub vcl_recv { call helper; } sub helpr { }", "did you mean 'helpr'?"),
    ("backend x { .hots = \"a\"; }", "did you mean '.host'?"),
    ("import dirctors;", "did you mean 'directors'?"),
    ("import goto;", "import dynamic"),
    ("import kvstore;", "import var"),
    ("import edgestash from \"/lib/libvmod_edgestash.so\";", "ESI"),
    ("import foo from \"/lib/libvmod_foo.so\";", "cannot be loaded; built in are std, directors"),
];

/// Common mistakes, and a part of the hint.
const MISTAKES: &[(&str, &str)] = &[
    ("sub vcl_recv { if (req.url = \"/\") { } }", "is written with =="),
    ("sub vcl_recv { if (req.restarts = 1) { } }", "is written with =="),
    ("sub vcl_recv { if ((req.url = \"/\") && true) { } }", "is written with =="),
    ("sub vcl_recv { set req.url == \"/\"; }", "is set with ="),
    ("backend x { .host = \"192.0.2.1\"; .port = 80; }", "\"80\""),
    ("backend x { .host = localhost; }", "\"localhost\""),
    ("backend x { .host = \"192.0.2.1\"; .connect_timeout = \"5s\"; }", "without quotes: 5s"),
    ("backend x { .host = \"192.0.2.1\"; .connect_timeout = 5; }", "needs a unit"),
    ("sub vcl_backend_response { set beresp.ttl = \"10s\"; }", "without quotes: 10s"),
    ("sub vcl_backend_response { set beresp.ttl = beresp.http.x; }", "std.duration()"),
    ("sub vcl_backend_response { set beresp.ttl = 10; }", "needs a unit"),
    ("sub vcl_recv { set beresp.ttl = 1s; }", "vcl_backend_response or vcl_backend_error"),
    ("sub vcl_recv { set resp.http.a = \"b\"; }", "set in vcl_deliver or vcl_synth"),
    ("sub vcl_backend_response { set req.http.x = \"a\"; }", "use 'bereq.http.x'"),
    ("sub vcl_recv { set bereq.http.x = \"a\"; }", "use 'req.http.x'"),
    ("sub vcl_hit { set obj.ttl = 1s; }", "set 'beresp.ttl' in vcl_backend_response"),
    ("sub vcl_recv { hash_data(\"a\"); }", "used in vcl_hash"),
    ("sub a { set beresp.ttl = 1s; } sub vcl_recv { call a; }", "vcl_backend_response or vcl_backend_error"),
    ("sub vcl_recv { if (req.backend_hint == \"be\") { } }", "without quotes"),
    ("sub vcl_recv { if (req.backend_hint == req.http.y) { } }", "\"\" + req.backend_hint == req.http.x"),
    ("sub vcl_recv { if (req.http.x == default) { } }", "in quotes: \"default\""),
    ("acl a {\"10.0.0.0\"/8; }", "a blank between { and \""),
    ("acl a {\"10.0.0.1\"; \"10.0.0.2\"}", "a blank between { and \""),
    ("sub vcl_recv { if (req.url == 1) { } }", "in quotes"),
    ("sub vcl_recv { if (req.restarts == \"1\") { } }", "without quotes"),
    ("sub vcl_recv { if (client.ip == req.http.x) { } }", "use an acl"),
    ("sub vcl_recv { set req.http.a = \"a\" \"b\"; }", "join strings with +"),
    ("include \"helper.vcl\";", "no folder of the parameter vcl_path"),
    ("include \"./helper.vcl\";", "the whole name"),
    ("sub vcl_recv { set req.nope = 1; set req.backend_hint = backnd; } backend backend1 none;", "req.nope"),
];

#[test]
fn common_mistakes_have_a_hint() {
    for (text, expected) in MISTAKES {
        let errors = compile_text(&with_head(text)).unwrap_err();
        let pretty: String = errors.iter().map(Diagnostic::pretty).collect();
        assert!(pretty.contains(expected), "{text}\n{pretty}");
    }
}

#[test]
fn a_byte_order_mark_is_named() {
    let files = Memory::default();
    let text = "\u{feff}vcl 4.1;\nbackend b none;\n";
    let errors = with_options(&files, |o| compile("x.vcl", text, &o)).unwrap_err();
    assert!(errors[0].pretty().contains("byte order mark (BOM)"), "{}", errors[0].pretty());
    assert!(lacquer_vcl::tokens::tokens("x.vcl", text.as_bytes()).unwrap_err().pretty().contains("BOM"));
}

#[test]
fn a_name_of_a_backend_can_be_compared_as_the_hint_says() {
    let text = with_head("sub vcl_recv { if (\"\" + req.backend_hint == req.http.x) { } }");
    assert!(compile_text(&text).is_ok());
}

#[test]
fn a_place_is_shown_once() {
    let errors = compile_text(&with_head("sub vcl_recv { if (req.http.x == default) { } }")).unwrap_err();
    assert_eq!(errors[0].pretty().matches("-->").count(), 1, "{}", errors[0].pretty());
}

#[test]
fn hints_are_wrapped() {
    let errors = compile_text(&with_head("import foo from \"/lib/libvmod_foo.so\";")).unwrap_err();
    let pretty = errors[0].pretty();
    let (_, hint) = pretty.split_once("= hint: ").expect("it has a hint");
    assert!(hint.lines().all(|line| line.len() <= 100), "{pretty}");
}

#[test]
fn an_error_in_a_condition_ends_with_its_alternatives() {
    let text = with_head(
        "sub vcl_recv {\n  if (req.url ~ \"a\") { }\n  else if (cookie.get(\"a\") == \"b\") { }\n  elseif (true) { set req.foo = 2; }\n\
         else { set req.foo = 1; }\n  set req.bar = 1;\n}\n",
    );
    let files = Memory::default();
    let errors =
        with_options(&files, |o| compile("x.vcl", &text, &Options { max_errors: 20, ..o })).unwrap_err();
    let messages: Vec<String> = errors.iter().map(Diagnostic::message).collect();
    assert_eq!(messages, ["Symbol not found: 'cookie.get'", "Symbol not found: 'req.bar'"]);
}

#[test]
fn an_unknown_name_has_a_suggestion_among_other_errors() {
    let text = with_head(
        "backend shop none;\nsub vcl_recv {\n  set req.backend_hint = shap;\n  set req.foo = 1;\n  call unknown;\n\
         set req.backend_hint = shop; }\n",
    );
    let files = Memory::default();
    let errors =
        with_options(&files, |o| compile("x.vcl", &text, &Options { max_errors: 20, ..o })).unwrap_err();
    let lines: Vec<Option<u32>> = errors.iter().map(Diagnostic::line).collect();
    assert_eq!(lines, [Some(4), Some(3)], "{errors:?}");
    assert!(errors[1].pretty().contains("did you mean 'shop'?"));
}

#[test]
fn an_include_beside_its_file_needs_a_dot() {
    let mut files = Memory::default();
    files.0.insert("/v/main.vcl".to_owned(), "vcl 4.1;\ninclude \"a.vcl\";\n".to_owned());
    files.0.insert("/v/a.vcl".to_owned(), String::new());
    let errors = with_options(&files, |o| compile_file("/v/main.vcl", &o)).unwrap_err();
    assert!(errors[0].pretty().contains("hint: for the file beside this one, write \"./a.vcl\""));
}

#[test]
fn hints_contain_the_replacement() {
    for (text, expected) in UPGRADES {
        let errors = compile_text(&with_head(text)).unwrap_err();
        let pretty: String = errors.iter().map(Diagnostic::pretty).collect();
        // A long hint has several lines.
        let hint = pretty.split_once("= hint: ").map(|(_, hint)| hint.split_whitespace().collect::<Vec<_>>());
        let hint = hint.unwrap_or_default().join(" ");
        assert!(hint.contains(expected), "{text}\n{pretty}");
    }
}

#[test]
fn several_errors_are_reported_if_requested() {
    let text = with_head(
        "\nsub vcl_recv {\n  set req.foo = 1;\n  if (req.url) { set req.bar = 2; }\n  set req.http.ok = \"1\";\n}\n\
         acl a { 1; }\nsub vcl_deliver { set resp.baz = 1; }\n",
    );
    let files = Memory::default();
    let errors =
        with_options(&files, |o| compile("x.vcl", &text, &Options { max_errors: 20, ..o })).unwrap_err();
    let lines: Vec<Option<u32>> = errors.iter().map(Diagnostic::line).collect();
    assert_eq!(lines, [Some(3), Some(4), Some(7), Some(8)]);
    assert_eq!(errors[0].message(), "Symbol not found: 'req.foo'");
    assert_eq!(compile_text(&text).unwrap_err().len(), 1);
}

#[test]
fn an_error_does_not_hide_errors_of_other_kinds() {
    let text = with_head(
        "\nacl ban { }\ndirector d round-robin { }\nC{ int x; }C\nsub vcl_recv {\n  set req.foo = 1;\n}\n\
         sub vcl_hit { return (fetch); }\nsub vcl_miss { set beresp.ttl = 1s; }\n",
    );
    let files = Memory::default();
    let errors =
        with_options(&files, |o| compile("x.vcl", &text, &Options { max_errors: 20, ..o })).unwrap_err();
    let lines: Vec<Option<u32>> = errors.iter().map(Diagnostic::line).collect();
    assert_eq!(lines, [2, 3, 4, 6, 8, 9].map(Some));
}

#[test]
fn includes_are_inserted_in_place_and_traced_in_errors() {
    let mut files = Memory::default();
    let mut put = |name: &str, text: &str| files.0.insert(name.to_owned(), text.to_owned());
    put("/v/main.vcl", "vcl 4.1;\nbackend be none;\ninclude \"./sub/a.vcl\";\ninclude +glob \"./g_*\";\n");
    put("/v/sub/a.vcl", "sub vcl_recv {\n  include \"/v/sub/b.vcl\";\n}\n");
    put("/v/sub/b.vcl", "set req.http.b = \"1\";\n");
    put("/v/g_1", "sub vcl_miss { }\n");
    put("/v/g_2", "sub vcl_hit { }\n");
    put("/v/loop.vcl", "vcl 4.1;\ninclude \"./loop.vcl\";\n");
    put("/v/bad.vcl", "vcl 4.1;\ninclude \"./bad2.vcl\";\n");
    put("/v/bad2.vcl", "backend be none;\nsub vcl_recv { set req.nope = 1; }\n");
    put("/v/none.vcl", "vcl 4.1;\ninclude +glob \"./h_*\";\n");
    put("/v/gone.vcl", "vcl 4.1;\ninclude \"gone2.vcl\";\n");
    put("/v/flag.vcl", "vcl 4.1;\ninclude +foo \"a\";\n");
    with_options(&files, |o| {
        let o = Options { vcl_path: "/nowhere:/v", ..o };
        let main = compile_file("main.vcl", &o).map_err(|e| vcc_text(&e)).unwrap();
        let names: Vec<&str> = main.program.sources.iter().map(|s| s.name.as_str()).collect();
        assert_eq!(names, ["/v/main.vcl", "/v/sub/a.vcl", "/v/sub/b.vcl", "/v/g_1", "/v/g_2", "<builtin>"]);
        assert_eq!(main.program.sources[2].parent, Some(1));
        let text = |name: &str| vcc_text(&compile_file(name, &o).unwrap_err());
        assert!(text("loop.vcl").starts_with("Recursive use of file \"/v/loop.vcl\"\n\n"));
        assert!(
            text("none.vcl").starts_with("glob pattern matched no files.\n('/v/none.vcl' Line 2 Pos 15)")
        );
        assert!(text("gone.vcl").starts_with("Cannot read file 'gone2.vcl' (No such file or directory)\n("));
        assert!(text("flag.vcl").starts_with("Unknown include flag:\n"));
        assert_eq!(text("never.vcl"), "Cannot read file 'never.vcl' (No such file or directory)\n");
        let bad = compile_file("bad.vcl", &o).unwrap_err().remove(0).pretty();
        assert!(bad.contains("--> /v/bad2.vcl:2:20") && bad.contains("included from /v/bad.vcl:2"), "{bad}");
        let unsafe_path = Options { unsafe_path: false, ..o };
        let error = vcc_text(&compile_file("/v/main.vcl", &unsafe_path).unwrap_err());
        assert_eq!(error, "VCL filename '/v/main.vcl' is unsafe.\n");
        let inline = compile("<vcl.inline>", "vcl 4.1; include \"./a\";", &o).unwrap_err();
        assert!(vcc_text(&inline).contains("needs absolute filename of including file."));
    });
}

#[test]
fn depth_and_size_are_limited() {
    let nest = |n: usize, open: &str, inside: &str, close: &str| {
        with_head(&format!("sub vcl_recv {{ {}{inside}{} }}", open.repeat(n), close.repeat(n)))
    };
    assert!(compile_text(&nest(100, "if (true) { ", "", "} ")).is_ok());
    assert!(whole_error(&nest(100_000, "{", "", "}")).starts_with("Nesting deeper than "));
    let parens = nest(100_000, "(", "true", ")").replace("sub vcl_recv { ", "sub vcl_recv { if ");
    assert!(whole_error(&parens).starts_with("Nesting deeper than "));
    let sum = with_head(&format!("sub vcl_recv {{ if (1{} == 2) {{ }} }}", " + 1".repeat(100_000)));
    assert!(whole_error(&sum).starts_with("Expression has too many nested operations."));
    let chain =
        with_head(&format!("sub vcl_recv {{ set req.http.a = \"\"{}; }}", " + req.url".repeat(50_000)));
    assert!(compile_text(&chain).is_ok());
    let pair = |i: usize| format!("sub s{i} {{ call s{0}; call s{0}; }}", i + 1);
    let mut subs = (0..3000).map(pair).collect::<Vec<_>>().join("\n");
    subs.push_str("sub s3000 { set req.http.deep = \"1\"; } sub vcl_recv { call s0; }");
    assert!(compile_text(&with_head(&subs)).is_ok());
}

/// Removes, duplicates and swaps tokens of a program: every result is a program or an error. With `FUZZ_SECONDS=n` it
/// runs for n seconds, with other texts in each run.
#[test]
fn no_text_crashes_the_compiler() {
    let seed = with_head(
        "acl a +log { \"10.0.0.0\"/8; ! \"10.1.1.1\"; } probe p { .url = \"/\"; .window = 8; .threshold = 3; }
         backend b { .host = \"192.0.2.1:80\"; .probe = p; }
         sub vcl_init { new d = directors.random(); d.add_backend(b, 1.5); }
         sub vcl_recv { if (client.ip ~ a && req.url !~ \"^/x\" || req.ttl > 10s * 2) { set req.http.x += -1 + now; }
           else { unset req.http.\"y\"; std.log(\"a\" + {\"b\"} + req.restarts); }
           set req.backend_hint = d.backend(); ban(\"a\"); return (synth(200 + 1, regsub(req.url, \"a\", \"b\"))); }",
    );
    let words: Vec<&str> = seed.split_inclusive([' ', ';', '.', '(']).collect();
    let seconds = std::env::var("FUZZ_SECONDS").ok().and_then(|s| s.parse().ok());
    let mut random = Random(if seconds.is_some() { std::process::id().into() } else { 7 });
    let end = std::time::Instant::now() + std::time::Duration::from_secs(seconds.unwrap_or(0));
    let mut done = 0;
    while done < 3000 || std::time::Instant::now() < end {
        done += 1;
        let mut text: Vec<&str> = words.clone();
        for _ in 0..=random.below(3) {
            let (a, b) = (random.index(text.len()), random.index(text.len()));
            match random.below(4) {
                0 => drop(text.remove(a)),
                1 => text.insert(a, words[b % words.len()]),
                2 => text.swap(a, b),
                _ => text.truncate(a.max(5)),
            }
        }
        let mut text = text.concat().into_bytes();
        for _ in 0..random.below(3) {
            let at = random.index(text.len());
            let any = random.below(256) as u8;
            text[at] = random.one(&[b'"', b'{', b'}', b';', b'\n', 0, 0xe9, any]);
        }
        let compiled = with_options(&Memory::default(), |o| {
            compile("x", &text[..], &Options { max_errors: 1 + done % 4, ..o })
        });
        let shown = match compiled {
            Ok(compiled) => lacquer_vcl::lint(&compiled.program),
            Err(errors) => {
                assert!(!vcc_text(&errors).is_empty(), "{}", String::from_utf8_lossy(&text));
                errors
            }
        };
        assert!(shown.iter().all(|e| !e.pretty().is_empty()), "{}", String::from_utf8_lossy(&text));
    }
    eprintln!("{done} texts");
}
