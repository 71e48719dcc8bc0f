//! Requests of VCL: each belongs to a client object and has a name within its task.

use std::collections::HashMap;
use std::sync::Arc;

use bytes::Bytes;
use hyper::header::HeaderMap;
use lacquer_vcl::types::HttpId;
use lacquer_vcl_runtime::{Args, Ctx, HeaderEdit, ModuleError, Value};
use reqwest::Method;
use tokio::sync::oneshot;

use super::client::{Client, text_of};
use crate::local_server;
use crate::support::{CallResult, DONE, is_backend_side, shown, text};

/// The maximum length of a response body.
const LONGEST_BODY: usize = 16 << 20;
/// The maximum number of requests of one task.
const MOST_REQUESTS: usize = 1000;

#[derive(Default)]
struct Requests(HashMap<(usize, Vec<u8>), State>);

enum State {
    New(Request),
    Sent(oneshot::Receiver<Outcome>),
    Done(Arc<Outcome>),
}

type Outcome = Result<Response, String>;

struct Request {
    url: String,
    method: Vec<u8>,
    fields: Vec<(Vec<u8>, Vec<u8>)>,
    body: Option<Vec<u8>>,
}

struct Response {
    status: u16,
    headers: HeaderMap,
    body: Bytes,
}

fn key(args: &Args<'_>) -> Result<(usize, Vec<u8>), ModuleError> {
    let client = std::ptr::from_ref(args.this::<Client>()?) as usize;
    Ok((client, args.str(0).unwrap_or_default().to_vec()))
}

fn missing(args: &Args<'_>) -> ModuleError {
    ModuleError(format!("reqwest: request \"{}\" isn't initialized", shown(args.str(0))))
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

/// Sends a request that was not sent yet. A second call has no effect.
fn start(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<(), ModuleError> {
    let client = args.this::<Client>()?.http.clone();
    let key = key(args)?;
    let requests = ctx.task::<Requests>(0);
    match requests.0.remove(&key) {
        None => Err(missing(args)),
        Some(State::New(request)) => {
            let (done, outcome) = oneshot::channel();
            let runtime = local_server::runtime()?;
            // The request is sent even if VCL does not ask for the response.
            runtime.spawn(async move {
                let _ = done.send(exchange(client, request).await);
            });
            requests.0.insert(key, State::Sent(outcome));
            Ok(())
        }
        Some(other) => {
            requests.0.insert(key, other);
            Ok(())
        }
    }
}

async fn exchange(client: reqwest::Client, request: Request) -> Outcome {
    let method = Method::from_bytes(&request.method).map_err(|error| text_of(&error))?;
    let mut builder = client.request(method, request.url);
    for (name, value) in request.fields {
        builder = builder.header(name, value);
    }
    if let Some(body) = request.body {
        builder = builder.body(body);
    }
    let mut response = builder.send().await.map_err(|error| text_of(&error))?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let mut body = Vec::new();
    while let Some(part) = response.chunk().await.map_err(|error| text_of(&error))? {
        if body.len() + part.len() > LONGEST_BODY {
            return Err(format!("the response body has more than {LONGEST_BODY} bytes"));
        }
        body.extend_from_slice(&part);
    }
    Ok(Response { status, headers, body: body.into() })
}

/// Returns the outcome of a request. Sends it if necessary, and waits for the response.
fn outcome(ctx: &mut Ctx<'_>, args: &Args<'_>) -> Result<Arc<Outcome>, ModuleError> {
    start(ctx, args)?;
    let key = key(args)?;
    let requests = ctx.task::<Requests>(0);
    let outcome = match requests.0.remove(&key) {
        Some(State::Done(outcome)) => outcome,
        Some(State::Sent(outcome)) => {
            let outcome = if ctx.can_wait() {
                ctx.block_on(Box::pin(outcome))?
            } else {
                outcome.blocking_recv()
            };
            Arc::new(outcome.unwrap_or_else(|_| Err("the request was given up".to_owned())))
        }
        _ => return Err(missing(args)),
    };
    ctx.task::<Requests>(0).0.insert(key, State::Done(outcome.clone()));
    Ok(outcome)
}

pub(super) fn status<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let outcome = outcome(ctx, args)?;
    Ok(Value::Int((*outcome).as_ref().map_or(0, |response| response.status.into())))
}

pub(super) fn header<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let outcome = outcome(ctx, args)?;
    let Ok(response) = &*outcome else { return Ok(Value::Str(None)) };
    let name = shown(args.str(1));
    let mut values = response.headers.get_all(&*name).iter().map(|value| value.as_bytes());
    let Some(first) = values.next() else { return Ok(Value::Str(None)) };
    if !args.is_given(2) {
        return text(ctx, first);
    }
    let separator = args.str(2).unwrap_or_default();
    let joined = values.fold(first.to_vec(), |mut joined, value| {
        joined.extend_from_slice(separator);
        joined.extend_from_slice(value);
        joined
    });
    text(ctx, &joined)
}

pub(super) fn body_as_string<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let outcome = outcome(ctx, args)?;
    let body = (*outcome).as_ref().map_or(&b""[..], |response| &response.body);
    // VCL's strings end at a NUL.
    let end = body.iter().position(|&b| b == 0).unwrap_or(body.len());
    text(ctx, &body[..end])
}

pub(super) fn error<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    match &*outcome(ctx, args)? {
        Ok(_) => Ok(Value::Str(None)),
        Err(why) => text(ctx, why.as_bytes()),
    }
}
