//! Tests of the format.

use super::*;

fn fault(text: &str) -> String {
    let fault = parse(text.as_bytes()).expect_err("the text is wrong");
    format!("{}: {}", fault.line, fault.what)
}

fn actions(text: &str) -> Vec<Action> {
    let suite = parse(text.as_bytes()).expect("the text is correct");
    suite.tests.into_iter().flat_map(|test| test.steps).map(|step| step.action).collect()
}

#[test]
fn details_belong_to_the_statement_above() {
    let text = "\
# a comment
origin 200
    Cache-Control: max-age=60

test \"one\"
    origin app GET /a/* 503 Out of order
        X-A: b: c
        body \"x\\n\\x41\"
        body \"y\"
        after 1.5m
        once
    GET /a?b
        Host: www.example.org
        from 2001:db8::1
        clients 3
    expect miss 503 Out of order
        X-A: b: c
        no Set-Cookie
        Vary ~ ^Acc
        ttl < 2h
        not stored
test two words
    POST /
        body \"\"
";
    let suite = parse(text.as_bytes()).expect("the text is correct");
    assert_eq!(suite.setup.len(), 1);
    let names: Vec<(&str, u32)> = suite.tests.iter().map(|test| (&test.name[..], test.line)).collect();
    assert_eq!(names, [("one", 5), ("two words", 22)]);
    let steps = &suite.tests[0].steps;
    assert_eq!(steps.iter().map(|step| step.line).collect::<Vec<_>>(), [6, 12, 16]);
    let Action::Origin(rule) = &steps[0].action else { panic!("{steps:?}") };
    assert_eq!(
        (rule.backend.as_deref(), rule.method.as_deref(), rule.url.as_deref()),
        (Some("app"), Some("GET"), Some("/a/*"))
    );
    assert_eq!((rule.delay, rule.times), (90.0, Some(1)));
    let Answer::Page(page) = &rule.answer else { panic!("{rule:?}") };
    assert_eq!((page.status, &page.reason[..], &page.body[..]), (503, "Out of order", &b"x\nA\ny"[..]));
    assert_eq!(page.headers, [("X-A".to_owned(), "b: c".to_owned())]);
    let Action::Request(request) = &steps[1].action else { panic!("{steps:?}") };
    assert_eq!((&request.url[..], request.clients, request.body.is_none()), ("/a?b", 3, true));
    assert_eq!(request.from.to_string(), "2001:db8::1");
    let Action::ExpectResponse(expected) = &steps[2].action else { panic!("{steps:?}") };
    assert_eq!((expected.outcome.as_deref(), expected.status), (Some("miss"), Some(503)));
    let checks: Vec<String> =
        expected.checks.iter().map(|check| format!("{:?} {}", check.subject, check.condition)).collect();
    assert_eq!(
        checks,
        [
            "Header(\"X-A\") b: c",
            "Header(\"Set-Cookie\") (none)",
            "Header(\"Vary\") ~ ^Acc",
            "Field(Ttl) < 2h",
            "Field(Stored) (none)"
        ]
    );
    let Action::Request(request) = &suite.tests[1].steps[0].action else { panic!("{suite:?}") };
    assert_eq!(request.body.as_deref(), Some(&b""[..]));
}

#[test]
fn fetches_and_numbers_are_expected() {
    let all = actions(
        "test a\n GET /\n expect fetch app PURGE /x\n  no Cookie\n expect no fetch\n expect 2 fetches in all\n",
    );
    assert!(
        matches!(&all[1], Action::ExpectFetch(fetch) if fetch.method.as_deref() == Some("PURGE") && fetch.checks.len() == 1)
    );
    assert!(matches!(&all[2], Action::ExpectCount(Count { number: 0, in_all: false })));
    assert!(matches!(&all[3], Action::ExpectCount(Count { number: 2, in_all: true })));
}

#[test]
fn mistakes_have_a_line_and_a_hint() {
    for (text, expected) in [
        ("tset a\n", "1: there is no statement `tset`: did you mean test?"),
        ("test a\n\n GET /\n expect hti\n", "4: there is no outcome `hti`: did you mean hit?"),
        ("test a\n GET /\n  form 1.2.3.4\n", "3: requests have no detail `form`: did you mean from?"),
        ("test a\n GET /\n  from 1.2.3\n", "3: `1.2.3` is not an IP address"),
        ("test a\n after 10\n", "2: `10` is not a duration"),
        ("test a\n after 10s\n  body \"\"\n", "3: the line is indented, but `after` has no details"),
        ("test a\n expect 200\n", "2: there is no request yet"),
        ("test a\n GET /\n expect\n", "3: nothing is expected"),
        ("test a\n GET /\n expect 200\n  X ~ (\n", "4: the regular expression is wrong"),
        ("test a\ntest a\n", "2: there is another test `a`"),
        ("GET /\n", "1: before the first test"),
        ("origin\n", "1: the answer is missing"),
        ("origin hangs\n X: y\n", "2: an origin without a status"),
        ("origin 200\n body \"x\n", "2: the quote at the end is missing"),
        ("origin 200\n body a b\n", "2: `body` has too many values; a text with blanks needs quotes"),
        ("origin 200\n body \"\\q\"\n", "2: an unknown escape"),
        ("origin 200\n size 300m\n", "2: `300m` is not a size"),
        ("origin app api 200\n", "1: `api` is one too many"),
        ("test a\n G(T /\n", "2: `G(T` is not a method"),
        ("test a\n GET /\n  clients 0\n", "3: `clients` is a number from 1 to 1000"),
        ("test a\n GET /\0\n", "2: the line contains \\u{0}"),
    ] {
        let found = fault(text);
        assert!(found.starts_with(expected), "{text:?}: {found}");
    }
    assert_eq!(parse(b"test a\n\xff").expect_err("it is no text").line, 2);
}

#[test]
fn any_bytes_are_parsed_or_refused_with_their_line() {
    let mut random = lacquer_sources::random::Random::new(21);
    let seed = include_bytes!("../../tests/shop.test");
    for _ in 0..2000 {
        let mut text = seed.to_vec();
        for _ in 0..=random.below(20) {
            let at = random.below(text.len() as u64) as usize;
            match random.below(3) {
                0 => text[at] = random.below(256) as u8,
                1 => drop(text.drain(at..(at + random.below(40) as usize).min(text.len()))),
                _ => text.insert(at, b"\n\t \"~\\#:"[random.below(8) as usize]),
            }
        }
        if let Err(fault) = parse(&text) {
            let lines = text.split(|byte| *byte == b'\n').count();
            assert!((1..=lines).contains(&(fault.line as usize)) && !fault.what.is_empty(), "{fault:?}");
        }
    }
}
