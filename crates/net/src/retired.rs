//! Connections that carry no further request. They are watched for a while before they are closed. Bytes that arrive
//! in that time show that the responses were shifted, and that the objects received over the connection must leave
//! the cache.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use lacquer_sources::clock::Instant;

use crate::connection::Connection;
use crate::peek::Peeked;
use crate::record::Received;

/// The maximum number of these connections for one origin on one reactor. A further one replaces the oldest.
const MOST: usize = 256;

/// The retired connections of one origin, oldest first.
#[derive(Default)]
pub(crate) struct Retired(VecDeque<Watched>);

struct Watched {
    connection: Box<Connection>,
    until: Instant,
}

/// The result of checking all of them.
#[derive(Default)]
pub(crate) struct Swept {
    pub closed: u64,
    /// The connections on which bytes arrived, and these bytes.
    pub surplus: Vec<(Box<Connection>, Vec<u8>)>,
    /// Objects of connections that the origin closed before it had read all requests. It has sent fewer responses
    /// than were received here.
    pub unproven: Vec<Received>,
}

impl Retired {
    pub(crate) fn add(&mut self, mut connection: Box<Connection>, until: Instant) {
        if self.0.len() >= MOST
            && let Some(first) = self.0.pop_front()
        {
            first.connection.tx.reset();
        }
        connection.record.retire();
        self.0.push_back(Watched { connection, until });
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Checks each connection and closes those whose time has passed. The task of `cx` is woken when something
    /// arrives on one of the others.
    pub(crate) fn sweep(&mut self, now: Instant, cx: &mut Context<'_>) -> Swept {
        let mut swept = Swept::default();
        for watched in std::mem::take(&mut self.0) {
            match watched.connection.rx.poll_peek(cx) {
                Poll::Pending | Poll::Ready(Peeked::Quiet) if now < watched.until => {
                    self.0.push_back(watched);
                    continue;
                }
                Poll::Pending | Poll::Ready(Peeked::Quiet) => watched.connection.tx.reset(),
                Poll::Ready(Peeked::Closed) => {}
                Poll::Ready(Peeked::Broken) => swept.unproven.extend(watched.connection.record.unproven()),
                Poll::Ready(Peeked::Bytes(sample)) => swept.surplus.push((watched.connection, sample)),
            }
            swept.closed += 1;
        }
        swept
    }
}
