//! Resumption of sessions by tickets.

use std::sync::Arc;

use rustls::HandshakeKind;

use super::{Authority, add, entry, frontend_setup, shake, store};
use crate::change::Entry;
use crate::settings::Settings;

#[test]
fn sessions_resume_at_another_worker() {
    let authority = Authority::new();
    for protocol in ["TLSv1.2", "TLSv1.3"] {
        let mut settings = Settings::default();
        settings.protocols.add(protocol);
        let pair = authority.pair(&["example.com"]);
        let client = Arc::new(authority.client(&[]));
        // Two workers with the same secret.
        for expected in [HandshakeKind::Full, HandshakeKind::Resumed, HandshakeKind::Resumed] {
            let store = store(vec![frontend_setup("a0")]);
            add(&store, vec![Entry { settings: Arc::new(settings.clone()), ..entry(1, &pair) }]);
            let frontend = store.frontend("a0").unwrap();
            let (client, server) = shake(&frontend, &client, "example.com").unwrap();
            assert_eq!(client.handshake_kind(), Some(expected), "{protocol}");
            let version = format!("{:?}", server.protocol_version().unwrap());
            assert_eq!(version.replace('_', "."), protocol);
        }
    }
}
