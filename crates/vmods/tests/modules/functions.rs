//! Calls functions directly, as VCL does.

use lacquer_vcl::types::Method;
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{BackendId, ModuleError, Str, Value};
use std::sync::Arc;

use crate::host::{Leaf, Object, Task, instance};

const NO: Value<'static> = Value::Absent;

fn s(text: &'static str) -> Value<'static> {
    Value::Str(Some(text.as_bytes()))
}

fn strands(parts: &[&'static str]) -> Value<'static> {
    Value::Strands(parts.iter().map(|p| Str::new(p.as_bytes())).collect::<Vec<_>>().leak())
}

fn shown(value: Result<Value<'static>, ModuleError>) -> String {
    match value {
        Ok(Value::Str(text)) => {
            text.map_or("(undefined)".into(), |t| String::from_utf8_lossy(t).into_owned())
        }
        Ok(Value::Blob(Some(blob))) => format!("{:x?}", blob.bytes()),
        Ok(Value::Ip(Some(ip))) => ip.to_string(),
        Ok(value) => format!("{value:?}"),
        Err(ModuleError(text)) => format!("error: {text}"),
    }
}

#[test]
fn conversions_need_exactly_one_source() {
    let mut task = Task::new(Method::Recv, instance());
    for (name, values, expected) in [
        ("std.integer", vec![s("-17")], "Int(-17)"),
        ("std.integer", vec![s("1.5"), Value::Int(3)], "Int(3)"),
        ("std.integer", vec![s("x")], "error: std.integer: conversion failed"),
        ("std.integer", vec![NO, NO, NO, NO, NO, Value::Real(-1.9)], "Int(-1)"),
        ("std.integer", vec![NO, NO, Value::Bool(true)], "Int(1)"),
        ("std.integer", vec![], "error: std.integer: not enough arguments"),
        (
            "std.integer",
            vec![NO, NO, Value::Bool(true), Value::Bytes(1)],
            "error: std.integer: too many arguments",
        ),
        ("std.duration", vec![s("1.5h")], "Duration(5400.0)"),
        ("std.duration", vec![s("100")], "error: std.duration: conversion failed"),
        ("std.duration", vec![s("-inf"), Value::Duration(2.0)], "Duration(2.0)"),
        ("std.bytes", vec![s("4.5 g")], "Bytes(4831838208)"),
        ("std.bytes", vec![s("34%"), Value::Bytes(1)], "Bytes(1)"),
        ("std.bytes", vec![NO, NO, Value::Real(2048.999)], "Bytes(2048)"),
        ("std.real", vec![s("2.5")], "Real(2.5)"),
        ("std.real", vec![NO, NO, Value::Int(2)], "Real(2.0)"),
        ("std.real", vec![s("-999999999999.5")], "Real(-999999999999.5)"),
        ("std.real", vec![s("1000000000000")], "error: std.real: conversion failed: Too many digits"),
        ("std.real", vec![s("1000000000000"), Value::Real(1.5)], "Real(1.5)"),
        ("std.time", vec![s("Thu, 01 Jan 1970 00:00:01 GMT")], "Time(1.0)"),
        ("std.time", vec![s("1000000000.5")], "Time(1000000000.5)"),
        ("std.time", vec![s("soon"), Value::Time(5.0)], "Time(5.0)"),
        ("std.ip", vec![s("1.2.3.4"), NO, Value::Bool(true)], "1.2.3.4:80"),
        ("std.ip", vec![s("1.2.3.4"), NO, Value::Bool(true), s("443")], "1.2.3.4:443"),
        ("std.ip", vec![s("localhost"), NO, Value::Bool(false)], "error: std.ip: conversion failed"),
        ("std.syntax", vec![Value::Real(4.1)], "Bool(true)"),
        ("std.syntax", vec![Value::Real(4.2)], "Bool(false)"),
        ("std.strstr", vec![s("abcdef"), s("cd")], "cdef"),
        ("std.strstr", vec![s("abcdef"), s("x")], "(undefined)"),
        ("std.toupper", vec![strands(&["a", "Bc"])], "ABC"),
    ] {
        let found = shown(task.call(name, &values));
        assert!(found.starts_with(expected), "{name} {values:?}: {found}");
    }
}

#[test]
fn blobs_are_decoded_and_refused() {
    let mut task = Task::new(Method::Recv, instance());
    let decode = |encoding, parts: &[&'static str]| [s(encoding), Value::Int(0), strands(parts)];
    assert_eq!(shown(task.call("blob.decode", &decode("HEX", &["6f", "6"]))), "[6, f6]");
    assert_eq!(
        shown(task.call("blob.decode", &decode("BASE64", &["_x", "y"]))),
        "error: vmod blob error: cannot decode, illegal encoding beginning with \"_x\""
    );
    let transcode = [s("BASE64"), s("IDENTITY"), s("UPPER"), Value::Int(0), strands(&["Zm9v"])];
    assert_eq!(
        shown(task.call("blob.transcode", &transcode)),
        "error: vmod blob error: case UPPER is illegal with encoding IDENTITY"
    );
    let constant = task.make("blob.blob", "b", &[s("BASE64"), strands(&["Zm9vYmFy"])]);
    let content = constant.call(&mut task, "get", &[]).unwrap();
    assert_eq!(shown(constant.call(&mut task, "encode", &[s("HEX"), s("DEFAULT")])), "666f6f626172");
    let part = task.call("blob.sub", &[content, Value::Bytes(3), Value::Bytes(3)]).unwrap();
    assert_eq!(shown(task.call("blob.encode", &[s("IDENTITY"), s("DEFAULT"), part])), "bar");
    assert_eq!(
        shown(task.call("blob.sub", &[content, Value::Bytes(4), Value::Bytes(3)])),
        "error: vmod blob error: size 4 from offset 3 requires more bytes than blob length 6 in blob.sub()"
    );
    let again = constant.call(&mut task, "get", &[]).unwrap();
    assert_eq!(shown(task.call("blob.same", &[content, again])), "Bool(true)");
    assert_eq!(shown(task.call("blob.same", &[content, part])), "Bool(false)");
}

#[test]
fn cookies_are_filtered_and_written_back() {
    let mut task = Task::new(Method::Recv, instance());
    task.call("cookie.parse", &[s("a=1; b=2; c=3")]).unwrap();
    assert_eq!(task.logged(), ["Debug cookie: parsed 3 cookies."]);
    task.call("cookie.filter", &[s("b, x")]).unwrap();
    assert_eq!(shown(task.call("cookie.get_string", &[])), "a=1; c=3");
    assert_eq!(shown(task.call("cookie.get", &[s("b")])), "(undefined)");
    task.call("cookie.set", &[s("d"), s("4")]).unwrap();
    task.call("cookie.keep", &[s("d")]).unwrap();
    assert_eq!(shown(task.call("cookie.get_string", &[])), "d=4");
}

/// Calls a director's method and resolves the result in the VCL's table.
fn resolve(task: &mut Task, director: Object) -> String {
    let Ok(Value::Backend(mut id)) = director.call(task, "backend", &[]) else { panic!("not a backend") };
    loop {
        let Some(cell) = task.ctx.vcl.directors.get(id) else { return "none".into() };
        if cell.director.kind() == "backend" {
            return cell.director.name().to_owned();
        }
        id = cell.director.resolve(&mut task.ctx, id);
    }
}

fn with_backends(method: Method, backends: &[(&'static str, bool)]) -> (Task, Vec<Value<'static>>) {
    let task = Task::new(method, instance());
    let add = |(name, healthy): &(&'static str, bool)| {
        Value::Backend(
            task.ctx.vcl.directors.add(Arc::new(Leaf { name: (*name).to_owned(), healthy: *healthy })),
        )
    };
    let ids = backends.iter().map(add).collect();
    (task, ids)
}

#[test]
fn round_robin_and_fallback_skip_the_sick() {
    let (mut task, ids) = with_backends(Method::BackendFetch, &[("a", false), ("b", true), ("c", true)]);
    let rr = task.make("directors.round_robin", "rr", &[]);
    let fb = task.make("directors.fallback", "fb", &[Value::Bool(false)]);
    for id in &ids {
        rr.call(&mut task, "add_backend", &[*id]).unwrap();
        fb.call(&mut task, "add_backend", &[*id]).unwrap();
    }
    let turns: Vec<_> = (0..4).map(|_| resolve(&mut task, rr)).collect();
    assert_eq!(turns, ["b", "c", "b", "c"]);
    assert_eq!(resolve(&mut task, fb), "b");
    fb.call(&mut task, "remove_backend", &[ids[1]]).unwrap();
    assert_eq!(resolve(&mut task, fb), "c");
    let none = rr.call(&mut task, "add_backend", &[Value::Backend(BackendId::NONE)]);
    assert_eq!(shown(none), "error: rr: None backend cannot be added");
    let Ok(Value::Backend(id)) = fb.call(&mut task, "backend", &[]) else { panic!("not a backend") };
    let cell = task.ctx.vcl.directors.get(id).unwrap();
    assert_eq!(cell.director.list(task.ctx.vcl, false, false), "1/2\thealthy");
    assert_eq!(
        cell.director.list(task.ctx.vcl, true, false),
        "\n\n\tBackend\tCurrent\tHealth\n\ta\t\tsick\n\tc\t*\thealthy\n"
    );
    assert_eq!(cell.director.list(task.ctx.vcl, false, true), "[1, 2, \"healthy\"]");
}

/// Nothing would remove the entries of a list that is not used.
#[test]
fn saintmode_keeps_a_list_only_with_a_threshold() {
    for (threshold, expected) in [(0, "Int(0)"), (1, "Int(3)")] {
        let (mut task, backends) = with_backends(Method::BackendResponse, &[("a", true)]);
        let saint = task.make("saintmode.saintmode", "s", &[backends[0], Value::Int(threshold)]);
        let Value::Backend(id) = backends[0] else { panic!("not a backend") };
        task.ctx.host.set_backend(Var::BerespBackend, id).expect("it can be set");
        for _ in 0..3 {
            task.call("saintmode.denylist", &[Value::Duration(10.0)]).expect("it cannot fail");
        }
        assert_eq!(shown(saint.call(&mut task, "denylist_count", &[])), expected);
        let healthy = shown(saint.call(&mut task, "is_healthy", &[]));
        assert_eq!(healthy, format!("Bool({})", threshold == 0));
    }
}

#[test]
fn shard_follows_keys_alternatives_and_task_parameters() {
    let (mut init, ids) = with_backends(Method::Init, &[("s1", true), ("s2", true), ("s3", true)]);
    let shard = init.make("directors.shard", "vd", &[]);
    for id in &ids {
        shard.call(&mut init, "add_backend", &[*id, NO, NO, NO]).unwrap();
    }
    assert_eq!(shown(shard.call(&mut init, "reconfigure", &[Value::Int(25)])), "Bool(true)");
    assert_eq!(shown(shard.call(&mut init, "reconfigure", &[Value::Int(0)])), "Bool(false)");
    let text = "Error vmod_directors: shard vd: .reconfigure() invalid replicas argument 0";
    assert_eq!(init.logged(), [text]);

    let mut task = Task::new(Method::Recv, init.ctx.vcl);
    let by_key = |key: i64, alt: i64| [s("KEY"), Value::Int(key), NO, Value::Int(alt), NO, NO, NO, NO, NO];
    let mut name = |values: &[Value<'static>]| match shard.call(&mut task, "backend", values) {
        Ok(Value::Backend(id)) => {
            task.ctx.vcl.directors.get(id).map_or("none".into(), |c| c.director.name().to_owned())
        }
        other => shown(other),
    };
    assert_eq!(name(&by_key(0x68b9_02f7, 0)), "s1");
    assert_eq!(name(&by_key(0x39dc_4613, 0)), "s2");
    assert_eq!(name(&by_key(0xc779_3505, 0)), "s3");
    assert_ne!(name(&by_key(0xc779_3505, 1)), "s3");
    assert_eq!(
        name(&[s("URL"), Value::Int(1), NO, NO, NO, NO, NO, NO, NO]),
        "error: vmod_directors: shard vd: shard.backend() key and key_blob arguments are invalid with by=URL"
    );
    assert_eq!(
        name(&[NO, NO, NO, Value::Int(1), NO, NO, NO, NO, s("LAZY")]),
        "error: vmod_directors: shard vd: .backend(resolve=LAZY) with other parameters can only be used in \
         backend/pipe context"
    );

    let mut fetch = Task::new(Method::BackendFetch, init.ctx.vcl);
    let lazy = [s("KEY"), Value::Int(0x39dc_4613), NO, NO, NO, NO, NO, NO, s("LAZY")];
    let Ok(Value::Backend(id)) = shard.call(&mut fetch, "backend", &lazy) else { panic!("not a backend") };
    let cell = fetch.ctx.vcl.directors.get(id).unwrap();
    assert_eq!(cell.director.kind(), "shard");
    assert_eq!(Value::Backend(cell.director.resolve(&mut fetch.ctx, id)).to_raw(fetch.ctx.vcl).a, 2);
}

#[test]
fn shard_parameters_are_private_to_tasks_on_the_backend_side() {
    let mut init = Task::new(Method::Init, instance());
    let param = init.make("directors.shard_param", "p", &[]);
    let set = |alt: i64| [s("HASH"), NO, NO, Value::Int(alt), NO, NO, NO];
    param.call(&mut init, "set", &set(1)).unwrap();
    let mut fetch = Task::new(Method::BackendFetch, init.ctx.vcl);
    param.call(&mut fetch, "set", &set(7)).unwrap();
    assert_eq!(shown(param.call(&mut fetch, "get_alt", &[])), "Int(7)");
    assert_eq!(shown(param.call(&mut fetch, "get_key", &[])), "Int(4294967295)");
    let mut other = Task::new(Method::Recv, init.ctx.vcl);
    assert_eq!(shown(param.call(&mut other, "get_alt", &[])), "Int(1)");
    assert_eq!(
        shown(param.call(&mut other, "clear", &[])),
        "error: vmod_directors: shard p: shard_param.clear() may only be used in vcl_init and in backend/pipe \
         context"
    );
}

#[test]
fn log_records_of_others_are_replayed() {
    let mut task = Task::new(Method::Init, instance());
    task.call("vtc.vsl_replay", &[strands(&["\n** v1 vsl|  100", "0 End  b\n1001 Link c req 1 x\nnoise"])])
        .unwrap();
    assert_eq!(task.logged(), ["End 80000000000003e8 ", "Link 40000000000003e9 req 1 x"]);
    let fault = task.call("vtc.vsl", &[Value::Int(1), s("Nothing"), s("c"), strands(&[])]);
    assert_eq!(shown(fault), "error: No such tag: Nothing");
}
