//! Clients of HTTP/3 with certificates, and without those that a listener requires.

use std::time::{Duration, SystemTime};

use lacquer_testing::slots::shared_slot;

use super::client::{self, Client, run};
use super::start_with;
use crate::tls_clients::People;

/// The time within which a refused client must learn of it.
const PATIENCE: Duration = Duration::from_secs(10);

/// VCL knows the client by its certificate, also in a resumed session. Clients without one, or with one of another
/// authority, are refused.
#[test]
fn clients_are_verified_by_their_certificates() {
    let _slot = shared_slot();
    let (people, others) = (People::new("quic"), People::new("quic-others"));
    let served = start_with(&people.listener("required"), &[]);
    run(async {
        let alice = client::config_with_certificate(&people.certificate("alice", None));
        for _begun_and_resumed in 0..2 {
            let (client, _) = Client::connect_early(&alice, served.address).await;
            let facts = client.get("/facts").await;
            assert_eq!((facts.status(), facts.field("x-cn")), ("200", Some("alice")));
            client.close().await;
        }
        let mallory = client::config_with_certificate(&others.certificate("mallory", None));
        for refused in [mallory, client::config()] {
            assert!(is_refused(&refused, served.address).await);
        }
    });
}

/// A session does not outlive the certificate with which it began.
#[test]
fn an_expired_certificate_resumes_no_session() {
    let _slot = shared_slot();
    let people = People::new("quic-expired");
    let served = start_with(&people.listener("required"), &[]);
    let end = SystemTime::now() + Duration::from_secs(3);
    run(async {
        let alice = client::config_with_certificate(&people.certificate("alice", Some(end)));
        let (client, _) = Client::connect_early(&alice, served.address).await;
        assert_eq!(client.get("/facts").await.field("x-cn"), Some("alice"));
        client.close().await;
        while SystemTime::now() < end + Duration::from_secs(2) {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert!(is_refused(&alice, served.address).await);
    });
    let daemon = served.daemon;
    assert!(daemon.logs("certificate has expired"));
}

/// Returns whether a client gets no response, and its connection is closed.
async fn is_refused(config: &quinn::ClientConfig, address: std::net::SocketAddr) -> bool {
    let Ok(client) = Client::connect_with(config, address).await else { return true };
    let answered = async {
        let Ok((mut send, mut receive)) = client.try_open("GET", "/facts", &[]).await else { return false };
        let _ = send.finish();
        client::try_response(&mut receive).await.is_ok_and(|response| !response.status().is_empty())
    };
    !answered.await && tokio::time::timeout(PATIENCE, client.connection.closed()).await.is_ok()
}
