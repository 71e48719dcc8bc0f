//! Both ends of pipes. Each end sends its bytes, reads those of the other, and ends its direction when it has sent all.

use std::cell::RefCell;
use std::rc::Rc;

use lacquer_net::memory::Peer;
use tokio::time::timeout;

use crate::http::{self, Broken, Head};
use crate::ledger::{Direction, Ledger, PipeNumber};
use crate::requester::Requester;
use crate::wire::{self, Chance, Incoming, MAX_WAIT, below, one_of, percent};

/// The status with which an origin confirms that the pipe is open.
const OPEN: u16 = 101;

/// One end of a pipe.
struct End<'e> {
    chance: &'e Chance,
    ledger: &'e Rc<RefCell<Ledger>>,
    peer: &'e Peer,
    number: PipeNumber,
    /// The direction that this end reads.
    reads: Direction,
}

/// Opens a pipe to an origin, and uses it to its end.
pub async fn of_client(peer: &Peer, incoming: &mut Incoming, requester: &Requester) -> Result<(), Broken> {
    let Requester { chance, ledger, .. } = requester;
    let length = || below(chance, one_of(chance, &[1, 1000, 50_000])) as usize;
    let (up, down) = (length(), length());
    let number = ledger.borrow_mut().pipe(up, down);
    let head = format!("GET /pipe/{number} HTTP/1.1\r\nHost: world\r\nX-Pipe: {number}\r\n\r\n");
    wire::write(peer, head.as_bytes(), chance).await?;
    if percent(chance, 10) {
        ledger.borrow_mut().leave_pipe(number);
        return Ok(());
    }
    let end = End { chance, ledger, peer, number, reads: Direction::Down };
    end.exchange(incoming).await
}

/// Serves a pipe that the engine has opened, until it ends. `leaves` ends it too early.
pub async fn of_origin(
    request: &Head,
    peer: &Peer,
    incoming: &mut Incoming,
    (chance, ledger): (&Chance, &Rc<RefCell<Ledger>>),
    leaves: bool,
) -> Result<(), Broken> {
    let number = request.number("x-pipe").ok_or_else(|| Broken::Malformed("a pipe without number".into()))?;
    if leaves {
        ledger.borrow_mut().leave_pipe(number);
        return Ok(());
    }
    let end = End { chance, ledger, peer, number, reads: Direction::Up };
    if timeout(MAX_WAIT, end.exchange(incoming)).await.is_err() {
        ledger.borrow_mut().fault(&format!("pipe {number} does not end at the origin"));
    }
    Ok(())
}

impl End<'_> {
    async fn exchange(&self, incoming: &mut Incoming) -> Result<(), Broken> {
        let is_origin = self.reads == Direction::Up;
        let sent =
            self.ledger.borrow().piped(self.number, if is_origin { Direction::Down } else { Direction::Up });
        let write = async {
            if is_origin {
                let head = format!("HTTP/1.1 {OPEN} Switching Protocols\r\n\r\n");
                wire::write(self.peer, head.as_bytes(), self.chance).await?;
            }
            wire::write(self.peer, &sent, self.chance).await?;
            self.peer.shutdown();
            Ok::<_, Broken>(())
        };
        // An end that cannot write detects the cause when it reads.
        let (_, read) = wire::both(write, self.read(incoming)).await;
        read
    }

    async fn read(&self, incoming: &mut Incoming) -> Result<(), Broken> {
        if self.reads == Direction::Down {
            let head = http::head(incoming, self.peer, self.chance).await;
            match head {
                Ok(Some(head)) if head.status() == Some(OPEN) => {}
                // The engine did not open a pipe.
                _ => return Ok(()),
            }
        }
        while matches!(incoming.more(self.peer, self.chance).await, Ok(true)) {}
        self.ledger.borrow_mut().check_pipe(self.number, self.reads, &incoming.bytes, self.peer.is_cut());
        incoming.bytes.clear();
        Ok(())
    }
}
