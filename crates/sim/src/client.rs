//! Simulated clients of HTTP/1: each has a connection and sends some requests on it. Some are slow, some leave early.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::time::Duration;

use lacquer_net::memory::Peer;
use tokio::time::timeout;

use crate::asker::{Asked, Asker};
use crate::http::{self, Broken};
use crate::wire::{self, Chance, Incoming, below, one_of, pause, percent};

/// No response takes longer, whatever the origins do.
pub const PATIENCE: Duration = Duration::from_mins(10);

pub struct Client {
    pub asker: Asker,
    pub peer: Peer,
    pub incoming: Incoming,
    pub most_requests: u64,
}

impl Client {
    fn chance(&self) -> &Chance {
        &self.asker.chance
    }

    /// Sends requests until it has had enough or the connection ends.
    pub async fn run(mut self) {
        for _ in 0..=below(self.chance(), self.most_requests) {
            let longest = one_of(self.chance(), &[0, 5, 1000]);
            pause(self.chance(), longest).await;
            let result = timeout(PATIENCE, self.exchanges()).await;
            let mut ledger = self.asker.ledger.borrow_mut();
            match result {
                Ok(Ok(true)) => {}
                Ok(Ok(false) | Err(Broken::Ended)) => return ledger.note(format_args!("a client ends")),
                Ok(Err(Broken::Malformed(why))) => return ledger.fault(&format!("a client got {why}")),
                Err(_) => {
                    return ledger.fault("a request got no response, and its connection did not end");
                }
            }
        }
    }

    /// Sends one request, or several at once, and reads the responses. Returns whether the connection can be used again.
    async fn exchanges(&mut self) -> Result<bool, Broken> {
        let several = if percent(self.chance(), 10) { 3 } else { 1 };
        let mut asked: VecDeque<Asked> = (0..several).map(|_| self.asker.choose()).collect();
        let bytes: Vec<u8> = asked.iter().flat_map(|asked| self.bytes(asked)).collect();
        if percent(self.chance(), 3) {
            // It leaves before it has asked.
            let part = below(self.chance(), bytes.len() as u64) as usize;
            wire::write(&self.peer, &bytes[..part], self.chance()).await?;
            return Ok(false);
        }
        wire::write(&self.peer, &bytes, self.chance()).await?;
        if percent(self.chance(), 5) {
            self.peer.shutdown();
        }
        let leaves = percent(self.chance(), 6);
        while let Some(asked) = asked.pop_front() {
            let stays = self.read(&asked, leaves).await?;
            if !stays {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn bytes(&self, asked: &Asked) -> Vec<u8> {
        let Asked { key, method, fields, body, .. } = asked;
        let mut head = format!("{method} {} HTTP/1.1\r\nHost: world\r\n", key.path);
        for (name, value) in fields {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let mut sent = Vec::new();
        if *method != "POST" {
            head += "\r\n";
        } else if percent(self.chance(), 50) {
            let _ = write!(head, "Content-Length: {}\r\n\r\n", body.len());
            sent.clone_from(body);
        } else {
            head += "Transfer-Encoding: chunked\r\n\r\n";
            wire::chunks(body, &mut sent, self.chance());
        }
        [head.into_bytes(), sent].concat()
    }

    /// Returns whether the connection can be used again.
    async fn read(&mut self, asked: &Asked, leaves: bool) -> Result<bool, Broken> {
        let chance = self.asker.chance.clone();
        let head = http::head(&mut self.incoming, &self.peer, &chance).await?.ok_or(Broken::Ended)?;
        if leaves {
            return Ok(false);
        }
        let mut body = Vec::new();
        if asked.method != "HEAD" && !matches!(head.status(), Some(204 | 304)) {
            let saw = |bytes: &[u8]| self.asker.saw(&head, bytes);
            body = http::body(&head, &mut self.incoming, &self.peer, &chance, saw).await?;
        }
        self.asker.judge(asked, &head, &body)?;
        Ok(head.get("connection") != Some("close"))
    }
}
