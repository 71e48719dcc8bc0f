//! shard: a backend by consistent hashing, so that adding or removing one moves few keys; the points are
//! those of Varnish. Parameter objects and lazy choices are in `params`, the circle in `circle`.

mod circle;
mod director;
mod methods;
mod params;
mod pick;
mod state;

pub use methods::{PARAM_TYPE, TYPE};
