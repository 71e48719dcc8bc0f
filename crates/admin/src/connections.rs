//! The open connections, and the decision which of them makes room for a new one.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use tokio::task::AbortHandle;

use crate::limits::{CONNECTIONS, STRANGERS};

#[derive(Debug)]
struct Entry {
    /// Ends it. `None` until its task exists.
    abort: Option<AbortHandle>,
    /// Its client has not shown a token.
    is_stranger: bool,
}

#[derive(Debug, Default)]
struct Table {
    next: u64,
    open: BTreeMap<u64, Entry>,
    strangers: usize,
}

/// All connections, by the order in which they were accepted.
#[derive(Debug, Default)]
pub struct Connections(Mutex<Table>);

impl Connections {
    /// Admits a new connection. The oldest one without a token is closed if there are too many of those. Returns `None` if
    /// there are too many connections.
    pub fn admit(&self) -> Option<u64> {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.strangers >= STRANGERS {
            let oldest = table.open.iter().find(|(_, entry)| entry.is_stranger).map(|(id, _)| *id);
            if let Some(entry) = oldest.and_then(|id| table.remove(id)) {
                entry.abort.iter().for_each(AbortHandle::abort);
            }
        }
        if table.open.len() >= CONNECTIONS {
            return None;
        }
        let id = table.next;
        table.next += 1;
        table.strangers += 1;
        table.open.insert(id, Entry { abort: None, is_stranger: true });
        Some(id)
    }

    /// Sets the task of a connection.
    pub fn started(&self, id: u64, abort: AbortHandle) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match table.open.get_mut(&id) {
            Some(entry) => entry.abort = Some(abort),
            None => abort.abort(),
        }
    }

    /// Records that the client of a connection has shown a token.
    pub fn is_known(&self, id: u64) {
        let mut table = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if table.open.get_mut(&id).is_some_and(|entry| std::mem::replace(&mut entry.is_stranger, false)) {
            table.strangers -= 1;
        }
    }

    pub fn ended(&self, id: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Returns the number of open connections.
    pub fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).open.len()
    }
}

impl Table {
    fn remove(&mut self, id: u64) -> Option<Entry> {
        let entry = self.open.remove(&id)?;
        self.strangers -= usize::from(entry.is_stranger);
        Some(entry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strangers_replace_each_other_and_nobody_else() {
        let all = Connections::default();
        let known = all.admit().expect("the first one");
        all.is_known(known);
        let ids: Vec<u64> = (0..STRANGERS * 2).filter_map(|_| all.admit()).collect();
        assert_eq!((ids.len(), all.count()), (STRANGERS * 2, STRANGERS + 1));
        all.ended(known);
        all.ended(known);
        assert_eq!(all.count(), STRANGERS);
        for _ in 0..CONNECTIONS {
            if let Some(id) = all.admit() {
                all.is_known(id);
            }
        }
        assert_eq!(all.count(), CONNECTIONS);
    }
}
