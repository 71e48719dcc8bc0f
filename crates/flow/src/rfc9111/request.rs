//! The directives of a request (RFC 9111 section 5.2.1), and their effect on a stored response.

use lacquer_http::directives::directives;

use crate::lifetime::Lifetime;

/// The directives of a request. Numbers are in seconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wishes {
    pub max_age: Option<u32>,
    pub min_fresh: Option<u32>,
    pub max_stale: Option<u32>,
    pub no_cache: bool,
    pub no_store: bool,
    pub only_if_cached: bool,
}

impl Wishes {
    /// Reads the value of `Cache-Control`, whose lines must have been merged. Of several equal directives, the first
    /// counts. An invalid `max-age` demands a new response, and an invalid permission permits nothing.
    pub fn of(value: &[u8]) -> Wishes {
        let mut wishes = Wishes::default();
        for directive in directives(value) {
            let seconds = directive.seconds();
            match directive.name.to_ascii_lowercase().as_slice() {
                b"max-age" => wishes.max_age = wishes.max_age.or(seconds).or(Some(0)),
                b"min-fresh" => wishes.min_fresh = wishes.min_fresh.or(seconds),
                b"max-stale" => {
                    // Without a number, any staleness is accepted.
                    let any = directive.argument.is_none().then_some(u32::MAX);
                    wishes.max_stale = wishes.max_stale.or(seconds).or(any);
                }
                b"no-cache" => wishes.no_cache = true,
                b"no-store" => wishes.no_store = true,
                b"only-if-cached" => wishes.only_if_cached = true,
                _ => {}
            }
        }
        wishes
    }

    /// Returns whether a response that is fresh, or may be used stale for all requests, satisfies this one at `now`.
    pub fn accept_usable(self, lifetime: Lifetime, now: f64) -> bool {
        let (age, left) = (lifetime.age(now), lifetime.ttl - lifetime.age(now));
        !self.no_cache
            && self.max_age.is_none_or(|most| age <= f64::from(most))
            && self.min_fresh.is_none_or(|least| left >= f64::from(least))
    }

    /// Returns whether a stale response satisfies this request at `now`. `forbids_stale` is the result of
    /// [`Control::forbids_stale`](super::Control::forbids_stale) for that response.
    pub fn accept_stale(self, lifetime: Lifetime, forbids_stale: bool, now: f64) -> bool {
        let stale_for = lifetime.age(now) - lifetime.ttl;
        !forbids_stale
            && self.accept_usable(lifetime, now)
            && self.max_stale.is_some_and(|most| stale_for <= f64::from(most))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: f64 = 1000.0;
    /// 60 seconds old and fresh for another 40.
    const FRESH: Lifetime = Lifetime { origin: NOW - 60.0, ttl: 100.0, grace: 0.0, keep: 0.0 };
    /// Stale for 20 seconds.
    const STALE: Lifetime = Lifetime { origin: NOW - 60.0, ttl: 40.0, grace: 0.0, keep: 100.0 };

    #[test]
    fn requests_limit_the_use_of_fresh_responses() {
        let table = [
            ("", true),
            ("nothing-to-see-here", true),
            ("max-age=60", true),
            ("max-age=59", false),
            ("max-age=0", false),
            ("max-age=59, max-age=60", false),
            ("max-age=x", false),
            ("max-age", false),
            ("max-age=99999999999", true),
            ("min-fresh=40", true),
            ("min-fresh=41", false),
            ("min-fresh=x", true),
            ("no-cache", false),
            ("No-Cache", false),
            ("x=\"no-cache\"", true),
            ("max-stale", true),
            ("no-store", true),
            ("only-if-cached", true),
        ];
        for (value, expected) in table {
            assert_eq!(Wishes::of(value.as_bytes()).accept_usable(FRESH, NOW), expected, "{value:?}");
        }
    }

    #[test]
    fn requests_permit_the_use_of_stale_responses() {
        let table = [
            ("", false, false),
            ("max-stale", false, true),
            ("max-stale", true, false),
            ("max-stale=20", false, true),
            ("max-stale=19", false, false),
            ("max-stale=x", false, false),
            ("max-stale, no-cache", false, false),
            ("max-stale, max-age=59", false, false),
            ("max-stale, max-age=60", false, true),
            ("max-stale, min-fresh=1", false, false),
        ];
        for (value, forbids_stale, expected) in table {
            let found = Wishes::of(value.as_bytes()).accept_stale(STALE, forbids_stale, NOW);
            assert_eq!(found, expected, "{value:?} {forbids_stale}");
        }
    }
}
