//! HTTP servers within this process, which are the backends of clients. They run on one thread, as do all requests. The
//! engine connects to them over pairs of sockets, so that a fetch from them is like any other.

use std::convert::Infallible;
use std::future::Future;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use std::{fmt, io};

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use lacquer_vcl_runtime::OpenLocal;
use tokio::runtime::{Builder, Handle};

/// The maximum number of header fields of a request. VCL limits them before.
const MOST_FIELDS: usize = 2048;
/// The maximum number of threads that look up names.
const MOST_THREADS: usize = 16;

/// Returns the runtime of the thread, which starts at the first call.
pub(super) fn runtime() -> Result<&'static Handle, String> {
    static STARTED: OnceLock<Result<Handle, String>> = OnceLock::new();
    let started = STARTED.get_or_init(|| {
        let mut builder = Builder::new_current_thread();
        let runtime =
            builder.enable_all().max_blocking_threads(MOST_THREADS).thread_name("vmod-lookup").build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        let handle = runtime.handle().clone();
        let serve = move || runtime.block_on(std::future::pending::<Infallible>());
        let thread = std::thread::Builder::new().name("vmod-reqwest".to_owned()).spawn(serve);
        thread.map(|_| handle).map_err(|error| format!("no thread for requests: {error}"))
    });
    started.as_ref().map_err(Clone::clone)
}

/// The failure of a request. The connection is closed without a response, so that the fetch fails too.
#[derive(Debug)]
pub(super) struct NoResponse;

impl fmt::Display for NoResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no response")
    }
}

impl std::error::Error for NoResponse {}

/// Returns the function that connects to a server, which responds to each request with the result of `respond`.
pub(super) fn serve<B, F>(
    respond: impl Fn(Request<Incoming>) -> F + Send + Sync + 'static,
) -> Result<OpenLocal, String>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    F: Future<Output = Result<Response<B>, NoResponse>> + Send + 'static,
{
    let runtime = runtime()?;
    let respond = Arc::new(respond);
    Ok(Arc::new(move || {
        let (near, far) = UnixStream::pair()?;
        let respond = respond.clone();
        runtime.spawn(async move {
            // The engine notices a failure of its connection itself.
            let _ = answer(far, respond).await;
        });
        Ok(near)
    }))
}

async fn answer<B, F>(
    far: UnixStream,
    respond: Arc<impl Fn(Request<Incoming>) -> F + Send + Sync + 'static>,
) -> io::Result<()>
where
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    F: Future<Output = Result<Response<B>, NoResponse>> + Send + 'static,
{
    far.set_nonblocking(true)?;
    let far = TokioIo::new(tokio::net::UnixStream::from_std(far)?);
    let mut builder = http1::Builder::new();
    builder.header_read_timeout(None::<Duration>).max_headers(MOST_FIELDS);
    let served = builder.serve_connection(far, service_fn(|request| respond(request))).await;
    served.map_err(io::Error::other)
}
