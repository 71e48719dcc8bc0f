//! The extensions (TLVs) of a header that is sent to a backend.

use super::{find_tlv, tlv};

/// The maximum length of a value in bytes. All values together fit into the payload that receivers accept.
const MAX_VALUE: usize = 255;

// The flags of the SSL extension.
const CLIENT_SSL: u8 = 0x01;
const CERTIFICATE_IN_CONNECTION: u8 = 0x02;
const CERTIFICATE_IN_SESSION: u8 = 0x04;
/// The result of the verification of a client that has no certificate.
const NOT_VERIFIED: u32 = 1;

/// The certificate of a client, which was verified.
#[derive(Clone, Copy, Debug)]
pub struct ClientName<'a> {
    pub common_name: &'a str,
    /// Whether the client has sent it in this connection, or in an earlier one of the session.
    pub is_resumed: bool,
}

/// The facts about a client's TLS session that a header passes on. Empty texts are omitted.
#[derive(Clone, Copy, Debug, Default)]
pub struct TlsSession<'a> {
    pub version: &'a str,
    pub cipher: &'a str,
    pub server_name: &'a str,
    pub alpn: &'a str,
    /// The algorithms of the server's certificate: of its signature and of its key.
    pub algorithms: [&'a str; 2],
    pub client: Option<ClientName<'a>>,
}

/// Appends an extension. One that is empty or too long is omitted: the beginning of a name is another name.
fn append(kind: u8, value: &[u8], out: &mut Vec<u8>) {
    if !value.is_empty() && value.len() <= MAX_VALUE {
        append_any(kind, value, out);
    }
}

fn append_any(kind: u8, value: &[u8], out: &mut Vec<u8>) {
    if let Ok(length) = u16::try_from(value.len()) {
        out.push(kind);
        out.extend_from_slice(&length.to_be_bytes());
        out.extend_from_slice(value);
    }
}

/// Returns the extension with a server name.
pub fn authority(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    append(tlv::AUTHORITY, name.as_bytes(), &mut out);
    out
}

/// Returns the extensions that a proxy passes on from the header that it has received: those about the client's TLS.
pub fn passed_on(received: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for kind in [tlv::ALPN, tlv::AUTHORITY, tlv::SSL] {
        if let Some(value) = find_tlv(received, kind) {
            append_any(kind, value, &mut out);
        }
    }
    out
}

impl TlsSession<'_> {
    /// Returns the extensions for this session.
    pub fn extensions(&self) -> Vec<u8> {
        let (flags, verified) = match self.client {
            None => (CLIENT_SSL, NOT_VERIFIED),
            Some(ClientName { is_resumed: true, .. }) => (CLIENT_SSL | CERTIFICATE_IN_SESSION, 0),
            Some(_) => (CLIENT_SSL | CERTIFICATE_IN_CONNECTION | CERTIFICATE_IN_SESSION, 0),
        };
        let mut ssl = vec![flags];
        ssl.extend_from_slice(&verified.to_be_bytes());
        let [signature, key] = self.algorithms;
        let common_name = self.client.map_or("", |client| client.common_name);
        for (kind, value) in [
            (tlv::SSL_VERSION, self.version),
            (tlv::SSL_CN, common_name),
            (tlv::SSL_CIPHER, self.cipher),
            (tlv::SSL_SIG_ALG, signature),
            (tlv::SSL_KEY_ALG, key),
        ] {
            append(kind, value.as_bytes(), &mut ssl);
        }
        let mut out = Vec::new();
        append(tlv::ALPN, self.alpn.as_bytes(), &mut out);
        append(tlv::AUTHORITY, self.server_name.as_bytes(), &mut out);
        append_any(tlv::SSL, &ssl, &mut out);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MAX_PAYLOAD, Scan, parse, scan, write_header};
    use super::*;

    fn found(extensions: &[u8], kind: u8) -> Option<&str> {
        find_tlv(extensions, kind).map(|value| std::str::from_utf8(value).unwrap())
    }

    #[test]
    fn facts_of_a_session() {
        let name = ClientName { common_name: "alice", is_resumed: false };
        let mut session = TlsSession {
            version: "TLSv1.3",
            cipher: "TLS_AES_128_GCM_SHA256",
            server_name: "example.com",
            alpn: "h2",
            algorithms: ["RSA-SHA256", "RSA2048"],
            client: Some(name),
        };
        let first = session.extensions();
        for (kind, value) in [
            (tlv::ALPN, "h2"),
            (tlv::AUTHORITY, "example.com"),
            (tlv::SSL_VERSION, "TLSv1.3"),
            (tlv::SSL_CN, "alice"),
            (tlv::SSL_CIPHER, "TLS_AES_128_GCM_SHA256"),
            (tlv::SSL_SIG_ALG, "RSA-SHA256"),
            (tlv::SSL_KEY_ALG, "RSA2048"),
        ] {
            assert_eq!(found(&first, kind), Some(value));
        }
        assert_eq!(find_tlv(&first, tlv::SSL).unwrap()[..5], [7, 0, 0, 0, 0]);
        assert_eq!(passed_on(&first), first);
        session.client = Some(ClientName { is_resumed: true, ..name });
        assert_eq!(find_tlv(&session.extensions(), tlv::SSL).unwrap()[..5], [5, 0, 0, 0, 0]);
        session.client = None;
        assert_eq!(find_tlv(&session.extensions(), tlv::SSL).unwrap()[..5], [1, 0, 0, 0, 1]);
        assert_eq!(found(&session.extensions(), tlv::SSL_CN), None);
    }

    #[test]
    fn long_names_are_omitted_and_the_header_is_accepted() {
        let long = "x".repeat(MAX_VALUE);
        let longer = "x".repeat(MAX_VALUE + 1);
        assert!(authority(&longer).is_empty());
        let client = Some(ClientName { common_name: &long, is_resumed: false });
        let session = TlsSession { server_name: &long, version: "TLSv1.3", client, ..TlsSession::default() };
        let extensions = session.extensions();
        assert!(extensions.len() + 36 <= MAX_PAYLOAD);
        let mut header = Vec::new();
        let address = "[::1]:1".parse().unwrap();
        write_header(2, address, address, &extensions, &mut header);
        assert_eq!(scan(&header), Scan::Complete);
        assert_eq!(parse(&header).unwrap().tlvs, extensions);
        let client = Some(ClientName { common_name: &longer, is_resumed: false });
        assert_eq!(found(&TlsSession { client, ..session }.extensions(), tlv::SSL_CN), None);
    }
}
