//! Tests of each kind of statement and expression, in manually built programs.

mod common;

use common::build::*;
use common::host::MemoryHost;
use common::module;
use lacquer_vcl::program::*;
use lacquer_vcl::types::{Action, HttpId, Method, Type};
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{Ctx, RegexLimits};

#[test]
fn a_sub_returns_an_action_or_reaches_its_end() {
    assert_eq!(run(vec![act(Action::Hash)]), (Action::Hash, vec![]));
    assert_eq!(run(vec![]), (Action::Fail, vec!["fail vcl_recv ended without an action".to_owned()]));
    let status = Return::Status { action: Action::Synth, status: int(403), reason: Some(text("No")) };
    let (action, journal) = run(vec![Stmt::Return { at: HERE, how: status }]);
    assert_eq!((action, journal), (Action::Synth, vec!["status 403 \"No\"".to_owned()]));
    let status = Return::Status { action: Action::Synth, status: int(99), reason: None };
    let (action, journal) = run(vec![Stmt::Return { at: HERE, how: status }]);
    assert_eq!(action, Action::Fail);
    assert_eq!(journal, vec!["fail illegal return(synth()) status code (99) (..0##)"]);
    let (action, journal) = run(vec![Stmt::Return { at: HERE, how: Return::Fail(Some(text("why"))) }]);
    assert_eq!((action, journal), (Action::Fail, vec!["fail why".to_owned()]));
}

#[test]
fn subs_are_called_until_one_returns() {
    let call = |sub| Stmt::CallSub { at: HERE, sub };
    let subs = vec![
        sub("vcl_recv", vec![call(1), set_header(0, text("between")), call(2), set_header(0, text("never"))]),
        sub("one", vec![set_header(1, text("one")), Stmt::Return { at: HERE, how: Return::FromSub }]),
        sub("two", vec![call(3)]),
        sub("three", vec![act(Action::Pipe)]),
    ];
    let (action, host) = run_on(MemoryHost::new(Method::Recv), subs);
    assert_eq!(action, Action::Pipe);
    assert_eq!(host.journal, vec!["Req H1: \"one\"", "Req H0: \"between\""]);
}

#[test]
fn strings_are_joined_and_compared() {
    let host = MemoryHost::new(Method::Recv).with_header(HttpId::Req, "H1", "GET");
    let body = vec![
        set_header(0, concat(vec![text("<"), header(1), header(2), text(">"), to_string(int(-7))])),
        when(compare(CompareOp::Eq, header(1), text("GET")), vec![set_header(3, text("same"))]),
        when(compare(CompareOp::Ne, header(1), text("GEL")), vec![set_header(4, text("other"))]),
        when(compare(CompareOp::Eq, header(2), text("")), vec![set_header(5, text("wrong"))]),
        when(
            compare(CompareOp::Eq, concat(vec![header(2), header(2)]), text("")),
            vec![set_header(6, text("empty"))],
        ),
        when(compare(CompareOp::Lt, text("a"), header(1)), vec![set_header(7, text("wrong"))]),
        act(Action::Hash),
    ];
    let (action, host) = run_on(host, vec![sub("vcl_recv", body)]);
    assert_eq!(action, Action::Hash);
    let wanted = ["Req H0: \"<GET>-7\"", "Req H3: \"same\"", "Req H4: \"other\"", "Req H6: \"empty\""];
    assert_eq!(host.journal, wanted);
}

#[test]
fn constants_of_every_length_are_compared() {
    let long = "abcdefghijklmnopqrstuvwxyz";
    for length in 0..long.len() {
        let own = &long[..length];
        for (value, same) in [(own.to_owned(), true), (format!("{own}!"), false)] {
            let host = MemoryHost::new(Method::Recv).with_header(HttpId::Req, "H1", &value);
            let equal = when(compare(CompareOp::Eq, text(own), header(1)), vec![act(Action::Hash)]);
            let (action, _) = run_on(host, vec![sub("vcl_recv", vec![equal, act(Action::Pass)])]);
            assert_eq!(action == Action::Hash, same, "{own:?} and {value:?}");
        }
        for wrong in 0..length {
            let mut value = own.as_bytes().to_vec();
            value[wrong] ^= 1;
            let value = String::from_utf8(value).unwrap();
            let host = MemoryHost::new(Method::Recv).with_header(HttpId::Req, "H1", &value);
            let equal = when(compare(CompareOp::Eq, header(1), text(own)), vec![act(Action::Hash)]);
            let (action, _) = run_on(host, vec![sub("vcl_recv", vec![equal, act(Action::Pass)])]);
            assert_eq!(action, Action::Pass, "{own:?} and {value:?}");
        }
    }
}

#[test]
fn regexes_match_and_substitute() {
    let host = MemoryHost::new(Method::Recv).with_header(HttpId::Req, "H1", "abbcb");
    let regsub = |all| {
        let regex = Box::new(e(Type::Regex, ExprKind::Regex(1)));
        let with = Box::new(text("[\\1\\2]"));
        e(Type::String, ExprKind::Regsub { all, subject: Box::new(header(1)), regex, replacement: with })
    };
    let body = vec![
        when(matches(header(1), 0, false), vec![set_header(2, regsub(false))]),
        when(matches(header(5), 0, true), vec![set_header(3, regsub(true))]),
        act(Action::Hash),
    ];
    let (action, host) = run_on(host, vec![sub("vcl_recv", body)]);
    assert_eq!(action, Action::Hash);
    assert_eq!(host.journal, vec!["Req H2: \"a[bbc]b\"", "Req H3: \"a[bbc][b]\""]);
}

#[test]
fn a_regex_beyond_its_limits_fails() {
    let mut host =
        MemoryHost::new(Method::Recv).with_header(HttpId::Req, "H1", "aaaaaaaaaaaaaaaaaaaaaaaaaab");
    host.limits = RegexLimits { matches: 10, depth: 1000 };
    let body = vec![when(matches(header(1), 3, false), vec![]), act(Action::Hash)];
    let (action, host) = run_on(host, vec![sub("vcl_recv", body)]);
    assert_eq!(action, Action::Fail);
    assert_eq!(host.journal, vec!["fail Regexp matching failed: match limit exceeded"]);
}

#[test]
fn acls_match_and_log() {
    let ask = |negated| {
        let ip = Box::new(var(Type::Ip, Var::ClientIp));
        let acl = Box::new(e(Type::Acl, ExprKind::Acl(0)));
        e(Type::Bool, ExprKind::AclMatch { ip, acl, negated })
    };
    let body = || vec![when(ask(false), vec![act(Action::Pass)]), when(ask(true), vec![act(Action::Pipe)])];
    let (action, journal) = run(body());
    assert_eq!((action, journal), (Action::Pass, vec!["log 57 MATCH local \"192.0.2.0\"/24".to_owned()]));
    let mut host = MemoryHost::new(Method::Recv);
    host.client_ip = "192.0.2.200:1".parse().ok();
    assert_eq!(run_on(host, vec![sub("vcl_recv", body())]).0, Action::Pipe);
    let mut host = MemoryHost::new(Method::Recv);
    host.client_ip = None;
    let (action, host) = run_on(host, vec![sub("vcl_recv", body())]);
    assert_eq!(
        (action, host.journal),
        (Action::Fail, vec!["fail Cannot match a null IP address".to_owned()])
    );
}

#[test]
fn numbers_are_computed_and_converted() {
    let number = |ty, op, a, b| to_string(arith(ty, op, a, b));
    let body = vec![
        set_header(0, number(Type::Int, ArithOp::Mod, int(-7), int(3))),
        set_header(1, number(Type::Int, ArithOp::Div, int(i64::MIN + 1), int(-1))),
        set(Var::RespStatus, SetOp::Add, int(5)),
        act(Action::Hash),
    ];
    let (action, journal) = run(body);
    assert_eq!(action, Action::Fail);
    let wanted = ["Req H0: \"-1\"", "fail INT overflow converting to string (0x7fffffffffffffff)"];
    assert_eq!(journal, wanted);
    let body = vec![
        set_header(2, number(Type::Real, ArithOp::Mul, int(3), real(0.5))),
        set_header(3, to_string(e(Type::Time, ExprKind::Real(0.0)))),
        set_header(4, to_string(compare(CompareOp::Ge, real(1.0), real(1.0)))),
        set_header(5, to_string(var(Type::Ip, Var::ClientIp))),
        set_header(6, to_string(e(Type::Blob, ExprKind::Blob(b"a".to_vec())))),
        set(Var::ReqTtl, SetOp::Assign, e(Type::Duration, ExprKind::Real(2.5))),
        set(Var::ReqTtl, SetOp::Mul, int(2)),
        set(Var::RespStatus, SetOp::Add, int(5)),
        set(Var::ReqUrl, SetOp::Add, text("/x")),
        set_header(7, number(Type::Int, ArithOp::Div, int(1), var(Type::Int, Var::ReqRestarts))),
        act(Action::Hash),
    ];
    let (action, journal) = run(body);
    assert_eq!(action, Action::Fail);
    let wanted = [
        "Req H2: \"1.500\"",
        "Req H3: \"Thu, 01 Jan 1970 00:00:00 GMT\"",
        "Req H4: \"true\"",
        "Req H5: \"192.0.2.7\"",
        "Req H6: \":YQ==:\"",
        "req.ttl = 2.5",
        "req.ttl = 5",
        "resp.status = 5",
        "req.url = \"/x\"",
        "fail Division by zero",
    ];
    assert_eq!(journal, wanted);
}

#[test]
fn module_functions_receive_and_return_values() {
    let show = call(
        Type::String,
        module::SHOW,
        vec![text("a"), int(2), real(1.5), truth(true), e(Type::Duration, ExprKind::Real(3.0)), header(5)],
    );
    let nested = call(
        Type::String,
        module::ECHO,
        vec![concat(vec![
            call(Type::String, module::ECHO, vec![text("in")]),
            call(Type::String, module::TAIL, vec![strands(vec![text("x"), to_string(int(5)), header(6)])]),
        ])],
    );
    let body = vec![
        set_header(0, show),
        set_header(1, nested),
        set_header(2, call(Type::String, module::NOTHING, vec![])),
        set_header(
            3,
            call(Type::String, module::HEADER, vec![e(Type::Header, ExprKind::HeaderRef(HttpId::Req, 1))]),
        ),
        act(Action::Hash),
    ];
    let (action, journal) = run(body);
    assert_eq!(action, Action::Hash);
    let wanted = [
        "Req H0: \"\\\"a\\\" Int(2) Real(1.5) Bool(true) Duration(3.0) null\"",
        "Req H1: \"in3:null\"",
        "Req H2: -",
        "Req H3: \"in3:null\"",
    ];
    assert_eq!(journal, wanted);
}

#[test]
fn failures_of_modules_fail_the_run() {
    for (function, text) in [
        (module::FAIL, "fail the module failed"),
        (module::PANIC, "fail Internal error: the module panicked"),
        (module::LIE, "fail A module function returned another type than it declares"),
        (module::WAIT, "fail This call may not wait here"),
    ] {
        let (action, journal) =
            run(vec![set_header(0, call(Type::String, function, vec![])), act(Action::Hash)]);
        // As in Varnish, the statement of the failed call ends with no value; those after it do not run.
        assert_eq!((action, journal), (Action::Fail, vec![text.to_owned(), "Req H0: -".to_owned()]));
    }
    let fails = || call(Type::String, module::FAIL, vec![]);
    for stmt in [
        set(Var::ReqUrl, SetOp::Assign, fails()),
        set_header(0, concat(vec![text("a"), fails()])),
        Stmt::HashData { at: HERE, value: strands(vec![text("a"), fails()]) },
        Stmt::Do { at: HERE, call: call(Type::String, module::ECHO, vec![fails()]) },
        Stmt::If {
            arms: vec![(e(Type::Bool, ExprKind::Defined(Box::new(fails()))), vec![set_header(1, text("x"))])],
            otherwise: vec![],
        },
    ] {
        let (action, journal) = run(vec![stmt, set_header(2, text("y")), act(Action::Hash)]);
        assert_eq!((action, journal), (Action::Fail, vec!["fail the module failed".to_owned()]));
    }
}

#[test]
fn a_full_workspace_fails_the_run() {
    let mut host = MemoryHost::new(Method::Recv).with_header(HttpId::Req, "H1", "0123456789");
    host.room = 15;
    let joined = concat(vec![header(1), header(1)]);
    let body = vec![set(Var::ReqUrl, SetOp::Assign, joined), act(Action::Hash)];
    let (action, host) = run_on(host, vec![sub("vcl_recv", body)]);
    assert_eq!((action, host.journal), (Action::Fail, vec!["fail Workspace overflow".to_owned()]));
}

#[test]
fn objects_and_call_sites_keep_state() {
    let object = |at| {
        let kind =
            ExprKind::Call { function: module::NEXT, object: Some(0), args: vec![], call_site: None, at };
        to_string(e(Type::Int, kind))
    };
    let site = |site| {
        let (function, call_site) = (module::COUNT, Some(site));
        let kind = ExprKind::Call { function, object: None, args: vec![], call_site, at: HERE };
        to_string(e(Type::Int, kind))
    };
    let body = vec![set_header(0, concat(vec![object(HERE), site(0), site(1)])), act(Action::Hash)];
    let new = Stmt::New { at: HERE, object: 0, args: vec![Some(int(5))] };
    let mut program = program(vec![sub("vcl_recv", body), sub("vcl_init", vec![new])]);
    program.modules.objects =
        vec![Object { name: "o".into(), import: 0, type_name: "counter".into(), null_ok: false }];
    program.methods[Method::Init as usize] = 1;
    let loaded = load(program);
    let mut host = MemoryHost::new(Method::Init);
    loaded.init(&mut host).unwrap();
    for wanted in ["500", "611"] {
        let mut host = MemoryHost::new(Method::Recv);
        loaded.run(Method::Recv, &mut Ctx::new(&mut host, loaded.instance()));
        assert_eq!(host.journal, vec![format!("Req H0: {wanted:?}")]);
    }
}

#[test]
#[should_panic(expected = "belongs to another VCL")]
fn a_context_of_another_vcl_is_refused() {
    let [one, other] = [(); 2].map(|()| load(program(vec![sub("vcl_recv", vec![act(Action::Hash)])])));
    let mut host = MemoryHost::new(Method::Recv);
    one.run(Method::Recv, &mut Ctx::new(&mut host, other.instance()));
}

/// The compiler never creates such a program, whose types contradict the assumptions of machine code.
#[test]
fn an_argument_of_another_type_does_not_compile() {
    let lie = |ty, kind| {
        let value = call(Type::String, module::ECHO, vec![e(ty, kind)]);
        let program = program(vec![sub("vcl_recv", vec![set_header(0, value), act(Action::Hash)])]);
        let instance = lacquer_vcl_runtime::Instance::new("test", program, module::MODULES, true);
        lacquer_vcl_native::compile(instance.unwrap()).map(drop)
    };
    assert!(lie(Type::String, ExprKind::Str(b"text".as_slice().into())).is_ok());
    for ty in [Type::Blob, Type::Int, Type::Acl, Type::Ip] {
        assert!(lie(ty, ExprKind::Str(b"text".as_slice().into())).is_err(), "{ty:?}");
    }
    assert!(lie(Type::Blob, ExprKind::Ip([127, 0, 0, 1].into(), 80)).is_err());
}

#[test]
fn subs_as_values_are_called_and_checked() {
    let callable = |sub| e(Type::Bool, ExprKind::SubCallable(Box::new(e(Type::Sub, ExprKind::Sub(sub)))));
    let dynamic = |sub| Stmt::Do {
        at: HERE,
        call: call(Type::Void, module::CALL, vec![e(Type::Sub, ExprKind::Sub(sub))]),
    };
    let mut subs = vec![
        sub(
            "vcl_recv",
            vec![when(callable(1), vec![dynamic(1)]), when(callable(3), vec![act(Action::Fail)]), dynamic(2)],
        ),
        sub("one", vec![set_header(1, text("one"))]),
        sub("two", vec![dynamic(2)]),
        sub("far", vec![]),
    ];
    subs[3].allowed = 1 << Method::Deliver as u32;
    let (action, host) = run_on(MemoryHost::new(Method::Recv), subs);
    assert_eq!(action, Action::Fail);
    assert_eq!(host.journal, vec!["Req H1: \"one\"", "fail Recursive call to \"sub two{}\""]);
    let subs =
        vec![sub("vcl_recv", vec![dynamic(1), act(Action::Hash)]), sub("one", vec![act(Action::Pipe)])];
    assert_eq!(run_on(MemoryHost::new(Method::Recv), subs).0, Action::Pipe);
}

#[test]
fn calls_of_subs_as_values_nest_as_deeply_as_the_stack_permits() {
    let nested = |depth: u32| {
        let dynamic = |sub| Stmt::Do {
            at: HERE,
            call: call(Type::Void, module::CALL, vec![e(Type::Sub, ExprKind::Sub(sub))]),
        };
        let mut subs: Vec<Sub> = (0..depth).map(|n| sub(&format!("sub{n}"), vec![dynamic(n + 1)])).collect();
        subs.push(sub("last", vec![act(Action::Hash)]));
        run_on(MemoryHost::new(Method::Recv), subs)
    };
    assert_eq!(nested(24).0, Action::Hash);
    let (action, host) = nested(1000);
    assert_eq!(action, Action::Fail);
    let [fault] = &host.journal[..] else { panic!("{:?}", host.journal) };
    assert!(fault.starts_with("fail Calls nest too deeply for \"sub sub"), "{fault}");
}

#[test]
fn conditions_short_circuit() {
    let bomb = || compare(CompareOp::Eq, call(Type::String, module::FAIL, vec![]), text("x"));
    let any = e(Type::Bool, ExprKind::Or(vec![truth(false), truth(true), bomb()]));
    let all = e(Type::Bool, ExprKind::And(vec![truth(true), truth(false), bomb()]));
    let body = vec![
        set(Var::ReqEsi, SetOp::Assign, any.clone()),
        set(Var::ReqEsi, SetOp::Assign, all.clone()),
        when(e(Type::Bool, ExprKind::Not(Box::new(all))), vec![when(any, vec![act(Action::Hash)])]),
        act(Action::Pass),
    ];
    assert_eq!(run(body), (Action::Hash, vec!["req.esi = true".to_owned(), "req.esi = false".to_owned()]));
}

#[test]
fn bodies_hashes_bans_and_traces() {
    let body = vec![
        Stmt::Trace { at: HERE, number: 1 },
        set(Var::ReqTrace, SetOp::Assign, truth(true)),
        Stmt::Trace { at: HERE, number: 2 },
        Stmt::HashData { at: HERE, value: strands(vec![text("a"), header(3)]) },
        Stmt::SetBody {
            at: HERE,
            target: Var::RespBody,
            op: SetOp::Add,
            value: concat(vec![text("a"), header(3)]),
        },
        Stmt::Synthetic { at: HERE, value: strands(vec![text("b"), header(3)]) },
        Stmt::SetBody { at: HERE, target: Var::RespBody, op: SetOp::Assign, value: header(3) },
        Stmt::Ban { at: HERE, value: text("req.url ~ x") },
        Stmt::Ban { at: HERE, value: header(3) },
        act(Action::Hash),
    ];
    let wanted = [
        "req.trace = true",
        "trace test 2 0.1.1",
        "hash \"a\"",
        "hash -",
        "hash -",
        "resp.body += \"a\"",
        "resp.body += \"b(null)\"",
        "resp.body = \"\"",
        "ban req.url ~ x",
        "log 71 ban(): Null argument",
    ];
    assert_eq!(run(body), (Action::Hash, wanted.map(str::to_owned).to_vec()));
}
