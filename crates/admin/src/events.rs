//! Streams of server-sent events.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::{mpsc, watch};
use tokio::time::{MissedTickBehavior, interval};

use crate::live_log::Subscription;

/// Time between two comments, by which proxies and clients see that a stream lives.
const COMMENT: Duration = Duration::from_secs(15);
/// Time between two looks whether requests were dropped.
const LOOK: Duration = Duration::from_secs(1);
/// Events that are written and not sent yet.
const BUFFER: usize = 2;

/// Returns the events of a stream. A client that does not read delays nothing: of snapshots it gets the latest.
pub fn stream(
    snapshots: watch::Receiver<Bytes>,
    lists: watch::Receiver<Bytes>,
    log: Option<Subscription>,
) -> mpsc::Receiver<Bytes> {
    let (sender, events) = mpsc::channel(BUFFER);
    tokio::spawn(async move {
        // The client has gone.
        let _ = pump(&sender, snapshots, lists, log).await;
    });
    events
}

type Gone = mpsc::error::SendError<Bytes>;

async fn pump(
    to: &mpsc::Sender<Bytes>,
    mut snapshots: watch::Receiver<Bytes>,
    mut lists: watch::Receiver<Bytes>,
    mut log: Option<Subscription>,
) -> Result<(), Gone> {
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut reported, mut looks) = (0, 0);
    loop {
        tokio::select! {
            changed = snapshots.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let json = snapshots.borrow_and_update().clone();
                to.send(event("snapshot", &json)).await?;
            }
            changed = lists.changed() => {
                if changed.is_err() {
                    return Ok(());
                }
                let json = lists.borrow_and_update().clone();
                to.send(event("lists", &json)).await?;
            }
            line = next(&mut log) => to.send(event("log", &line)).await?,
            _ = look.tick() => {
                let dropped = log.as_ref().map_or(0, |log| log.dropped.load(Ordering::Relaxed));
                if dropped > reported {
                    reported = dropped;
                    to.send(event("dropped", format!("{{\"count\":{dropped}}}").as_bytes())).await?;
                }
                if looks % COMMENT.as_secs() == 0 {
                    to.send(Bytes::from_static(b": the stream lives\n\n")).await?;
                }
                looks += 1;
            }
            () = to.closed() => return Ok(()),
        }
    }
}

/// Returns the next line of the log, or waits forever if the stream has none.
async fn next(log: &mut Option<Subscription>) -> Bytes {
    let line = match log {
        Some(log) => log.lines.recv().await,
        None => None,
    };
    match line {
        Some(line) => line,
        None => std::future::pending().await,
    }
}

/// JSON has no line feeds, so it is one line of data.
fn event(name: &str, json: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(json.len() + name.len() + 20);
    for part in [b"event: ", name.as_bytes(), b"\ndata: ", json, b"\n\n"] {
        bytes.extend_from_slice(part);
    }
    bytes.into()
}
