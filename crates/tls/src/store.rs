//! The certificates of a worker. A change builds new tables and exchanges them at once: a handshake sees either the old
//! set or the new one.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::{Mutex, RwLock};

use crate::bundle::ChainPool;
use crate::certificate::Certificate;
use crate::challenges::Challenges;
use crate::change::{ChallengeCertificates, Change, FrontendSetup, Setup};
use crate::client::{ClientVerification, Verifying};
use crate::configs::Configs;
use crate::frontend::Frontend;
use crate::on_demand::OnDemand;
use crate::quic_secret::QuicSecret;
use crate::shared::{Shared, Tables};
use crate::table::Candidate;

/// The certificates as the manager changes them.
#[derive(Debug, Default)]
struct Certificates {
    /// How clients are verified, by the number of the listener.
    clients: Vec<Arc<Verifying>>,
    /// By their ids.
    all: BTreeMap<u64, Candidate>,
    pool: ChainPool,
    /// Certificates that were removed, and whose memory is not free yet.
    retired: Vec<Candidate>,
    /// Tables that were replaced. They are freed here, since that takes too long for a reactor.
    replaced: Vec<Arc<Tables>>,
}

/// All certificates of a worker.
#[derive(Debug)]
pub struct Store {
    shared: Arc<Shared>,
    frontends: Vec<FrontendSetup>,
    quic_secret: QuicSecret,
    certificates: Mutex<Certificates>,
    /// The verification of listeners that do not verify clients. Others share its secret of tickets.
    unverified: Arc<Verifying>,
}

fn verifying(unverified: &Arc<Verifying>, clients: Option<&ClientVerification>) -> Arc<Verifying> {
    clients.map_or_else(|| unverified.clone(), |clients| Arc::new(unverified.with(clients)))
}

impl Store {
    /// Creates a store without certificates. If clients may send early data, their sessions are kept here.
    pub fn new(setup: Setup, accepts_early_data: bool) -> Store {
        let Setup { frontends, protocols, ticket_secret, quic_secret } = setup;
        let unverified = Arc::new(Verifying::none(ticket_secret, accepts_early_data.then(Arc::default)));
        let clients: Vec<_> =
            frontends.iter().map(|frontend| verifying(&unverified, frontend.clients.as_ref())).collect();
        let shared = Shared {
            tables: RwLock::new(Arc::new(Tables::new(clients.clone()))),
            configs: Configs::default(),
            challenges: Challenges::default(),
            on_demand: OnDemand::default(),
            http2: AtomicBool::new(false),
            protocols,
        };
        let certificates = Mutex::new(Certificates { clients, ..Certificates::default() });
        Store { shared: Arc::new(shared), frontends, quic_secret, certificates, unverified }
    }

    /// Returns the secret from which the keys of QUIC's endpoints follow.
    pub fn quic_secret(&self) -> &QuicSecret {
        &self.quic_secret
    }

    /// Returns the certificates of the listener with this name, if it has TLS.
    pub fn frontend(&self, name: &str) -> Option<Frontend> {
        let at = self.frontends.iter().position(|frontend| frontend.name == name)?;
        Some(Frontend::new(self.shared.clone(), at, &self.frontends[at]))
    }

    /// Offers HTTP/2 to new clients, or stops to do so.
    pub fn offer_http2(&self, offered: bool) {
        self.shared.http2.store(offered, Ordering::Relaxed);
    }

    /// Replaces the certificates of challenges that are pending. On failure, nothing has changed.
    pub fn set_challenges(&self, certificates: ChallengeCertificates) -> Result<(), String> {
        self.shared.challenges.set(certificates)
    }

    /// Applies a change. On failure, nothing has changed.
    pub fn apply(&self, change: Change) -> Result<(), String> {
        let mut certificates = self.certificates.lock();
        let Certificates { clients, all, pool, retired, replaced } = &mut *certificates;
        let mut added = Vec::with_capacity(change.add.len());
        if change.clients.iter().any(|(at, _)| *at as usize >= self.frontends.len()) {
            return Err("a verification of clients is for a listener that does not exist".to_owned());
        }
        for mut entry in change.add {
            if entry.frontend.is_some_and(|at| at as usize >= self.frontends.len()) {
                return Err(format!("certificate {} is for a listener that does not exist", entry.id));
            }
            let names = entry.bundle.leaf()?.names().into();
            entry.bundle.share(pool);
            let bundle = entry.bundle.clone();
            let certificate = Arc::new(Certificate::new(&entry, bundle));
            let (frontend, rank, default) = (entry.frontend, entry.rank, entry.default);
            added.push((entry.id, Candidate { certificate, names, frontend, rank, default }));
        }
        retired.extend(change.remove.iter().filter_map(|id| all.remove(id)));
        all.extend(added);
        let has_new_clients = !change.clients.is_empty();
        for (at, verification) in change.clients {
            clients[at as usize] = verifying(&self.unverified, verification.as_ref());
        }
        let mut tables = Tables::new(clients.clone());
        for candidate in all.values() {
            if has_new_clients {
                candidate.certificate.forget_configs();
            }
            match candidate.frontend {
                Some(at) => tables.local[at as usize].add(candidate),
                None => tables.global.add(candidate),
            }
        }
        replaced.push(std::mem::replace(&mut *self.shared.tables.write(), Arc::new(tables)));
        self.shared.configs.clear();
        pool.tidy();
        if let Some(list) = change.on_demand {
            self.shared.on_demand.set(*list);
        }
        Ok(())
    }

    /// Removes and returns the names of the list on demand that clients have asked for in vain.
    pub fn take_wanted(&self) -> Vec<String> {
        self.shared.on_demand.take()
    }

    /// Frees up to `limit` certificates that were removed.
    pub fn release(&self, limit: usize) {
        let mut certificates = self.certificates.lock();
        let keep = certificates.retired.len().saturating_sub(limit);
        certificates.retired.truncate(keep);
        certificates.replaced.retain(|tables| Arc::strong_count(tables) > 1);
    }

    /// Returns the number of certificates.
    pub fn len(&self) -> usize {
        self.certificates.lock().all.len()
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
