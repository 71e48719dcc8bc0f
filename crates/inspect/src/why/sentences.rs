//! The sentences of outcomes: what happened, and what to change.

use super::decide::{Absence, Decision, Outcome, Reason, Staleness, obstacle};
use super::lifetime::{Obstacle, Source, Storing};
use super::story::Place;
use super::ttl::Lifetime;
use crate::page::duration;

/// Returns what happened, in one sentence.
pub fn headline(decision: &Decision) -> String {
    let text = match &decision.outcome {
        Outcome::Hit => "The cache had a fresh copy and delivered it.".to_owned(),
        Outcome::HitInProgress => {
            "The cache delivered a copy that is still being fetched, as its bytes arrive.".to_owned()
        }
        Outcome::GracedHit(stale) => graced(stale),
        Outcome::CoalescedHit => {
            "The request waited for another request's fetch of the same page and shared its response.".to_owned()
        }
        Outcome::Miss(absence) => match obstacle(decision) {
            None => format!("The cache had no copy that it could use: {}.", absent(absence)),
            obstacle => format!(
                "The cache had no copy that it could use: {}. It did not store the response: {}.",
                absent(absence),
                obstacle_words(obstacle)
            ),
        },
        Outcome::Revalidated => {
            "The copy in the cache had expired, and the origin confirmed it with a 304 without sending it again."
                .to_owned()
        }
        Outcome::HitForMiss => format!(
            "The cache remembers that responses for this page cannot be cached, and asked the origin: {}.",
            obstacle_words(obstacle(decision))
        ),
        Outcome::HitForPass => {
            "The cache remembers a decision of VCL to pass requests for this page to the origin.".to_owned()
        }
        Outcome::Pass(reason) => format!("The request was passed to the origin, past the cache: {}.", cause(reason)),
        Outcome::Pipe(reason) => format!(
            "The connection was piped: its bytes were copied to the origin and back unseen: {}.",
            cause(reason)
        ),
        Outcome::Synth(place) => format!("VCL generated the response without the cache and the origin{}.", at(place.as_ref())),
        Outcome::Purged(place) => format!("The request purged the page from the cache{}.", at(place.as_ref())),
        Outcome::StaleForError(why) => {
            format!("The copy in the cache has expired, and was delivered because the origin has failed: {why}.")
        }
        Outcome::OriginFailed(why) => format!("The origin gave no usable response: {why}."),
        Outcome::VclFailed(why) => format!("VCL failed: {why}."),
        Outcome::Rejected(why) => format!("The request was refused before VCL ran: {why}."),
    };
    match decision.waited {
        Some(seconds) if decision.outcome != Outcome::CoalescedHit => format!(
            "{text} Before that it waited {} for another request, whose response it could not use.",
            duration(seconds)
        ),
        _ => text,
    }
}

fn graced(stale: &Staleness) -> String {
    let Staleness { since_end, grace, is_refreshed } = stale;
    let next = if *is_refreshed {
        "a fetch in the background replaces it"
    } else {
        "it was not fetched in the background, because another request does that, or VCL has forbidden it"
    };
    format!(
        "The copy in the cache expired {} ago. Its grace of {} allows to deliver it for {} more; {next}.",
        duration(*since_end),
        duration(*grace),
        duration((grace - since_end).max(0.0))
    )
}

fn absent(absence: &Absence) -> String {
    match absence {
        Absence::First => "the log mentions no earlier request for this page".to_owned(),
        Absence::Expired(ago) => format!("the last one expired {} ago", duration(ago.max(0.0))),
        Absence::Purged(ago, client) => {
            format!("it was purged {} ago by a request of {client}", duration(*ago))
        }
        Absence::Banned(bans) => match &bans[..] {
            [] => "this request found it banned; the list of bans is not known".to_owned(),
            [ban] => format!("the ban `{ban}` matches it"),
            bans => format!("one of these bans matches it: `{}`", bans.join("`, `")),
        },
        Absence::BannedEarlier => "a ban had removed it before this request".to_owned(),
        Absence::Invalidated(ago, client, change) => format!(
            "{} {} of {client} succeeded {} ago, which removes pages that it may have changed (RFC 9111)",
            change.method,
            change.url,
            duration(ago.max(0.0))
        ),
        Absence::Tagged(tag, None) => format!("it was removed by its tag {tag}, with the command tag.purge"),
        Absence::Tagged(tag, Some(client)) => {
            format!("it was removed by its tag {tag}, in a purge by a request of {client}")
        }
        Absence::Evicted(true) => "it was evicted to make room for other objects".to_owned(),
        Absence::Evicted(false) => {
            "it should still be fresh, so it was probably evicted, or removed by VCL or a restart".to_owned()
        }
        Absence::OtherVariant(names) => {
            format!("it has copies only for other values of {} (Vary)", names.join(", "))
        }
        Absence::Forced(place) => format!("VCL forbade to use it ({})", place.words()),
        Absence::NotStored => "the last response was not stored either".to_owned(),
    }
}

fn cause(reason: &Reason) -> String {
    match reason {
        Reason::Method(method) => format!("its method is {method}; only GET and HEAD are cached"),
        Reason::Cookie => "it has a Cookie header, and the built-in VCL passes such requests".to_owned(),
        Reason::Authorization => {
            "it has an Authorization header, and the built-in VCL passes such requests".to_owned()
        }
        Reason::Vcl(Some(place)) => format!("VCL decided so {}", place.words()),
        Reason::Vcl(None) => "VCL decided so".to_owned(),
    }
}

fn at(place: Option<&Place>) -> String {
    place.map_or_else(String::new, |place| format!(", {}", place.words()))
}

/// Returns in words what forbids to cache a response.
pub fn obstacle_words(obstacle: Option<&Obstacle>) -> String {
    match obstacle {
        Some(Obstacle::SetCookie) => "the response sets a cookie (Set-Cookie)".to_owned(),
        Some(Obstacle::Header(header)) => format!("the response forbids it with {header}"),
        Some(Obstacle::VaryAll) => "the response has Vary: *, which no other request matches".to_owned(),
        Some(Obstacle::Status(status)) => {
            format!("responses with the status {status} are not cached by default")
        }
        Some(Obstacle::Expired(header)) => format!("the response has no lifetime left: {header}"),
        Some(Obstacle::Vcl(place)) => format!("VCL decided so{}", at(place.as_ref())),
        Some(Obstacle::Failed(why)) => format!("the fetch failed: {why}"),
        Some(Obstacle::Unknown) | None => "its headers give it no lifetime".to_owned(),
    }
}

/// Returns how long a response lives and why.
pub fn lifetime_words(lifetime: &Lifetime, source: &Source) -> String {
    let by = match source {
        Source::Header(header) => format!("set by the origin's {header}"),
        Source::Default => "the parameter default_ttl, because no header of the origin sets one".to_owned(),
        Source::Vcl(Some(place)) => format!("set by VCL {}", place.words()),
        Source::Vcl(None) => "set by VCL".to_owned(),
    };
    format!(
        "fresh for {} ({by}), then {} of grace and {} of keep",
        duration(lifetime.ttl),
        duration(lifetime.grace),
        duration(lifetime.keep)
    )
}

/// Returns what to change, in one sentence.
pub fn advice(decision: &Decision) -> String {
    match &decision.outcome {
        Outcome::Hit | Outcome::HitInProgress | Outcome::CoalescedHit => "Nothing: this is what a cache is for.".to_owned(),
        Outcome::GracedHit(_) => {
            "Nothing, if a stale response is acceptable; else set a shorter beresp.grace or a longer beresp.ttl."
                .to_owned()
        }
        Outcome::Revalidated => {
            "Nothing; a longer lifetime (Cache-Control: max-age, or beresp.ttl) would save the question.".to_owned()
        }
        Outcome::Miss(absence) => after_miss(decision, absence),
        Outcome::HitForMiss => change_of(obstacle(decision)),
        Outcome::HitForPass => {
            "If the page may be cached, do not return (pass) in vcl_backend_response; the decision expires by itself."
                .to_owned()
        }
        Outcome::Pass(reason) => change_of_pass(reason),
        Outcome::Pipe(_) => {
            "If responses should be cached or logged, return (pass) or (hash) instead of (pipe) in vcl_recv.".to_owned()
        }
        Outcome::Synth(Some(place)) => {
            format!("If a real response is wanted, change the condition before line {} of {}.", place.line, place.file)
        }
        Outcome::Synth(None) => "If a real response is wanted, change the return (synth(...)) in VCL.".to_owned(),
        Outcome::Purged(_) => "Nothing: the next request for the page fetches it again.".to_owned(),
        Outcome::StaleForError(_) => {
            "Make the origin reachable. Until then, stale_if_error or beresp.stale_if_error limits the use of the copy.".to_owned()
        }
        Outcome::OriginFailed(_) => {
            "Make the origin reachable, or give objects a long grace, so that a copy bridges its failure.".to_owned()
        }
        Outcome::VclFailed(_) => "Correct the VCL; the message names the failure.".to_owned(),
        Outcome::Rejected(_) => "Correct the request; HTTP does not allow it.".to_owned(),
    }
}

fn after_miss(decision: &Decision, absence: &Absence) -> String {
    match (&decision.storing, absence) {
        (Some(Storing::Not(obstacle, _)), _) => change_of(Some(obstacle)),
        (_, Absence::OtherVariant(names)) => format!(
            "Normalize {} in vcl_recv, so that few values of it reach the cache.",
            names.join(" and ")
        ),
        (_, Absence::Expired(_)) => {
            "A longer lifetime (Cache-Control: max-age, or beresp.ttl) or grace makes such misses rarer."
                .to_owned()
        }
        (_, Absence::Evicted(true)) => {
            "If MAIN.n_lru_nuked grows, give the cache more storage (-s).".to_owned()
        }
        (_, Absence::Evicted(false)) => "If MAIN.n_lru_nuked grows, give the cache more storage (-s). If \
             MAIN.backend_surplus_objects grows, the origin breaks off responses."
            .to_owned(),
        (_, Absence::Forced(place)) => {
            format!("Remove req.hash_always_miss at line {} of {}, or restrict it.", place.line, place.file)
        }
        (Some(Storing::Stored(lifetime, Source::Default)), _) => format!(
            "Nothing: the next request is a hit for {}; send Cache-Control: max-age to choose the time.",
            duration(lifetime.ttl)
        ),
        (Some(Storing::Stored(lifetime, _)), _) => {
            format!(
                "Nothing: the page is stored, and the next request is a hit for {}.",
                duration(lifetime.ttl)
            )
        }
        (None, _) => "Nothing is known of the fetch; repeat the command.".to_owned(),
    }
}

fn change_of(obstacle: Option<&Obstacle>) -> String {
    match obstacle {
        Some(Obstacle::SetCookie) => {
            "Let the origin set cookies only where it must, or unset beresp.http.Set-Cookie in vcl_backend_response."
        }
        Some(Obstacle::Header(_)) => {
            "Let the origin send Cache-Control: public, max-age=N for pages that all may share."
        }
        Some(Obstacle::VaryAll) => "Let the origin name the headers in Vary by which its response really varies.",
        Some(Obstacle::Status(_)) => {
            "If it may be cached, set beresp.ttl for this status in vcl_backend_response."
        }
        Some(Obstacle::Expired(_)) => "Let the origin send a longer max-age, or set beresp.ttl in vcl_backend_response.",
        Some(Obstacle::Vcl(Some(place))) => {
            return format!("If the page may be cached, change line {} of {}.", place.line, place.file);
        }
        Some(Obstacle::Vcl(None)) => "If the page may be cached, change vcl_backend_response.",
        Some(Obstacle::Failed(_)) => "Make the origin reachable and repeat the command.",
        Some(Obstacle::Unknown) | None => {
            "Let the origin send Cache-Control: max-age=N, or set beresp.ttl in vcl_backend_response."
        }
    }
    .to_owned()
}

fn change_of_pass(reason: &Reason) -> String {
    match reason {
        Reason::Method(_) => "Nothing: such requests change data or are not for caches.".to_owned(),
        Reason::Cookie => {
            "If the page does not depend on cookies, unset req.http.Cookie for it in vcl_recv.".to_owned()
        }
        Reason::Authorization => {
            "If all users may share the page, return (hash) for it in vcl_recv before the built-in VCL."
                .to_owned()
        }
        Reason::Vcl(Some(place)) => {
            format!(
                "If the page may be cached, change the condition before line {} of {}.",
                place.line, place.file
            )
        }
        Reason::Vcl(None) => "If the page may be cached, change the return (pass) in VCL.".to_owned(),
    }
}

/// Returns the option of `lacquer run` that changes the outcome, for users without a VCL.
pub fn option(decision: &Decision) -> Option<String> {
    let header = "Let the web server send Cache-Control: public, max-age=N";
    let cache = "or start lacquer run with --cache 'PATH=60s'";
    let is_miss = matches!(decision.outcome, Outcome::Miss(_) | Outcome::HitForMiss);
    let text = match (&decision.outcome, obstacle(decision).filter(|_| is_miss)) {
        (Outcome::Pass(Reason::Cookie), _) => {
            "If the page does not depend on cookies, start lacquer run with --ignore-cookies, or with the names of those \
             that it does not depend on: --ignore-cookies '_ga*,_gid'."
                .to_owned()
        }
        (Outcome::GracedHit(_), _) => {
            "Nothing, if a stale response is acceptable; else start lacquer run with a shorter --stale, or with \
             -p default_grace=0."
                .to_owned()
        }
        (Outcome::Miss(Absence::Expired(_)), None) => {
            format!("A longer lifetime makes such misses rarer: max-age of the web server, {cache}.")
        }
        (_, Some(Obstacle::SetCookie)) => {
            "Let the web server set cookies only where it must, or start lacquer run with --ignore-cookies.".to_owned()
        }
        (_, Some(Obstacle::Status(status))) => {
            format!("If it may be cached, start lacquer run with --cache 'status:{status}=10s'.")
        }
        (_, Some(Obstacle::Header(_))) => format!("{header} for pages that all may share, {cache}."),
        (_, Some(Obstacle::Expired(_) | Obstacle::Unknown)) => format!("{header}, {cache}."),
        _ => return None,
    };
    Some(text)
}
