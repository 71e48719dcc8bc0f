//! The checks of an origin's certificate.

use std::sync::Arc;

use super::authorities::Authorities;

/// The checks of an origin's certificate.
#[derive(Clone, Debug)]
pub enum Checks {
    None,
    /// It comes from one of these authorities, and contains the server name if `name` is set.
    Authorities {
        trusted: Arc<Authorities>,
        name: bool,
    },
}

impl Checks {
    pub(super) fn is_same(&self, other: &Checks) -> bool {
        match (self, other) {
            (Checks::None, Checks::None) => true,
            (
                Checks::Authorities { trusted, name },
                Checks::Authorities { trusted: other_trusted, name: other_name },
            ) => Arc::ptr_eq(trusted, other_trusted) && name == other_name,
            _ => false,
        }
    }
}
