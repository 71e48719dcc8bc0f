//! The client's own request, as its included requests see it.

use std::cell::Cell;

use lacquer_http::{Filter, Message, Workspace};

/// A copy of the client's own request, for `req_top` of included requests.
pub struct Top {
    pub ws: Workspace,
    pub http: Message,
    /// The number of includes so far, at all levels.
    includes: Cell<u32>,
}

impl Top {
    pub fn new(request: &Message, memory: &Workspace, most_headers: usize) -> Top {
        let mut ws = Workspace::new(memory.capacity());
        let mut http = Message::new(most_headers);
        if http.copy_from(&mut ws, request, memory, Filter::NOTHING).is_err() {
            http.clear();
        }
        Top { ws, http, includes: Cell::new(0) }
    }

    /// Counts one more include, and returns the new count.
    pub fn count_include(&self) -> u32 {
        let count = self.includes.get().wrapping_add(1);
        self.includes.set(count);
        count
    }
}
