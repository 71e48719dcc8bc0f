//! The clients of HTTP/3 on their reactor: from its UDP sockets to running sessions.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use lacquer_engine::Services;
use lacquer_engine::activity::{Work, track_polls};
use lacquer_net::Listener;
use lacquer_quic::{Connection, Host, Settings};
use lacquer_sessions::h3;

use crate::balancer::{Datagrams, LeaseOffice};

/// The time between checks whether another worker reads from the socket.
const RETIRED_CHECK: Duration = Duration::from_millis(100);

/// Serves the connections of a socket.
struct Sessions {
    services: Rc<Services>,
    listener: Arc<Listener>,
    office: LeaseOffice,
}

impl Host for Sessions {
    fn settings(&self) -> Settings {
        h3::settings(&self.services.params())
    }

    fn is_closing(&self) -> bool {
        self.services.is_draining()
    }

    fn serve(&self, connection: Rc<Connection>) {
        self.services.counters().sess_conn.add(1);
        let (services, listener, lease) = (self.services.clone(), self.listener.clone(), self.office.lease());
        tokio::task::spawn_local(async move {
            let watched = services.watched().clone();
            let session = pin!(h3::run(services, connection.clone(), listener));
            track_polls(&watched.activity, Work::Connection, session).await;
            drop(lease);
            connection.drained().await;
        });
    }
}

/// Starts to serve a socket, for as long as the reactor runs.
pub fn start(services: &Rc<Services>, datagrams: Datagrams, office: LeaseOffice) {
    let Datagrams { seed, listener } = datagrams;
    let name = listener.name().to_owned();
    let sessions = Sessions { services: services.clone(), listener, office };
    match seed.start(sessions) {
        Ok(endpoint) => {
            let (watched, services) = (services.watched().clone(), services.clone());
            tokio::task::spawn_local(async move {
                let retired = async {
                    while !services.has_retired() {
                        tokio::time::sleep(RETIRED_CHECK).await;
                    }
                };
                let serving = pin!(endpoint.run());
                tokio::select! {
                    () = track_polls(&watched.activity, Work::Accepting, serving) => {}
                    // The next worker reads from the socket. Packets for connections of this one would be lost.
                    () = retired => {}
                }
            });
        }
        Err(e) => eprintln!("Cannot serve HTTP/3 on {name}: {e}"),
    }
}
