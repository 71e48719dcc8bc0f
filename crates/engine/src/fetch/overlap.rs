//! An upload that goes on while the response arrives, in a task of its own.

use std::cell::Cell;
use std::rc::Rc;

use lacquer_http::trailers::RequestTrailers;
use tokio::task::JoinHandle;

/// The numbers of bytes and pieces that were sent, and the trailers.
#[derive(Default)]
pub struct Counts {
    pub bytes: Cell<u64>,
    pub pieces: Cell<u64>,
    pub trailers: Cell<Option<Box<RequestTrailers>>>,
}

/// An upload that a task of its own continues. Dropping it ends the task.
pub struct Overlap {
    task: JoinHandle<()>,
    counts: Rc<Counts>,
}

impl Overlap {
    pub fn new(task: JoinHandle<()>, counts: Rc<Counts>) -> Overlap {
        Overlap { task, counts }
    }

    pub fn counts(&self) -> &Counts {
        &self.counts
    }
}

impl Drop for Overlap {
    fn drop(&mut self) {
        self.task.abort();
    }
}
