//! Tests of runs that wait for the reactor: they are suspended and resumed, and they end when they are dropped.

mod common;

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use common::build::*;
use common::host::MemoryHost;
use common::module;
use lacquer_vcl::program::*;
use lacquer_vcl::types::{Action, HttpId, Method, Type};
use lacquer_vcl_native::LoadedVcl;
use lacquer_vcl_runtime::{Ctx, Instance};

fn waits(n: i64) -> Stmt {
    set_header(0, to_string(call(Type::Int, module::WAIT, vec![int(n)])))
}

fn loaded() -> LoadedVcl {
    let caches = set_header(1, to_string(call(Type::Int, module::CACHE, vec![])));
    let mut program = program(vec![
        sub("vcl_recv", vec![waits(1), Stmt::CallSub { at: HERE, sub: 1 }, act(Action::Hash)]),
        sub("later", vec![caches, waits(5)]),
        sub("vcl_deliver", vec![act(Action::Deliver)]),
    ]);
    program.methods[Method::Deliver as usize] = 2;
    load(program)
}

/// Polls until done. Also returns how often it was pending.
fn finish<T>(work: impl Future<Output = T>) -> (T, usize) {
    let mut work = pin!(work);
    let mut cx = Context::from_waker(Waker::noop());
    let mut pending = 0;
    loop {
        match work.as_mut().poll(&mut cx) {
            Poll::Ready(value) => return (value, pending),
            Poll::Pending => pending += 1,
        }
    }
}

#[test]
fn a_run_waits_and_continues() {
    let loaded = loaded();
    assert!(loaded.may_suspend(Method::Recv));
    assert!(!loaded.may_suspend(Method::Deliver));
    for _ in 0..3 {
        let mut host = MemoryHost::new(Method::Recv);
        let mut ctx = Ctx::new(&mut host, loaded.instance());
        let (action, pending) = finish(loaded.run_suspendable(Method::Recv, &mut ctx));
        assert!(!ctx.can_wait());
        assert_eq!((action, pending), (Action::Hash, 3));
        assert_eq!(host.journal, ["Req H0: \"2\"", "body up to 1000", "Req H1: \"42\"", "Req H0: \"6\""]);
    }
}

/// A sub as a value in vcl_init, as an object stores it, and a call of the sub that a function returns.
#[test]
fn a_computed_call_can_wait() {
    let value = e(Type::Sub, ExprKind::Sub(2));
    let computed = |function| call(Type::Sub, function, vec![]);
    let mut program = program(vec![
        sub("vcl_init", vec![Stmt::Do { at: HERE, call: call(Type::Void, module::CALL, vec![value]) }]),
        sub("vcl_recv", vec![Stmt::CallSub { at: HERE, sub: 3 }]),
        sub("stored", vec![waits(1)]),
        sub("chooses", vec![Stmt::CallDynamic { at: HERE, sub: computed(module::NOTHING) }]),
        sub("vcl_deliver", vec![act(Action::Deliver)]),
    ]);
    program.methods = vec![4; Method::COUNT];
    program.methods[Method::Recv as usize] = 1;
    let loaded = load(program);
    assert!(loaded.may_suspend(Method::Recv));
    assert!(!loaded.may_suspend(Method::Deliver));
}

#[test]
fn runs_interleave_on_one_thread() {
    let loaded = loaded();
    let mut hosts: Vec<_> = (0..50).map(|_| MemoryHost::new(Method::Recv)).collect();
    let mut contexts: Vec<_> = hosts.iter_mut().map(|host| Ctx::new(host, loaded.instance())).collect();
    let mut runs: Vec<_> =
        contexts.iter_mut().map(|ctx| Box::pin(loaded.run_suspendable(Method::Recv, ctx))).collect();
    let mut cx = Context::from_waker(Waker::noop());
    let mut done = 0;
    while done < 50 {
        runs.retain_mut(|run| match run.as_mut().poll(&mut cx) {
            Poll::Ready(action) => {
                assert_eq!(action, Action::Hash);
                done += 1;
                false
            }
            Poll::Pending => true,
        });
    }
    drop(runs);
    drop(contexts);
    assert!(hosts.iter().all(|host| host.journal.len() == 4));
}

#[test]
fn a_dropped_run_fails_and_ends() {
    let loaded = loaded();
    for polls in 0..3 {
        let mut host = MemoryHost::new(Method::Recv);
        let mut ctx = Ctx::new(&mut host, loaded.instance());
        {
            let mut run = Box::pin(loaded.run_suspendable(Method::Recv, &mut ctx));
            let mut cx = Context::from_waker(Waker::noop());
            for _ in 0..polls {
                assert!(run.as_mut().poll(&mut cx).is_pending());
            }
        }
        assert_eq!(ctx.failed(), polls > 0);
        assert!(!ctx.can_wait());
        let last = host.journal.last().map(String::as_str);
        assert_eq!(last, (polls > 0).then_some("fail The task has ended"), "after {polls} polls");
    }
}

/// Its coroutine is never resumed, so a later run of the same context must not wait through it.
#[test]
fn an_abandoned_run_leaves_no_way_to_wait_in_its_context() {
    let loaded = loaded();
    let mut host = MemoryHost::new(Method::Recv);
    let mut ctx = Ctx::new(&mut host, loaded.instance());
    let mut run = Box::pin(loaded.run_suspendable(Method::Recv, &mut ctx));
    assert!(run.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    std::mem::forget(run);
    assert_eq!(loaded.run(Method::Recv, &mut ctx), Action::Fail);
    assert_eq!(host.journal, ["fail Internal error: the run has ended or is waiting already"]);
}

#[test]
fn a_panic_on_a_coroutine_fails_the_run() {
    let body = vec![waits(1), Stmt::Do { at: HERE, call: call(Type::Void, module::PANIC, vec![]) }];
    let loaded = load(program(vec![sub("vcl_recv", body)]));
    let mut host = MemoryHost::new(Method::Recv);
    let mut ctx = Ctx::new(&mut host, loaded.instance());
    let (action, _) = finish(loaded.run_suspendable(Method::Recv, &mut ctx));
    assert_eq!(action, Action::Fail);
    assert_eq!(host.journal, ["Req H0: \"2\"", "fail Internal error: the module panicked"]);
}

fn url(i: usize) -> String {
    format!("/some/long/path/{i}")
}

fn chain(conditions: usize) -> Stmt {
    let both = |i| {
        vec![compare(CompareOp::Eq, header(1), text(&url(i))), compare(CompareOp::Ne, header(2), header(3))]
    };
    let arm = |i| (e(Type::Bool, ExprKind::And(both(i))), vec![act(Action::Pass)]);
    Stmt::If { arms: (0..conditions).map(arm).collect(), otherwise: vec![] }
}

/// Each comparison takes room in the frame of its sub, and the pieces of a long `if` call each other.
#[test]
fn a_long_chain_of_conditions_has_a_stack_that_fits() {
    let loaded =
        load(program(vec![sub("vcl_recv", vec![waits(1), chain(9000), waits(2), act(Action::Hash)])]));
    let short = self::loaded();
    for (value, wanted) in [(url(9000), Action::Hash), (url(8999), Action::Pass), (url(0), Action::Pass)] {
        let mut host = MemoryHost::new(Method::Recv).with_header(HttpId::Req, "H1", &value);
        let mut ctx = Ctx::new(&mut host, loaded.instance());
        assert_eq!(finish(loaded.run_suspendable(Method::Recv, &mut ctx)).0, wanted);
        // The stacks of programs that need less are not used for it.
        let mut host = MemoryHost::new(Method::Recv);
        let mut ctx = Ctx::new(&mut host, short.instance());
        assert_eq!(finish(short.run_suspendable(Method::Recv, &mut ctx)).0, Action::Hash);
    }
}

#[test]
fn a_chain_of_conditions_whose_frames_a_thread_cannot_hold_is_refused() {
    let program = program(vec![sub("vcl_recv", vec![chain(30_000), act(Action::Hash)])]);
    let instance = Instance::new("test", program, module::MODULES, true).expect("the program is valid");
    let fault = lacquer_vcl_native::compile(instance).err().expect("it is too long");
    assert!(fault.starts_with("Sub vcl_recv needs ") && fault.contains("at most 1024 kB"), "{fault}");
}
