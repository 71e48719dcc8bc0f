//! The engine: client requests and fetches from origins, as the steps of VCL's flow chart.
//!
//! A client request is a [`client::Req`], a fetch is a [`fetch::Fetch`]. [`Services`] contains what both use of their
//! reactor, [`Shared`] what all reactors share. All unsafe code of the crate is in `stable_values`.
#![deny(unsafe_code)]

mod account;
pub mod activity;
mod addresses;
mod admission;
pub mod backends;
mod ban_subjects;
pub mod bans;
mod cache_key;
mod challenges;
pub mod client;
mod client_sink;
mod client_transport;
mod drain;
pub mod emulated;
pub mod faults;
pub mod fetch;
mod h1;
pub mod h2;
pub mod h3;
mod init_host;
mod interim;
pub mod knobs;
mod live_params;
mod logged;
mod makers;
pub mod named_origin;
mod notes;
mod object_attributes;
mod origin_health;
mod origin_slot;
pub mod origin_watch;
mod outcomes;
mod pending_handshake;
mod probes;
mod protocol;
#[cfg(test)]
mod protocol_tests;
pub mod purge;
mod recycle_pool;
mod req_body;
mod req_filters;
mod send_limits;
mod services;
mod session;
mod shared;
mod slices;
#[cfg(test)]
mod slow_client_tests;
mod spans;
mod stable_values;
mod stevedores;
mod stream_wait;
mod surplus;
mod task;
mod trailers;
mod transaction_buffers;
mod transaction_slot;
mod vars;
pub mod vcl_table;
mod vxids;
mod watched;

pub use account::Account;
pub use client_transport::ClientTransport;
pub use h1::write_message;
pub use init_host::InitHost;
pub use lacquer_cache::disk::OpenDisks;
pub use logged::Logged;
pub use makers::MAKERS;
pub use req_body::{BodyInput, ReqBody};
pub use services::{Makers, Services};
pub use session::{Sess, Timeout, count_close};
pub use shared::{Names, Setup, Shared};
pub use task::TaskContext;
pub use transaction_buffers::TransactionBuffers;
pub use transaction_slot::TransactionSlot;
pub use vxids::vxid_of;
pub use watched::{Watched, watched};
