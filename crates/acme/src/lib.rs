//! Certificates by ACME (RFC 8555): the client that obtains and renews them, and the folder that keeps them.
//!
//! [`Client::start`] starts a thread that owns the account and all orders. The thread asks the manager, by [`Event`]s, to
//! publish responses to challenges and to load certificates. [`local`] makes certificates without a server.

#![forbid(unsafe_code)]

mod account;
mod api;
mod challenge;
mod client;
mod external_account;
mod fault;
mod folder;
mod hook;
mod link;
pub mod local;
mod managed;
mod name;
mod on_demand;
mod order;
mod response;
mod responses;
mod rights;
mod schedule;
mod settings;
mod stored;
mod transport;

pub use challenge::{Challenge, Method};
pub use client::{Client, State, Status};
pub use external_account::ExternalAccount;
pub use folder::Folder;
pub use link::{Event, Inbox};
pub use name::Names;
pub use rights::Rights;
pub use settings::{Directory, MethodChoice, Settings};
pub use stored::Stored;
