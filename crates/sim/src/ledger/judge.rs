//! Checks complete responses.

use std::borrow::Cow;

use super::compose::Composition;
use super::{ARRIVAL, Fate, Invalidation, Ledger, Rules, Sent};
use crate::http::Head;
use crate::packing;
use crate::page;
use crate::page_request::{Condition, PageRequest};
use crate::site;

/// A response as a client received it.
pub struct Got<'g> {
    pub requested: &'g PageRequest,
    pub status: u16,
    pub head: &'g Head,
    pub body: &'g [u8],
}

type Verdict = Result<(), String>;

impl Got<'_> {
    fn is_packed(&self) -> bool {
        self.head.get("content-encoding") == Some("gzip")
    }
}

impl Ledger {
    /// Checks a complete response.
    pub fn check(&mut self, got: &Got<'_>) {
        self.complete += 1;
        let Got { requested: PageRequest { key, at, number, .. }, status, .. } = got;
        let response = got.head.response();
        self.note(format_args!("request {number} of {at:.6}, {key:?}: {status}, response {response:?}"));
        if let Err(why) = self.judge(got) {
            self.note(format_args!("{:?}", got.head));
            self.fault(&format!("request {number}, {key:?}, status {status}: {why}"));
        }
    }

    fn judge(&mut self, got: &Got<'_>) -> Verdict {
        match got.status {
            200 | 206 | 404 => self.judge_page(got),
            304 => self.judge_unmodified(got),
            416 => judge_unsatisfied(got),
            _ => judge_made(got, self.rules),
        }
    }

    /// Returns the number of the delivered response, which must be one for this page.
    fn response(&self, got: &Got<'_>) -> Result<usize, String> {
        let response = got.head.response().ok_or("it has no tag")?;
        let sent = self.sent.get(response).ok_or("a response that no origin sent")?;
        if sent.key == got.requested.key {
            Ok(response)
        } else {
            Err(format!("response {response} is that to {:?}", sent.key))
        }
    }

    fn judge_page(&mut self, got: &Got<'_>) -> Verdict {
        let (response, requested) = (self.response(got)?, got.requested);
        let sent = &self.sent[response];
        if sent.status != got.status && (sent.status, got.status) != (200, 206) {
            return Err(format!("response {response} has status {}", sent.status));
        }
        if got.is_packed() && !requested.accepts_gzip {
            return Err("the client cannot unpack it".to_owned());
        }
        let is_known = match requested.condition {
            Some(Condition::NoneMatch(known)) => known == response,
            Some(Condition::ModifiedSince(known)) => response <= known,
            None => false,
        };
        if is_known && got.status == 200 && !site::is_private(&requested.key.path) {
            return Err(format!("response {response} is sent to a client that has it"));
        }
        let mut parts = vec![response];
        if requested.is_head() {
            judge_length(got, sent)?;
        } else if got.status == 206 {
            judge_part(got, response, sent)?;
        } else {
            parts = self.judge_body(got, response)?;
        }
        for part in parts {
            self.may_deliver(part, requested)?;
            self.take(part)?;
        }
        Ok(())
    }

    /// Compares the whole body. Returns all responses of which it consists.
    fn judge_body(&mut self, got: &Got<'_>, response: usize) -> Result<Vec<usize>, String> {
        let sent = &self.sent[response];
        if !sent.is_whole && !sent.is_completed {
            let is_on_its_way =
                self.fates[response].ended.is_none_or(|ended| got.requested.at < ended + ARRIVAL);
            let has_length = got.head.number("content-length").is_some();
            return if got.is_packed() && sent.is_packed && has_length && is_on_its_way {
                // Damage of a compressed body that is forwarded as it arrives shows only at its end.
                Ok(vec![response])
            } else {
                Err(format!("the origin did not complete response {response}"))
            };
        }
        let body = if got.is_packed() {
            Cow::Owned(packing::unpack(got.body).ok_or("a body that cannot be unpacked")?)
        } else {
            Cow::Borrowed(got.body)
        };
        let variant = got.requested.key.variant;
        let parts = Composition::of(&self.sent, self.rules, variant).read(&body, response)?;
        for part in &parts {
            self.fates[*part].seen.get_or_insert_with(lacquer_sources::clock::real);
        }
        Ok(parts)
    }

    /// Checks that a response may still be delivered to a request.
    fn may_deliver(&self, response: usize, requested: &PageRequest) -> Verdict {
        let (Sent { key, .. }, fate) = (&self.sent[response], &self.fates[response]);
        if site::is_private(&key.path) {
            return if fate.begun < requested.at {
                Err(format!("response {response} is to an earlier request"))
            } else {
                Ok(())
            };
        }
        let Fate { fresh_until, .. } = fate;
        if fresh_until + self.rules.grace + ARRIVAL < requested.at {
            return Err(format!("response {response} was fresh until {fresh_until:.6}"));
        }
        let seen = fate.seen.unwrap_or(f64::INFINITY);
        let is_gone = |gone: &&Invalidation| {
            gone.path == key.path && gone.after < requested.number && seen < gone.requested
        };
        match self.invalidations.iter().find(is_gone) {
            Some(gone) => {
                Err(format!("response {response}, seen at {seen:.6}, was invalidated at {:.6}", gone.done))
            }
            None => Ok(()),
        }
    }

    /// Records that a request received a response.
    fn take(&mut self, response: usize) -> Verdict {
        self.fates[response].recipients += 1;
        let recipients = self.fates[response].recipients;
        if recipients > 1 && site::is_private(&self.sent[response].key.path) {
            return Err(format!("response {response} is for one request and reaches {recipients}"));
        }
        Ok(())
    }

    fn judge_unmodified(&self, got: &Got<'_>) -> Verdict {
        let response = self.response(got)?;
        let is_known = match got.requested.condition {
            Some(Condition::NoneMatch(known)) => known == response,
            Some(Condition::ModifiedSince(known)) => response <= known,
            None => false,
        };
        if !is_known {
            return Err(format!(
                "the client, {:?}, does not have response {response}",
                got.requested.condition
            ));
        }
        if site::is_private(&got.requested.key.path) {
            Ok(())
        } else {
            self.may_deliver(response, got.requested)
        }
    }
}

/// Checks a refusal of a range.
fn judge_unsatisfied(got: &Got<'_>) -> Verdict {
    let range = got.requested.range.ok_or("no range was requested")?;
    let whole = got.head.get("content-range").and_then(|text| text.strip_prefix("bytes */")?.parse().ok());
    match whole {
        Some(whole) if range.of(whole).is_some() => {
            Err(format!("{whole} bytes have the part {}", range.text()))
        }
        _ => Ok(()),
    }
}

/// Checks a response to HEAD.
fn judge_length(got: &Got<'_>, sent: &Sent) -> Verdict {
    // Like Varnish, the engine forwards the response to a HEAD with the length of the compressed body, but without its
    // coding.
    let is_forwarded = sent.is_packed && site::is_private(&sent.key.path);
    let is_text = !got.is_packed() && !is_forwarded && !site::is_composed(&sent.key.path);
    match got.head.number("content-length") {
        Some(length) if is_text && length != sent.length => {
            Err(format!("it would have {length} bytes, and the page has {}", sent.length))
        }
        _ => Ok(()),
    }
}

/// Checks a part of a body.
fn judge_part(got: &Got<'_>, response: usize, sent: &Sent) -> Verdict {
    let requested = got.requested;
    let range = requested.range.ok_or("no part was requested")?;
    if requested.if_range.is_some_and(|known| known != response) {
        return Err(format!("a part of response {response}, and the client has {:?}", requested.if_range));
    }
    let (from, to, whole) = got.head.content_range().ok_or("it does not contain a range")?;
    let announced = (from, to);
    let body = match (got.is_packed(), sent.is_packed) {
        (false, _) => page::body(response, sent.length),
        (true, true) => packing::pack(&page::body(response, sent.length)),
        // The engine has compressed it.
        (true, false) => return Ok(()),
    };
    if sent.is_packed && !sent.is_whole {
        // It is damaged, which shows only at its end.
        return Ok(());
    }
    let expected = match whole {
        // The length was not known yet, so the part may end early.
        None => range.of(usize::MAX),
        Some(whole) if whole == body.len() => range.of(whole),
        Some(_) => None,
    };
    if expected != Some(announced) {
        let text = range.text();
        return Err(format!("{announced:?} of {whole:?} are not {text} of {} bytes", body.len()));
    }
    if got.body == &body[from.min(body.len())..body.len().min(to + 1)] {
        Ok(())
    } else {
        Err(format!("{} bytes are not the {announced:?} of response {response}", got.body.len()))
    }
}

/// Checks a response that the engine or its VCL has generated.
fn judge_made(got: &Got<'_>, rules: Rules) -> Verdict {
    let is_synthetic = site::is_synthetic(&got.requested.key.path);
    if is_synthetic != (got.status == 710) || !matches!(got.status, 710 | 503) {
        return Err("an unexpected status".to_owned());
    }
    if got.status == 503 && !rules.has_excuse && !site::is_limited(&got.requested.key.path) {
        return Err("it is refused, though its origin responds".to_owned());
    }
    let expected: &[u8] = if got.requested.is_head() { b"" } else { b"!" };
    if got.body == expected {
        Ok(())
    } else {
        Err(format!("it has the body {:?}", String::from_utf8_lossy(&got.body[..got.body.len().min(40)])))
    }
}
