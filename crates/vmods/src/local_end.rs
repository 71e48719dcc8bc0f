//! The end of a connection between the engine and a server within this process.

use std::io;

use tokio::io::AsyncWriteExt;
use tokio::net::UnixStream;

/// Ends the stream, and reads until the engine closes it too. If the connection ended before the engine has sent the
/// whole request, it would lose the response.
pub(crate) async fn discard(stream: &mut UnixStream) -> io::Result<()> {
    stream.shutdown().await?;
    tokio::io::copy(stream, &mut tokio::io::sink()).await.map(drop)
}
