//! Parts of an origin's addresses that are compared by their identity.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Weak};

use lacquer_names::Name;

/// A name that several endpoints share. Its owner decides how long it is looked up.
#[derive(Clone)]
pub struct SharedName(pub Weak<Name>);

/// A server within this process. The function opens a connection to it, and must not block.
#[derive(Clone)]
pub struct LocalServer(pub Arc<dyn Fn() -> io::Result<UnixStream> + Send + Sync>);

impl SharedName {
    fn identity(&self) -> usize {
        Weak::as_ptr(&self.0) as usize
    }
}

impl LocalServer {
    fn identity(&self) -> usize {
        Arc::as_ptr(&self.0).cast::<()>() as usize
    }
}

macro_rules! by_identity {
    ($($type:ident)*) => {$(
        impl PartialEq for $type {
            fn eq(&self, other: &$type) -> bool {
                self.identity() == other.identity()
            }
        }

        impl Eq for $type {}

        impl Hash for $type {
            fn hash<H: Hasher>(&self, state: &mut H) {
                self.identity().hash(state);
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({:#x})", stringify!($type), self.identity())
            }
        }
    )*};
}

by_identity! { SharedName LocalServer }
