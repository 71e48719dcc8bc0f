//! Simulated origins: most responses are as they should be, some are late, cut short, too long, or no responses.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use lacquer_net::memory::{self, Dialed, Peer};
use rustix::io::Errno;

use crate::http::{self, Broken, Head};
use crate::ledger::{Key, Ledger};
use crate::page::{self, SHORTEST};
use crate::wire::{self, Chance, Incoming, below, one_of, pause, percent};

#[derive(Clone)]
pub struct Origin {
    pub chance: Chance,
    pub ledger: Rc<RefCell<Ledger>>,
    /// The share of responses that are faulty, in percent.
    pub faulty: u64,
    pub longest: usize,
}

/// A fault of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// The connection ends instead of the response.
    Nothing,
    /// The body ends early, and the connection with it.
    Cut,
    /// The connection is reset within the body.
    Reset,
    /// Bytes follow that no request asked for.
    Surplus,
    /// Nothing comes for longer than anybody waits.
    Silence,
    /// The body stops for longer than anybody waits.
    Stall,
    Garbage,
}

const FAULTS: [Fault; 7] =
    [Fault::Nothing, Fault::Cut, Fault::Reset, Fault::Surplus, Fault::Silence, Fault::Stall, Fault::Garbage];

/// Longer than any timeout of the engine.
const FOR_EVER: Duration = Duration::from_secs(1000);

impl Origin {
    /// Serves at a path until the world ends.
    pub fn listen(&self, path: &str) {
        let origin = self.clone();
        memory::serve_at(path, move || origin.dial());
    }

    fn dial(&self) -> Dialed {
        let chance = &self.chance;
        let after = Duration::from_micros(below(chance, one_of(chance, &[100, 2000, 50_000])));
        if percent(chance, self.faulty / 4) {
            return Dialed { after, outcome: Err(Errno::CONNREFUSED.into()) };
        }
        let (stream, peer) = memory::connection(wire::limits(chance), wire::ends(chance));
        let origin = self.clone();
        tokio::task::spawn_local(async move {
            // An error means that the engine has closed the connection.
            let _ = origin.serve(peer).await;
        });
        Dialed { after, outcome: Ok(stream) }
    }

    async fn serve(&self, peer: Peer) -> Result<(), Broken> {
        let chance = &self.chance;
        let mut incoming = Incoming { slowness: one_of(chance, &[0, 0, 0, 3]), ..Incoming::default() };
        for _ in 0..=below(chance, 50) {
            let Some(head) = http::head(&mut incoming, &peer, chance).await? else { return Ok(()) };
            let body = http::body(&head, &mut incoming, &peer, chance, |_| ()).await?;
            if let Some(upload) = head.number("x-upload") {
                self.ledger.borrow_mut().check_upload(upload, &body);
            }
            if !self.respond(&head, &peer).await? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Returns whether the connection stays open.
    async fn respond(&self, request: &Head, peer: &Peer) -> io::Result<bool> {
        let chance = &self.chance;
        let path = request.word(1);
        let is_calm = path.starts_with("/calm/");
        let fault = (!is_calm && percent(chance, self.faulty)).then(|| one_of(chance, &FAULTS));
        match fault {
            Some(Fault::Nothing) => return Ok(false),
            Some(Fault::Silence) => tokio::time::sleep(FOR_EVER).await,
            Some(Fault::Garbage) => {
                peer.write_all(b"\r\nSSH-2.0-OpenSSH_9.2\r\n").await?;
                return Ok(false);
            }
            _ => {}
        }
        let longest = one_of(chance, &[1, 10, 300]);
        pause(chance, longest).await;
        let known = request.get("if-none-match");
        if let Some(known) = known.filter(|_| percent(chance, 60)) {
            let head =
                format!("HTTP/1.1 304 Not Modified\r\nETag: {known}\r\n{}\r\n", self.freshness(is_calm));
            wire::write(peer, head.as_bytes(), chance).await?;
            return Ok(true);
        }
        self.page(request, peer, fault, is_calm).await
    }

    fn freshness(&self, is_calm: bool) -> String {
        let seconds = if is_calm { 3600 } else { one_of(&self.chance, &[0, 1, 5, 60]) };
        format!("Cache-Control: max-age={seconds}\r\nVary: X-Variant\r\n")
    }

    async fn page(
        &self,
        request: &Head,
        peer: &Peer,
        fault: Option<Fault>,
        is_calm: bool,
    ) -> io::Result<bool> {
        let chance = &self.chance;
        let is_head = request.word(0) == "HEAD";
        let key = Key {
            path: request.word(1).to_owned(),
            variant: request.number("x-variant").unwrap_or(0) as u64,
        };
        let length = SHORTEST + below(chance, one_of(chance, &[1, 100, 5000, self.longest as u64])) as usize;
        let is_cut = matches!(fault, Some(Fault::Cut | Fault::Reset | Fault::Stall));
        let response = self.ledger.borrow_mut().send(key, length, !is_cut);
        let status = if !is_calm && percent(chance, 4) { "404 Not Found" } else { "200 OK" };
        // A body that ends with its connection has no end that could be missing.
        let is_chunked = percent(chance, 40);
        let framing = if is_chunked {
            "Transfer-Encoding: chunked".to_owned()
        } else {
            format!("Content-Length: {length}")
        };
        let mut bytes = format!(
            "HTTP/1.1 {status}\r\nETag: \"{response}\"\r\n{}{framing}\r\n\r\n",
            self.freshness(is_calm)
        )
        .into_bytes();
        if !is_head {
            let body = page::body(response, length);
            if is_chunked {
                wire::chunks(&body, &mut bytes, chance);
            } else {
                bytes.extend(body);
            }
            if is_cut {
                bytes.truncate(bytes.len() - 1 - below(chance, length as u64) as usize);
            }
        }
        if fault == Some(Fault::Surplus) {
            bytes.extend(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nunwanted!");
        }
        wire::write(peer, &bytes, chance).await?;
        if fault == Some(Fault::Stall) {
            tokio::time::sleep(FOR_EVER).await;
        }
        Ok(!is_cut)
    }
}
