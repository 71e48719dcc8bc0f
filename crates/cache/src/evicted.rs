//! The result of an eviction.

/// The object that an eviction has removed, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// No object can be evicted.
    Nothing,
    /// An object whose body stays in memory for another object.
    Head,
    Object,
}
