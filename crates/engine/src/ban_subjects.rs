//! The values that ban conditions test: the request, and the heads of stored objects.

use std::cell::Cell;

use lacquer_cache::bans::{BanRequest, HeadReader, Verdict};
use lacquer_cache::{Cache, Object};
use lacquer_http::pack::{PackedHead, packed_header};
use lacquer_http::{HeaderName, Message, Workspace};

use crate::logged::names;
use crate::object_attributes;

/// The request for which an object is tested.
pub struct RequestSubject<'r> {
    pub http: &'r Message,
    pub ws: &'r Workspace,
}

impl RequestSubject<'_> {
    /// Returns whether an object was purged, banned, or otherwise removed from the cache. Other tasks run between the tests
    /// of many bans.
    pub async fn finds_gone(&self, cache: &Cache, object: &Object) -> bool {
        loop {
            let has_begun = Cell::new(false);
            let pause = || has_begun.replace(true);
            match cache.recheck(object, self, &pause) {
                Verdict::Clear => return false,
                Verdict::Banned => return true,
                Verdict::Unfinished => tokio::task::yield_now().await,
            }
        }
    }
}

impl BanRequest for RequestSubject<'_> {
    fn url(&self) -> &[u8] {
        self.http.url(self.ws)
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.http.get(self.ws, HeaderName::new(name.as_bytes()))
    }
}

/// Reads stored heads in the format of [`lacquer_http::pack`].
pub struct PackedHeads;

impl HeadReader for PackedHeads {
    fn header<'a>(&self, head: &'a [u8], name: &str) -> Option<&'a [u8]> {
        packed_header(head, HeaderName::new(name.as_bytes()))
    }

    fn status(&self, head: &[u8]) -> u16 {
        PackedHead::new(head).map_or(0, |h| h.status())
    }

    fn is_sound(&self, head: &[u8]) -> bool {
        PackedHead::check(head).is_ok()
    }

    fn vary(&self, vary: &[u8], each: &mut dyn FnMut(&[u8], Option<&[u8]>)) {
        for entry in lacquer_http::vary::entries(vary) {
            // With `http_gzip_support`, the value of this header does not matter.
            let is_ignored = entry.name.eq_ignore_ascii_case(b"accept-encoding");
            each(entry.name, entry.value.filter(|_| !is_ignored));
        }
    }

    fn tags(&self, head: &[u8], each: &mut dyn FnMut(&[u8])) {
        let Some(head) = PackedHead::new(head) else { return };
        for name in [names::XKEY, names::X_HASH_TWO] {
            head.all_headers(name).flat_map(lacquer_vmods::xkey::tags).for_each(&mut *each);
        }
    }

    fn is_sound_extra(&self, extra: &[u8], body: u64) -> bool {
        object_attributes::is_sound(extra, body)
    }
}
