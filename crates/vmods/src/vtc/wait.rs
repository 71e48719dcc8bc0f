//! vtc's functions that wait: for a time, or at one of varnishtest's barriers, which opens by closing the
//! connection.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lacquer_shm::Tag;
use lacquer_vcl_runtime::{Args, Ctx, ModuleError};
use tokio::io::AsyncReadExt;

use crate::standard::parse_address;
use crate::support::{CallResult, DONE, log, shown};

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or(Duration::ZERO)
}

pub fn sleep<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let time = duration(args.real(0));
    if ctx.can_wait() {
        ctx.block_on(Box::pin(tokio::time::sleep(time)))?;
    } else {
        std::thread::sleep(time);
    }
    DONE
}

pub fn barrier_sync<'a>(ctx: &mut Ctx<'a>, args: &Args<'a>) -> CallResult<'a> {
    let text = shown(args.str(0)).into_owned();
    log(ctx, Tag::Debug, format!("barrier_sync(\"{text}\")"));
    let address = parse_address(&text, "", false);
    let address = address.ok_or_else(|| format!("Barrier connection failed: {text} is not an address"))?;
    let timeout = Some(duration(args.real(1))).filter(|t| !t.is_zero());
    if ctx.can_wait() {
        ctx.block_on(Box::pin(wait_at(address, timeout)))??;
    } else {
        block_at(address, timeout)?;
    }
    DONE
}

fn refused(error: &std::io::Error) -> ModuleError {
    ModuleError(format!("Barrier connection failed: {error}"))
}

fn unread(error: &std::io::Error) -> ModuleError {
    let number = error.raw_os_error().unwrap_or(0);
    ModuleError(format!("Barrier read failed: {error} (errno={number})"))
}

fn opened(bytes: usize) -> Result<(), ModuleError> {
    if bytes == 0 { Ok(()) } else { Err(ModuleError(format!("Barrier unexpected data ({bytes}B)"))) }
}

async fn wait_at(address: SocketAddr, timeout: Option<Duration>) -> Result<(), ModuleError> {
    let mut stream = tokio::net::TcpStream::connect(address).await.map_err(|e| refused(&e))?;
    let mut buffer = [0; 32];
    let read = stream.read(&mut buffer);
    let result = match timeout {
        None => read.await,
        Some(timeout) => match tokio::time::timeout(timeout, read).await {
            Ok(result) => result,
            Err(_) => Err(std::io::ErrorKind::TimedOut.into()),
        },
    };
    opened(result.map_err(|e| unread(&e))?)
}

fn block_at(address: SocketAddr, timeout: Option<Duration>) -> Result<(), ModuleError> {
    let mut stream = TcpStream::connect(address).map_err(|e| refused(&e))?;
    stream.set_read_timeout(timeout).map_err(|e| unread(&e))?;
    opened(stream.read(&mut [0; 32]).map_err(|e| unread(&e))?)
}
