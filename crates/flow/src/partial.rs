//! Decisions about partial responses from an origin (RFC 9110 section 14).

use lacquer_http::range::{self, PartialCheck};
use lacquer_http::{Message, Workspace};

/// Decides whether a response matches the `Range` of the request to the origin. `is_supported` is the parameter
/// `http_range_support`; without it, ranges are left to the origin and the client. `response` is `None` if VCL has
/// rolled it back.
pub fn check(
    is_supported: bool,
    request: &Message,
    response: Option<&Message>,
    ws: &Workspace,
) -> PartialCheck {
    if is_supported { range::check_partial(request, ws, response, ws) } else { PartialCheck::Fine }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(ws: &mut Workspace, status: u16, lines: &[&str]) -> Message {
        let mut message = Message::new(64);
        message.set_response(ws, status).expect("there is room");
        for line in lines {
            message.append_line_copy(ws, line.as_bytes()).expect("there is room");
        }
        message
    }

    #[test]
    fn a_part_must_be_the_requested_one() {
        const RANGE: &[&str] = &["Range: bytes=0-2"];
        const PART: &[&str] = &["Content-Range: bytes 0-2/9", "Content-Length: 3"];
        let refused = |text: &str| PartialCheck::Refused(text.to_owned());
        let odd = PartialCheck::Odd("Missing content-range header or unknown range unit");
        let table: &[(&[&str], Option<&[&str]>, PartialCheck)] = &[
            (RANGE, Some(PART), PartialCheck::Fine),
            (&[], Some(PART), refused("Unexpected content-range header")),
            (&["Range: bytes=1-2"], Some(PART), refused("Expected low range 0, got 1")),
            (RANGE, Some(&["Content-Range: ?"]), refused("Invalid content-range header")),
            (RANGE, Some(&[]), odd),
            // After a rollback, only the request is checked.
            (RANGE, None, PartialCheck::Fine),
            (&["Range: 42"], None, refused("Invalid range header (Missing '=')")),
        ];
        for (request, response, expected) in table {
            let mut ws = Workspace::new(4096);
            let asked = message(&mut ws, 200, request);
            let got = response.map(|lines| message(&mut ws, 206, lines));
            let found = |is_supported| check(is_supported, &asked, got.as_ref(), &ws);
            assert_eq!(found(true), *expected, "{request:?} {response:?}");
            assert_eq!(found(false), PartialCheck::Fine, "{request:?} {response:?}");
        }
    }
}
