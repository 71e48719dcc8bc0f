//! A slot among the connections of an origin (`max_connections`). It is a value, so that it is given back
//! however its holder ends, also by a panic.

use std::sync::Arc;

use crate::backends::Origin;

/// A slot for one connection. Dropping it frees the slot for the next in the queue.
pub struct OriginSlot {
    origin: Arc<Origin>,
    is_counted: bool,
    is_answered: bool,
}

impl OriginSlot {
    /// Takes a slot. Returns `None` if `most` are in use.
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

    /// Counts the connection, until the slot is given back, and its request.
    pub fn count_request(&mut self) {
        self.is_counted = true;
        self.origin.count(|c| {
            c.conn.add(1);
            c.req.add(1);
        });
    }

    /// Records that the response has begun, or never will. Another connection may wait for a response instead.
    pub fn answer(&mut self) {
        if !std::mem::replace(&mut self.is_answered, true) {
            self.origin.answer();
        }
    }
}

impl Drop for OriginSlot {
    fn drop(&mut self) {
        if self.is_answered {
            self.origin.forget_answer();
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
    fn a_panic_gives_the_slot_back() {
        let spec = lacquer_vcl::program::Backend { max_connections: Some(1), ..Default::default() };
        let around = OriginContext { vcl_name: "boot", probe: None, via: None, prefer_ipv6: false, now: 0.0 };
        let origin = Arc::new(Origin::new(spec, &around));
        let taken = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let mut slot = OriginSlot::take(&origin, 100).expect("there is one");
            slot.count_request();
            assert!(OriginSlot::take(&origin, 100).is_none(), "it is the only one");
            panic!("a fault while the slot is held");
        }));
        assert!(taken.is_err());
        assert!(OriginSlot::take(&origin, 100).is_some());
        assert!(OriginSlot::take(&origin, 100).is_some(), "and again");
    }

    #[test]
    fn a_share_is_of_those_that_wait() {
        let around = OriginContext { vcl_name: "boot", probe: None, via: None, prefer_ipv6: false, now: 0.0 };
        let origin = Arc::new(Origin::new(lacquer_vcl::program::Backend::default(), &around));
        let mut pipe = OriginSlot::take(&origin, 1).expect("there is one");
        assert!(OriginSlot::take(&origin, 1).is_none(), "the first waits");
        pipe.answer();
        let waits = OriginSlot::take(&origin, 1).expect("the pipe does not count");
        assert!(OriginSlot::take(&origin, 1).is_none());
        drop(pipe);
        assert!(OriginSlot::take(&origin, 1).is_none(), "the other still waits");
        drop(waits);
        assert!(OriginSlot::take(&origin, 1).is_some());
    }
}
