//! Bans: conditions that objects must not meet, newest first. Each object remembers the newest ban it
//! was checked against; a lookup checks the newer ones, the lurker moves idle objects up, and bans that
//! no object waits for any more are dropped from the tail.

mod build;
mod list;
mod lurker;
mod render;
mod test;

pub use build::BanSpec;
pub use list::BanList;
pub use list::Verdict;
pub use lurker::LurkerParams;

/// Reads packed heads, which the cache itself does not look into.
pub trait HeadReader: Send + Sync {
    /// The value of a header, without regard to the case of its name.
    fn header<'a>(&self, head: &'a [u8], name: &str) -> Option<&'a [u8]>;
    fn status(&self, head: &[u8]) -> u16;
    /// Returns whether a head from before can be read. All others are only asked for heads of this process.
    fn is_sound(&self, head: &[u8]) -> bool;
}

/// The request that an object is checked for.
pub trait BanRequest {
    fn url(&self) -> &[u8];
    fn header(&self, name: &str) -> Option<&[u8]>;
}
