//! A name that is kept up to date.

use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use tokio::sync::Notify;

use crate::found::{Failure, Found, Place};
use crate::settings::Settings;

/// The time between two lookups of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Refresh {
    pub from: TtlFrom,
    /// The user's TTL. Answers without a TTL use it too.
    pub ttl: Option<Duration>,
    /// Replaces [`Settings::retry`].
    pub retry: Option<Duration>,
}

/// The records of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Host,
    Service,
}

/// The choice between the TTL of the answer and that of the user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum TtlFrom {
    #[default]
    Answer,
    User,
    Shorter,
    Longer,
}

impl Refresh {
    /// Returns the time from a successful lookup to the next one.
    fn after_success(self, answer: Option<Duration>, settings: &Settings) -> Duration {
        let user = self.ttl.unwrap_or(settings.ttl.1);
        let wanted = match (self.from, answer) {
            (TtlFrom::User, _) | (_, None) => user,
            (TtlFrom::Answer, Some(answer)) => answer,
            (TtlFrom::Shorter, Some(answer)) => answer.min(user),
            (TtlFrom::Longer, Some(answer)) => answer.max(user),
        };
        // The user's own choice is not limited from above.
        let most = if wanted == user { user } else { settings.ttl.1 };
        wanted.min(most).max(settings.ttl.0)
    }

    /// Returns the time from a failed lookup to the next one: that of the settings, or less if the negative answer
    /// expires before.
    fn after_failure(self, answer: Option<Duration>, settings: &Settings) -> Duration {
        let retry = self.retry.unwrap_or(settings.retry);
        answer.map_or(retry, |ttl| ttl.min(retry)).max(settings.ttl.0)
    }
}

/// Receives each change of a name's addresses, on the thread of the lookups.
pub trait Listener: Send + Sync {
    fn changed(&self, answer: &Answer);
}

/// The current knowledge of a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The addresses of the last successful lookup, in ascending order.
    pub addresses: Vec<IpAddr>,
    /// The places of a service, by ascending priority.
    pub places: Vec<Place>,
    /// The reason why the last lookup failed.
    pub failure: Option<String>,
    /// Whether a lookup has ended.
    pub is_known: bool,
}

impl Answer {
    /// Returns whether it can be used: a lookup has ended, or another process had an answer.
    fn is_usable(&self) -> bool {
        self.is_known || !self.addresses.is_empty() || !self.places.is_empty()
    }
}

/// A name, which is looked up as long as this value lives.
pub struct Name {
    host: String,
    kind: Kind,
    refresh: Refresh,
    answer: Mutex<Answer>,
    ended: Condvar,
    /// Wakes tasks that wait for the first lookup.
    first: Notify,
    /// Ends the wait for the next lookup.
    pub(crate) due: Arc<Notify>,
    listeners: Mutex<Vec<Weak<dyn Listener>>>,
}

impl Name {
    /// Creates a name, with the last good answer of another process.
    pub(crate) fn new(host: &str, kind: Kind, refresh: Refresh, answer: Answer) -> Name {
        Name {
            host: host.to_owned(),
            kind,
            refresh,
            answer: Mutex::new(answer),
            ended: Condvar::new(),
            first: Notify::new(),
            due: Arc::default(),
            listeners: Mutex::default(),
        }
    }

    pub fn host(&self) -> &str {
        &self.host
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub fn answer(&self) -> Answer {
        self.answer.lock().clone()
    }

    /// Returns whether a lookup has ended.
    fn is_known(&self) -> bool {
        self.answer.lock().is_known
    }

    /// Returns whether a lookup has ended, or another process had an answer.
    pub fn is_usable(&self) -> bool {
        self.answer.lock().is_usable()
    }

    /// Returns whether a lookup has found addresses, or another process had some.
    pub fn has_addresses(&self) -> bool {
        !self.answer.lock().addresses.is_empty()
    }

    /// Adds a listener. It receives the current state at once, if that can be used.
    pub fn listen(&self, listener: &Arc<dyn Listener>) {
        self.listeners.lock().push(Arc::downgrade(listener));
        let answer = self.answer();
        if answer.is_usable() {
            listener.changed(&answer);
        }
    }

    /// Waits until a lookup has ended.
    pub async fn first_lookup(&self) {
        loop {
            let mut first = std::pin::pin!(self.first.notified());
            first.as_mut().enable();
            if self.is_known() {
                return;
            }
            first.await;
        }
    }

    /// Blocks the thread until a lookup has ended. Returns false if none has at this time.
    pub fn wait_until(&self, until: Instant) -> bool {
        let mut answer = self.answer.lock();
        while !answer.is_known {
            if self.ended.wait_until(&mut answer, until).timed_out() {
                return answer.is_known;
            }
        }
        true
    }

    /// Stores the outcome of a lookup, and informs the listeners of a change.
    pub(crate) fn update(&self, outcome: Result<Found, Failure>, settings: &Settings) -> Updated {
        let (now, next, has_changed) = {
            let mut answer = self.answer.lock();
            let before = answer.clone();
            let next = match outcome {
                Ok(found) => {
                    *answer = Answer {
                        addresses: found.addresses,
                        places: found.places,
                        failure: None,
                        is_known: true,
                    };
                    self.refresh.after_success(found.ttl, settings)
                }
                Err(failure) => {
                    answer.failure = Some(failure.text);
                    answer.is_known = true;
                    self.refresh.after_failure(failure.ttl, settings)
                }
            };
            let has_changed = answer.addresses != before.addresses || answer.places != before.places;
            ((*answer != before).then(|| answer.clone()), next, has_changed)
        };
        if let Some(answer) = now {
            let listeners: Vec<_> = {
                let mut listeners = self.listeners.lock();
                listeners.retain(|listener| listener.strong_count() > 0);
                listeners.iter().filter_map(Weak::upgrade).collect()
            };
            for listener in listeners {
                listener.changed(&answer);
            }
        }
        self.ended.notify_all();
        self.first.notify_waiters();
        Updated { next, has_changed }
    }
}

/// The consequences of a lookup.
pub(crate) struct Updated {
    /// The time until the next one.
    pub next: Duration,
    /// Whether there are other addresses or places than before.
    pub has_changed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_between_lookups_are_within_limits() {
        let settings = Settings::default();
        let s = Duration::from_secs;
        let next = |from, ttl: Option<u64>, answer: Option<u64>| {
            Refresh { from, ttl: ttl.map(s), retry: None }.after_success(answer.map(s), &settings)
        };
        assert_eq!(next(TtlFrom::Answer, None, Some(60)), s(60));
        assert_eq!(next(TtlFrom::Answer, None, Some(0)), s(1), "an answer that expires at once");
        assert_eq!(next(TtlFrom::Answer, None, Some(u64::from(u32::MAX))), s(3600));
        assert_eq!(next(TtlFrom::Answer, None, None), s(3600), "a static name");
        assert_eq!(next(TtlFrom::User, Some(7200), Some(60)), s(7200));
        assert_eq!(next(TtlFrom::Shorter, Some(30), Some(60)), s(30));
        assert_eq!(next(TtlFrom::Longer, Some(30), Some(60)), s(60));
        let failed = |retry: Option<u64>, answer: Option<u64>| {
            let refresh = Refresh { retry: retry.map(s), ..Refresh::default() };
            refresh.after_failure(answer.map(s), &settings)
        };
        assert_eq!((failed(None, None), failed(None, Some(2)), failed(None, Some(900))), (s(5), s(2), s(5)));
        assert_eq!((failed(Some(30), None), failed(None, Some(0))), (s(30), s(1)));
    }

    #[test]
    fn a_failure_keeps_the_addresses() {
        let name = Name::new("a", Kind::Host, Refresh::default(), Answer::default());
        let settings = Settings::default();
        let addresses: Vec<IpAddr> = vec!["10.0.0.1".parse().unwrap()];
        let failed = name.update(Err(Failure { text: "first".into(), ttl: None }), &settings);
        assert!(!failed.has_changed);
        assert!(name.answer().addresses.is_empty());
        let found = name.update(Ok(Found { addresses: addresses.clone(), ..Found::default() }), &settings);
        assert!(found.has_changed);
        assert_eq!(name.answer().failure, None);
        name.update(Err(Failure { text: "gone".into(), ttl: None }), &settings);
        assert_eq!(
            name.answer(),
            Answer { addresses, failure: Some("gone".into()), is_known: true, ..Answer::default() }
        );
    }
}
