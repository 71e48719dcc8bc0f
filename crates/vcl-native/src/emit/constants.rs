//! Data that compiled code points to. It stays in place when this value is moved.

use std::collections::HashSet;
use std::net::SocketAddr;

use lacquer_vcl_runtime::Blob;

#[derive(Default)]
#[expect(clippy::vec_box, reason = "compiled code knows the addresses, which must not change")]
pub struct Constants {
    texts: HashSet<Box<[u8]>>,
    addresses: Vec<Box<SocketAddr>>,
    blobs: Vec<Box<Blob>>,
}

// SAFETY: the blobs point into `texts`, which is never changed again; all of it is read only.
unsafe impl Send for Constants {}
// SAFETY: as above.
unsafe impl Sync for Constants {}

impl Constants {
    /// The address of a copy of `bytes`; equal ones share a copy. Never null.
    pub fn text(&mut self, bytes: &[u8]) -> usize {
        if let Some(held) = self.texts.get(bytes) {
            return held.as_ptr() as usize;
        }
        let held: Box<[u8]> = bytes.into();
        let at = held.as_ptr() as usize;
        self.texts.insert(held);
        at
    }

    pub fn address(&mut self, address: SocketAddr) -> usize {
        let held = Box::new(address);
        let at = std::ptr::from_ref(held.as_ref()) as usize;
        self.addresses.push(held);
        at
    }

    pub fn blob(&mut self, bytes: &[u8]) -> usize {
        self.text(bytes);
        let held = self.texts.get(bytes).map_or(&b""[..], |t| t);
        let held = Box::new(Blob::new(held, 0));
        let at = std::ptr::from_ref(held.as_ref()) as usize;
        self.blobs.push(held);
        at
    }
}
