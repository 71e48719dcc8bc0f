//! Data that compiled code points to. Its address does not change when this value is moved.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::pin::Pin;

use lacquer_vcl_runtime::OwnedBlob;

#[derive(Default)]
pub struct Constants {
    texts: HashSet<Box<[u8]>>,
    addresses: Vec<Pin<Box<SocketAddr>>>,
    blobs: Vec<Pin<Box<OwnedBlob>>>,
}

impl Constants {
    /// Returns the address of a copy of `bytes`, never null. Equal texts share a copy.
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
        let held = Box::pin(address);
        let at = std::ptr::from_ref(&*held) as usize;
        self.addresses.push(held);
        at
    }

    pub fn blob(&mut self, bytes: &[u8]) -> usize {
        let held = Box::pin(OwnedBlob::new(bytes, 0));
        let at = std::ptr::from_ref(held.get()) as usize;
        self.blobs.push(held);
        at
    }
}
