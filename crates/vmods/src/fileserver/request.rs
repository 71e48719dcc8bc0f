//! The parts of a request that decide on the response. The engine has checked and written it.

/// A request.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Request {
    pub method: String,
    pub target: String,
    pub if_none_match: Option<Vec<u8>>,
    pub if_modified_since: Option<Vec<u8>>,
    pub has_body: bool,
}

impl Request {
    /// Parses a head.
    pub fn parse(head: &[u8]) -> Option<Request> {
        let mut lines = head.split(|&b| b == b'\n').map(|line| line.strip_suffix(b"\r").unwrap_or(line));
        let mut words = std::str::from_utf8(lines.next()?).ok()?.split(' ');
        let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
        let mut request = Request { method, target, ..Request::default() };
        for line in lines {
            let Some(colon) = line.iter().position(|&b| b == b':') else { continue };
            let value = line[colon + 1..].trim_ascii();
            match &line[..colon].to_ascii_lowercase()[..] {
                b"if-none-match" => request.if_none_match = Some(value.to_vec()),
                b"if-modified-since" => request.if_modified_since = Some(value.to_vec()),
                b"content-length" => request.has_body |= value != b"0",
                b"transfer-encoding" => request.has_body = true,
                _ => {}
            }
        }
        Some(request)
    }
}

#[cfg(test)]
mod tests {
    use super::Request;

    #[test]
    fn heads_are_parsed() {
        let head = b"GET /a HTTP/1.1\r\nHost: x\r\nIF-none-match:  \"1\" \r\nContent-Length: 0\r\n\r\n";
        let expected = Request {
            method: "GET".into(),
            target: "/a".into(),
            if_none_match: Some(b"\"1\"".to_vec()),
            ..Request::default()
        };
        assert_eq!(Request::parse(head), Some(expected));
        assert!(Request::parse(b"PUT / HTTP/1.1\r\nContent-Length: 7\r\n\r\n").unwrap().has_body);
        assert!(Request::parse(b"PUT / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n").unwrap().has_body);
        for junk in [&b""[..], b"GET\r\n\r\n", b"\xff \xff\r\n\r\n"] {
            assert_eq!(Request::parse(junk), None);
        }
    }
}
