//! Bans: objects that meet the conditions of a newer ban are not served. Each object records the newest ban that it
//! was checked against. A lookup checks it against the newer ones, the lurker does so for idle objects, and bans that
//! no object refers to anymore are dropped from the tail.

mod build;
mod list;
mod lurker;
mod notes;
mod past;
mod render;
mod test;
mod text;

pub use build::BanSpec;
pub use list::BanList;
pub use list::Verdict;
pub use lurker::LurkerParams;
pub use past::PastBans;

/// Reads packed heads. Their format is opaque to the cache.
pub trait HeadReader: Send + Sync {
    /// Returns the value of a header. The name is matched without regard to case.
    fn header<'a>(&self, head: &'a [u8], name: &str) -> Option<&'a [u8]>;
    fn status(&self, head: &[u8]) -> u16;
    /// Returns whether a head from a previous process can be read. The other functions are called only for heads that
    /// this process wrote or that passed this check.
    fn is_sound(&self, head: &[u8]) -> bool;
    /// Passes the headers in a Vary specification to `each`: the name, and the value if requests with another value
    /// never match. The default treats any two specifications as such that a request may match both.
    fn vary(&self, vary: &[u8], each: &mut dyn FnMut(&[u8], Option<&[u8]>)) {
        each(vary, None);
    }

    /// Passes the tags in a head to `each`: those with which its object is published.
    fn tags(&self, _head: &[u8], _each: &mut dyn FnMut(&[u8])) {}

    /// Returns whether the data of filters from a previous process can be read, for a body of `body` bytes.
    fn is_sound_extra(&self, extra: &[u8], _body: u64) -> bool {
        extra.is_empty()
    }
}

/// The request for which an object is checked.
pub trait BanRequest {
    fn url(&self) -> &[u8];
    fn header(&self, name: &str) -> Option<&[u8]>;
}
