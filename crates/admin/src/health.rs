//! Whether the daemon is ready for traffic.

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::Mutex;

use crate::manager_link::{ManagerLink, NoReply};

/// The time for which an answer is repeated, so that the manager is asked 20 times per second at most. A balancer that checks
/// right after a `stop` must not see the answer from before it.
const FRESH: Duration = Duration::from_millis(50);
const PATIENCE: Duration = Duration::from_secs(2);

/// The last answer: `None` while the daemon is ready, else the reason.
#[derive(Debug, Default)]
pub struct Health {
    last: Mutex<Option<(Instant, Option<String>)>>,
}

impl Health {
    /// Returns why the daemon is not ready, or `None` if it is.
    pub async fn obstacle(&self, manager: &ManagerLink) -> Option<String> {
        let came = Instant::now();
        let mut last = self.last.lock().await;
        // A reply that was requested while this call waited is as fresh as its own would be.
        if let Some((at, known)) = &*last
            && (*at >= came || at.elapsed() < FRESH)
        {
            return known.clone();
        }
        let asked = Instant::now();
        let found = match obstacle(manager).await {
            Ok(found) => found,
            Err(NoReply::Busy) => Some("too many commands wait for the manager".to_owned()),
            Err(NoReply::Late) => Some("the manager does not reply".to_owned()),
        };
        *last = Some((asked, found.clone()));
        found
    }
}

async fn obstacle(manager: &ManagerLink) -> Result<Option<String>, NoReply> {
    let status = manager.command(&["status"], PATIENCE).await?;
    let state = status.text.trim().strip_prefix("Child in state ").unwrap_or_default();
    if state != "running" {
        return Ok(Some(format!("the worker is {}", if state.is_empty() { "unknown" } else { state })));
    }
    let vcls = manager.command(&["vcl.list", "-j"], PATIENCE).await?;
    Ok((!has_active(&vcls.text)).then(|| "no VCL is in use".to_owned()))
}

fn has_active(list: &str) -> bool {
    let list: Value = serde_json::from_str(list).unwrap_or_default();
    list.as_array().into_iter().flatten().any(|vcl| vcl["status"] == "active")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_active_vcl_is_found() {
        assert!(has_active(r#"[2, ["vcl.list", "-j"], 1.5, {"status": "active", "name": "boot"}]"#));
        for none in ["", "[]", r#"[2, [], 1, {"status": "available"}]"#, "{"] {
            assert!(!has_active(none), "{none}");
        }
    }
}
