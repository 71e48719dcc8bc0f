//! Simulated HTTP/1 clients. Each has a connection and sends some requests on it. Some are slow, some leave early.

use std::collections::VecDeque;
use std::fmt::Write as _;

use lacquer_net::memory::Peer;
use tokio::time::timeout;

use crate::http::{self, Broken, Head};
use crate::page_request::PageRequest;
use crate::pipe;
use crate::requester::Requester;
use crate::upload::Upload;
use crate::wire::{self, Chance, Incoming, MAX_WAIT, below, one_of, pause, percent};

pub struct Client {
    pub requester: Requester,
    pub peer: Peer,
    pub incoming: Incoming,
    pub most_requests: u64,
}

/// A request in progress.
struct Exchange {
    requested: PageRequest,
    upload: Upload,
}

impl Client {
    fn chance(&self) -> &Chance {
        &self.requester.chance
    }

    /// Sends a random number of requests, or until the connection ends.
    pub async fn run(mut self) {
        let result = self.session().await;
        let mut ledger = self.requester.ledger.borrow_mut();
        ledger.check_flushed(&self.peer, "a client");
        match result {
            Ok(()) | Err(Broken::Ended) => ledger.note(format_args!("a client ends")),
            Err(Broken::Malformed(why)) => ledger.fault(&format!("a client got {why}")),
        }
    }

    async fn session(&mut self) -> Result<(), Broken> {
        for _ in 0..=below(self.chance(), self.most_requests) {
            let longest = one_of(self.chance(), &[0, 5, 1000]);
            pause(self.chance(), longest).await;
            let stays = timeout(MAX_WAIT, self.exchanges()).await;
            if !stays.map_err(|_| no_response())?? {
                return Ok(());
            }
        }
        if percent(self.chance(), 20) {
            let piped = pipe::of_client(&self.peer, &mut self.incoming, &self.requester);
            timeout(MAX_WAIT, piped).await.map_err(|_| no_response())??;
        } else if percent(self.chance(), 30) {
            timeout(MAX_WAIT, self.last_exchange()).await.map_err(|_| no_response())??;
        }
        Ok(())
    }

    /// Sends a request after which the engine closes the connection, and checks that the connection ends in order.
    async fn last_exchange(&mut self) -> Result<(), Broken> {
        let exchange = self.exchange(false);
        let Exchange { requested, upload } = &exchange;
        let head = head_of(requested, *upload, "Connection: close\r\n");
        let bytes = [head, upload.bytes(&requested.body, self.chance())].concat();
        wire::write(&self.peer, &bytes, &self.requester.chance).await?;
        self.read(&exchange, false).await?;
        if exchange.requested.upload.is_some() {
            return Ok(());
        }
        if !self.incoming.bytes.is_empty() || self.incoming.more(&self.peer, &self.requester.chance).await? {
            return Err(Broken::Malformed("bytes after the last response".to_owned()));
        }
        if self.peer.is_cut() {
            return Err(Broken::Malformed("a whole response, but no farewell".to_owned()));
        }
        Ok(())
    }

    /// Chooses a request. Bytes after a broken upload have no meaning, so only a request without others may have one.
    fn exchange(&self, is_alone: bool) -> Exchange {
        let requested = self.requester.choose();
        let upload = match requested.upload {
            Some(_) if !is_alone || self.requester.is_patient => {
                one_of(self.chance(), &[Upload::Length, Upload::Chunked])
            }
            Some(number) => Upload::choose(number, self.chance(), &self.requester.ledger),
            None => Upload::None,
        };
        Exchange { requested, upload }
    }

    /// Sends one request, or several at once, and reads the responses. Returns whether the connection can be reused.
    async fn exchanges(&mut self) -> Result<bool, Broken> {
        let several = if percent(self.chance(), 10) { 3 } else { 1 };
        let mut exchanges: VecDeque<Exchange> = (0..several).map(|_| self.exchange(several == 1)).collect();
        if exchanges.len() == 1 && exchanges[0].requested.upload.is_some() && percent(self.chance(), 30) {
            return self.upload_when_expected(&exchanges[0]).await;
        }
        let bytes: Vec<u8> = exchanges
            .iter()
            .flat_map(|Exchange { requested, upload }| {
                [head_of(requested, *upload, ""), upload.bytes(&requested.body, self.chance())].concat()
            })
            .collect();
        if self.requester.is_impatient(3) {
            // It leaves before the request is complete.
            let part = below(self.chance(), bytes.len() as u64) as usize;
            if let [Exchange { requested: PageRequest { upload: Some(upload), .. }, .. }] =
                exchanges.make_contiguous()
            {
                self.requester.ledger.borrow_mut().break_upload(*upload, "the client leaves");
            }
            wire::write(&self.peer, &bytes[..part], self.chance()).await?;
            return Ok(false);
        }
        wire::write(&self.peer, &bytes, self.chance()).await?;
        let is_cut = exchanges.iter().any(|exchange| exchange.upload == Upload::Cut);
        let has_ended = is_cut || self.requester.is_impatient(5);
        if has_ended {
            self.peer.shutdown();
        }
        let leaves = self.requester.is_impatient(6);
        while let Some(exchange) = exchanges.pop_front() {
            if !self.read(&exchange, leaves).await? {
                return Ok(false);
            }
        }
        // Nothing may follow the end of its direction.
        Ok(!has_ended)
    }

    /// Sends the head of a request, and the body after a 100 (Continue). Returns whether the connection can be reused.
    async fn upload_when_expected(&mut self, exchange: &Exchange) -> Result<bool, Broken> {
        let chance = self.requester.chance.clone();
        let Exchange { requested, upload } = exchange;
        let head = head_of(requested, *upload, "Expect: 100-continue\r\n");
        wire::write(&self.peer, &head, &chance).await?;
        let response = self.head().await?;
        if response.status() != Some(100) {
            self.read_behind(exchange, &response).await?;
            return Ok(false);
        }
        wire::write(&self.peer, &upload.bytes(&requested.body, &chance), &chance).await?;
        let is_cut = *upload == Upload::Cut;
        if is_cut {
            self.peer.shutdown();
        }
        Ok(self.read(exchange, false).await? && !is_cut)
    }

    async fn head(&mut self) -> Result<Head, Broken> {
        http::head(&mut self.incoming, &self.peer, &self.requester.chance).await?.ok_or(Broken::Ended)
    }

    /// Returns whether the connection can be reused.
    async fn read(&mut self, exchange: &Exchange, leaves: bool) -> Result<bool, Broken> {
        let head = self.head().await?;
        if leaves {
            return Ok(false);
        }
        self.read_behind(exchange, &head).await
    }

    /// Reads the rest of a response. Returns whether the connection can be reused.
    async fn read_behind(&mut self, exchange: &Exchange, head: &Head) -> Result<bool, Broken> {
        let Exchange { requested, upload } = exchange;
        if !upload.is_plain() && head.status().is_some_and(|status| status >= 400) {
            // The engine may refuse the request before any VCL runs.
            return Ok(false);
        }
        self.requester.saw(head);
        self.requester.ledger.borrow_mut().check_drained(requested.at, head);
        let mut body = Vec::new();
        if !requested.is_head() && !matches!(head.status(), Some(204 | 304)) {
            body = http::body(head, &mut self.incoming, &self.peer, &self.requester.chance).await?;
        }
        self.requester.judge(requested, head, &body)?;
        Ok(upload.is_plain() && head.get("connection") != Some("close"))
    }
}

fn no_response() -> Broken {
    Broken::Malformed("no response, and its connection did not end".to_owned())
}

fn head_of(requested: &PageRequest, upload: Upload, more: &str) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\nHost: world\r\n{more}", requested.method, requested.key.path);
    for (name, value) in &requested.fields {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    upload.announce(requested.body.len(), &mut head);
    head += "\r\n";
    head.into_bytes()
}
