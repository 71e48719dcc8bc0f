//! Tests of both versions, with valid and malformed headers.

use super::*;
use std::net::SocketAddr;

fn v2(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = SIGNATURE_2.to_vec();
    bytes.extend_from_slice(&[command, family]);
    bytes.extend_from_slice(&(payload.len() as u16).to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn garbage(bytes: &[u8]) -> Option<String> {
    assert_eq!(scan(bytes), Scan::Complete);
    parse(bytes).expect_err("the header is malformed").garbage
}

#[test]
fn headers_of_version_1_are_parsed() {
    let bytes = b"PROXY TCP4 1.2.3.4 5.6.7.8 1234 5678\r\nGET";
    for n in 0..bytes.len() {
        let expected = if n < bytes.len() - 3 { Scan::More } else { Scan::Complete };
        assert_eq!(scan(&bytes[..n]), expected, "{n}");
    }
    let header = parse(bytes).unwrap();
    assert_eq!(&bytes[header.len..], b"GET");
    assert_eq!(header.log.as_deref(), Some("1 1.2.3.4 1234 5.6.7.8 5678"));
    assert_eq!(header.endpoints.unwrap().client, "1.2.3.4:1234".parse().unwrap());
    let header = parse(b"PROXY TCP6 1:f::2 5:a::8 1234 5678\r\n").unwrap();
    assert_eq!(header.endpoints.unwrap().server, "[5:a::8]:5678".parse().unwrap());
}

#[test]
fn malformed_headers_of_version_1_are_refused() {
    let table = [
        ("PROXY\r\n", Some("PROXY1: Too few fields")),
        ("PROXY A B C D\r\n", Some("PROXY1: Too few fields")),
        ("PROXY A B C D E F\r\n", Some("PROXY1: Too many fields")),
        ("PROXY A B C D E\r\n", Some("PROXY1: Wrong TCP[46] field")),
        ("PROXY TCP4 B C D E\r\n", Some("PROXY1: Cannot resolve source address")),
        ("PROXY TCP4 1:f::2 5.6.7.8 1234 5678\r\n", Some("PROXY1: Cannot resolve source address")),
        ("PROXY TCP4 1.2.3.4 5:6::7 1234 5678\r\n", Some("PROXY1: Cannot resolve destination address")),
        ("PROXY TCP4 1.2.3.4 5.6.7.8 1234 99999\r\n", Some("PROXY1: Cannot resolve destination address")),
        ("PROXY TCP4 1.2.3.4 5.6.7.8 1234 5678\n", None),
        ("PROXY TCP4 1.2.3.4 5.6.7.8 1234 5678\r \n", None),
    ];
    for (line, text) in table {
        assert_eq!(garbage(line.as_bytes()).as_deref(), text, "{line}");
    }
    assert_eq!(scan(b"PROXX TCP4"), Scan::Junk);
    assert_eq!(scan(b"GET / HTTP/1.1\r\n"), Scan::Junk);
    assert_eq!(scan(format!("PROXY {}\r\n", "x".repeat(110)).as_bytes()), Scan::Overflow);
}

#[test]
fn headers_of_version_2_are_parsed() {
    let mut payload = vec![1, 2, 3, 4, 5, 6, 7, 8, 0x30, 0x39, 0, 80];
    payload.extend_from_slice(b"\x02\x00\x04host");
    payload.extend_from_slice(b"\x20\x00\x0f\x01\0\0\0\0\x21\x00\x07TLSv1.3");
    let bytes = v2(0x21, 0x11, &payload);
    for n in 0..bytes.len() {
        assert_eq!(scan(&bytes[..n]), Scan::More);
    }
    assert_eq!(scan(&bytes), Scan::Complete);
    let header = parse(&bytes).unwrap();
    assert_eq!((header.len, header.log.as_deref()), (bytes.len(), Some("2 1.2.3.4 12345 5.6.7.8 80")));
    assert_eq!(find_tlv(header.tlvs, tlv::AUTHORITY), Some(&b"host"[..]));
    assert_eq!(find_tlv(header.tlvs, tlv::SSL_VERSION), Some(&b"TLSv1.3"[..]));
    assert_eq!(find_tlv(header.tlvs, tlv::ALPN), None);
    let local = v2(0x20, 0, b"");
    assert_eq!(parse(&local).unwrap().log.as_deref(), Some("2 local local local local"));
}

#[test]
fn unsupported_addresses_of_version_2_are_ignored() {
    let text = |family, payload: &[u8]| {
        let bytes = v2(0x21, family, payload);
        let header = parse(&bytes).unwrap();
        assert_eq!((header.endpoints, header.log), (None, None));
        header.garbage.unwrap()
    };
    assert_eq!(text(0x00, b""), "PROXY2: Ignoring UNSPEC|UNSPEC addresses");
    assert_eq!(text(0x99, b""), "PROXY2: Ignoring unsupported protocol (0x99)");
    assert_eq!(text(0x11, b"123"), "PROXY2: Ignoring short IPv4 addresses (3)");
    assert_eq!(text(0x21, &[0; 12]), "PROXY2: Ignoring short IPv6 addresses (12)");
}

#[test]
fn malformed_headers_of_version_2_are_refused() {
    let with = |extension: &[u8]| garbage(&v2(0x21, 0x11, &[&[1; 12], extension].concat())).unwrap();
    assert_eq!(garbage(&v2(0x31, 0x11, &[0; 12])).unwrap(), "PROXY2: bad version (3)");
    assert_eq!(garbage(&v2(0x2f, 0x11, &[0; 12])).unwrap(), "PROXY2: bad command (15)");
    assert_eq!(with(b"\x01\x00"), "PROXY2: TLV Dribble bytes");
    assert_eq!(with(b"\x01\x00\x09abc"), "PROXY2: TLV Length Error");
    assert_eq!(with(b"\x20\x00\x01a"), "PROXY2: TLV Length Error");
    assert_eq!(with(b"\x20\x00\x06\x01\0\0\0\0a"), "PROXY2: TLV Dribble bytes");
    assert_eq!(with(b"\x03\x00\x04abcd"), "PROXY2: CRC error");
    assert_eq!(with(b"\x03\x00\x01a"), "PROXY2: TLV Length Error");
    assert_eq!(scan(&v2(0x21, 0x11, &[0; 1025])), Scan::Overflow);
}

#[test]
fn checksums_are_verified() {
    let mut bytes = v2(0x21, 0x11, &[&[1; 12][..], b"\x03\x00\x04\0\0\0\0\x04\x00\x01x"].concat());
    let sum = super::crc32c_table::crc32c(&[&bytes]);
    let at = 16 + 12 + 3;
    bytes[at..at + 4].copy_from_slice(&sum.to_be_bytes());
    assert!(parse(&bytes).is_ok());
    bytes[16] ^= 1;
    assert!(parse(&bytes).is_err());
}

#[test]
fn written_headers_can_be_parsed() {
    for (client, server) in [
        ("1.2.3.4:5", "6.7.8.9:10"),
        ("[1::2]:5", "[3::4]:10"),
        ("1.2.3.4:5", "[3::4]:10"),
        ("[1::2]:5", "6.7.8.9:10"),
        ("[::ffff:1.2.3.4]:5", "[3::4]:10"),
        ("[::ffff:1.2.3.4]:5", "[::ffff:6.7.8.9]:10"),
    ] {
        let (client, server): (SocketAddr, SocketAddr) = (client.parse().unwrap(), server.parse().unwrap());
        let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
        for version in [1, 2] {
            let mut bytes = Vec::new();
            write_header(version, client, server, &extensions::authority("example.com"), &mut bytes);
            let header = parse(&bytes).unwrap();
            let written = header.endpoints.unwrap();
            assert_eq!(canonical(written.client), canonical(client), "version {version}");
            assert_eq!(canonical(written.server), canonical(server), "version {version}");
            let authority = (version == 2).then_some(&b"example.com"[..]);
            assert_eq!(find_tlv(header.tlvs, tlv::AUTHORITY), authority);
        }
    }
}
