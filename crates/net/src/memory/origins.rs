//! The origins of a world, which accept or refuse connections in memory.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::io::Errno;

use super::connection::Near;

/// The outcome of an attempt to connect, and its duration.
pub struct Dialed {
    pub after: Duration,
    pub outcome: io::Result<Near>,
}

type Dial = Box<dyn FnMut() -> Dialed>;

thread_local! {
    /// The origins of this thread's world, by their path or their address and port.
    static ORIGINS: RefCell<BTreeMap<String, Dial>> = const { RefCell::new(BTreeMap::new()) };
    /// The world has no other origins.
    static IS_CLOSED: Cell<bool> = const { Cell::new(false) };
}

/// Refuses this thread's connections to places without an origin.
pub fn refuse_others() {
    IS_CLOSED.set(true);
}

/// Registers an origin that accepts or refuses this thread's connections to a path, or to an address with its port.
pub fn serve_at(path: &str, dial: impl FnMut() -> Dialed + 'static) {
    ORIGINS.with_borrow_mut(|origins| origins.insert(path.to_owned(), Box::new(dial)));
}

/// Removes all origins.
pub fn serve_nothing() {
    drop(ORIGINS.take());
}

/// Connects to the origin at the path or at one of the addresses. Returns `None` if this thread's world has none there
/// and is not closed.
pub(crate) async fn connect(
    path: Option<&str>,
    addresses: [Option<SocketAddr>; 2],
) -> Option<io::Result<Near>> {
    let numeric = addresses.into_iter().flatten().map(|address| address.to_string());
    let mut places = path.map(str::to_owned).into_iter().chain(numeric);
    let dialed = ORIGINS.with_borrow_mut(|origins| places.find_map(|place| Some(origins.get_mut(&place)?())));
    match dialed {
        Some(Dialed { after, outcome }) => {
            tokio::time::sleep(after).await;
            Some(outcome)
        }
        None => IS_CLOSED.get().then(|| Err(Errno::CONNREFUSED.into())),
    }
}
