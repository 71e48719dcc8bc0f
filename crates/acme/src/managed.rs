//! One certificate under the client's care: what is stored, and when something is to be done next.

use std::time::{Duration, Instant};

use lacquer_tls::Leaf;

use crate::fault::Fault;
use crate::name::Names;
use crate::schedule::{self, chance};
use crate::stored::Stored;

/// A certificate.
pub struct Managed {
    names: Names,
    /// A client has asked for it; no option names it.
    is_on_demand: bool,
    held: Option<Held>,
    failures: u32,
    /// No attempt is made before this moment.
    not_before: Option<Instant>,
    fault: Option<Fault>,
}

/// A certificate that is stored.
struct Held {
    leaf: Leaf,
    renewal_id: Option<(Vec<u8>, Vec<u8>)>,
    /// The time of its renewal, in seconds since the epoch.
    renewal: f64,
    /// When the server is asked again for the window of the renewal.
    ask_at: Option<Instant>,
}

impl Managed {
    pub fn new(names: Names, stored: Option<&Stored>) -> Managed {
        let held = stored.map(Held::of);
        Managed { names, is_on_demand: false, held, failures: 0, not_before: None, fault: None }
    }

    /// Creates one that a client has asked for.
    pub fn on_demand(names: Names, stored: Option<&Stored>) -> Managed {
        Managed { is_on_demand: true, ..Managed::new(names, stored) }
    }

    pub fn is_on_demand(&self) -> bool {
        self.is_on_demand
    }

    pub fn names(&self) -> &Names {
        &self.names
    }

    pub fn leaf(&self) -> Option<&Leaf> {
        self.held.as_ref().map(|held| &held.leaf)
    }

    pub fn failures(&self) -> u32 {
        self.failures
    }

    pub fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Returns the parts that identify the certificate to the server.
    pub fn renewal_id(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.held.as_ref().and_then(|held| held.renewal_id.clone())
    }

    /// Returns the time until the next attempt. `real` is the time in seconds since the epoch.
    pub fn due_in(&self, real: f64, now: Instant) -> Duration {
        let rest = self.not_before.map_or(Duration::ZERO, |at| at.saturating_duration_since(now));
        let renewal = self.held.as_ref().map_or(0.0, |held| held.renewal - real);
        rest.max(Duration::try_from_secs_f64(renewal).unwrap_or_default())
    }

    /// Makes an attempt due at once.
    pub fn hurry(&mut self) {
        self.not_before = None;
        if let Some(held) = &mut self.held {
            held.renewal = 0.0;
        }
    }

    /// Returns whether the server is to be asked for the window of the renewal.
    pub fn asks_for_window(&self, now: Instant) -> bool {
        let asks = |held: &Held| held.renewal_id.is_some() && held.ask_at.is_some_and(|at| at <= now);
        self.held.as_ref().is_some_and(asks)
    }

    /// Records the server's window for the renewal, and when to ask again. Returns the new time of the renewal if it
    /// was moved to an earlier time.
    pub fn suggest(&mut self, window: Option<(f64, f64)>, again: Duration, now: Instant) -> Option<f64> {
        let held = self.held.as_mut()?;
        held.ask_at = Some(now + again);
        let (start, end) = window?;
        // A window that was applied before gives another random time, which would move the renewal each time.
        if (start..=end).contains(&held.renewal) {
            return None;
        }
        let renewal = schedule::suggested(&held.leaf, (start, end), chance());
        let is_earlier = renewal < held.renewal;
        held.renewal = renewal;
        is_earlier.then_some(renewal)
    }

    /// Records a new certificate.
    pub fn succeed(&mut self, stored: &Stored, now: Instant) {
        let held = Held::of(stored);
        self.not_before = Some(now + schedule::rest(&held.leaf));
        self.held = Some(held);
        self.failures = 0;
        self.fault = None;
    }

    /// Records a failure. Returns the time until the next attempt.
    pub fn fail(&mut self, fault: Fault, now: Instant) -> Duration {
        self.failures = self.failures.saturating_add(1);
        let pause = schedule::pause(self.failures, fault.wait(), chance());
        self.not_before = Some(now + pause);
        self.fault = Some(fault);
        pause
    }
}

impl Held {
    fn of(stored: &Stored) -> Held {
        let leaf = stored.leaf().clone();
        let renewal = schedule::renewal(&leaf, chance());
        Held { leaf, renewal_id: stored.renewal_id(), renewal, ask_at: Some(Instant::now()) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use lacquer_tls::{Bundle, File, Files};
    use rcgen::{CertificateParams, KeyPair, date_time_ymd};

    use super::*;

    const DAY: f64 = 86_400.0;
    /// The beginning of the certificate's life: 2030-01-01.
    const START: f64 = 1_893_456_000.0;

    fn stored() -> Stored {
        let mut params = CertificateParams::new(["a.example".to_owned()]).unwrap();
        (params.not_before, params.not_after) = (date_time_ymd(2030, 1, 1), date_time_ymd(2030, 4, 1));
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem() + &key.serialize_pem();
        let file = File { name: "a", bytes: pem.as_bytes() };
        assert!(Bundle::load(Files { certificate: file, key: None, dh: None, staple: None }).is_ok());
        Stored::parse(Path::new("a"), pem.as_bytes(), &Names::parse("a.example").unwrap()).unwrap()
    }

    fn days(managed: &Managed, real: f64, now: Instant) -> f64 {
        managed.due_in(real, now).as_secs_f64() / DAY
    }

    #[test]
    fn renewals_follow_the_clock() {
        let (names, now) = (Names::parse("a.example").unwrap(), Instant::now());
        let mut managed = Managed::new(names.clone(), None);
        assert_eq!(managed.due_in(START, now), Duration::ZERO);
        managed.succeed(&stored(), now);
        assert!((57.2..=60.0).contains(&days(&managed, START, now)));
        // A clock that was set back waits, one that was set forward renews, and rests between two renewals.
        assert!(days(&managed, START - 100.0 * DAY, now) > 150.0);
        assert_eq!(managed.due_in(START + 100.0 * DAY, now), Duration::from_hours(1));
        assert_eq!(managed.due_in(START + 100.0 * DAY, now + Duration::from_hours(1)), Duration::ZERO);
        let restarted = Managed::new(names, Some(&stored()));
        assert!((57.2..=60.0).contains(&days(&restarted, START, now)));
    }

    #[test]
    fn failures_wait_longer_each_time() {
        let now = Instant::now();
        let mut managed = Managed::new(Names::parse("a.example").unwrap(), None);
        let pauses: Vec<_> = (0..10).map(|_| managed.fail(Fault::new("x"), now)).collect();
        assert!(pauses[0] >= Duration::from_mins(1) && pauses[9] >= Duration::from_hours(24), "{pauses:?}");
        assert!(managed.due_in(START, now) >= Duration::from_hours(24));
        managed.hurry();
        assert_eq!(managed.due_in(START, now), Duration::ZERO);
    }

    #[test]
    fn servers_suggest_windows() {
        let now = Instant::now();
        let mut managed = Managed::new(Names::parse("a.example").unwrap(), Some(&stored()));
        let window = (START + 10.0 * DAY, START + 11.0 * DAY);
        let again = Duration::from_hours(6);
        let renewal = managed.suggest(Some(window), again, now).unwrap();
        assert!((window.0..=window.1).contains(&renewal));
        assert_eq!(managed.suggest(Some(window), again, now), None);
        assert!((10.0..=11.0).contains(&days(&managed, START, now)));
        // A window beyond the certificate's life ends before it.
        managed.suggest(Some((START + 200.0 * DAY, START + 300.0 * DAY)), again, now);
        assert!(days(&managed, START, now) < 90.0);
        managed.suggest(None, again, now);
        assert!(!managed.asks_for_window(now));
    }
}
