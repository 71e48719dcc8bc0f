//! Responses of HTTP/1.1, read from a connection that carries one request. Their size is limited.

use std::io::{self, Read};

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode};

/// The maximum number of bytes of a head.
const MAX_HEAD: usize = 32 << 10;
/// The maximum number of fields of a head.
const MAX_FIELDS: usize = 100;
/// The maximum number of bytes of a body. A certificate has some kilobytes.
pub const MAX_BODY: usize = 1 << 20;
const READ: usize = 4096;

/// The bytes of a response, as far as they were read.
struct Input<'a, R> {
    connection: &'a mut R,
    bytes: Vec<u8>,
    ended: bool,
}

fn invalid(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

impl<R: Read> Input<'_, R> {
    /// Reads more bytes. Fails at the end.
    fn more(&mut self) -> io::Result<()> {
        if self.ended || !self.more_or_end()? {
            return Err(invalid("the response is not complete"));
        }
        Ok(())
    }

    /// Reads more bytes. Returns false at the end.
    fn more_or_end(&mut self) -> io::Result<bool> {
        if self.bytes.len() > MAX_BODY + MAX_HEAD {
            return Err(invalid("the response is too long"));
        }
        let had = self.bytes.len();
        self.bytes.resize(had + READ, 0);
        let read = match self.connection.read(&mut self.bytes[had..]) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => Ok(None),
            // Servers often close without close_notify. The framing of the body shows whether it is complete.
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(Some(0)),
            read => read.map(Some),
        };
        self.bytes.truncate(had + read.as_ref().map_or(0, |read| read.unwrap_or(0)));
        self.ended = matches!(read, Ok(Some(0)));
        read.map(|read| read != Some(0))
    }

    /// Removes the next line, without its end.
    fn line(&mut self, limit: usize) -> io::Result<Vec<u8>> {
        loop {
            if let Some(end) = self.bytes.iter().position(|byte| *byte == b'\n') {
                let mut line: Vec<u8> = self.bytes.drain(..=end).collect();
                line.pop();
                if line.last() == Some(&b'\r') {
                    line.pop();
                }
                return Ok(line);
            }
            if self.bytes.len() > limit {
                return Err(invalid("a line of the response is too long"));
            }
            self.more()?;
        }
    }

    /// Removes this number of bytes.
    fn take(&mut self, length: usize) -> io::Result<Vec<u8>> {
        while self.bytes.len() < length {
            self.more()?;
        }
        Ok(self.bytes.drain(..length).collect())
    }

    fn chunked(&mut self) -> io::Result<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let line = self.line(MAX_HEAD)?;
            let digits = line.split(|byte| *byte == b';').next().unwrap_or_default();
            let digits = str::from_utf8(digits).unwrap_or_default().trim();
            let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            let length = usize::from_str_radix(digits, 16).ok().filter(|_| is_hex);
            let length = length.ok_or_else(|| invalid("a chunk of the response has no length"))?;
            if length == 0 {
                return Ok(body);
            }
            if length > MAX_BODY - body.len() {
                return Err(invalid("the response is too long"));
            }
            body.extend(self.take(length)?);
            if !self.line(2)?.is_empty() {
                return Err(invalid("a chunk of the response is longer than its length"));
            }
        }
    }

    fn until_end(&mut self) -> io::Result<Vec<u8>> {
        while !self.ended {
            self.more_or_end()?;
            if self.bytes.len() > MAX_BODY {
                return Err(invalid("the response is too long"));
            }
        }
        Ok(std::mem::take(&mut self.bytes))
    }
}

fn status(line: &[u8]) -> io::Result<StatusCode> {
    let rest = line.strip_prefix(b"HTTP/1.1 ").or_else(|| line.strip_prefix(b"HTTP/1.0 "));
    let code = rest.and_then(|rest| rest.get(..3)).and_then(|code| StatusCode::from_bytes(code).ok());
    code.ok_or_else(|| invalid("the response is not HTTP/1.1"))
}

/// Reads a response. `has_body` is false for one to a HEAD request.
pub fn read(connection: &mut impl Read, has_body: bool) -> io::Result<Response<Vec<u8>>> {
    let mut input = Input { connection, bytes: Vec::new(), ended: false };
    let (mut code, mut headers) = head(&mut input)?;
    let mut interim = 0;
    while code.is_informational() {
        interim += 1;
        if interim > 8 {
            return Err(invalid("the server sends interim responses without end"));
        }
        (code, headers) = head(&mut input)?;
    }
    let is_empty = !has_body || code == StatusCode::NO_CONTENT || code == StatusCode::NOT_MODIFIED;
    let body = if is_empty { Vec::new() } else { body(&mut input, &headers)? };
    let mut response = Response::new(body);
    *response.status_mut() = code;
    *response.headers_mut() = headers;
    Ok(response)
}

fn head<R: Read>(input: &mut Input<'_, R>) -> io::Result<(StatusCode, HeaderMap)> {
    let mut budget = MAX_HEAD;
    let code = status(&input.line(budget)?)?;
    let mut headers = HeaderMap::new();
    loop {
        let line = input.line(budget)?;
        if line.is_empty() {
            return Ok((code, headers));
        }
        budget = budget.saturating_sub(line.len());
        if budget == 0 || headers.len() >= MAX_FIELDS {
            return Err(invalid("the head of the response is too long"));
        }
        let colon = line.iter().position(|byte| *byte == b':');
        let (name, value) =
            line.split_at(colon.ok_or_else(|| invalid("a field of the response has no colon"))?);
        let name =
            HeaderName::from_bytes(name).map_err(|_| invalid("a field of the response has no valid name"))?;
        let value = HeaderValue::from_bytes(value[1..].trim_ascii());
        headers.append(name, value.map_err(|_| invalid("a field of the response has no valid value"))?);
    }
}

fn body<R: Read>(input: &mut Input<'_, R>, headers: &HeaderMap) -> io::Result<Vec<u8>> {
    if let Some(encoding) = headers.get(http::header::TRANSFER_ENCODING) {
        if !encoding.as_bytes().eq_ignore_ascii_case(b"chunked") {
            return Err(invalid("the response has an unknown transfer encoding"));
        }
        return input.chunked();
    }
    let mut lengths = headers.get_all(http::header::CONTENT_LENGTH).iter();
    let Some(length) = lengths.next() else { return input.until_end() };
    let digits = length.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let parsed = digits.and_then(|digits| digits.parse::<usize>().ok());
    match parsed.filter(|_| lengths.all(|other| other == length)) {
        Some(length) if length <= MAX_BODY => input.take(length),
        Some(_) => Err(invalid("the response is too long")),
        None => Err(invalid("the response has no valid Content-Length")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> io::Result<Response<Vec<u8>>> {
        read(&mut text.as_bytes(), true)
    }

    #[test]
    fn framings() {
        let of = |text| parse(text).map(|response| String::from_utf8(response.into_body()).unwrap());
        assert_eq!(of("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcd").unwrap(), "abc");
        assert_eq!(of("HTTP/1.0 200 OK\nA: b\n\nabc").unwrap(), "abc");
        let chunked =
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n1\r\nd\r\n0\r\n\r\n";
        assert_eq!(of(chunked).unwrap(), "abcd");
        assert_eq!(of("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No\r\n\r\n").unwrap(), "");
        let head = read(&mut &b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nReplay-Nonce: n\r\n\r\n"[..], false)
            .unwrap();
        assert_eq!(head.headers()["replay-nonce"], "n");
    }

    #[test]
    fn bad_responses_are_refused() {
        let interim = "HTTP/1.1 100 Continue\r\n\r\n".repeat(100);
        let fields = format!("HTTP/1.1 200 OK\r\n{}\r\n", "A: b\r\n".repeat(200));
        let line = format!("HTTP/1.1 200 OK\r\nA: {}", "b".repeat(100_000));
        let endless = format!("HTTP/1.1 200 OK\r\n\r\n{}", "b".repeat(MAX_BODY + 10_000));
        for (text, why) in [
            ("", "not complete"),
            ("SSH-2.0-OpenSSH\r\n\r\n", "not HTTP/1.1"),
            ("HTTP/1.1 2xx OK\r\n\r\n", "not HTTP/1.1"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc", "not complete"),
            ("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\nabc", "too long"),
            ("HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc", "no valid Content-Length"),
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 2\r\n\r\nabc",
                "no valid Content-Length",
            ),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\nabc", "transfer encoding"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfffffff\r\nabc", "too long"),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n", "longer than its length"),
            ("HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "no colon"),
            ("HTTP/1.1 200 OK\r\n: b\r\n\r\n", "no valid name"),
            (&interim, "interim"),
            (&fields, "too long"),
            (&line, "too long"),
            (&endless, "too long"),
        ] {
            let error = parse(text).unwrap_err().to_string();
            assert!(error.contains(why), "{}: {error}", &text[..text.len().min(60)]);
        }
    }
}
