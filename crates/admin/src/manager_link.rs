//! The connections to the manager: a thread for each runs commands one after the other, as the management port does.

use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use lacquer_cli::status;
use lacquer_inspect::Fault;
use lacquer_inspect::management::{self, Management, Reply as Response};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::limits::{COMMAND_TIME, COMMANDS};
use crate::threads;

/// A use of the connection. It returns false if the connection is of no more use.
type Job = Box<dyn FnOnce(&mut Management) -> bool + Send>;

/// A connection to the manager.
#[derive(Clone, Debug)]
pub struct ManagerLink {
    jobs: SyncSender<Job>,
}

/// Why there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoReply {
    /// Too many commands wait.
    Busy,
    /// The manager did not reply in time.
    Late,
}

impl ManagerLink {
    /// Uses a connection. The process ends when that ends: the manager then starts another process.
    pub fn start(stream: UnixStream, name: &str) -> std::io::Result<ManagerLink> {
        let (jobs, waiting) = sync_channel(COMMANDS);
        threads::start(name, move || {
            if let Err(fault) = serve(stream, &waiting) {
                eprintln!("The admin listener has lost the manager: {}", fault.what);
            }
            std::process::exit(1)
        })?;
        Ok(ManagerLink { jobs })
    }

    /// Runs a function with the connection.
    pub async fn run<T: Send + 'static>(
        &self,
        limit: Duration,
        job: impl FnOnce(&mut Management) -> Result<T, Fault> + Send + 'static,
    ) -> Result<Result<T, Fault>, NoReply> {
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |management| {
            let _ = sender.send(job(management));
            // A reply that the function did not wait for would be taken for that of the next command.
            management.command("ping").is_ok_and(|reply| reply.text.starts_with("PONG"))
        });
        self.add(job)?;
        match timeout(limit, receiver).await {
            Ok(Ok(done)) => Ok(done),
            _ => Err(NoReply::Late),
        }
    }

    /// Runs a command. The reply may be a refusal.
    pub async fn command(&self, words: &[&str], limit: Duration) -> Result<Response, NoReply> {
        let line = match management::line(words) {
            Ok(line) => line,
            Err(why) => return Ok(Response { status: status::PARAM, text: why.to_owned() }),
        };
        let (sender, receiver) = oneshot::channel();
        let job: Job = Box::new(move |management| {
            let reply = management.command(&line);
            let is_usable = reply.is_ok();
            let _ = sender.send(reply);
            is_usable
        });
        self.add(job)?;
        match timeout(limit.min(COMMAND_TIME), receiver).await {
            Ok(Ok(Ok(reply))) => Ok(reply),
            _ => Err(NoReply::Late),
        }
    }

    fn add(&self, job: Job) -> Result<(), NoReply> {
        self.jobs.try_send(job).map_err(|failed| match failed {
            TrySendError::Full(_) => NoReply::Busy,
            TrySendError::Disconnected(_) => NoReply::Late,
        })
    }
}

fn serve(stream: UnixStream, jobs: &Receiver<Job>) -> Result<(), Fault> {
    let mut management = Management::inherited(stream)?;
    while let Ok(job) = jobs.recv() {
        if !job(&mut management) {
            return Err(Fault::new("it does not reply", ""));
        }
    }
    Ok(())
}
