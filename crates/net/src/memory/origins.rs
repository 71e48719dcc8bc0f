//! The origins of a world, which accept or refuse connections in memory.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

use super::connection::Near;

/// The outcome of an attempt to connect, and its duration.
pub struct Dialed {
    pub after: Duration,
    pub outcome: io::Result<Near>,
}

type Dial = Box<dyn FnMut() -> Dialed>;

thread_local! {
    /// The origins of this thread's world, by the socket path in VCL.
    static ORIGINS: RefCell<BTreeMap<String, Dial>> = const { RefCell::new(BTreeMap::new()) };
}

/// Registers an origin that accepts or refuses this thread's connections to the path.
pub fn serve_at(path: &str, dial: impl FnMut() -> Dialed + 'static) {
    ORIGINS.with_borrow_mut(|origins| origins.insert(path.to_owned(), Box::new(dial)));
}

/// Removes all origins.
pub fn serve_nothing() {
    drop(ORIGINS.take());
}

/// Connects to the origin at the path. Returns `None` if this thread's world has none there.
pub(crate) async fn connect(path: &str) -> Option<io::Result<Near>> {
    let Dialed { after, outcome } = ORIGINS.with_borrow_mut(|origins| Some(origins.get_mut(path)?()))?;
    tokio::time::sleep(after).await;
    Some(outcome)
}
