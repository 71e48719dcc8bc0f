//! The beginnings of notices that readers of the log understand.

/// The notice of a request that has removed objects by their tags, which follow.
pub const TAGS_PURGED: &str = "xkey: purged ";
