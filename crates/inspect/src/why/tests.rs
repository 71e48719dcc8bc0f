//! The table of outcomes: the records of a request, its outcome, and words of the sentence and of the advice.

use lacquer_shm::Tag::{self, *};

use super::*;
use crate::transaction::transaction;

const VCL: &str = "vcl 4.1;\nsub vcl_recv {\n    if (req.url ~ \"^/admin\") {\n        return (pass);\n    }\n\
                   \x20   if (req.url == \"/no\") { return (synth(403)); }\n    set req.hash_always_miss = true;\n}\n\
                   sub vcl_backend_response {\n    set beresp.ttl = 10s;\n    set beresp.uncacheable = true;\n}\n";
const BUILTIN: &str = "sub vcl_req_method {\n return (pass);\n}\nsub vcl_req_authorization {\n return (pass);\n}\n\
                       sub vcl_req_cookie {\n return (pass);\n}\n";

type Records<'a> = &'a [(Tag, &'a str)];

/// The time of all requests of the table.
const NOW: &str = "Start: 1000.0 0.0 0.0";

fn story(request: Records, fetch: Option<(&str, Records)>) -> Story {
    let mut records =
        vec![(Timestamp, NOW), (VCL_use, "boot"), (ReqStart, "127.0.0.1 5 a0"), (ReqMethod, "GET")];
    records.extend([(ReqURL, "/p"), (ReqHeader, "Host: h"), (VCL_call, "RECV")]);
    records.extend(request);
    let mut all = vec![];
    if let Some((reason, fetched)) = fetch {
        let link = format!("bereq 4 {reason}");
        records.push((Link, &link));
        all.push(transaction(2, "req 1 rxreq", &records));
        all.push(transaction(4, &format!("bereq 2 {reason}"), fetched));
    } else {
        all.push(transaction(2, "req 1 rxreq", &records));
    }
    let source = |number, name: &str, text: &str| SourceText {
        number,
        name: name.to_owned(),
        lines: text.lines().map(str::to_owned).collect(),
    };
    Story {
        transactions: all.into_iter().map(|transaction| (transaction.vxid, transaction)).collect(),
        root: 2,
        sources: vec![source(0, "/etc/site.vcl", VCL), source(1, "<builtin>", BUILTIN)],
        ..Story::default()
    }
}

/// Checks a row of the table.
fn row(story: &Story, outcome: &str, sentence: &str, advice: &str) {
    let found = explain(story).expect("the request is in the story");
    assert_eq!(found.decision.outcome.name(), outcome, "{found:#?}");
    assert!(found.headline.contains(sentence), "{outcome}: {}", found.headline);
    assert!(found.advice.contains(advice), "{outcome}: {}", found.advice);
    let text = found.text(false);
    assert!(
        text.lines().all(|line| line.chars().count() <= 100 && !line.chars().any(char::is_control)),
        "{text}"
    );
}

const MISS: Records = &[
    (VCL_return, "hash"),
    (VCL_call, "HASH"),
    (VCL_return, "lookup"),
    (VCL_call, "MISS"),
    (VCL_return, "fetch"),
];
const STORED: Records = &[
    (BereqURL, "/p"),
    (BereqHeader, "Host: h"),
    (BerespStatus, "200"),
    (BerespHeader, "Cache-Control: max-age=60"),
    (TTL, "RFC 60 10 0 1000 1000 1000 0 60 cacheable"),
    (VCL_call, "BACKEND_RESPONSE"),
    (VCL_return, "deliver"),
];

fn hit(record: &str, more: Records) -> Story {
    let mut records = vec![(VCL_return, "hash"), (VCL_call, "HASH"), (VCL_return, "lookup")];
    records.extend(more);
    records.extend([(Hit, record), (VCL_call, "HIT"), (VCL_return, "deliver")]);
    story(&records, None)
}

#[test]
fn hits() {
    row(&hit("9 50.5 10 0", &[]), "hit", "fresh copy", "Nothing");
    let stale = hit("9 -5 12 0", &[(RespHeader, "Age: 65")]);
    let sentence = "expired 5 s ago. Its grace of 12 s allows to deliver it for 7 s more; it was not fetched";
    row(&stale, "graced-hit", sentence, "beresp.grace");
    let text = explain(&stale).expect("it is known").text(false);
    assert!(text.contains("Age: 65, the origin made it 65 s ago"), "{text}");
    row(&hit("9 50 10 0 100 5000", &[]), "hit-in-progress", "being fetched", "Nothing");
    let waited = [(Timestamp, "Waitinglist: 1000.5 0.5 0.5")];
    row(&hit("9 50 10 0", &waited), "coalesced-hit", "waited for another", "Nothing");
}

#[test]
fn passes() {
    let passed = |trace: &str, more: Records| {
        let mut records = more.to_vec();
        records.extend([(VCL_trace, trace), (VCL_return, "pass"), (VCL_call, "PASS"), (VCL_return, "fetch")]);
        story(&records, Some(("pass", STORED)))
    };
    row(
        &passed("boot 1 0.4.9", &[]),
        "pass-vcl",
        "line 4 of /etc/site.vcl, in vcl_recv",
        "line 4 of /etc/site.vcl",
    );
    row(&passed("boot 1 1.2.2", &[(ReqMethod, "POST")]), "pass-method", "POST", "Nothing");
    row(&passed("boot 1 1.5.2", &[]), "pass-authorization", "Authorization", "return (hash)");
    row(&passed("boot 1 1.8.2", &[]), "pass-cookie", "Cookie", "unset req.http.Cookie");
    // Without trace points, the headers are the evidence.
    row(&passed("", &[(ReqHeader, "Cookie: a=b")]), "pass-cookie", "Cookie", "unset");
    row(&passed("", &[(ReqHeader, "authorization: x")]), "pass-authorization", "Authorization", "hash");
    row(
        &passed("", &[(ReqHeader, "Cookie: a"), (ReqUnset, "Cookie: a")]),
        "pass-vcl",
        "VCL decided",
        "return (pass)",
    );
    row(&passed("", &[(ReqMethod, "DELETE")]), "pass-method", "DELETE", "Nothing");
    let piped = story(&[(VCL_return, "pipe"), (VCL_call, "PIPE"), (VCL_return, "pipe")], None);
    row(&piped, "pipe", "piped", "instead of (pipe)");
    let mark = [(VCL_return, "hash"), (HitPass, "7 100.0"), (VCL_call, "PASS"), (VCL_return, "fetch")];
    row(&story(&mark, Some(("pass", STORED))), "hit-for-pass", "decision of VCL to pass", "return (pass)");
}

#[test]
fn responses_that_cannot_be_cached() {
    const RFC: &str = "RFC 120 10 0 1000 1000 1000 0 0 cacheable";
    const EXPIRED: &str = "RFC 0 10 0 1000 1000 1000 0 0 cacheable";
    let mark = |response: Records, ttl: &str| {
        let mut records = vec![(BerespStatus, "200")];
        records.extend(response);
        records.push((TTL, ttl));
        records.extend([
            (VCL_call, "BACKEND_RESPONSE"),
            (TTL, "VCL 120 10 0 1000 uncacheable"),
            (VCL_return, "deliver"),
        ]);
        let request: Vec<_> = [&[(HitMiss, "7 100.0")], MISS].concat();
        story(&request, Some(("fetch", &records)))
    };
    let header = |text| [(BerespHeader, text)];
    row(&mark(&header("Set-Cookie: a=b"), RFC), "hit-for-miss", "Set-Cookie", "unset beresp.http.Set-Cookie");
    row(&mark(&header("Cache-Control: private"), RFC), "hit-for-miss", "Cache-Control: private", "public");
    row(&mark(&header("Surrogate-Control: no-store"), RFC), "hit-for-miss", "Surrogate-Control", "public");
    row(&mark(&header("Vary: a, *"), RFC), "hit-for-miss", "Vary: *", "Vary");
    row(&mark(&[(BerespStatus, "500")], EXPIRED), "hit-for-miss", "no lifetime", "");
    row(&mark(&header("Cache-Control: max-age=0"), EXPIRED), "hit-for-miss", "max-age=0", "longer max-age");
    row(&mark(&header("Expires: 0"), EXPIRED), "hit-for-miss", "Expires: 0", "longer max-age");
    let failed =
        story(MISS, Some(("fetch", &[(FetchError, "backend default: fail"), (VCL_call, "BACKEND_ERROR")])));
    row(&failed, "origin-failed", "backend default: fail", "reachable");
    let malformed = |more: (Tag, &str)| {
        let records = [more, (FetchError, "http format error"), (VCL_call, "BACKEND_ERROR")];
        story(MISS, Some(("fetch", &records)))
    };
    let line = malformed((BogoHeader, "Missing header name: :x y"));
    row(&line, "origin-failed", "http format error: Missing header name: :x y", "reachable");
    let garbage = malformed((HttpGarbage, "SSH-2.0\u{1}"));
    row(&garbage, "origin-failed", "it begins with `SSH-2.0\\x01`", "reachable");
    let framing = [
        (BerespHeader, "Content-Length: 5"),
        (BerespHeader, "transfer-encoding: gzip"),
        (BerespHeader, "Content-Type: text/plain"),
        (Error, "Body cannot be fetched"),
        (VCL_call, "BACKEND_ERROR"),
    ];
    let refused = story(MISS, Some(("fetch", &framing)));
    row(&refused, "origin-failed", "fetched: Content-Length: 5, transfer-encoding: gzip", "reachable");
    let note = (Notice, "stale-if-error: the stale object is delivered");
    let failure = [(FetchError, "backend default: fail"), (VCL_call, "BACKEND_ERROR"), note];
    row(&story(MISS, Some(("fetch", &failure))), "stale-if-error", "backend default: fail", "reachable");
    let response = [(BerespStatus, "503"), (VCL_call, "BACKEND_RESPONSE"), (VCL_return, "deliver"), note];
    row(&story(MISS, Some(("fetch", &response))), "stale-if-error", "responded with 503", "stale_if_error");
    let status =
        [(BerespStatus, "503"), (TTL, "RFC -1 10 0 1000 1000 1000 0 0 uncacheable"), (VCL_return, "deliver")];
    row(&story(MISS, Some(("fetch", &status))), "miss", "", "for this status");
    let own = [
        (BerespStatus, "200"),
        (TTL, RFC),
        (VCL_call, "BACKEND_RESPONSE"),
        (VCL_trace, "boot 9 0.11.5"),
        (TTL, "VCL 120 10 0 1000 uncacheable"),
        (VCL_return, "deliver"),
    ];
    row(&story(MISS, Some(("fetch", &own))), "miss", "", "line 11 of /etc/site.vcl");
}

#[test]
fn fetches_that_vcl_ends_have_failed() {
    let ended = |action| {
        let begin = [(BerespStatus, "500"), (TTL, "RFC 120 10 0 1000 1000 1000 0 0 cacheable")];
        let end = [(VCL_call, "BACKEND_RESPONSE"), (VCL_trace, "boot 8 0.10.5"), (VCL_return, action)];
        story(MISS, Some(("fetch", &[&begin[..], &end[..]].concat())))
    };
    row(&ended("abandon"), "origin-failed", "VCL abandoned the response with status 500", "long grace");
    row(&ended("fail"), "vcl-failed", "it returned fail", "Correct the VCL");
    let refused =
        [(FetchError, "backend default: refused"), (BerespStatus, "503"), (VCL_call, "BACKEND_ERROR")];
    let refused = [&refused[..], &[(VCL_return, "abandon")]].concat();
    row(&story(MISS, Some(("fetch", &refused))), "origin-failed", "backend default: refused", "reachable");
    assert!(ttl::stored_for(&ended("abandon").transactions[&4]).is_none());
    let without_ttl = [(TTL, "RFC 0 10 0 1000 1000 1000 0 0 cacheable"), (VCL_return, "deliver")];
    let fetch = transaction(4, "bereq 2 fetch", &without_ttl);
    assert!(ttl::stored_for(&fetch).is_none(), "no request finds it");
    let kept = [(TTL, "RFC 0 0 3600 1000 1000 1000 0 0 cacheable"), (TTL, "VCL 0 60 3600 1000 cacheable")];
    assert!(
        ttl::stored_for(&transaction(4, "bereq 2 fetch", &kept)).is_some(),
        "it is validated before each use"
    );
}

#[test]
fn users_without_vcl_are_told_the_option() {
    let by_options = |mut story: Story| {
        story.sources[0].lines.push(WRITTEN.to_owned());
        story
    };
    let passed =
        [(VCL_trace, "boot 1 1.8.2"), (VCL_return, "pass"), (VCL_call, "PASS"), (VCL_return, "fetch")];
    let records: Vec<_> = [&[(ReqHeader, "Cookie: a")], &passed[..]].concat();
    let cookie = by_options(story(&records, Some(("pass", STORED))));
    row(&cookie, "pass-cookie", "Cookie", "lacquer run with --ignore-cookies");
    let response = |more: Records, ttl| {
        let records = [&[(BerespStatus, "200")], more, &[(TTL, ttl), (VCL_return, "deliver")]].concat();
        by_options(story(MISS, Some(("fetch", &records))))
    };
    let expired = "RFC 0 10 0 1000 1000 1000 0 0 uncacheable";
    let private = response(&[(BerespHeader, "Cache-Control: private")], expired);
    row(&private, "miss", "Cache-Control: private", "--cache 'PATH=60s'");
    row(&response(&[], expired), "miss", "no lifetime", "--cache 'PATH=60s'");
    row(&response(&[(BerespStatus, "500")], expired), "miss", "", "--cache");
    let note = (Notice, "stale-if-error: the stale object is delivered");
    row(
        &response(&[(BerespStatus, "503"), note], expired),
        "stale-if-error",
        "503",
        "Make the origin reachable",
    );
}

/// Returns an earlier fetch whose response was not stored.
fn fetched_at(vxid: u64, at: f64) -> PastFetch {
    PastFetch { vxid, parent: 0, at, lifetime: None, has_failed: false, variant: vec![], tags: vec![] }
}

#[test]
fn misses_name_the_reason_why_nothing_was_cached() {
    let lifetime = |ttl| Lifetime { ttl, grace: 10.0, keep: 0.0, origin: 900.0 };
    let past = |ttl: Option<f64>| PastFetch { lifetime: ttl.map(lifetime), ..fetched_at(7, 900.0) };
    let base = || story(MISS, Some(("fetch", STORED)));
    let with = |change: &dyn Fn(&mut Story)| {
        let mut changed = base();
        change(&mut changed);
        changed
    };
    row(&base(), "miss", "no earlier request", "next request is a hit for 60 s");
    let fetched = with(&|s| s.past.fetches.push(past(Some(50.0))));
    row(&fetched, "miss-expired", "expired 50 s ago", "longer lifetime");
    let removed = |why: Option<(u64, Removal)>| {
        with(&|s| {
            s.past.fetches.push(past(Some(500.0)));
            s.past.removed.extend(why.clone());
        })
    };
    row(&removed(Some((7, Removal::Evicted))), "miss-evicted", "to make room", "more storage");
    row(
        &removed(Some((7, Removal::Banned(0)))),
        "miss-banned",
        "a ban had removed it",
        "next request is a hit",
    );
    let tagged = Removal::Tagged("news".to_owned(), None);
    row(&removed(Some((7, tagged))), "miss-tagged", "by its tag news", "next request is a hit");
    let tagged = Removal::Tagged("news".to_owned(), Some("192.0.2.1".to_owned()));
    row(
        &removed(Some((7, tagged))),
        "miss-tagged",
        "purge by a request of 192.0.2.1",
        "next request is a hit",
    );
    row(&removed(None), "miss-evicted", "probably evicted", "more storage");
    row(&with(&|s| s.past.fetches.push(past(None))), "miss-not-stored", "not stored either", "next request");
    let purged = with(&|s| {
        s.past.fetches.push(past(Some(500.0)));
        s.past.purges.push(PastPurge { at: 990.0, client: "192.0.2.1".to_owned(), change: None });
    });
    let changed = with(&|s| {
        s.past.fetches.push(past(Some(500.0)));
        let change = Some(Change { method: "PUT".to_owned(), url: "/edit".to_owned() });
        s.past.purges.push(PastPurge { at: 990.0, client: "192.0.2.1".to_owned(), change });
    });
    row(&changed, "miss-invalidated", "PUT /edit of 192.0.2.1 succeeded 10 s ago", "next request is a hit");
    row(&purged, "miss-purged", "purged 10 s ago by a request of 192.0.2.1", "");
    let other = with(&|s| {
        let variant = vec![("Accept-Language".to_owned(), Some("de".to_owned()))];
        s.past.fetches.push(PastFetch { variant, ..past(Some(500.0)) });
    });
    row(&other, "miss-variant", "Accept-Language", "Normalize Accept-Language");
    let mut traced = MISS.to_vec();
    traced.insert(0, (VCL_trace, "boot 4 0.7.5"));
    let mut forced = story(&traced, Some(("fetch", STORED)));
    forced.past.fetches.push(past(Some(500.0)));
    row(&forced, "miss-forced", "line 7 of /etc/site.vcl", "req.hash_always_miss");
    let waited: Vec<_> = [&[(Timestamp, "Waitinglist: 1000.5 0.5 0.5")], MISS].concat();
    row(&story(&waited, Some(("fetch", STORED))), "miss", "waited 500.0 ms for another", "");
}

#[test]
fn bans_that_contradict_the_request_are_left_out() {
    let banned: Vec<_> = [&[(ExpBan, "7 banned lookup")], MISS].concat();
    let mut story = story(&banned, Some(("fetch", STORED)));
    row(&story, "miss-banned", "not known", "");
    let ban = |at, expression: &str| Ban { at, expression: expression.to_owned() };
    story.past.fetches.push(fetched_at(7, 900.0));
    story.bans = Some(vec![
        ban(990.0, "req.url ~ ^/q"),
        ban(991.0, "req.http.host == h && req.url ~ ^/p"),
        ban(992.0, "req.url == /p2"),
        ban(800.0, "req.url ~ /"),
    ]);
    row(&story, "miss-banned", "the ban `req.http.host == h && req.url ~ ^/p` matches", "");
    story.bans.get_or_insert_default().push(ban(995.0, "obj.http.x == \x1b[1m"));
    row(&story, "miss-banned", "one of these bans matches it: `req.http.host", "");
}

#[test]
fn responses_without_the_cache() {
    let synth =
        [(VCL_trace, "boot 3 0.6.29"), (VCL_return, "synth"), (VCL_call, "SYNTH"), (VCL_return, "deliver")];
    row(&story(&synth, None), "synth", "line 6 of /etc/site.vcl", "condition before line 6");
    let purge = [(VCL_return, "purge"), (VCL_call, "PURGE"), (VCL_return, "synth")];
    row(&story(&purge, None), "purged", "purged the page", "fetches it again");
    let failed = [(VCL_Error, "Out of \x07 workspace"), (VCL_return, "fail")];
    row(&story(&failed, None), "vcl-failed", "Out of \\x07 workspace", "Correct the VCL");
    let mut refused = story(&[(BogoHeader, "Illegal char 0x0a")], None);
    for transaction in refused.transactions.values_mut() {
        transaction.retain(|record| record.tag != VCL_call);
    }
    row(&refused, "rejected", "Illegal char 0x0a", "Correct the request");
    let mut confirmed = vec![(BerespStatus, "304"), (BerespStatus, "200")];
    confirmed.extend(&STORED[3..]);
    row(&story(MISS, Some(("fetch", &confirmed))), "revalidated", "304", "longer lifetime");
}

#[test]
fn lifetimes_name_what_has_set_them() {
    let line = |records: Records| {
        let found = explain(&story(MISS, Some(("fetch", records)))).expect("the request");
        let step = found.steps.into_iter().find(|step| step.name == "Lifetime").expect("it has a lifetime");
        step.lines.join("\n")
    };
    assert!(
        line(STORED).starts_with("fresh for 60 s (set by the origin's Cache-Control: max-age=60), then 10 s")
    );
    let rfc = (TTL, "RFC 120 10 0 1000 1000 1000 0 0 cacheable");
    assert!(line(&[(BerespStatus, "200"), rfc]).contains("the parameter default_ttl"));
    let by_vcl = [rfc, (VCL_trace, "boot 8 0.10.5"), (TTL, "VCL 10 10 0 1000 cacheable")];
    assert!(line(&by_vcl).contains("set by VCL at line 10 of /etc/site.vcl, in vcl_backend_response"));
}

#[test]
fn stories_of_any_records_are_explained_or_refused() {
    assert_eq!(explain(&Story::default()), None);
    // A restart that leads back to itself, an include of itself, and a fetch that does not exist.
    let links = [(Link, "req 2 restart"), (Link, "req 2 esi 1"), (Link, "bereq 99 fetch"), (Link, "req 2")];
    assert!(explain(&story(&links, None)).is_some());
    let damaged = [
        (Hit, ""),
        (HitMiss, "x"),
        (TTL, "\u{0}"),
        (VCL_trace, "x 99999999999999999999.0.0"),
        (VCL_return, ""),
    ];
    let mut story = story(&damaged, Some(("fetch", &damaged)));
    story.past.fetches.push(fetched_at(0, f64::NAN));
    let text = explain(&story).map(|found| found.text(false)).unwrap_or_default();
    assert!(text.lines().all(|line| line.chars().count() <= 100), "{text}");
}
