//! TLS: certificates with their keys, the choice among them, and the settings of connections, without sockets.
//!
//! The manager reads and checks certificates ([`Bundle`], [`Settings`]) and sends them to the worker ([`Setup`],
//! [`Change`]), which keeps them in its [`Store`]. Each listener with TLS has a [`Frontend`], which chooses among them.
#![forbid(unsafe_code)]

mod algorithms;
mod bundle;
mod certificate;
mod challenges;
mod change;
mod ciphers;
pub mod client;
mod configs;
mod der;
mod frontend;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod hello;
mod leaf;
mod name;
mod on_demand;
pub mod origin;
mod pem;
mod protocols;
mod quic_secret;
mod refused;
mod sessions;
mod settings;
mod shared;
mod staple;
mod store;
mod table;
mod ticketer;
mod webpki_fault;

pub use algorithms::Algorithms;
pub use bundle::{Bundle, ChainPool, File, Files, MAX_FILE};
pub use challenges::PROTOCOL as CHALLENGE_PROTOCOL;
pub use change::{ChallengeCertificates, Change, Entry, FrontendSetup, Rank, Setup, single_config};
pub use frontend::Frontend;
pub use hello::{ja3, ja3_of_message};
pub use leaf::Leaf;
pub use on_demand::{NameList, WaitPermit};
pub use protocols::Protocols;
pub use quic_secret::QuicSecret;
pub use refused::Refused;
pub use settings::{Settings, quic_initial_config};
pub use staple::{Statement, Verdict};
pub use store::Store;
pub use ticketer::TicketSecret;

#[cfg(test)]
mod tests;
