//! The place of connections in memory in builds without the feature `memory`: types that have no values, so that the
//! compiler removes their branches.

use std::convert::Infallible;
use std::future::Pending;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::task::{Context, Poll};

use crate::file_part::FilePart;
use crate::negotiated::Negotiated;
use crate::peek::{Peeked, PeerState};

pub struct Near(Infallible);

pub struct Rx(Infallible);

pub struct Tx(Infallible);

/// Declares methods that cannot be called.
macro_rules! uncallable {
    ($($name:ident(&self $(, $arg:ident: $type:ty)*) -> $result:ty;)*) => {
        $(pub(crate) fn $name(&self $(, $arg: $type)*) -> $result {
            match self.0 {}
        })*
    };
}

/// Gives a type a descriptor that cannot be taken.
macro_rules! impl_as_fd {
    ($($end:ident)*) => {
        $(impl AsFd for $end {
            fn as_fd(&self) -> BorrowedFd<'_> {
                match self.0 {}
            }
        })*
    };
}

impl_as_fd! { Near Rx Tx }

impl Near {
    uncallable! {
        read(&self, _buf: &mut [u8]) -> io::Result<usize>;
        poll_readable(&self, _cx: &Context<'_>) -> Poll<io::Result<()>>;
        write_all(&self, _bytes: &[u8]) -> Pending<io::Result<()>>;
        local_addr(&self) -> SocketAddr;
        peer_addr(&self) -> SocketAddr;
        negotiated(&self) -> Negotiated;
    }

    pub(crate) fn split(self) -> (Rx, Tx) {
        match self.0 {}
    }
}

impl Rx {
    uncallable! {
        read(&self, _buf: &mut [u8]) -> io::Result<usize>;
        poll_readable(&self, _cx: &Context<'_>) -> Poll<io::Result<()>>;
        peek(&self) -> Peeked;
    }

    pub(crate) fn reunite(self, _tx: Tx) -> Option<Near> {
        match self.0 {}
    }
}

impl Tx {
    uncallable! {
        write(&self, _bytes: &[u8]) -> io::Result<usize>;
        sends_files(&self) -> bool;
        send_file(&self, _part: &mut impl FilePart) -> io::Result<usize>;
        write_vectored(&self, _parts: &[IoSlice<'_>]) -> io::Result<usize>;
        poll_writable(&self, _cx: &Context<'_>) -> Poll<io::Result<()>>;
        held(&self) -> usize;
        try_flush(&self) -> io::Result<()>;
        poll_flush(&self, _cx: &Context<'_>) -> Poll<io::Result<()>>;
        poll_finish(&self, _cx: &Context<'_>) -> Poll<io::Result<()>>;
        peer(&self) -> PeerState;
        peer_shut_down(&self) -> Pending<()>;
        broken(&self) -> Pending<()>;
        shutdown(&self) -> ();
        close_by_reset(&self) -> ();
    }

    pub(crate) fn forget(self) {
        match self.0 {}
    }
}
