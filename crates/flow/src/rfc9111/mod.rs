//! The decisions of the mode `feature=+rfc9111`: HTTP caching as RFC 9111 defines it. Without the mode, Varnish's
//! policy applies (`lacquer_http::freshness` and the rest of this crate).

pub mod control;
pub mod freshness;
pub mod invalidation;
pub mod parts;
pub mod request;
pub mod status;
pub mod storing;

pub use control::Control;
