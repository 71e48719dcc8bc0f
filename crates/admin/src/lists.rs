//! The lists of bans, VCL programs and storages for dashboards, read for all of them at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lacquer_inspect::counters::read_chosen;
use lacquer_inspect::directory::Directory;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::task::spawn_blocking;

use crate::manager_link::ManagerLink;

const PAUSE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(5);
/// Bans that dashboards get.
const BANS: usize = 100;
/// The list of more bans than this is not read: it has all of them, and costs the worker, the manager and this process time.
const MOST_BANS: u64 = 10_000;

/// The latest lists, as JSON.
#[derive(Debug)]
pub struct Lists(Sender<Bytes>);

impl Lists {
    pub fn new() -> Lists {
        Lists(channel(Bytes::new()).0)
    }

    pub fn subscribe(&self) -> Receiver<Bytes> {
        self.0.subscribe()
    }

    /// Reads the lists again and again while a dashboard is open. `reads` limits the reads of counters.
    pub async fn run(self: Arc<Lists>, manager: ManagerLink, directory: Directory, reads: Arc<Semaphore>) {
        loop {
            if self.0.receiver_count() > 0 {
                let Counts { tags, bans: ban_count } = counts(&directory, &reads).await;
                let bans = match ban_count {
                    Some(MOST_BANS..) => None,
                    _ => items(&manager, &["ban.list", "-j"], BANS).await,
                };
                let vcls = items(&manager, &["vcl.list", "-j"], usize::MAX).await;
                let storages = items(&manager, &["storage.list", "-j"], usize::MAX).await;
                // Longer URLs are cut off in the log.
                let reclen = items(&manager, &["param.show", "-j", "vsl_reclen"], 1).await;
                let record_length = reclen.as_deref().and_then(<[Value]>::first);
                let lists = json!({
                    "bans": bans, "ban_count": ban_count, "vcls": vcls, "storages": storages, "tags": tags,
                    "record_length": record_length.map(|parameter| &parameter["value"]),
                });
                self.0.send_replace(lists.to_string().into());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Asks the manager for a list, and returns its first items. Returns `None` if there is no such reply.
async fn items(manager: &ManagerLink, words: &[&str], most: usize) -> Option<Vec<Value>> {
    let reply = manager.command(words, PATIENCE).await.ok()?;
    let mut all = items_of(&reply.text)?;
    all.truncate(most);
    Some(all)
}

/// Returns the items of a list that the manager replied in JSON. They follow its version, the command and the time.
pub fn items_of(reply: &str) -> Option<Vec<Value>> {
    match serde_json::from_str(reply) {
        Ok(Value::Array(all)) => Some(all.into_iter().skip(3).collect()),
        _ => None,
    }
}

/// Counts of things that are in lists. `None` without a worker.
#[derive(Debug, Default)]
struct Counts {
    /// Also `None` if no VCL imports the module that counts them.
    tags: Option<u64>,
    bans: Option<u64>,
}

impl Counts {
    fn read(directory: &Directory) -> Counts {
        let mut counts = Counts::default();
        // There may be very many others.
        let is_chosen = |set: &str| set == "MAIN" || set.ends_with("XKEY");
        for set in read_chosen(directory, &is_chosen).unwrap_or_default() {
            for (element, value) in set.counters() {
                match (&*set.ident, &*element.name) {
                    ("MAIN", "bans") => counts.bans = Some(value),
                    (_, "g_keys") => counts.tags = counts.tags.or(Some(value)),
                    _ => {}
                }
            }
        }
        counts
    }
}

/// Reads the counts on a thread where that may take long, while no request reads.
async fn counts(directory: &Directory, reads: &Arc<Semaphore>) -> Counts {
    let Ok(permit) = Arc::clone(reads).acquire_owned().await else { return Counts::default() };
    let directory = directory.clone();
    let read = spawn_blocking(move || {
        let _permit = permit;
        Counts::read(&directory)
    });
    read.await.unwrap_or_default()
}
