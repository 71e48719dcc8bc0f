//! (module text)
