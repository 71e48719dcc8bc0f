//! The choice of a certificate by the name that a client asks for.

use std::collections::HashMap;
use std::sync::Arc;

use crate::certificate::Certificate;
use crate::change::Rank;

/// A certificate with its properties that the choice depends on.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub certificate: Arc<Certificate>,
    pub names: Arc<[String]>,
    pub frontend: Option<u32>,
    pub rank: Rank,
    pub default: u64,
}

type Names = HashMap<Box<str>, (Rank, Arc<Certificate>)>;

/// The certificates of one listener, or those for all listeners.
#[derive(Debug, Default)]
pub struct Table {
    exact: Names,
    /// By the name without `*.`.
    wildcard: Names,
    default: Option<((u64, Rank), Arc<Certificate>)>,
}

fn insert(names: &mut Names, name: &str, rank: Rank, certificate: &Arc<Certificate>) {
    match names.get_mut(name) {
        Some(entry) if rank.beats(entry.0) => *entry = (rank, certificate.clone()),
        Some(_) => {}
        None => drop(names.insert(name.into(), (rank, certificate.clone()))),
    }
}

impl Table {
    /// Adds a certificate.
    pub fn add(&mut self, candidate: &Candidate) {
        let Candidate { certificate, names, rank, default, .. } = candidate;
        for name in names.iter() {
            match name.strip_prefix("*.") {
                Some(rest) => insert(&mut self.wildcard, rest, *rank, certificate),
                None => insert(&mut self.exact, name, *rank, certificate),
            }
        }
        // Without a certificate that was made the default, the first one is it.
        let is_better = self.default.as_ref().is_none_or(|((other, other_rank), _)| {
            if default == other { rank < other_rank } else { default > other }
        });
        if is_better {
            self.default = Some(((*default, *rank), certificate.clone()));
        }
    }

    /// Returns the certificate for a name in lower case. A wildcard stands for one label.
    pub fn find(&self, name: &str) -> Option<&Arc<Certificate>> {
        let wildcard = || name.split_once('.').and_then(|(_, parent)| self.wildcard.get(parent));
        self.exact.get(name).or_else(wildcard).map(|(_, certificate)| certificate)
    }

    /// Returns the certificate for clients that ask for no name, or an unknown one.
    pub fn default_certificate(&self) -> Option<&Arc<Certificate>> {
        self.default.as_ref().map(|(_, certificate)| certificate)
    }
}
