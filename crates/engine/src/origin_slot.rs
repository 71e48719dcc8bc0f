//! A slot among the connections of an origin (`max_connections`). It is a value, so that it is returned however its
//! holder ends, including by a panic.

use std::sync::Arc;

use crate::backends::Origin;

/// A slot for one connection. Dropping it frees the slot for the next request in the queue.
pub struct OriginSlot {
    origin: Arc<Origin>,
    is_counted: bool,
    is_answered: bool,
}

impl OriginSlot {
    /// Takes a slot. Returns `None` if `max_connections` are in use, or if `most` wait for a response.
    pub fn take(origin: &Arc<Origin>, most: u32) -> Option<OriginSlot> {
        origin.enter(most).then(|| OriginSlot {
            origin: origin.clone(),
            is_counted: false,
            is_answered: false,
        })
    }

    pub fn origin(&self) -> &Arc<Origin> {
        &self.origin
    }

    /// Counts the request, and counts the connection as in use until the slot is returned.
    pub fn count_request(&mut self) {
        self.is_counted = true;
        self.origin.count(|c| {
            c.conn.add(1);
            c.req.add(1);
        });
    }

    /// Records that the response has begun, or never will. Another connection may then wait for a response instead.
    pub fn mark_answered(&mut self) {
        if !std::mem::replace(&mut self.is_answered, true) {
            self.origin.count_answered();
        }
    }
}

impl Drop for OriginSlot {
    fn drop(&mut self) {
        if self.is_answered {
            self.origin.uncount_answered();
        }
        if self.is_counted {
            self.origin.count(|c| c.conn.sub(1));
        }
        self.origin.leave();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backends::OriginContext;

    #[test]
    fn a_panic_returns_the_slot() {
        let mut spec = lacquer_vcl::program::Backend::default();
        spec.limits.max_connections = Some(1);
        let context = OriginContext { vcl_name: "boot", ..OriginContext::default() };
        let origin = Arc::new(Origin::new(spec, context));
        let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut slot = OriginSlot::take(&origin, 100).expect("a slot is free");
            slot.count_request();
            assert!(OriginSlot::take(&origin, 100).is_none(), "the only slot is taken");
            panic!("a fault while the slot is held");
        }));
        assert!(taken.is_err());
        assert!(OriginSlot::take(&origin, 100).is_some());
        assert!(OriginSlot::take(&origin, 100).is_some(), "the temporary slot was returned");
    }

    #[test]
    fn answered_slots_do_not_count_against_the_share() {
        let context = OriginContext { vcl_name: "boot", ..OriginContext::default() };
        let origin = Arc::new(Origin::new(lacquer_vcl::program::Backend::default(), context));
        let mut pipe = OriginSlot::take(&origin, 1).expect("a slot is free");
        assert!(OriginSlot::take(&origin, 1).is_none(), "the first slot waits for its response");
        pipe.mark_answered();
        let waiting = OriginSlot::take(&origin, 1).expect("the pipe does not count");
        assert!(OriginSlot::take(&origin, 1).is_none());
        drop(pipe);
        assert!(OriginSlot::take(&origin, 1).is_none(), "the other still waits");
        drop(waiting);
        assert!(OriginSlot::take(&origin, 1).is_some());
    }
}
