//! A token: three parts in base 64, of which the first two are JSON objects.

use serde_json::Value as Json;

use super::encoding::decode;
use crate::json;

/// A token that is well-formed. Nothing in it is verified.
pub(super) struct Token {
    text: Vec<u8>,
    /// The positions of the two dots.
    dots: [usize; 2],
    pub header: Json,
    pub payload: Json,
    pub signature: Vec<u8>,
}

impl Token {
    /// Reads a token, after an optional "Bearer ".
    pub fn parse(text: &[u8]) -> Result<Token, String> {
        let text = text.trim_ascii();
        let scheme = text.get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"Bearer "));
        let text = if scheme { text[7..].trim_ascii_start() } else { text };
        let mut dots = text.iter().enumerate().filter(|(_, b)| **b == b'.').map(|(at, _)| at);
        let (Some(first), Some(second), None) = (dots.next(), dots.next(), dots.next()) else {
            return Err("it does not have three parts".to_owned());
        };
        let object = |part: &[u8], name: &str| {
            let decoded = decode(part).ok_or_else(|| format!("the {name} is not base 64"))?;
            let parsed = json::parse(&decoded).map_err(|error| format!("the {name} is not JSON: {error}"))?;
            if parsed.is_object() { Ok(parsed) } else { Err(format!("the {name} is not an object")) }
        };
        Ok(Token {
            header: object(&text[..first], "header")?,
            payload: object(&text[first + 1..second], "payload")?,
            signature: decode(&text[second + 1..]).ok_or("the signature is not base 64")?,
            dots: [first, second],
            text: text.to_vec(),
        })
    }

    pub fn text(&self) -> &[u8] {
        &self.text
    }

    /// Returns the bytes that are signed.
    pub fn signed(&self) -> &[u8] {
        &self.text[..self.dots[1]]
    }

    /// Returns one of the three parts in base 64.
    pub fn part(&self, part: usize) -> &[u8] {
        let [first, second] = self.dots;
        match part {
            0 => &self.text[..first],
            1 => &self.text[first + 1..second],
            _ => &self.text[second + 1..],
        }
    }

    pub fn alg(&self) -> Option<&str> {
        self.header.get("alg")?.as_str()
    }

    /// Fails if the header demands an extension, or if the token is not valid at this time.
    pub fn check(&self, now: f64, leeway: f64) -> Result<(), String> {
        if self.header.get("crit").is_some() {
            return Err("the header has crit, and no extension is known".to_owned());
        }
        if self.header.get("b64").is_some_and(|b64| *b64 != Json::Bool(true)) {
            return Err("tokens without base 64 are not supported".to_owned());
        }
        let time = |name: &str| match self.payload.get(name) {
            None => Ok(None),
            Some(time) => time.as_f64().map(Some).ok_or_else(|| format!("{name} is not a number")),
        };
        if time("exp")?.is_some_and(|exp| now >= exp + leeway) {
            return Err("it has expired".to_owned());
        }
        if time("nbf")?.is_some_and(|nbf| now < nbf - leeway) {
            return Err("it is not valid yet".to_owned());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::encoding::encode;
    use super::*;

    fn token(header: &str, payload: &str) -> Result<Token, String> {
        let text = format!("{}.{}.AA", encode(header.as_bytes()), encode(payload.as_bytes()));
        Token::parse(text.as_bytes())
    }

    #[test]
    fn malformed_tokens_are_refused() {
        for text in [
            "",
            ".",
            "..",
            "...",
            "a.b",
            "e30.e30",
            "e30.e30.AA.AA",
            "e30.e30.A",
            "e30=.e30.AA",
            "bearer",
            "Bearer ",
        ] {
            assert!(Token::parse(text.as_bytes()).is_err(), "{text}");
        }
        for (header, payload) in [("[]", "{}"), ("{}", "1"), ("{", "{}"), ("{}", "\"x\"")] {
            assert!(token(header, payload).is_err());
        }
        assert!(token(&("{\"a\":".repeat(50_000)), "{}").is_err());
        assert!(token("{}", &format!("{{\"a\":\"{}\"}}", "x".repeat(2 << 20))).is_err());
        assert!(Token::parse(&[0xff; 1000]).is_err());
        assert!(Token::parse(b"bEaReR  e30.e30.AA ").is_ok());
        assert!(Token::parse(b"e30.e30.").is_ok_and(|token| token.signature.is_empty()));
    }

    #[test]
    fn times_and_extensions_are_checked() {
        let check = |header: &str, payload: &str, leeway| {
            token(header, payload).expect("well-formed").check(1000.0, leeway)
        };
        for (payload, leeway, valid) in [
            ("{}", 0.0, true),
            (r#"{"exp": 1000}"#, 0.0, false),
            (r#"{"exp": 1000}"#, 1.0, true),
            (r#"{"exp": 1000.5, "nbf": 1000}"#, 0.0, true),
            (r#"{"nbf": 1001}"#, 0.0, false),
            (r#"{"nbf": 1001}"#, 1.0, true),
            (r#"{"exp": "2000"}"#, 0.0, false),
            (r#"{"exp": null}"#, 0.0, false),
            (r#"{"nbf": {}}"#, 0.0, false),
        ] {
            assert_eq!(check("{}", payload, leeway).is_ok(), valid, "{payload}");
        }
        assert!(check(r#"{"crit": ["x"]}"#, "{}", 0.0).is_err());
        assert!(check(r#"{"b64": false}"#, "{}", 0.0).is_err());
    }
}
