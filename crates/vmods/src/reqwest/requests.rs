//! Requests of VCL: each belongs to a client object and has a name within its task.

use std::collections::HashMap;
use std::sync::Arc;

use lacquer_vcl::types::HttpId;
use lacquer_vcl_runtime::{Args, Ctx, HeaderEdit, ModuleError, Value};
use tokio::sync::oneshot;

use super::client::Client;
use super::exchange::{Outcome, Request, exchange};
use super::server;
use crate::support::{CallResult, DONE, is_backend_side, shown, text};

/// The maximum number of requests of one task.
const MOST_REQUESTS: usize = 1000;

/// The requests of a task, by the address of their client and their name.
#[derive(Default)]
struct Requests(HashMap<(usize, Vec<u8>), State>);

enum State {
    New(Request),
    Sent(oneshot::Receiver<Outcome>),
    Done(Arc<Outcome>),
}

fn key(args: &Args<'_>) -> Result<(usize, Vec<u8>), ModuleError> {
    let client = std::ptr::from_ref(args.this::<Client>()?) as usize;
    Ok((client, args.str(0).unwrap_or_default().to_vec()))
}

fn missing(args: &Args<'_>) -> ModuleError {
    let (name, request) = (args.object_name, shown(args.str(0)));
    ModuleError(format!("reqwest: {name} has no request \"{request}\" that was initialized and not sent"))
}

/// Returns a request that was not sent yet.
fn unsent<'c>(ctx: &'c mut Ctx<'_>, args: &Args<'_>) -> Result<&'c mut Request, ModuleError> {
    let key = key(args)?;
    match ctx.task::<Requests>(0).0.get_mut(&key) {
        Some(State::New(request)) => Ok(request),
        _ => Err(missing(args)),
    }
}

pub(super) fn init<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let request = Request {
        url: shown(args.str(1)).into_owned(),
        method: args.str(2).unwrap_or_default().to_vec(),
        fields: Vec::new(),
        body: None,
    };
    let key = key(args)?;
    let requests = ctx.task::<Requests>(0);
    if requests.0.len() >= MOST_REQUESTS {
        return Err(format!("reqwest: a task may have {MOST_REQUESTS} requests").into());
    }
    requests.0.insert(key, State::New(request));
    DONE
}

pub(super) fn set_header<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let field = |i| args.str(i).unwrap_or_default().to_vec();
    let (name, value) = (field(1), field(2));
    unsent(ctx, args)?.fields.push((name, value));
    DONE
}

pub(super) fn set_body<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    unsent(ctx, args)?.body = Some(args.str(1).unwrap_or_default().to_vec());
    DONE
}

pub(super) fn copy_headers_to_req<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let http = if is_backend_side(ctx.method()) { HttpId::Bereq } else { HttpId::Req };
    let mut fields = Vec::new();
    ctx.host.edit_headers(http, &mut |line| {
        if let Some(colon) = line.iter().position(|&b| b == b':') {
            fields.push((line[..colon].to_vec(), line[colon + 1..].trim_ascii().to_vec()));
        }
        HeaderEdit::Keep
    })?;
    unsent(ctx, args)?.fields.append(&mut fields);
    DONE
}

pub(super) fn send<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    unsent(ctx, args)?;
    start(ctx, args)?;
    DONE
}

/// Sends a request, unless it was sent before.
fn start(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), ModuleError> {
    let http = args.this::<Client>()?.http.clone();
    let key = key(args)?;
    let requests = ctx.task::<Requests>(0);
    let state = match requests.0.remove(&key) {
        None => return Err(missing(args)),
        Some(State::New(request)) => {
            let (done, outcome) = oneshot::channel();
            // The request is sent even if VCL does not ask for the response.
            server::THREAD.runtime()?.spawn(async move {
                let _ = done.send(exchange(http, request).await);
            });
            State::Sent(outcome)
        }
        Some(sent) => sent,
    };
    requests.0.insert(key, state);
    Ok(())
}

/// Returns the outcome of a request. Sends it if necessary, and waits for the response.
fn outcome(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<Arc<Outcome>, ModuleError> {
    start(ctx, args)?;
    let key = key(args)?;
    let outcome = match ctx.task::<Requests>(0).0.remove(&key) {
        Some(State::Done(outcome)) => outcome,
        Some(State::Sent(outcome)) => {
            let outcome = if ctx.can_wait() { ctx.block_on(Box::pin(outcome))? } else { blocking(outcome) };
            Arc::new(outcome.unwrap_or_else(|_| Err("the request was given up".to_owned())))
        }
        Some(State::New(_)) | None => return Err(missing(args)),
    };
    ctx.task::<Requests>(0).0.insert(key, State::Done(outcome.clone()));
    Ok(outcome)
}

type Received = Result<Outcome, oneshot::error::RecvError>;

/// Waits on another thread, because this one may have a runtime of its own (vcl_init).
fn blocking(outcome: oneshot::Receiver<Outcome>) -> Received {
    let waited = std::thread::scope(|scope| scope.spawn(|| outcome.blocking_recv()).join());
    waited.unwrap_or_else(|_| Ok(Err("the request was given up".to_owned())))
}

pub(super) fn status<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let outcome = outcome(ctx, args)?;
    Ok(Value::Int(outcome.as_ref().as_ref().map_or(0, |response| response.status.into())))
}

pub(super) fn header<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let outcome = outcome(ctx, args)?;
    let Ok(response) = &*outcome else { return Ok(Value::Str(None)) };
    let name = shown(args.str(1));
    let values = response.headers.get_all(&*name).iter();
    let values: Vec<&[u8]> = values.map(hyper::header::HeaderValue::as_bytes).collect();
    match (values.as_slice(), args.is_given(2)) {
        ([], _) => Ok(Value::Str(None)),
        ([first, ..], false) => text(ctx, first),
        (all, true) => text(ctx, &all.join(args.str(2).unwrap_or_default())),
    }
}

pub(super) fn body_as_string<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let outcome = outcome(ctx, args)?;
    let Ok(response) = &*outcome else { return Ok(Value::Str(Some(b""))) };
    // VCL's strings end at a NUL.
    let body = response.body.bytes();
    let end = body.iter().position(|&b| b == 0).unwrap_or(body.len());
    text(ctx, &body[..end])
}

pub(super) fn error<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    match &*outcome(ctx, args)? {
        Ok(_) => Ok(Value::Str(None)),
        Err(why) => text(ctx, why.as_bytes()),
    }
}
