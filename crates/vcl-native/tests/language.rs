//! Tests VCL text with the front end and the code generator, up to its effects.

mod common;

use common::host::MemoryHost;
use common::module::{INTERFACE, MODULES};
use lacquer_vcl::signature::{ModuleSignatures, parse_module};
use lacquer_vcl::types::{Action, HttpId, Method};
use lacquer_vcl::variables_table::Var;
use lacquer_vcl::{Catalogue, NoFiles, NumericResolver, Options};
use lacquer_vcl_native::LoadedVcl;
use lacquer_vcl_runtime::{Ctx, Instance};
use std::fmt::Write as _;

struct Modules;

impl Catalogue for Modules {
    fn module(&self, name: &str) -> Option<ModuleSignatures> {
        (name == "trial").then(|| parse_module(name, INTERFACE).expect("the signatures are valid"))
    }
}

fn load(text: &str) -> LoadedVcl {
    let options = Options::new(&Modules, &NoFiles, &NumericResolver);
    let text = format!("vcl 4.1;\nbackend default none;\n{text}");
    let program = match lacquer_vcl::compile("<vcl.inline>", &text, &options) {
        Ok(compiled) => compiled.program,
        Err(diagnostics) => panic!("{}", lacquer_vcl::vcl_load_text(&diagnostics)),
    };
    let instance = Instance::new("test", program, MODULES, true).expect("the program is valid");
    lacquer_vcl_native::compile(instance).expect("the program compiles")
}

fn run(loaded: &LoadedVcl, mut host: MemoryHost) -> (Action, Vec<String>) {
    let method = host.method.expect("a host has a method");
    let action = loaded.run(method, &mut Ctx::new(&mut host, loaded.instance()));
    (action, host.journal)
}

fn request(method: &str) -> MemoryHost {
    MemoryHost::new(Method::Recv)
        .with_text(Var::ReqMethod, method)
        .with_text(Var::ReqProto, "HTTP/1.1")
        .with_text(Var::ReqUrl, "/a/b?c=d")
}

#[test]
fn the_built_in_vcl_behaves_as_documented() {
    let loaded = load("");
    let with_host = |method| request(method).with_header(HttpId::Req, "Host", "Example.com");
    assert_eq!(run(&loaded, with_host("GET")).0, Action::Hash);
    assert_eq!(run(&loaded, with_host("POST")).0, Action::Pass);
    assert_eq!(run(&loaded, with_host("PRI")).0, Action::Synth);
    assert_eq!(run(&loaded, with_host("GET").with_header(HttpId::Req, "Cookie", "a=b")).0, Action::Pass);
    let (action, journal) = run(&loaded, request("GET"));
    assert_eq!((action, journal), (Action::Synth, vec!["status 400 -".to_owned()]));
    let (_, journal) = run(&loaded, with_host("GET"));
    assert_eq!(journal, vec!["Req host: \"example.com\""]);
    let mut hash = with_host("GET");
    hash.method = Some(Method::Hash);
    let wanted = ["hash \"/a/b?c=d\"", "hash -", "hash \"Example.com\"", "hash -"];
    assert_eq!(run(&loaded, hash), (Action::Lookup, wanted.map(str::to_owned).to_vec()));
    for method in Method::ALL {
        let mut host = with_host("GET");
        host.method = Some(method);
        assert_ne!(run(&loaded, host).0, Action::Fail, "{method:?}");
    }
}

#[test]
fn text_is_compiled_and_run() {
    let loaded = load(
        r#"
        import trial;
        acl local { "192.0.2.0"/24; !"192.0.2.9"; }
        sub helper {
            if (client.ip ~ local && req.http.a + req.http.b != "") {
                set req.http.c = "<" + req.http.a + req.restarts + ">" + 1.5s;
                return;
            }
            return (pass);
        }
        sub vcl_recv {
            set req.http.a = regsuball(req.url, "/([a-z])", "\1-");
            call helper;
            set req.http.d = trial.echo(req.http.c) + trial.tail("x" + req.url);
            set req.ttl = 1m * (req.restarts + 2);
            if (!req.http.nothing && req.url ~ "^/A" || req.http.d ~ "(?i)A-") {
                return (pipe);
            }
        }
        "#,
    );
    let (action, journal) = run(&loaded, request("GET"));
    let wanted = [
        "Req a: \"a-b-?c=d\"",
        "Req c: \"<a-b-?c=d0>1.500\"",
        "Req d: \"<a-b-?c=d0>1.5002:/a/b?c=d\"",
        "req.ttl = 120",
    ];
    assert_eq!((action, journal), (Action::Pipe, wanted.map(str::to_owned).to_vec()));
    let mut far = request("GET");
    far.client_ip = "192.0.2.9:1".parse().ok();
    assert_eq!(run(&loaded, far).0, Action::Pass);
}

#[test]
fn objects_are_created_in_vcl_init() {
    let loaded = load(
        r#"
        import trial;
        sub vcl_init { new o = trial.counter(start = 7); }
        sub vcl_deliver { set resp.http.n = o.next() + "," + trial.count() + "," + trial.count(); }
        "#,
    );
    loaded.init(&mut MemoryHost::new(Method::Init)).expect("vcl_init runs");
    let (_, journal) = run(&loaded, MemoryHost::new(Method::Deliver));
    assert_eq!(journal, vec!["Resp n: \"7,0,0\""]);
    let (_, journal) = run(&loaded, MemoryHost::new(Method::Deliver));
    assert_eq!(journal, vec!["Resp n: \"8,1,1\""]);
    loaded.fini(&mut MemoryHost::new(Method::Fini));
}

#[test]
fn a_missing_object_fails_the_load() {
    let loaded = load(
        "
        import trial;
        sub vcl_init { if (now < now) { new o = trial.counter(); } }
        sub vcl_recv { set req.http.n = o.next(); }
        ",
    );
    let fault = loaded.init(&mut MemoryHost::new(Method::Init)).unwrap_err();
    assert_eq!(fault, "Object o not initialized");
    let (action, journal) = run(&loaded, request("GET"));
    assert_eq!((action, journal), (Action::Fail, vec!["fail Object o not initialized".to_owned()]));
}

#[test]
fn sizes_are_rounded_after_the_whole_expression() {
    let loaded = load(
        r#"
        sub vcl_recv {
            set req.http.a = param.transit_buffer * 0.5 * 4;
            set req.http.b = param.transit_buffer * 0.3 + 1KB * 0.3;
            set req.http.c = param.transit_buffer * 0.5 + param.transit_buffer * 0.5;
            set req.http.d = param.transit_buffer / 2;
            if (param.transit_buffer * 0.1 > 0B) {
                set req.http.e = "more";
            }
            return (hash);
        }
        "#,
    );
    let mut host = request("GET");
    host.ints.insert(Var::ParamTransitBuffer as u16, 3);
    let (action, journal) = run(&loaded, host);
    let wanted = ["a: \"6\"", "b: \"308\"", "c: \"3\"", "d: \"1\"", "e: \"more\""];
    assert_eq!((action, journal), (Action::Hash, wanted.map(|line| format!("Req {line}")).to_vec()));
}

#[test]
fn vcl_fini_runs_after_a_failed_vcl_init() {
    let loaded = load(
        "
        import trial;
        sub vcl_init { trial.fail(); }
        sub vcl_fini { ban(\"req.url ~ /end\"); }
        ",
    );
    let ended = || {
        let mut host = MemoryHost::new(Method::Fini);
        loaded.fini(&mut host);
        host.journal
    };
    assert!(ended().is_empty(), "vcl_init has not begun");
    assert!(loaded.init(&mut MemoryHost::new(Method::Init)).is_err());
    assert_eq!(ended(), vec!["ban req.url ~ /end"]);
}

/// Several threads compile large programs, and calls between their shares of the subs reach their target.
#[test]
fn several_threads_compile_a_large_program() {
    let mut text = String::new();
    for i in 0..400 {
        let more = format!("if (req.url ~ \"^/{i}\") {{ set req.http.no = \"{i}\"; }}").repeat(3);
        let _ = writeln!(text, "sub s{i} {{ set req.http.seen = req.http.seen + \"{},\"; {more} }}", i % 10);
    }
    text += "sub vcl_recv {";
    (0..400).rev().for_each(|i| {
        let _ = write!(text, " call s{i};");
    });
    let loaded = load(&(text + " return (hash); }"));
    let (action, journal) = run(&loaded, request("GET"));
    let wanted = "9,8,7,6,5,4,3,2,1,0,".repeat(40);
    assert_eq!(action, Action::Hash);
    assert_eq!(journal.last().map(String::as_str), Some(format!("Req seen: \"{wanted}\"").as_str()));
}

/// Long subs are compiled in pieces: each piece runs, an action in one ends all of them, and so does a bare return.
#[test]
fn a_long_sub_is_compiled_in_pieces() {
    let long = "if (req.url == \"/x\") { set req.http.no = \"1\"; }\n".repeat(1500);
    let mut arms = String::new();
    for i in 0..4500 {
        let _ = write!(arms, "elseif (req.http.n == \"{i}\") {{ set req.http.a = \"{i}\"; }}");
    }
    let text = format!(
        "sub helper {{ {long} if (req.http.leave) {{ return; }} {long} set req.http.b = \"helper\"; }}
         sub vcl_recv {{ {long} if (req.url == \"/y\") {{ {long} }} {arms} else {{ set req.http.a = \"else\"; }}
           call helper; {long} if (req.http.pass) {{ return (pass); }} {long} return (hash); }}"
    );
    let loaded = load(&text);
    let with = |name: &str, value: &str| request("GET").with_header(HttpId::Req, name, value);
    let journal = |lines: &[&str]| lines.iter().map(|l| (*l).to_owned()).collect::<Vec<_>>();
    let (action, seen) = run(&loaded, with("n", "4321"));
    assert_eq!((action, seen), (Action::Hash, journal(&["Req a: \"4321\"", "Req b: \"helper\""])));
    let (action, seen) = run(&loaded, with("leave", "1"));
    assert_eq!((action, seen), (Action::Hash, journal(&["Req a: \"else\""])));
    let (action, _) = run(&loaded, with("pass", "1"));
    assert_eq!(action, Action::Pass);
}

#[test]
fn a_deep_program_is_refused() {
    let mut text = String::new();
    for i in 0..150 {
        let _ = writeln!(
            text,
            "sub s{} {{ {} }}",
            i,
            if i == 0 { String::new() } else { format!("call s{};", i - 1) }
        );
    }
    text.push_str("sub vcl_recv { call s149; }");
    let options = Options::new(&Modules, &NoFiles, &NumericResolver);
    let text = format!("vcl 4.1; backend default none; {text}");
    let program =
        lacquer_vcl::compile("x", &text, &options).ok().map(|c| c.program).expect("it is valid VCL");
    let instance = Instance::new("test", program, MODULES, true).expect("the program is valid");
    let fault = lacquer_vcl_native::compile(instance).err().expect("it is too deep");
    assert!(fault.contains("nest deeper than 100"), "{fault}");
}
