//! A simulated world around the real engine: clients, origins, network, storage, operator and time follow from one seed.
//!
//! Everything runs on one thread whose time passes only while nothing can go on. [`run`] makes a world, lets clients and
//! origins behave well and badly in it, and checks what must always hold (see [`ledger`]). A run that fails does so again
//! with the same seed.
#![forbid(unsafe_code)]

mod asked;
mod asker;
mod client;
mod h2_client;
mod http;
mod journal;
pub mod ledger;
mod operator;
mod origin;
mod packing;
mod page;
mod panics;
mod pipe;
mod proxy;
mod site;
mod upload;
mod vcl;
mod wire;
mod world;

pub use world::{Report, run};
