//! Decisions about storing a response: the requests that it may serve, its storage, and how its body is stored.

use lacquer_http::h1::Framing;
use lacquer_http::vary::{self, VaryError};
use lacquer_http::{BodyStatus, Message, Workspace};

use crate::lifetime::Lifetime;

/// The maximum size of a body that is stored together with the head of a marker.
const SMALL: usize = 512;

/// The requests that an object may serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Storing {
    /// All requests whose lookup finds it (RFC 9111 section 3).
    Cached,
    /// Only its own request. Later ones find a marker, so they do not wait for each other.
    HitForMiss,
    /// Only its own request. Later ones find a marker, so they are passed.
    HitForPass,
    /// Only its own request, which was passed. There is no marker.
    Private,
}

/// The facts that determine [`Storing`] after VCL has processed the response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Verdict {
    /// The request was passed, so the response is not added to the index.
    pub is_pass: bool,
    /// `beresp.uncacheable`.
    pub is_uncacheable: bool,
    /// VCL returned `pass` from `vcl_backend_response`.
    pub is_pass_wanted: bool,
}

impl Storing {
    /// Decides which requests the response may serve. Uncacheable responses after a lookup leave a marker, as in
    /// Varnish, so that later requests do not wait for each other.
    #[inline]
    pub fn of(verdict: Verdict) -> Storing {
        match verdict {
            Verdict { is_pass: true, .. } => Storing::Private,
            Verdict { is_pass_wanted: true, .. } => Storing::HitForPass,
            Verdict { is_uncacheable: true, .. } => Storing::HitForMiss,
            _ => Storing::Cached,
        }
    }

    /// Returns whether the object stays in the index as a marker, without its body.
    #[inline]
    pub fn is_mark(self) -> bool {
        matches!(self, Storing::HitForMiss | Storing::HitForPass)
    }
}

/// The storage of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreChoice {
    /// The storage that VCL chose, or the next one in rotation.
    Chosen,
    /// Transient, because the response is uncacheable.
    TransientUncacheable,
    /// Transient, because it lives for less than `shortlived`.
    TransientShortlived,
}

/// Decides in which storage an object is stored. `shortlived` is the parameter, in seconds.
#[inline]
pub fn store_choice(storing: Storing, lifetime: Lifetime, shortlived: f64) -> StoreChoice {
    if storing != Storing::Cached {
        StoreChoice::TransientUncacheable
    } else if lifetime.total() < shortlived {
        StoreChoice::TransientShortlived
    } else {
        StoreChoice::Chosen
    }
}

/// The requests with the same key that a new object may serve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Variant {
    /// Those with these values of the header fields that `Vary` names; all of them if it is empty.
    Of(Vec<u8>),
    /// `Vary` is invalid, so they are unknown: the object serves only its own request.
    Unknown,
    /// `Vary` is `*`: the object serves only its own request.
    None,
}

/// Decides which variant a response is (RFC 9111 section 4.1). A passed response needs none.
#[inline]
pub fn variant(is_pass: bool, response: &Message, request: &Message, ws: &Workspace) -> Variant {
    let mut packed = Vec::new();
    let created = if is_pass { Ok(false) } else { vary::create(response, ws, request, ws, &mut packed) };
    match created {
        Ok(_) => Variant::Of(packed),
        Err(VaryError::Everything) => Variant::None,
        Err(_) => Variant::Unknown,
    }
}

/// How the body of an object arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// The whole body arrived with the head: both are stored together.
    Whole,
    /// The body is received piece by piece. The value is its length, if known.
    Pieces(Option<u64>),
}

/// Decides how the body of a response is stored. `ahead` bytes of it arrived with the head. If filters change the
/// body, its length is not that of the object. A marker must be able to free its body, unless the body is small.
#[inline]
pub fn arrival(framing: Framing, is_filtered: bool, ahead: usize, storing: Storing) -> Arrival {
    match framing.status {
        BodyStatus::None => Arrival::Pieces(Some(0)),
        BodyStatus::Length if !is_filtered => {
            let length = framing.content_length;
            let may_be_whole = !storing.is_mark() || ahead <= SMALL;
            if length == ahead as u64 && may_be_whole {
                Arrival::Whole
            } else {
                Arrival::Pieces(Some(length))
            }
        }
        _ => Arrival::Pieces(None),
    }
}

/// Returns the number of bytes by which a fetch may be ahead of the single reader of its response:
/// `beresp.transit_buffer`, where 0 means no limit. Cacheable responses and those that are delivered only when
/// complete have no limit.
#[inline]
pub fn transit_limit(transit_buffer: u64, is_uncacheable: bool, is_streamed: bool) -> Option<u64> {
    (transit_buffer > 0 && is_uncacheable && is_streamed).then_some(transit_buffer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use Storing::{Cached, HitForMiss, HitForPass, Private};

    #[test]
    fn vcl_decides_which_requests_a_response_serves() {
        let table = [
            // was passed, beresp.uncacheable, return (pass)
            ((false, false, false), Cached),
            ((false, true, false), HitForMiss),
            ((false, true, true), HitForPass),
            ((true, true, false), Private),
            ((true, true, true), Private),
        ];
        for ((is_pass, is_uncacheable, is_pass_wanted), expected) in table {
            let verdict = Verdict { is_pass, is_uncacheable, is_pass_wanted };
            assert_eq!(Storing::of(verdict), expected, "{verdict:?}");
        }
    }

    #[test]
    fn short_lived_and_uncacheable_objects_go_to_transient() {
        let lives = |ttl, grace, keep| Lifetime { origin: 0.0, ttl, grace, keep };
        let table = [
            (Cached, lives(120.0, 10.0, 0.0), StoreChoice::Chosen),
            (Cached, lives(5.0, 3.0, 2.0), StoreChoice::Chosen),
            (Cached, lives(5.0, 3.0, 1.9), StoreChoice::TransientShortlived),
            (Cached, lives(0.0, 0.0, 0.0), StoreChoice::TransientShortlived),
            (HitForMiss, lives(120.0, 10.0, 0.0), StoreChoice::TransientUncacheable),
            (HitForPass, lives(120.0, 0.0, 0.0), StoreChoice::TransientUncacheable),
            (Private, lives(-1.0, 0.0, 0.0), StoreChoice::TransientUncacheable),
        ];
        for (storing, lifetime, expected) in table {
            assert_eq!(store_choice(storing, lifetime, 10.0), expected, "{storing:?} {lifetime:?}");
        }
    }

    #[test]
    fn an_invalid_vary_leaves_the_variant_unknown() {
        let long = format!("Vary: {}", "x".repeat(300));
        // Vary, passed, has a variant, is known
        let table = [
            (None, false, false, true),
            (Some("Vary: Accept-Language"), false, true, true),
            (Some("Vary: Accept-Language"), true, false, true),
            (Some("Vary: *"), true, false, true),
            (Some("Vary: Accept-Language, *"), true, false, true),
            (Some(&*long), false, false, false),
            (Some(&*long), true, false, true),
        ];
        for (line, is_pass, has_variant, is_known) in table {
            let mut ws = Workspace::new(4096);
            let (mut response, mut request) = (Message::new(64), Message::new(64));
            response.set_response(&mut ws, 200).expect("there is room");
            if let Some(line) = line {
                response.append_line_copy(&mut ws, line.as_bytes()).expect("there is room");
            }
            request.append_line_copy(&mut ws, b"Accept-Language: de").expect("there is room");
            match variant(is_pass, &response, &request, &ws) {
                Variant::Of(packed) => {
                    assert_eq!((is_known, has_variant), (true, !packed.is_empty()), "{line:?} {is_pass}");
                }
                Variant::Unknown => assert!(!is_known, "{line:?} {is_pass}"),
                Variant::None => panic!("{line:?} {is_pass}"),
            }
        }
    }

    #[test]
    fn a_response_that_varies_on_everything_is_for_its_own_request() {
        for line in ["Vary: *", "Vary: Accept-Language, *"] {
            let mut ws = Workspace::new(4096);
            let (mut response, request) = (Message::new(64), Message::new(64));
            response.set_response(&mut ws, 200).expect("there is room");
            response.append_line_copy(&mut ws, line.as_bytes()).expect("there is room");
            assert_eq!(variant(false, &response, &request, &ws), Variant::None, "{line:?}");
        }
    }

    #[test]
    fn a_body_that_came_with_its_head_is_stored_with_it() {
        let long = Framing::length(1000);
        let table = [
            (long, false, 1000, Cached, Arrival::Whole),
            (long, false, 1000, Private, Arrival::Whole),
            (long, false, 1000, HitForMiss, Arrival::Pieces(Some(1000))),
            (long, false, 1000, HitForPass, Arrival::Pieces(Some(1000))),
            (Framing::length(512), false, 512, HitForMiss, Arrival::Whole),
            (Framing::length(513), false, 513, HitForMiss, Arrival::Pieces(Some(513))),
            (long, false, 999, Cached, Arrival::Pieces(Some(1000))),
            // The bytes after the body do not belong to this response.
            (long, false, 1001, Cached, Arrival::Pieces(Some(1000))),
            (long, true, 1000, Cached, Arrival::Pieces(None)),
            (Framing::CHUNKED, false, 1000, Cached, Arrival::Pieces(None)),
            (Framing::EOF, false, 1000, Cached, Arrival::Pieces(None)),
            (Framing::NONE, false, 0, Cached, Arrival::Pieces(Some(0))),
        ];
        for (framing, is_filtered, ahead, storing, expected) in table {
            let found = arrival(framing, is_filtered, ahead, storing);
            assert_eq!(found, expected, "{framing:?} filtered {is_filtered} ahead {ahead} {storing:?}");
        }
    }

    #[test]
    fn transit_is_limited_for_a_single_reader_only() {
        let table = [
            // transit_buffer, uncacheable, do_stream
            ((1000, true, true), Some(1000)),
            ((0, true, true), None),
            ((1000, false, true), None),
            ((1000, true, false), None),
        ];
        for ((buffer, is_uncacheable, is_streamed), expected) in table {
            assert_eq!(transit_limit(buffer, is_uncacheable, is_streamed), expected);
        }
    }
}
