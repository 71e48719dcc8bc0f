//! The facts about TLS that the module tls returns.

use lacquer_net::TlsFacts;
use lacquer_vcl_runtime::TlsFact;

/// Returns a fact about a connection.
pub fn fact(facts: Option<&TlsFacts>, which: TlsFact) -> Option<Vec<u8>> {
    let facts = facts?;
    let text = match which {
        TlsFact::Version => Some(facts.version),
        TlsFact::Cipher => Some(facts.cipher),
        TlsFact::Authority => facts.server_name.as_deref(),
        TlsFact::Alpn => facts.alpn.as_deref(),
        TlsFact::CertSign => facts.certificate.signature.as_deref(),
        TlsFact::CertKey => facts.certificate.key.as_deref(),
        TlsFact::Ja3 => facts.ja3.as_deref(),
    };
    text.map(|text| text.as_bytes().to_vec())
}
