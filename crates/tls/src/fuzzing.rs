//! Entries for the fuzz targets; not part of a normal build.

use std::sync::{Arc, OnceLock};

use rustls::server::{Acceptor, UnbufferedServerConnection};
use rustls::unbuffered::ConnectionState;

use crate::bundle::{Bundle, File, Files};
use crate::change::{Change, Entry, FrontendSetup, Rank, Setup};
use crate::client::{ClientCertificate, ClientVerification};
use crate::frontend::Frontend;
use crate::quic_secret::QuicSecret;
use crate::staple;
use crate::store::Store;
use crate::ticketer::TicketSecret;
use crate::{Algorithms, Protocols, Settings};

/// Reads the input as each of the files that an operator names. A certificate that was accepted can be used.
pub fn files(bytes: &[u8]) {
    let file = File { name: "f", bytes };
    let files = Files { certificate: file, key: None, dh: None, staple: None };
    if let Ok((bundle, leaf)) = Bundle::load(files) {
        assert!(!leaf.names().is_empty() && bundle.certified_key().is_ok());
    }
    let _ = Bundle::load(Files { key: Some(file), dh: Some(file), staple: Some(file), ..files });
    let _ = staple::read(bytes, &[1]);
    let _ = ClientVerification::load(true, file, None);
    let _ = ClientVerification::load(false, file, Some(file));
}

/// Reads the input as a certificate in DER.
pub fn certificate(bytes: &[u8]) {
    let client = ClientCertificate::new(bytes);
    for text in [client.subject(), client.issuer(), client.serial()].into_iter().flatten() {
        assert!(!text.chars().any(char::is_control), "{text:?}");
    }
    let _ =
        (client.common_name(), client.validity(), client.pem(), client.fingerprint(), client.header_value());
    let _ = Algorithms::of(bytes);
}

fn frontend(pem: &[u8]) -> &'static Frontend {
    static FRONTEND: OnceLock<Frontend> = OnceLock::new();
    FRONTEND.get_or_init(|| {
        let clients = ClientVerification::load(false, File { name: "ca", bytes: pem }, None).ok();
        let setup = FrontendSetup {
            name: "a".to_owned(),
            protocols: Protocols::default(),
            sni_nomatch_abort: false,
            match_global: true,
            clients,
        };
        let ticket_secret = TicketSecret::new([1; 32], 1.8e9);
        let quic_secret = QuicSecret::new([1; 32]);
        let protocols = Protocols::default();
        let store =
            Store::new(Setup { frontends: vec![setup], protocols, ticket_secret, quic_secret }, false);
        store.offer_http2(true);
        let certificate = File { name: "c", bytes: pem };
        let files = Files { certificate, key: None, dh: None, staple: None };
        let (bundle, _) = Bundle::load(files).expect("the certificate of the target is valid");
        let settings = Arc::new(Settings::default());
        let rank = Rank { transaction: 1, order: 1 };
        let entry = Entry { id: 1, frontend: None, rank, default: 0, settings, bundle };
        store.apply(Change { add: vec![entry], ..Change::default() }).expect("a valid change");
        store.frontend("a").expect("the only listener")
    })
}

/// Handles the input as the first messages of a client, at a listener with the certificate of `pem`.
pub fn hello(pem: &[u8], bytes: &[u8]) {
    let mut acceptor = Acceptor::default();
    let mut rest = bytes;
    while !rest.is_empty() {
        if acceptor.read_tls(&mut rest).is_err() {
            return;
        }
        let accepted = match acceptor.accept() {
            Ok(None) => continue,
            Ok(Some(accepted)) => accepted,
            Err(_) => return,
        };
        let Ok(config) = frontend(pem).choose(&accepted.client_hello()) else { return };
        let Ok(mut server) = UnbufferedServerConnection::new(config) else { return };
        let (mut input, mut output) = (bytes.to_vec(), vec![0; 1 << 16]);
        for _ in 0..100 {
            let status = server.process_tls_records(&mut input);
            let is_blocked = match status.state {
                Ok(ConnectionState::EncodeTlsData(mut message)) => message.encode(&mut output).is_err(),
                Ok(ConnectionState::TransmitTlsData(sent)) => {
                    sent.done();
                    false
                }
                _ => true,
            };
            let discard = status.discard;
            input.drain(..discard);
            if is_blocked {
                return;
            }
        }
        return;
    }
}
