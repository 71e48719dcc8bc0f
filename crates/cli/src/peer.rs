//! The messages between two workers of which one takes over from the other. While both serve requests, each sends the
//! purges and bans of its users to the other, and answers a user when the other has applied them.

use serde::{Deserialize, Serialize};

/// A message, in either direction.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PeerMessage {
    /// Apply this, and reply with `Applied`.
    Invalidate {
        /// Chosen by the sender.
        id: u64,
        /// The purge or ban.
        event: PeerEvent,
    },
    /// The invalidation with this id was applied.
    Applied {
        /// The id of the message.
        id: u64,
    },
}

/// A purge or ban.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PeerEvent {
    /// The objects that it concerns.
    pub action: PeerAction,
    /// The time at which it was requested, in seconds since the epoch.
    pub when: f64,
    /// The number of the reason in the list of the cache's reasons.
    pub reason: u8,
}

/// The objects that an invalidation concerns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum PeerAction {
    /// All variants of a key.
    Key {
        /// The hash of the key.
        digest: [u8; 32],
        /// Its effect.
        purge: PeerPurge,
    },
    /// The objects with any of these tags.
    Tags {
        /// The tags.
        tags: Vec<Vec<u8>>,
        /// Its effect.
        purge: PeerPurge,
    },
    /// The objects that meet the conditions of a ban.
    Ban {
        /// The words of the conditions.
        words: Vec<Vec<u8>>,
    },
}

/// The effect of a purge.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub enum PeerPurge {
    /// Removes the objects.
    Hard,
    /// Limits their timers, in seconds.
    Soft {
        /// The lifetime from the time of the invalidation.
        ttl: f64,
        /// Grace, unless it stays as it is.
        grace: Option<f64>,
        /// Keep, unless it stays as it is.
        keep: Option<f64>,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link;

    #[test]
    fn messages_are_decoded_as_sent_and_damage_is_an_error() {
        let soft = PeerPurge::Soft { ttl: 1.5, grace: None, keep: Some(0.0) };
        let actions = [
            PeerAction::Key { digest: [7; 32], purge: PeerPurge::Hard },
            PeerAction::Tags { tags: vec![b"a".to_vec(), Vec::new()], purge: soft },
            PeerAction::Ban { words: vec!["req.url".into(), "~".into(), "x".into()] },
        ];
        for action in actions {
            let message =
                PeerMessage::Invalidate { id: 9, event: PeerEvent { action, when: 1e9, reason: 2 } };
            let mut wire = Vec::new();
            link::send(&mut wire, &message).unwrap();
            assert_eq!(link::receive::<PeerMessage>(&mut wire.as_slice()).unwrap(), message);
            for length in 0..wire.len() {
                assert!(link::receive::<PeerMessage>(&mut &wire[..length]).is_err());
            }
        }
    }
}
