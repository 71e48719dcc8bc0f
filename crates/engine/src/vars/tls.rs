//! The facts about TLS that the module tls returns.

use lacquer_net::TlsFacts;
use lacquer_tls::client::ClientCertificate;
use lacquer_vcl_runtime::{ClientFact, TlsFact};

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
        TlsFact::Client(which) => return client_fact(facts.client.as_ref()?, which).map(String::into_bytes),
    };
    text.map(|text| text.as_bytes().to_vec())
}

fn client_fact(client: &ClientCertificate, which: ClientFact) -> Option<String> {
    match which {
        ClientFact::Subject => client.subject(),
        ClientFact::CommonName => client.common_name(),
        ClientFact::Issuer => client.issuer(),
        ClientFact::Serial => client.serial(),
        ClientFact::Fingerprint => Some(client.fingerprint()),
        ClientFact::NotBefore => client.validity().map(|(begin, _)| begin.to_string()),
        ClientFact::NotAfter => client.validity().map(|(_, end)| end.to_string()),
        ClientFact::Pem => Some(client.pem()),
        ClientFact::Header => Some(client.header_value()),
    }
}
