//! The connection to the worker before or after this one, while both serve requests: each sends the purges and bans of
//! its users to the other, and answers a user when the other has applied them.
//!
//! A thread sends and another one receives. When the connection ends, because the other worker has ended, nobody waits
//! for it.

use std::collections::HashMap;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Weak};

use lacquer_cache::bans::BanSpec;
use lacquer_cache::invalidation::{
    Action, Arrival, Hold, Invalidation, InvalidationListener, Purge, Reason, Source, Ticket,
};
use lacquer_cli::link;
use lacquer_cli::peer::{PeerAction, PeerEvent, PeerMessage, PeerPurge};
use lacquer_engine::Shared;
use parking_lot::Mutex;

const REASONS: [Reason; 5] =
    [Reason::PurgeAction, Reason::PurgeModule, Reason::Tags, Reason::BanCommand, Reason::BanFunction];

/// The connection to the other worker, if there is one.
#[derive(Clone, Default)]
pub struct Peers(Arc<State>);

#[derive(Default)]
struct State {
    is_open: AtomicBool,
    link: Mutex<Option<Link>>,
}

struct Link {
    queue: Sender<PeerMessage>,
    /// The answers that wait for the other worker.
    waiting: HashMap<u64, Hold>,
    last_id: u64,
}

impl InvalidationListener for Peers {
    fn invalidated(&self, event: &Invalidation, arrival: Arrival, ticket: &mut Ticket) {
        if arrival != Arrival::Local || !self.0.is_open.load(Ordering::Acquire) {
            return;
        }
        let mut link = self.0.link.lock();
        if let Some(link) = &mut *link {
            link.last_id += 1;
            let message = PeerMessage::Invalidate { id: link.last_id, event: encode(event) };
            if link.queue.send(message).is_ok() {
                link.waiting.insert(link.last_id, ticket.hold());
            }
        }
    }
}

impl Peers {
    /// Begins to exchange invalidations over a socket, or continues after a [`pause`](Self::pause).
    pub fn open(&self, shared: &Arc<Shared>, socket: UnixStream) -> Result<(), String> {
        let fault = |e| format!("cannot connect to the other worker: {e}");
        let (queue, messages) = channel();
        {
            let mut link = self.0.link.lock();
            let exists = link.is_some();
            link.get_or_insert_with(|| Link { queue: queue.clone(), waiting: HashMap::new(), last_id: 0 });
            self.0.is_open.store(true, Ordering::Release);
            if exists {
                return Ok(());
            }
        }
        let sending = socket.try_clone().map_err(fault)?;
        let spawn = |name: &str, work: Box<dyn FnOnce() + Send>| {
            std::thread::Builder::new().name(name.to_owned()).spawn(move || {
                lacquer_system::prepare_thread();
                work();
            })
        };
        spawn("peer-send", Box::new(move || send(sending, &messages))).map_err(fault)?;
        let (peers, shared) = (self.clone(), Arc::downgrade(shared));
        spawn("peer-receive", Box::new(move || peers.receive(socket, &queue, &shared))).map_err(fault)?;
        Ok(())
    }

    /// Stops the exchange, because the other worker failed to start: nobody waits for it. Another one may follow, on the
    /// same socket.
    pub fn pause(&self) {
        self.0.is_open.store(false, Ordering::Release);
        let waiting = self.0.link.lock().as_mut().map(|link| std::mem::take(&mut link.waiting));
        drop(waiting);
    }

    /// Ends the exchange: nobody waits for the other worker anymore.
    fn close(&self) {
        self.0.is_open.store(false, Ordering::Release);
        // Holds wake tasks when they are dropped, which happens without the lock.
        let link = self.0.link.lock().take();
        drop(link);
    }

    fn receive(&self, mut socket: UnixStream, queue: &Sender<PeerMessage>, shared: &Weak<Shared>) {
        while let Ok(message) = link::receive(&mut socket) {
            match message {
                PeerMessage::Applied { id } => {
                    let hold = self.0.link.lock().as_mut().and_then(|link| link.waiting.remove(&id));
                    drop(hold);
                }
                PeerMessage::Invalidate { id, event } => {
                    if let (Some(shared), Some(event)) = (shared.upgrade(), decode(event)) {
                        apply(&shared, event);
                    }
                    if queue.send(PeerMessage::Applied { id }).is_err() {
                        break;
                    }
                }
            }
        }
        self.close();
    }
}

fn send(mut socket: UnixStream, messages: &Receiver<PeerMessage>) {
    while let Ok(message) = messages.recv() {
        if link::send(&mut socket, &message).is_err() {
            return;
        }
    }
}

/// Applies an invalidation, and waits until disks have recorded it.
fn apply(shared: &Shared, event: Invalidation) {
    let cache = shared.cache();
    let mut purging = cache.invalidate(event, Arrival::Peer);
    let ticket = purging.ticket();
    purging.finish(cache);
    ticket.wait();
}

fn encode(event: &Invalidation) -> PeerEvent {
    let effect = |purge: &Purge| match *purge {
        Purge::Hard => PeerPurge::Hard,
        Purge::Soft { ttl, grace, keep } => PeerPurge::Soft { ttl, grace, keep },
    };
    let action = match event.action() {
        Action::PurgeKey { digest, purge } => PeerAction::Key { digest: *digest, purge: effect(purge) },
        Action::PurgeTags { tags, purge } => {
            PeerAction::Tags { tags: tags.iter().map(|tag| tag.to_vec()).collect(), purge: effect(purge) }
        }
        Action::Ban(spec) => PeerAction::Ban { words: spec.words().to_vec() },
    };
    let reason = REASONS.iter().position(|reason| *reason == event.why()).unwrap_or_default();
    PeerEvent { action, when: event.when(), reason: reason as u8 }
}

/// Returns the invalidation, or `None` if this worker does not support its conditions.
fn decode(event: PeerEvent) -> Option<Invalidation> {
    let effect = |purge| match purge {
        PeerPurge::Hard => Purge::Hard,
        PeerPurge::Soft { ttl, grace, keep } => Purge::Soft { ttl, grace, keep },
    };
    let action = match event.action {
        PeerAction::Key { digest, purge } => Action::PurgeKey { digest, purge: effect(purge) },
        PeerAction::Tags { tags, purge } => {
            let tags = tags.into_iter().map(Vec::into_boxed_slice).collect();
            Action::PurgeTags { tags, purge: effect(purge) }
        }
        PeerAction::Ban { words } => Action::Ban(BanSpec::from_words(&words).ok()?),
    };
    let why = *REASONS.get(usize::from(event.reason))?;
    // The numbers of transactions are those of the other worker.
    Some(Invalidation::new(action, event.when, why, Source::Management))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalidations_are_decoded_as_sent() {
        let ban = BanSpec::from_words(&[&b"obj.http.a"[..], b"~", b"b\xe9"]).expect("the ban is valid");
        let soft = Purge::Soft { ttl: 2.0, grace: Some(1.0), keep: None };
        let actions = [
            Action::PurgeKey { digest: [3; 32], purge: Purge::Hard },
            Action::PurgeTags { tags: vec![Box::from(&b"t"[..])], purge: soft },
            Action::Ban(ban),
        ];
        for (action, why) in actions.into_iter().zip(REASONS) {
            let event = Invalidation::new(action, 5.0, why, Source::Management);
            assert_eq!(decode(encode(&event)), Some(event));
        }
        let action = PeerAction::Ban { words: vec!["nonsense".into()] };
        assert_eq!(decode(PeerEvent { action, when: 0.0, reason: 0 }), None);
        let action = PeerAction::Ban { words: vec!["req.url".into(), "==".into(), "/".into()] };
        assert_eq!(decode(PeerEvent { action, when: 0.0, reason: 99 }), None);
    }
}
