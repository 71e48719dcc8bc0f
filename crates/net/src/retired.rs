//! Connections that carry no further request. They are watched for a while before they are closed: bytes that come
//! meanwhile show that the responses on them were shifted, and that objects which came over them must leave the cache.

use std::collections::VecDeque;
use std::task::{Context, Poll};

use lacquer_sources::clock::Instant;

use crate::connection::Connection;
use crate::peek::Peeked;
use crate::record::Received;

/// The largest number of these connections for one origin on one reactor. One more takes the place of the first.
const MOST: usize = 256;

/// The connections of one origin, in the order in which they were retired.
#[derive(Default)]
pub(crate) struct Retired(VecDeque<Watched>);

struct Watched {
    connection: Connection,
    until: Instant,
}

/// The result of a look at all of them.
#[derive(Default)]
pub(crate) struct Seen {
    pub closed: u64,
    /// The connections on which bytes came, and these bytes.
    pub surplus: Vec<(Connection, Vec<u8>)>,
    /// Objects of connections that the origin closed before it had read all requests. It has answered fewer requests
    /// than were answered here.
    pub doubtful: Vec<Received>,
}

impl Retired {
    pub(crate) fn add(&mut self, mut connection: Connection, until: Instant) {
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

    /// Looks at each connection and closes those whose time is over. The task of `cx` is woken when something arrives on
    /// one of the others.
    pub(crate) fn look(&mut self, now: Instant, cx: &mut Context<'_>) -> Seen {
        let mut seen = Seen::default();
        for watched in std::mem::take(&mut self.0) {
            match watched.connection.rx.poll_peek(cx) {
                Poll::Pending | Poll::Ready(Peeked::Quiet) if now < watched.until => {
                    self.0.push_back(watched);
                    continue;
                }
                Poll::Pending | Poll::Ready(Peeked::Quiet) => watched.connection.tx.reset(),
                Poll::Ready(Peeked::Closed) => {}
                Poll::Ready(Peeked::Broken) => seen.doubtful.extend(watched.connection.record.unproven()),
                Poll::Ready(Peeked::Bytes(sample)) => seen.surplus.push((watched.connection, sample)),
            }
            seen.closed += 1;
        }
        seen
    }
}
