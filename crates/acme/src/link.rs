//! The connection between the client's thread and the manager.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

use crate::challenge::Challenge;
use crate::fault::Fault;
use crate::name::Names;

/// The maximum time for the manager to do what an event asks for. It waits for its worker meanwhile.
const PATIENCE: Duration = Duration::from_mins(2);

/// The answer to an event: success, or a text for the operator.
pub type Reply = SyncSender<Result<(), String>>;

/// A request of the client to the manager.
#[derive(Debug)]
pub enum Event {
    /// Report a text to the operator.
    Report { text: String, is_error: bool },
    /// Publish these challenges, and no others.
    Challenges { all: Vec<Challenge>, reply: Reply },
    /// Load the new certificate in this file.
    Certificate { names: Names, path: PathBuf, reply: Reply },
}

/// The end of the client's thread.
pub struct Link {
    events: Sender<Event>,
    wake: UnixStream,
}

/// The end of the manager.
#[derive(Debug)]
pub struct Inbox {
    events: Receiver<Event>,
    wake: UnixStream,
}

/// Creates both ends.
pub fn pair() -> io::Result<(Link, Inbox)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    let (sender, receiver) = channel();
    Ok((Link { events: sender, wake: ours }, Inbox { events: receiver, wake: theirs }))
}

impl Link {
    fn send(&self, event: Event) {
        if self.events.send(event).is_ok() {
            // A full buffer contains enough bytes to wake the manager.
            let _ = (&self.wake).write(&[0]);
        }
    }

    /// Reports a text to the operator.
    pub fn report(&self, text: String, is_error: bool) {
        self.send(Event::Report { text, is_error });
    }

    /// Sends an event and waits for its answer.
    pub fn ask(&self, event: impl FnOnce(Reply) -> Event) -> Result<(), Fault> {
        let (reply, answer) = sync_channel(1);
        self.send(event(reply));
        match answer.recv_timeout(PATIENCE) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(why)) => Err(Fault::new(why.trim_end())),
            Err(_) => Err(Fault::new("the manager does not answer")),
        }
    }
}

impl Inbox {
    /// Returns the descriptor that is readable while there are events.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Removes and returns all events.
    pub fn take(&mut self) -> Vec<Event> {
        let mut bytes = [0; 64];
        while matches!(self.wake.read(&mut bytes), Ok(read) if read == bytes.len()) {}
        self.events.try_iter().collect()
    }
}
