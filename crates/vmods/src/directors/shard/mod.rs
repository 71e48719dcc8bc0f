//! shard: selects a backend by consistent hashing, so that adding or removing one moves few keys; the points are
//! those of Varnish. `params` contains parameter objects and lazy selection, `circle` the circle.

mod circle;
mod director;
mod methods;
mod params;
mod pick;
mod state;

pub use methods::{PARAM_TYPE, TYPE};
