//! The trailers of a response that is passed on while it arrives.

use std::cell::OnceCell;
use std::rc::Rc;

/// Trailers that follow the body of an object. They are set before the object is complete.
#[derive(Debug)]
pub struct Trailers {
    object: u64,
    lines: OnceCell<Vec<u8>>,
}

impl Trailers {
    /// Creates the place of the trailers of the object with this VXID.
    pub fn of(object: u64) -> Rc<Trailers> {
        Rc::new(Trailers { object, lines: OnceCell::new() })
    }

    /// Returns the VXID of the object.
    pub fn object(&self) -> u64 {
        self.object
    }

    /// Sets the lines, each of which ends with CR LF.
    pub fn set(&self, lines: Vec<u8>) {
        // They are set once, at the end of the response.
        let _ = self.lines.set(lines);
    }

    /// Returns the lines; empty if there are none.
    pub fn lines(&self) -> &[u8] {
        self.lines.get().map_or(&[], Vec::as_slice)
    }
}
