//! The number of connections of each reactor, and the way by which an accepted connection moves to another reactor.
//!
//! The reactor that wakes first accepts all connections that wait. If it kept them, a burst of clients who then stay
//! would occupy one reactor, and the other cores would have nothing to do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use lacquer_backend::Stream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::session::Listener;

/// All reactors of the worker.
pub struct Crew {
    members: Vec<Member>,
}

/// Apart from its neighbours, which other cores write.
#[repr(align(128))]
struct Member {
    connections: AtomicUsize,
    arrivals: UnboundedSender<Arrival>,
}

/// A connection that was accepted, on its way to whoever is to serve it.
pub struct Arrival {
    pub stream: Stream,
    pub listener: Arc<Listener>,
    pub place: Place,
}

/// Counts as one of a reactor's connections for as long as it lives.
pub struct Place {
    crew: Arc<Crew>,
    pub reactor: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.crew.members[self.reactor].connections.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Crew {
    /// So many reactors, and what each is to receive from.
    pub fn new(reactors: usize) -> (Arc<Crew>, Vec<UnboundedReceiver<Arrival>>) {
        let mut ends = Vec::with_capacity(reactors);
        let members = (0..reactors).map(|_| {
            let (arrivals, end) = unbounded_channel();
            ends.push(end);
            Member { connections: AtomicUsize::new(0), arrivals }
        });
        let crew = Crew { members: members.collect() };
        (Arc::new(crew), ends)
    }

    /// Where a connection goes that `own` has accepted: it stays, unless another has clearly less to do.
    pub fn place(self: &Arc<Crew>, own: usize) -> Place {
        let count = |id: usize| self.members[id].connections.load(Ordering::Relaxed);
        let idlest = (0..self.members.len()).min_by_key(|&id| count(id)).unwrap_or(own);
        let least = count(idlest);
        let reactor = if count(own) <= least + 1 + least / 8 { own } else { idlest };
        self.members[reactor].connections.fetch_add(1, Ordering::Relaxed);
        Place { crew: self.clone(), reactor }
    }

    /// Hands a connection to the reactor of its place, which lives as long as the process.
    pub fn send(&self, arrival: Arrival) {
        let _ = self.members[arrival.place.reactor].arrivals.send(arrival);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(crew: &Crew) -> Vec<usize> {
        crew.members.iter().map(|member| member.connections.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn a_burst_that_one_accepts_is_shared() {
        let (crew, _ends) = Crew::new(4);
        let places: Vec<Place> = (0..400).map(|_| crew.place(2)).collect();
        let (least, most) = (counts(&crew).into_iter().min(), counts(&crew).into_iter().max());
        assert!(least >= Some(90) && most <= Some(115), "{:?}", counts(&crew));
        drop(places);
        assert_eq!(counts(&crew), [0; 4]);
    }

    #[test]
    fn what_is_nearly_even_stays_where_it_was_accepted() {
        let (crew, _ends) = Crew::new(2);
        let _kept: Vec<Place> = (0..200).map(|i| crew.place(i % 2)).collect();
        let placed = [0, 0, 0, 1, 1].map(|own| crew.place(own));
        assert_eq!(placed.map(|place| place.reactor), [0, 0, 0, 1, 1]);
    }
}
