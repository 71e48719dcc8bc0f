//! The interface between compiled VCL, the modules it imports and the transaction that runs it.
//!
//! It has three users. Compiled code (crate vcl-native) and modules (crate vmods) hold a [`Ctx`].
//! The worker implements [`Host`]: the state of a transaction that VCL can read and change. The author of a
//! module implements [`Module`] and needs nothing else.

pub mod acl;
mod args;
mod backend;
pub mod convert;
mod header_name;
pub mod host;
mod kept;
mod new_backend;
mod private_map;
mod raw;
pub mod regex;
mod run;
pub mod task;
pub mod value;

pub use ctx::{Ctx, SubFault, Suspend};
pub use director::{AdminHealth, BackendId, Director, Directors, Health, Load};
pub use host::{
    ClientFact, H2Setting, HeaderEdit, Host, HostResult, LocalFuture, PurgeMode, StableValues, TlsFact,
};
pub use instance::{HeaderName, Instance, ObjectState, PrivateMap};
pub use lacquer_system::TcpInfo;
pub use module::{Args, BackendMaker, Constructor, Event, Func, Module, ModuleError, ObjectType};
pub use new_backend::{HostLookup, NewBackend, NoBackend, OpenLocal, local_failure, local_failure_reason};
pub use raw::{Raw, RawKind};
pub use regex::{Regex, RegexLimits};
pub use run::{ctx, director, instance, module};
pub use value::{Blob, NameRef, OwnedBlob, Str, StrWords, Value};
