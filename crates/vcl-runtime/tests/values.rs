//! Tests that values of a run do not change during later operations of the host, including a rollback. Miri checks the
//! same for their memory.

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::task::{Context, Waker};

use lacquer_http::{Mark, Workspace};
use lacquer_vcl::program::Program;
use lacquer_vcl::types::{HttpId, Method};
use lacquer_vcl::variables_table::Var;
use lacquer_vcl_runtime::{
    Blob, Ctx, Host, HostResult, Instance, LocalFuture, OwnedBlob, PrivateMap, StableValues, Str, Suspend,
    Value,
};

/// A transaction with a workspace like the worker's.
struct Transaction {
    ws: Workspace,
    before: Mark,
    digest: [u8; 4],
    client: SocketAddr,
    privates: PrivateMap,
    /// How many bytes more than it should the workspace hands out.
    surplus: usize,
}

impl Transaction {
    fn new() -> Transaction {
        let ws = Workspace::new(1024);
        let before = ws.mark();
        let client = SocketAddr::from(([192, 0, 2, 1], 80));
        Transaction { ws, before, digest: [1, 2, 3, 4], client, privates: PrivateMap::default(), surplus: 0 }
    }
}

// SAFETY: allocations are filled before they are returned and not written again, a rollback continues in other
// memory, and digest and address do not change.
unsafe impl StableValues for Transaction {}

impl Host for Transaction {
    fn method(&self) -> Method {
        Method::Recv
    }
    fn now(&self) -> f64 {
        0.0
    }
    fn real_now(&self) -> f64 {
        0.0
    }
    fn alloc(&mut self, bytes: usize) -> Option<&mut [u8]> {
        let place = self.ws.alloc(bytes + self.surplus).ok()?;
        Some(self.ws.get_mut(place))
    }
    fn copy(&mut self, bytes: &[u8]) -> Option<&[u8]> {
        let text = self.ws.copy(&[bytes, &vec![0; self.surplus]].concat()).ok()?;
        Some(self.ws.get(text))
    }
    fn get_str(&mut self, _var: Var) -> Option<&[u8]> {
        self.copy(b"/url")
    }
    fn get_ip(&self, _var: Var) -> Option<&SocketAddr> {
        Some(&self.client)
    }
    fn get_blob(&mut self, _var: Var) -> Option<Blob<'_>> {
        Some(Blob::new(&self.digest, 7))
    }
    fn rollback(&mut self, _http: HttpId) -> HostResult<()> {
        self.ws.roll_back(self.before);
        Ok(())
    }
    fn cache_req_body(&mut self, limit: u64) -> HostResult<LocalFuture<'_, i64>> {
        Ok(Box::pin(async move {
            self.copy(b"the body");
            limit as i64
        }))
    }
    fn log(&mut self, _tag: u8, _text: &[u8]) {}
    fn fail(&mut self, _text: &str) {}
    fn task_privates(&mut self) -> &mut PrivateMap {
        &mut self.privates
    }
}

fn instance() -> Instance {
    let program = Program { syntax: 41, ..Program::default() };
    Instance::new("test", program, &[], false).expect("an empty program has nothing to resolve")
}

#[test]
fn values_survive_later_operations_of_the_host() {
    let (mut host, vcl) = (Transaction::new(), instance());
    let mut ctx = Ctx::new(&mut host, &vcl);
    let url = ctx.get_str(Var::ReqUrl).expect("a string");
    let copied = ctx.copy(b"copied").expect("room");
    let parts = [Str::new(url), Str::NULL, Str::new(b"?"), Str::new(copied)];
    let joined = ctx.join(&parts).expect("room");
    let blob = ctx.blob(joined, 5).expect("room");
    let number = ctx.copy_value(0x0102_0304_0506_0708_u64).expect("room");
    let address = ctx.get_ip(Var::ClientIp).expect("an address");
    let placed = ctx.ip(*address).expect("room");
    let digest = ctx.blob_var(Var::ReqHash).expect("a digest");

    ctx.host.rollback(HttpId::Req).expect("a rollback is possible");
    while ctx.try_copy(b"xxxxxxxxxxxxxxxx").is_some() {}

    assert_eq!((url, copied, joined), (&b"/url"[..], &b"copied"[..], &b"/url?copied"[..]));
    assert_eq!((blob.bytes(), blob.kind), (&b"/url?copied"[..], 5));
    assert_eq!((*number, placed), (0x0102_0304_0506_0708, address));
    assert_eq!((digest.bytes(), digest.kind), (&[1, 2, 3, 4][..], 7));
    assert!(ctx.copy_value([0_u64; 4]).is_none() && ctx.join(&parts).is_err(), "no room is left");
}

#[test]
fn a_workspace_that_hands_out_other_lengths_is_refused() {
    let (mut host, vcl) = (Transaction { surplus: 1, ..Transaction::new() }, instance());
    let mut ctx = Ctx::new(&mut host, &vcl);
    let joins = AssertUnwindSafe(|| ctx.join(&[Str::new(b"a"), Str::new(b"b")]).is_ok());
    assert!(catch_unwind(joins).is_err(), "foreign bytes became text of VCL");
    let copies = AssertUnwindSafe(|| ctx.copy(b"copied").is_ok());
    assert!(catch_unwind(copies).is_err(), "foreign bytes became text of VCL");
    let tries = AssertUnwindSafe(|| ctx.try_copy(b"copied").is_some());
    assert!(catch_unwind(tries).is_err(), "foreign bytes became text of VCL");
}

#[test]
fn code_of_another_program_is_refused() {
    unsafe extern "C" fn sub(_: &mut Ctx<'_>) -> u32 {
        0
    }
    let vcl = instance();
    // SAFETY: it is never called.
    assert!(unsafe { vcl.set_code(vec![sub]) }.is_err(), "a program without subs has the code of one");
    assert!(vcl.sub(0).is_none());
}

#[test]
fn values_pass_through_cells() {
    let (mut host, vcl) = (Transaction::new(), instance());
    let mut ctx = Ctx::new(&mut host, &vcl);
    let text = ctx.copy(b"text").expect("room");
    let parts = [Str::new(text), Str::NULL];
    let blob = ctx.blob(b"blob", 3).expect("room");
    for value in [Value::Str(Some(text)), Value::Strands(&parts), Value::Blob(Some(blob)), Value::Str(None)] {
        // SAFETY: the cell was created from a value that is still alive.
        let back = unsafe { Value::from_raw(value.to_raw(&vcl), &vcl) };
        assert_eq!(format!("{value:?}"), format!("{back:?}"));
    }
}

#[test]
fn owned_blobs_can_be_moved_and_shared() {
    let blob = OwnedBlob::new(*b"content", 9);
    let kept: Vec<Value<'_>> = vec![Value::Blob(Some(blob.get())); 2];
    assert!(matches!(kept[1], Value::Blob(Some(blob)) if blob.bytes() == b"content" && blob.kind == 9));
    let moved = Box::new(blob);
    let seen = std::thread::spawn(move || moved.get().bytes().to_vec()).join().expect("no panic");
    assert_eq!(seen, b"content");
}

/// Polls until done without waiting.
struct Busy;

impl Suspend for Busy {
    fn wait(&self, mut work: LocalFuture<'_, ()>) {
        let mut cx = Context::from_waker(Waker::noop());
        while work.as_mut().poll(&mut cx).is_pending() {}
    }
}

#[test]
fn a_run_waits_only_where_it_is_allowed() {
    let (mut host, vcl) = (Transaction::new(), instance());
    let mut ctx = Ctx::new(&mut host, &vcl);
    assert!(ctx.cache_req_body(5).is_err());
    let before = ctx.copy(b"before").expect("room");
    assert!(
        ctx.with_suspend(Rc::new(Busy), |ctx| ctx.cache_req_body(5).is_ok_and(|n| n == 5) && ctx.can_wait())
    );
    assert!(!ctx.can_wait());
    let panics = AssertUnwindSafe(|| ctx.with_suspend(Rc::new(Busy), |_| panic!("on purpose")));
    assert!(catch_unwind(panics).is_err());
    assert!(!ctx.can_wait(), "a panic ends the ability to wait");
    assert_eq!(before, b"before");
}

#[test]
fn kept_bytes_stay_in_place() {
    let vcl = instance();
    let bytes: std::sync::Arc<[u8]> = (*b"kept").into();
    let held = vcl.keep(&bytes);
    drop(bytes);
    for _ in 0..10 {
        vcl.keep(&(*b"others").into());
    }
    assert_eq!(held, b"kept");
}
