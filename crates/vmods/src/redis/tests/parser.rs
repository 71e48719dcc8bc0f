//! Replies, valid and invalid, in pieces of all sizes.

use crate::redis::parser::{LARGEST, Parser};
use crate::redis::reply::Reply;

fn parse(bytes: &[u8], piece: usize) -> Result<Option<Reply>, String> {
    let mut parser = Parser::default();
    for piece in bytes.chunks(piece) {
        parser.push(piece)?;
        if let Some(reply) = parser.next()? {
            assert!(parser.is_empty(), "bytes are left of {}", String::from_utf8_lossy(bytes));
            return Ok(Some(reply));
        }
    }
    Ok(None)
}

fn text(text: &str) -> Reply {
    Reply::Text(text.as_bytes().to_vec())
}

#[test]
fn replies_of_all_types_are_parsed_in_pieces_of_any_size() {
    use Reply::{Array, Boolean, Double, Error, Integer, Large, Nil, Status};
    let bytes = |text: &str| text.as_bytes().to_vec();
    let cases: &[(&str, Reply)] = &[
        ("+OK\r\n", Status(bytes("OK"))),
        ("+\r\n", Status(bytes(""))),
        ("-ERR wrong\r\n", Error(bytes("ERR wrong"))),
        (":-9223372036854775808\r\n", Integer(i64::MIN)),
        (":9223372036854775807\r\n", Integer(i64::MAX)),
        ("$5\r\na\r\n\0b\r\n", text("a\r\n\0b")),
        ("$0\r\n\r\n", text("")),
        ("$-1\r\n", Nil),
        ("*-1\r\n", Nil),
        ("_\r\n", Nil),
        ("*0\r\n", Array(vec![])),
        (
            "*2\r\n$1\r\na\r\n*2\r\n:1\r\n*0\r\n",
            Array(vec![text("a"), Array(vec![Integer(1), Array(vec![])])]),
        ),
        ("#t\r\n", Boolean(true)),
        ("#f\r\n", Boolean(false)),
        (",1.5\r\n", Double(1.5, bytes("1.5"))),
        (",-inf\r\n", Double(f64::NEG_INFINITY, bytes("-inf"))),
        ("(-123456789012345678901234567890\r\n", Large(bytes("-123456789012345678901234567890"))),
        ("!3\r\nERR\r\n", Error(bytes("ERR"))),
        ("=6\r\ntxt:ab\r\n", text("ab")),
        ("%1\r\n+a\r\n:1\r\n", Array(vec![Status(bytes("a")), Integer(1)])),
        ("~1\r\n:1\r\n", Array(vec![Integer(1)])),
        ("|1\r\n+ttl\r\n:9\r\n:1\r\n", Integer(1)),
        ("*1\r\n|1\r\n+ttl\r\n:9\r\n:1\r\n", Array(vec![Integer(1)])),
        (">1\r\n+note\r\n:1\r\n", Integer(1)),
        (">0\r\n:1\r\n", Integer(1)),
    ];
    for (bytes, reply) in cases {
        for piece in 1..=bytes.len() {
            assert_eq!(
                parse(bytes.as_bytes(), piece),
                Ok(Some(reply.clone())),
                "{bytes:?} in pieces of {piece}"
            );
        }
        // Its beginning is no reply.
        for end in 0..bytes.len() {
            assert_eq!(parse(&bytes.as_bytes()[..end], 3), Ok(None), "{:?}", &bytes[..end]);
        }
    }
}

#[test]
fn nonsense_is_refused() {
    for bytes in [
        "HTTP/1.1 400 Bad Request\r\n",
        "\r\n",
        "\n",
        "+OK\n",
        "\0\r\n",
        ":\r\n",
        ":1.5\r\n",
        ": 1\r\n",
        ":9223372036854775808\r\n",
        ":-9223372036854775809\r\n",
        ":99999999999999999999999999\r\n",
        "$-2\r\n",
        "$x\r\n",
        "$?\r\n",
        "$3\r\nabcd\r\n",
        "$9223372036854775807\r\n",
        "$9223372036854775808\r\n",
        "*9223372036854775807\r\n",
        "%9223372036854775807\r\n",
        "*-7\r\n",
        "*?\r\n",
        "#x\r\n",
        "_x\r\n",
        ",\r\n",
        ",1,5\r\n",
        "(12x\r\n",
        "(\r\n",
        "=2\r\nab\r\n",
        "*1\r\n>1\r\n+a\r\n:1\r\n",
        "!-3\r\n",
    ] {
        let fault = parse(bytes.as_bytes(), 4).expect_err(bytes);
        assert!(fault.len() < 400, "{fault}");
    }
}

#[test]
fn size_nesting_and_elements_are_limited() {
    let nested = |depth: usize| format!("{}:1\r\n", "*1\r\n".repeat(depth));
    assert!(matches!(parse(nested(32).as_bytes(), 100), Ok(Some(Reply::Array(_)))));
    let fault = parse(nested(33).as_bytes(), 100).expect_err("too deep");
    assert!(fault.contains("more than 32 nested arrays"), "{fault}");
    let fault = parse("*65537\r\n".as_bytes(), 100).expect_err("too many elements");
    assert!(fault.contains("more than 65536 elements"), "{fault}");
    // Each array is small, their sum is not.
    let many = format!("*60000\r\n{}", "*1000\r\n".repeat(10));
    assert!(parse(many.as_bytes(), 100).is_err());
    let fault = parse("+".repeat(100_000).as_bytes(), 1000).expect_err("a line without an end");
    assert!(fault.contains("a line of the reply is longer than 65536 bytes"), "{fault}");
    let largest = LARGEST - 100;
    let reply = format!("${largest}\r\n{}\r\n", "x".repeat(largest));
    assert!(
        matches!(parse(reply.as_bytes(), 16 << 10), Ok(Some(Reply::Text(text))) if text.len() == largest)
    );
    let mut parser = Parser::default();
    reply.as_bytes().chunks(16 << 10).for_each(|part| parser.push(part).expect("it is small enough"));
    assert!(matches!(parser.next(), Ok(Some(_))) && parser.memory() <= 64 << 10);
    let fault = parse(format!("${}\r\n", LARGEST + 1).as_bytes(), 100).expect_err("too large");
    assert!(fault.contains("larger than the limit"), "{fault}");
    // Texts that are small, and messages that belong to no reply.
    for part in ["$1000\r\n", ">1\r\n$1000\r\n", "|1\r\n+a\r\n$1000\r\n"] {
        let part = format!("{part}{}\r\n", "x".repeat(1000));
        let begin = if part.starts_with('$') { "*60000\r\n" } else { "" };
        let endless = begin.to_owned() + &part.repeat(LARGEST / 1000 + 1);
        let fault = parse(endless.as_bytes(), 16 << 10).expect_err("too large");
        assert!(fault.contains("larger than 4194304 bytes") || fault.contains("elements"), "{fault}");
    }
}

#[test]
fn bytes_in_single_pieces_cost_no_more_than_their_number() {
    // A search of the whole line for each byte would take minutes.
    let line = format!("+{}\r\n", "x".repeat(60_000));
    assert!(matches!(parse(line.as_bytes(), 1), Ok(Some(Reply::Status(_)))));
}

#[test]
fn replies_that_follow_each_other_are_separate() {
    let mut parser = Parser::default();
    parser.push(b":1\r\n:2\r\n$1\r\n").expect("small");
    assert_eq!(parser.next(), Ok(Some(Reply::Integer(1))));
    assert!(!parser.is_empty());
    assert_eq!(parser.next(), Ok(Some(Reply::Integer(2))));
    assert_eq!(parser.next(), Ok(None));
    parser.push(b"a\r\n").expect("small");
    assert_eq!(parser.next(), Ok(Some(text("a"))));
    assert!(parser.is_empty());
}
