//! A server within this process, which is the backend. The engine connects to it over a pair of sockets, so that a fetch
//! from it is like any other. Its connections are tasks of one thread; files are read on others.

use std::fs::File;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use lacquer_vcl_runtime::{OpenLocal, local_failure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::spawn_blocking;

use super::request::Request;
use super::response::{Response, respond};
use super::root::Root;
use crate::async_thread::AsyncThread;
use crate::local_end;

/// The maximum number of threads that read files.
const MOST_THREADS: usize = 8;
/// The maximum length of a request's head. The engine's workspace limits it before.
const LONGEST_HEAD: usize = 1 << 20;
/// The size of the parts that are read from a file.
const PART: u64 = 64 << 10;

static THREAD: AsyncThread = AsyncThread::new(["vmod-fileserver", "vmod-files"], "files", MOST_THREADS);

/// Returns the function that connects to the server of a folder.
pub(super) fn server(root: Arc<Root>) -> Result<OpenLocal, String> {
    let runtime = THREAD.runtime()?;
    Ok(Arc::new(move || {
        let (near, far) = UnixStream::pair()?;
        let root = root.clone();
        runtime.spawn(async move {
            // The engine notices a failure of its connection itself.
            let _ = serve(far, root).await;
        });
        Ok(near)
    }))
}

/// Serves requests until the engine closes the connection, or one gets no response.
async fn serve(far: UnixStream, root: Arc<Root>) -> io::Result<()> {
    far.set_nonblocking(true)?;
    let mut stream = tokio::net::UnixStream::from_std(far)?;
    let mut input = Vec::new();
    loop {
        let Some(end) = head(&mut stream, &mut input).await? else { return Ok(()) };
        let request = Request::parse(&input[..end]).ok_or(io::ErrorKind::InvalidData)?;
        input.drain(..end);
        let has_body = request.has_body;
        let root = root.clone();
        let is_last = match spawn_blocking(move || respond(&root, &request)).await? {
            Ok(response) => {
                send(&mut stream, response, has_body).await?;
                // A body would be taken for the next request.
                has_body
            }
            Err(reason) => {
                stream.write_all(&local_failure(&reason)).await?;
                true
            }
        };
        if is_last {
            return local_end::discard(&mut stream).await;
        }
    }
}

/// Reads until a head is complete. Returns its length, or `None` at the end of the connection.
async fn head(stream: &mut tokio::net::UnixStream, input: &mut Vec<u8>) -> io::Result<Option<usize>> {
    loop {
        if let Some(at) = input.windows(4).position(|four| four == b"\r\n\r\n") {
            return Ok(Some(at + 4));
        }
        if input.len() > LONGEST_HEAD {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if stream.read_buf(input).await? == 0 {
            return Ok(None);
        }
    }
}

async fn send(stream: &mut tokio::net::UnixStream, response: Response, closes: bool) -> io::Result<()> {
    let mut head = response.head;
    if closes {
        head.extend_from_slice(b"Connection: close\r\n");
    }
    head.extend_from_slice(b"\r\n");
    stream.write_all(&head).await?;
    let Some((mut file, mut left)) = response.body else { return Ok(()) };
    while left > 0 {
        let (back, part) = spawn_blocking(move || part(file, left)).await?;
        file = back;
        let part = part?;
        if part.is_empty() {
            // The file has become shorter: the response must not look complete.
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        left -= part.len() as u64;
        stream.write_all(&part).await?;
    }
    Ok(())
}

/// Reads the next part of a file.
fn part(file: File, left: u64) -> (File, io::Result<Vec<u8>>) {
    use std::io::Read;
    let mut part = Vec::new();
    let read = (&file).take(left.min(PART)).read_to_end(&mut part);
    (file, read.map(|_| part))
}
