//! HTTP servers within this process, which are the backends of clients. They run on one thread, as do all requests. The
//! engine connects to them over pairs of sockets, so that a fetch from them is like any other.

use std::future::{Future, poll_fn};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{fmt, io};

use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use lacquer_vcl_runtime::{OpenLocal, local_failure};
use tokio::io::AsyncWriteExt;

use crate::async_thread::AsyncThread;
use crate::local_end;

/// The maximum number of header fields of a request. VCL limits them before.
const MOST_FIELDS: usize = 2048;
/// The maximum number of threads that look up names.
const MOST_THREADS: usize = 16;

pub(super) static THREAD: AsyncThread =
    AsyncThread::new(["vmod-reqwest", "vmod-lookup"], "requests", MOST_THREADS);

/// The reason why a request has no response. The engine gets it instead, so that the fetch fails.
#[derive(Clone, Debug)]
pub(super) struct NoResponse(pub String);

impl fmt::Display for NoResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
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
    let runtime = THREAD.runtime()?;
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

fn locked(failure: &Mutex<Option<String>>) -> MutexGuard<'_, Option<String>> {
    failure.lock().unwrap_or_else(PoisonError::into_inner)
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
    let failure = Mutex::default();
    let service = service_fn(|request| {
        let response = respond(request);
        // Boxed: the connection is taken apart at its end, so that it must not be pinned.
        Box::pin(async {
            let response = response.await;
            if let Err(NoResponse(why)) = &response {
                *locked(&failure) = Some(why.clone());
            }
            response
        })
    });
    let mut connection = builder.serve_connection(far, service);
    let served = poll_fn(|cx| connection.poll_without_shutdown(cx)).await;
    let mut far = connection.into_parts().io.into_inner();
    let failure = locked(&failure).take();
    if let Some(why) = failure {
        far.write_all(&local_failure(&why)).await?;
        return local_end::discard(&mut far).await;
    }
    served.map_err(io::Error::other)
}
