//! The lists of bans, VCL programs and storages for dashboards, read for all of them at once.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use lacquer_inspect::counters;
use lacquer_inspect::directory::Directory;
use serde_json::{Value, json};
use tokio::sync::watch::{Receiver, Sender, channel};

use crate::manager_link::ManagerLink;

const PAUSE: Duration = Duration::from_secs(5);
const PATIENCE: Duration = Duration::from_secs(5);
/// Bans that dashboards get.
const BANS: usize = 100;

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

    /// Reads the lists again and again while a dashboard is open.
    pub async fn run(self: Arc<Lists>, manager: ManagerLink, directory: Directory) {
        loop {
            if self.0.receiver_count() > 0 {
                let bans = items(&manager, &["ban.list", "-j"], BANS).await;
                let vcls = items(&manager, &["vcl.list", "-j"], usize::MAX).await;
                let storages = items(&manager, &["storage.list", "-j"], usize::MAX).await;
                // Longer URLs are cut off in the log.
                let reclen = items(&manager, &["param.show", "-j", "vsl_reclen"], 1).await;
                let record_length = reclen.first().map(|parameter| parameter["value"].clone());
                let lists = json!({
                    "bans": bans, "vcls": vcls, "storages": storages, "tags": tags(&directory),
                    "record_length": record_length,
                });
                self.0.send_replace(lists.to_string().into());
            }
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Returns the items of a list in JSON: behind version, words and time.
async fn items(manager: &ManagerLink, words: &[&str], most: usize) -> Vec<Value> {
    let reply = manager.command(words, PATIENCE).await;
    let list = reply.ok().and_then(|reply| serde_json::from_str(&reply.text).ok());
    match list {
        Some(Value::Array(all)) => all.into_iter().skip(3).take(most).collect(),
        _ => Vec::new(),
    }
}

/// Returns the number of tags; `None` if no VCL imports the module that counts them.
fn tags(directory: &Directory) -> Option<u64> {
    let found = counters::read(directory).ok()?;
    found.iter().find(|counter| counter.name.ends_with("XKEY.g_keys")).map(|counter| counter.value)
}
