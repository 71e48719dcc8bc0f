//! The clients of HTTP/3 on their reactor: from its UDP sockets to running sessions.

use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;

use lacquer_engine::Services;
use lacquer_engine::activity::{Work, track_polls};
use lacquer_net::Listener;
use lacquer_quic::{Connection, Host, Settings};
use lacquer_sessions::h3;

use crate::balancer::{Datagrams, LeaseOffice};
use crate::udp_handover::Order;

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
            // The worker lives until a client whose last packet was lost has had time to ask again.
            let lease = connection.is_closed_here().then_some(lease);
            connection.drained().await;
            drop(lease);
        });
    }

    fn count_relayed(&self, is_lost: bool) {
        let counters = self.services.counters();
        if is_lost { &counters.h3_relay_lost } else { &counters.h3_relayed }.add(1);
    }
}

/// Starts to serve a socket, for as long as the reactor runs.
pub fn start(services: &Rc<Services>, datagrams: Datagrams, office: LeaseOffice) {
    let Datagrams { seed, listener, mut orders } = datagrams;
    let name = listener.name().to_owned();
    let sessions = Sessions { services: services.clone(), listener, office };
    match seed.start(sessions) {
        Ok(mut endpoint) => {
            let watched = services.watched().clone();
            tokio::task::spawn_local(async move {
                loop {
                    let order = {
                        let serving = pin!(endpoint.run());
                        tokio::select! {
                            biased;
                            Some(order) = orders.recv() => order,
                            () = track_polls(&watched.activity, Work::Accepting, serving) => return,
                        }
                    };
                    let outcome = match order {
                        Order::Stop { sockets, done: _done } => endpoint.stop_receiving(sockets),
                        Order::Continue => endpoint.receive_again(),
                    };
                    if let Err(e) = outcome {
                        eprintln!("Cannot hand over the UDP socket of {name}: {e}");
                    }
                }
            });
        }
        Err(e) => eprintln!("Cannot serve HTTP/3 on {name}: {e}"),
    }
}
