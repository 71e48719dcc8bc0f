//! Interest in a response: whether its fetch continues after its client has disconnected.

/// The facts that determine whether a fetch continues without its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fetching {
    /// It refreshes an object that was already delivered.
    pub is_background: bool,
    /// The response is known to be uncacheable.
    pub is_uncacheable: bool,
    /// The last response was uncacheable, so this one may be uncacheable too.
    pub is_hit_for_miss: bool,
    /// The response is being stored in the cache.
    pub is_stored: bool,
}

/// Returns whether a fetch ends with its client: as far as is known, its response is uncacheable, and no other
/// request waits for it.
#[inline]
pub fn ends_with_client(fetch: Fetching, is_awaited: impl FnOnce() -> bool) -> bool {
    if fetch.is_background {
        return false;
    }
    fetch.is_uncacheable || fetch.is_hit_for_miss && !fetch.is_stored && !is_awaited()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fetches_for_the_cache_continue_without_a_client() {
        let miss = Fetching {
            is_background: false,
            is_uncacheable: false,
            is_hit_for_miss: false,
            is_stored: false,
        };
        let pass = Fetching { is_uncacheable: true, ..miss };
        let hit_for_miss = Fetching { is_hit_for_miss: true, ..miss };
        let table = [
            // others wait: whether it ends with its client
            (miss, false, false),
            (miss, true, false),
            (Fetching { is_stored: true, ..miss }, false, false),
            (pass, false, true),
            (Fetching { is_stored: true, ..pass }, false, true),
            (hit_for_miss, false, true),
            (hit_for_miss, true, false),
            (Fetching { is_stored: true, ..hit_for_miss }, false, false),
            (Fetching { is_background: true, ..pass }, false, false),
            (Fetching { is_background: true, ..hit_for_miss }, false, false),
        ];
        for (fetch, is_awaited, expected) in table {
            assert_eq!(ends_with_client(fetch, || is_awaited), expected, "{fetch:?} {is_awaited}");
        }
    }
}
