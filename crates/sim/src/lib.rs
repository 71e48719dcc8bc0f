//! A simulated world around the real engine: clients, origins, network, storage, operator and time follow from one
//! seed.
//!
//! Everything runs on one thread. Simulated time advances only while no task can make progress. [`run`] creates a
//! world, runs well- and ill-behaved clients and origins in it, and checks the rules of the [`ledger`]. A failing run
//! fails again with the same seed.
#![forbid(unsafe_code)]

mod certificate;
mod client;
mod disk;
mod h2_client;
mod h3_client;
mod http;
mod journal;
pub mod ledger;
mod log_reader;
mod network;
mod operator;
mod origin;
mod packing;
mod page;
mod page_request;
mod panics;
mod pipe;
mod proxy;
mod requester;
mod rest;
mod site;
mod upload;
mod vcl;
mod wire;
mod world;

pub use world::{Report, run};
