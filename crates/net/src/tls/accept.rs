//! The handshake over a socket, with a client or an origin.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use lacquer_sources::clock;
use lacquer_tls::{Frontend, Refused, ja3};
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::server::{Accepted, Acceptor, UnbufferedServerConnection};
use rustls::{ClientConfig, ServerConfig};

use super::connection::Connection;
use super::early::Early;
use super::facts::{self, TlsFacts};
use super::failure::Failure;
use super::handshake::{Finished, Handshake, Side};
use super::keys::record_len;
use super::session::Session;
use super::socket::Socket;
use super::turns::HandshakeTurns;
use crate::negotiated::Negotiated;
use crate::stream::Stream;

/// The number of bytes to read at a time.
const READ: usize = 4096;
/// The maximum number of bytes before the client's first message is complete.
const MAX_HELLO: usize = 1 << 16;

/// How often a handshake looks for a certificate that is obtained on demand, and how many times.
const LOOK: Duration = Duration::from_millis(100);
const LOOKS: usize = 50;

/// How handshakes with clients are done.
pub struct Acceptance<'a> {
    pub frontend: &'a Frontend,
    pub turns: &'a HandshakeTurns,
    /// The fingerprint of the client is computed.
    pub wants_ja3: bool,
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Failure {
        Failure::Socket(e.kind())
    }
}

/// The settings and facts that follow from the client's first message.
struct Chosen {
    config: Arc<ServerConfig>,
    facts: TlsFacts,
}

/// A handshake with a client that has failed.
pub struct Failed {
    pub failure: Failure,
    /// The connection, unless it is gone. Its client may still be sending, and may not have read the alert yet.
    pub stream: Option<Stream>,
}

/// The result of a handshake: the state of the connection, and what was negotiated.
type Agreed = (Box<Session>, Negotiated);

/// Does the handshake with a client. `received` was already read. The caller limits the time.
pub async fn accept(
    mut stream: Stream,
    received: Vec<u8>,
    how: &Acceptance<'_>,
) -> Result<Stream, Box<Failed>> {
    match agree(&mut stream, received, how).await {
        Ok(agreed) => secured(stream, agreed).map_err(|failure| Box::new(Failed { failure, stream: None })),
        Err(failure) => Err(Box::new(Failed { failure: failure.of_client(), stream: Some(stream) })),
    }
}

/// Exchanges the messages of a handshake with a client.
async fn agree(stream: &mut Stream, mut received: Vec<u8>, how: &Acceptance<'_>) -> Result<Agreed, Failure> {
    let accepted = receive_hello(stream, &mut received).await?;
    let Chosen { config, mut facts } = match choose_or_wait(&accepted, how.frontend).await {
        Ok(chosen) => chosen,
        Err(failure) => {
            if let Failure::Refused(why) = &failure {
                let _ = stream.write_all(why.alert()).await;
            }
            return Err(failure);
        }
    };
    if how.wants_ja3 {
        facts.ja3 = ja3(&received);
    }
    drop(accepted);
    let side = UnbufferedServerConnection::new(config)?;
    let begin_early = |handshake| Ok(Early::new(handshake));
    complete(stream, Handshake::new(side, received), facts, Some(how.turns), begin_early).await
}

/// Returns the stream over a connection whose handshake is complete.
fn secured(stream: Stream, (session, negotiated): Agreed) -> Result<Stream, Failure> {
    Ok(Stream::Tls(Box::new(Connection::new(Socket::of(stream)?, *session, negotiated))))
}

/// Receives the client's first message.
async fn receive_hello(stream: &mut Stream, received: &mut Vec<u8>) -> Result<Accepted, Failure> {
    let mut acceptor = Acceptor::default();
    let mut shown = 0;
    loop {
        while let Some(len) = record_len(&received[shown..])?.filter(|len| shown + len <= received.len()) {
            let mut record = &received[shown..shown + len];
            while !record.is_empty() {
                acceptor.read_tls(&mut record)?;
                match acceptor.accept() {
                    Ok(Some(accepted)) => return Ok(accepted),
                    Ok(None) => {}
                    Err((error, mut alert)) => {
                        let mut bytes = Vec::new();
                        let _ = alert.write_all(&mut bytes);
                        let _ = stream.write_all(&bytes).await;
                        return Err(error.into());
                    }
                }
            }
            shown += len;
        }
        if received.len() > MAX_HELLO {
            return Err(Failure::TooMuch("bytes of a ClientHello"));
        }
        read_more(stream, received).await?;
    }
}

/// Chooses the settings for a client. Waits a while for a certificate that is obtained on demand.
async fn choose_or_wait(accepted: &Accepted, frontend: &Frontend) -> Result<Chosen, Failure> {
    let mut chosen = choose(accepted, frontend);
    let is_pending =
        |chosen: &Result<Chosen, Failure>| matches!(chosen, Err(Failure::Refused(Refused::Pending(_))));
    if is_pending(&chosen)
        && let Some(_permit) = frontend.wait_permit()
    {
        for _ in 0..LOOKS {
            tokio::time::sleep(LOOK).await;
            chosen = choose(accepted, frontend);
            if !is_pending(&chosen) {
                break;
            }
        }
    }
    chosen
}

/// Chooses the settings for a client.
fn choose(accepted: &Accepted, frontend: &Frontend) -> Result<Chosen, Failure> {
    let hello = accepted.client_hello();
    let server_name = hello.server_name().map(Box::from);
    let config = frontend.choose(&hello).map_err(Failure::Refused)?;
    let certificate = config.cert_resolver.resolve(accepted.client_hello());
    let certificate = certificate.as_ref().and_then(|key| key.cert.first());
    let facts =
        TlsFacts { server_name, certificate: facts::Certificate::of(certificate), ..TlsFacts::default() };
    Ok(Chosen { config, facts })
}

/// Does the handshake with an origin. The caller limits the time.
pub async fn connect(
    mut stream: Stream,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<Stream, Failure> {
    let server_name = config.enable_sni.then(|| match &name {
        ServerName::DnsName(name) => Some(Box::from(name.as_ref())),
        _ => None,
    });
    let facts = TlsFacts { server_name: server_name.flatten(), ..TlsFacts::default() };
    let side = UnbufferedClientConnection::new(config, name)?;
    let refuse = |_| Err(Failure::Unexpected("data before the end of the handshake"));
    let agreed = complete(&mut stream, Handshake::new(side, Vec::new()), facts, None, refuse).await?;
    secured(stream, agreed)
}

async fn read_more(stream: &Stream, received: &mut Vec<u8>) -> Result<(), Failure> {
    let had = received.len();
    received.resize(had + READ, 0);
    let read = stream.read(&mut received[had..]).await;
    received.truncate(had + *read.as_ref().unwrap_or(&0));
    if read? == 0 { Err(Failure::Truncated) } else { Ok(()) }
}

/// Exchanges messages until the handshake is complete, or the client has sent early data that was accepted.
async fn complete<S: Side>(
    stream: &mut Stream,
    mut handshake: Handshake<S>,
    mut facts: TlsFacts,
    turns: Option<&HandshakeTurns>,
    begin_early: impl FnOnce(Handshake<S>) -> Result<Early, Failure>,
) -> Result<Agreed, Failure> {
    let mut piece = Vec::new();
    let unsent = loop {
        let advanced = match turns {
            Some(turns) => turns.run(|| handshake.advance()).await,
            None => handshake.advance(),
        };
        let output = handshake.take_output();
        let is_complete = match advanced {
            Ok(is_complete) => is_complete,
            Err(failure) => {
                let _ = stream.write_all(&output).await;
                return Err(failure);
            }
        };
        // The last messages, such as tickets, are sent with the first response if the request has already arrived.
        if is_complete && handshake.has_input() && output.len() <= READ {
            break Some(output);
        }
        stream.write_all(&output).await?;
        if is_complete {
            break Some(Vec::new());
        }
        if handshake.has_early_data() {
            break None;
        }
        read_more(stream, &mut piece).await?;
        handshake.receive(&piece);
        piece.clear();
    };
    let protocol = facts.agree(handshake.common(), S::IS_SERVER);
    let mut session = match unsent {
        Some(unsent) => {
            let Finished { traffic, received, early } = handshake.finish()?;
            let mut session = Session::new(traffic, &received, &unsent);
            session.input().put_data(&early);
            session
        }
        None => {
            let received = handshake.take_hidden();
            Session::early(begin_early(handshake)?, &received)
        }
    };
    if let Some(failure) = facts.refusal_at(clock::real()) {
        session.fail(failure.clone());
        let _ = stream.write_all(session.output().bytes()).await;
        return Err(failure);
    }
    Ok((Box::new(session), Negotiated { protocol, tls: Some(Arc::new(facts)) }))
}
