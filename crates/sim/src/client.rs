//! Simulated clients of HTTP/1: each has a connection and sends some requests on it. Some are slow, some leave early.

use std::collections::VecDeque;
use std::fmt::Write as _;

use lacquer_net::memory::Peer;
use tokio::time::timeout;

use crate::asked::Asked;
use crate::asker::Asker;
use crate::http::{self, Broken, Head};
use crate::pipe;
use crate::upload::Upload;
use crate::wire::{self, Chance, Incoming, PATIENCE, below, one_of, pause, percent};

pub struct Client {
    pub asker: Asker,
    pub peer: Peer,
    pub incoming: Incoming,
    pub most_requests: u64,
}

/// A request on its way.
struct Exchange {
    asked: Asked,
    upload: Upload,
}

impl Client {
    fn chance(&self) -> &Chance {
        &self.asker.chance
    }

    /// Sends requests until it has had enough or the connection ends.
    pub async fn run(mut self) {
        let result = self.session().await;
        let mut ledger = self.asker.ledger.borrow_mut();
        match result {
            Ok(()) | Err(Broken::Ended) => ledger.note(format_args!("a client ends")),
            Err(Broken::Malformed(why)) => ledger.fault(&format!("a client got {why}")),
        }
    }

    async fn session(&mut self) -> Result<(), Broken> {
        for _ in 0..=below(self.chance(), self.most_requests) {
            let longest = one_of(self.chance(), &[0, 5, 1000]);
            pause(self.chance(), longest).await;
            let stays = timeout(PATIENCE, self.exchanges()).await;
            if !stays.map_err(|_| no_response())?? {
                return Ok(());
            }
        }
        if percent(self.chance(), 20) {
            let piped = pipe::of_client(&self.peer, &mut self.incoming, &self.asker);
            timeout(PATIENCE, piped).await.map_err(|_| no_response())??;
        }
        Ok(())
    }

    /// Chooses a request. What follows a broken upload has no meaning, so only a lone one may be broken.
    fn exchange(&self, is_alone: bool) -> Exchange {
        let asked = self.asker.choose();
        let upload = match asked.upload {
            Some(_) if !is_alone || self.asker.is_patient => {
                one_of(self.chance(), &[Upload::Length, Upload::Chunked])
            }
            Some(number) => Upload::choose(number, self.chance(), &self.asker.ledger),
            None => Upload::None,
        };
        Exchange { asked, upload }
    }

    /// Sends one request, or several at once, and reads the responses. Returns whether the connection can be used again.
    async fn exchanges(&mut self) -> Result<bool, Broken> {
        let several = if percent(self.chance(), 10) { 3 } else { 1 };
        let mut exchanges: VecDeque<Exchange> = (0..several).map(|_| self.exchange(several == 1)).collect();
        if exchanges.len() == 1 && exchanges[0].asked.upload.is_some() && percent(self.chance(), 30) {
            return self.upload_when_expected(&exchanges[0]).await;
        }
        let bytes: Vec<u8> = exchanges
            .iter()
            .flat_map(|Exchange { asked, upload }| {
                [head_of(asked, *upload, ""), upload.bytes(&asked.body, self.chance())].concat()
            })
            .collect();
        if self.asker.is_impatient(3) {
            // It leaves before it has asked.
            let part = below(self.chance(), bytes.len() as u64) as usize;
            if let [Exchange { asked: Asked { upload: Some(upload), .. }, .. }] = exchanges.make_contiguous()
            {
                self.asker.ledger.borrow_mut().break_upload(*upload, "the client leaves");
            }
            wire::write(&self.peer, &bytes[..part], self.chance()).await?;
            return Ok(false);
        }
        wire::write(&self.peer, &bytes, self.chance()).await?;
        let is_cut = exchanges.iter().any(|exchange| exchange.upload == Upload::Cut);
        if is_cut || self.asker.is_impatient(5) {
            self.peer.shutdown();
        }
        let leaves = self.asker.is_impatient(6);
        while let Some(exchange) = exchanges.pop_front() {
            if !self.read(&exchange, leaves).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Sends the head of a request, and the body once the engine wants it. Returns whether the connection can be used
    /// again.
    async fn upload_when_expected(&mut self, exchange: &Exchange) -> Result<bool, Broken> {
        let chance = self.asker.chance.clone();
        let Exchange { asked, upload } = exchange;
        let head = head_of(asked, *upload, "Expect: 100-continue\r\n");
        wire::write(&self.peer, &head, &chance).await?;
        let response = self.head().await?;
        if response.status() != Some(100) {
            self.read_behind(exchange, &response).await?;
            return Ok(false);
        }
        wire::write(&self.peer, &upload.bytes(&asked.body, &chance), &chance).await?;
        if *upload == Upload::Cut {
            self.peer.shutdown();
        }
        self.read(exchange, false).await
    }

    async fn head(&mut self) -> Result<Head, Broken> {
        http::head(&mut self.incoming, &self.peer, &self.asker.chance).await?.ok_or(Broken::Ended)
    }

    /// Returns whether the connection can be used again.
    async fn read(&mut self, exchange: &Exchange, leaves: bool) -> Result<bool, Broken> {
        let head = self.head().await?;
        if leaves {
            return Ok(false);
        }
        self.read_behind(exchange, &head).await
    }

    /// Reads the rest of a response. Returns whether the connection can be used again.
    async fn read_behind(&mut self, exchange: &Exchange, head: &Head) -> Result<bool, Broken> {
        let Exchange { asked, upload } = exchange;
        if !upload.is_plain() && head.status().is_some_and(|status| status >= 400) {
            // The engine may refuse it before any VCL.
            return Ok(false);
        }
        self.asker.saw(head);
        let mut body = Vec::new();
        if !asked.is_head() && !matches!(head.status(), Some(204 | 304)) {
            body = http::body(head, &mut self.incoming, &self.peer, &self.asker.chance).await?;
        }
        self.asker.judge(asked, head, &body)?;
        Ok(upload.is_plain() && head.get("connection") != Some("close"))
    }
}

fn no_response() -> Broken {
    Broken::Malformed("no response, and its connection did not end".to_owned())
}

fn head_of(asked: &Asked, upload: Upload, more: &str) -> Vec<u8> {
    let mut head = format!("{} {} HTTP/1.1\r\nHost: world\r\n{more}", asked.method, asked.key.path);
    for (name, value) in &asked.fields {
        let _ = write!(head, "{name}: {value}\r\n");
    }
    upload.announce(asked.body.len(), &mut head);
    head += "\r\n";
    head.into_bytes()
}
