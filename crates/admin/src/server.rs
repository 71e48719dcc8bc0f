//! Accepts connections and serves their requests, within the limits of [`crate::limits`].

use std::convert::Infallible;
use std::future::{Future, ready};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::api::App;
use crate::body::{self, Content};
use crate::guard::{Access, Guard};
use crate::limits::{BODY, FIELDS, HEAD, HEAD_TIME, VCL_BODY};
use crate::reply::Reply;
use crate::request::Values;
use crate::routes_table::{Action, find};
use crate::stall::Stall;

/// The pause after an accept that failed for lack of descriptors.
const PAUSE: Duration = Duration::from_millis(100);

/// A listening socket.
pub enum Listener {
    /// With TLS, if it has a certificate.
    Tcp(TcpListener, Option<TlsAcceptor>),
    Unix(UnixListener),
}

/// Accepts connections until the process ends.
pub async fn accept(listener: Listener, guard: Arc<Guard>, app: Arc<App>) {
    loop {
        let accepted = match &listener {
            Listener::Tcp(tcp, tls) => tcp.accept().await.map(|(stream, _)| {
                let _ = stream.set_nodelay(true);
                match tls {
                    Some(tls) => start(tls.accept(Stall::new(stream)), &guard, &app),
                    None => start(ready(Ok(Stall::new(stream))), &guard, &app),
                }
            }),
            Listener::Unix(unix) => {
                unix.accept().await.map(|(stream, _)| start(ready(Ok(Stall::new(stream))), &guard, &app))
            }
        };
        if accepted.is_err() {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Serves a connection in a task of its own, or closes it if there are too many. `opened` returns its
/// stream, after the TLS handshake if there is one.
fn start<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    opened: impl Future<Output = io::Result<S>> + Send + 'static,
    guard: &Arc<Guard>,
    app: &Arc<App>,
) {
    let Some(id) = app.connections.admit() else { return };
    let (guard, own) = (Arc::clone(guard), Arc::clone(app));
    let task = tokio::spawn(async move {
        let ending = Ending(own, id);
        if let Ok(Ok(stream)) = timeout(HEAD_TIME, opened).await {
            // A client that misbehaves has got its answer, or none.
            let _ = serve(stream, id, guard, Arc::clone(&ending.0)).await;
        }
    });
    app.connections.started(id, task.abort_handle());
}

/// Records the end of a connection, also if that is a panic, which ends its task alone.
struct Ending(Arc<App>, u64);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.connections.ended(self.1);
    }
}

fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    id: u64,
    guard: Arc<Guard>,
    app: Arc<App>,
) -> impl Future<Output = io::Result<()>> + Send {
    let service = service_fn(move |request: Request<Incoming>| {
        let (guard, app) = (Arc::clone(&guard), Arc::clone(&app));
        async move { Ok::<Response<Content>, Infallible>(answer(request, id, &guard, &app).await.into_response()) }
    });
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIME).max_buf_size(HEAD).max_headers(FIELDS);
    let connection = builder.serve_connection(TokioIo::new(stream), service);
    async move { connection.await.map_err(io::Error::other) }
}

async fn answer(request: Request<Incoming>, id: u64, guard: &Guard, app: &App) -> Reply {
    let (head, body) = request.into_parts();
    let found = find(head.method.as_str(), head.uri.path());
    // A client without the token does not learn which paths exist.
    let access = found.as_ref().map_or(Access::Token, |found| found.route.access);
    match guard.check(&head.headers, access) {
        Ok(true) => app.connections.is_known(id),
        Ok(false) => {}
        // The body, if there is one, is not read.
        Err(refusal) => return app.refuse(refusal).with("connection", "close"),
    }
    let found = match found {
        Ok(found) => found,
        Err(methods) if methods.is_empty() => return Reply::error(404, "there is no such page"),
        Err(methods) => {
            return Reply::error(405, "the page has no such method").with("allow", methods.join(", "));
        }
    };
    let mut bytes = Vec::new();
    if found.route.has_body() {
        if !is_json(&head.headers) {
            return Reply::error(415, "send the parameters as application/json").with("connection", "close");
        }
        let limit = if found.route.action == Action::VclLoad { VCL_BODY } else { BODY };
        match body::read(body, limit).await {
            Ok(read) => bytes = read,
            Err(unread) => return unread.into(),
        }
    }
    match Values::read(found.route, &found.variables, head.uri.query().unwrap_or_default(), &bytes) {
        Ok(values) => app.act(found.route.action, &values, text(&head.headers, ACCEPT)).await,
        Err(why) => Reply::error(400, &why),
    }
}

fn text(headers: &HeaderMap, name: hyper::header::HeaderName) -> &str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

fn is_json(headers: &HeaderMap) -> bool {
    let media = text(headers, CONTENT_TYPE).split(';').next().unwrap_or_default();
    media.trim().eq_ignore_ascii_case("application/json")
}
