//! Signatures in the header of a request.

use super::canonical;
use super::signature::{Canonical, Keys, Scope, Signing, Timestamp};

/// A request to be signed.
pub(crate) struct Message {
    pub method: Vec<u8>,
    pub target: Vec<u8>,
    /// The header lines, each with its name.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// The headers that a signed request has in addition, with their names.
#[derive(Debug)]
pub(crate) struct Signed(pub Vec<(&'static str, String)>);

/// The names of headers that a signature sets itself.
pub(super) const OWN: [&str; 4] =
    ["authorization", "x-amz-content-sha256", "x-amz-date", "x-amz-security-token"];

impl Message {
    /// Returns the values of a header, joined; `None` if there is none.
    fn header(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let lines = self.headers.iter().filter(|(n, _)| n.eq_ignore_ascii_case(name));
        let values = lines.map(|(_, value)| canonical::value(value)).collect::<Result<Vec<_>, _>>()?;
        Ok(if values.is_empty() { None } else { Some(values.join(&b',')) })
    }

    /// Signs the request, with its host, these headers of it, and those of the signature.
    pub fn sign(
        &self,
        (keys, scope): (&Keys, &Scope),
        names: &[String],
        payload: &str,
        now: f64,
    ) -> Result<Signed, String> {
        let host = self.header("host")?.filter(|host| !host.is_empty());
        let mut signed = vec![("host".to_owned(), host.ok_or("the request has no Host")?)];
        for name in names {
            if let Some(value) = self.header(name)? {
                signed.push((name.clone(), value));
            }
        }
        self.sign_these((keys, scope), signed, payload, now)
    }

    /// Signs the request with headers that are given in canonical form, and those of the signature.
    pub fn sign_these(
        &self,
        (keys, scope): (&Keys, &Scope),
        mut signed: Vec<(String, Vec<u8>)>,
        payload: &str,
        now: f64,
    ) -> Result<Signed, String> {
        if self.method.is_empty() || !self.method.iter().all(u8::is_ascii_graphic) {
            return Err("the request has no valid method".to_owned());
        }
        let signing = Signing { keys, scope, time: Timestamp::of(now)? };
        let mut set = vec![
            ("X-Amz-Content-SHA256", payload.to_owned()),
            ("X-Amz-Date", signing.time.text().to_owned()),
        ];
        if let Some(token) = &keys.token {
            set.push(("X-Amz-Security-Token", token.clone()));
        }
        signed
            .extend(set.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.clone().into_bytes())));
        signed.sort_unstable();
        if let Some(twice) = signed.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            return Err(format!("the header {} is named twice", twice[0].0));
        }
        let (path, query) = canonical::split(&self.target);
        let (path, query) = (canonical::path_for(scope, path)?, canonical::query(query)?);
        let request =
            Canonical { method: &self.method, path: &path, query: &query, headers: &signed, payload };
        set.push(("Authorization", signing.authorization(&request)));
        Ok(Signed(set))
    }
}

/// Returns the names in a list, in lower case. Fails if one is not a header's name, or one that the signature sets.
pub(super) fn names(list: &[u8]) -> Result<Vec<String>, String> {
    let mut found: Vec<String> = Vec::new();
    for name in list.split(|b| b", ;".contains(b)).filter(|name| !name.is_empty()) {
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        if !name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b)) {
            return Err(format!("{name:?} is not the name of a header"));
        }
        if OWN.contains(&name.as_str()) {
            return Err(format!("the header {name} is part of the signature, and not to be named"));
        }
        if name != "host" && !found.contains(&name) {
            found.push(name);
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::super::signature::{EMPTY, UNSIGNED};
    use super::*;

    /// 2013-05-24T00:00:00Z
    const DAY: f64 = 1_369_353_600.0;

    fn message(method: &str, target: &str, headers: &[(&str, &str)]) -> Message {
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), value.as_bytes().to_vec()));
        let host = ("Host".to_owned(), b"examplebucket.s3.amazonaws.com".to_vec());
        Message {
            method: method.into(),
            target: target.into(),
            headers: std::iter::once(host).chain(headers).collect(),
        }
    }

    fn account() -> (Keys, Scope) {
        let secret = b"wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY";
        let keys = Keys::new(b"AKIAIOSFODNN7EXAMPLE", secret, b"").expect("valid keys");
        (keys, Scope::new(b"us-east-1", b"s3").expect("a valid scope"))
    }

    fn sign(message: &Message, list: &str, payload: &str, now: f64) -> Result<Signed, String> {
        let (keys, scope) = account();
        message.sign((&keys, &scope), &names(list.as_bytes())?, payload, now)
    }

    /// The examples of Amazon's documentation of signature version 4 for S3.
    #[test]
    fn published_requests_have_their_published_signatures() {
        let welcome = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072";
        let date = ("Date", "Fri, 24 May 2013 00:00:00 GMT");
        let class = ("x-amz-storage-class", "REDUCED_REDUNDANCY");
        let own = "x-amz-content-sha256;x-amz-date";
        let table = [
            (
                message("GET", "/test.txt", &[("Range", "bytes=0-9")]),
                ("range", EMPTY),
                format!("host;range;{own}"),
                "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
            ),
            (
                message("PUT", "/test$file.text", &[date, class]),
                ("X-Amz-Storage-Class, date", welcome),
                format!("date;host;{own};x-amz-storage-class"),
                "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
            ),
            (
                message("GET", "/?lifecycle", &[]),
                ("", EMPTY),
                format!("host;{own}"),
                "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
            ),
            (
                message("GET", "/?prefix=J&max-keys=2", &[]),
                ("host", EMPTY),
                format!("host;{own}"),
                "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
            ),
        ];
        for (message, (list, payload), signed, signature) in table {
            let Signed(set) = sign(&message, list, payload, DAY).expect("it is signed");
            let credential = "AKIAIOSFODNN7EXAMPLE/20130524/us-east-1/s3/aws4_request";
            let expected = format!(
                "AWS4-HMAC-SHA256 Credential={credential}, SignedHeaders={signed}, Signature={signature}"
            );
            assert_eq!(set[0], ("X-Amz-Content-SHA256", payload.to_owned()));
            assert_eq!(set[1], ("X-Amz-Date", "20130524T000000Z".to_owned()));
            assert_eq!(set[2], ("Authorization", expected));
        }
    }

    #[test]
    fn a_session_token_is_signed() {
        let (_, scope) = account();
        let keys = Keys::new(b"AKIA", b"secret", b"token/+=").expect("valid keys");
        let signed =
            message("GET", "/", &[]).sign((&keys, &scope), &[], UNSIGNED, DAY).expect("it is signed");
        assert_eq!(signed.0[2], ("X-Amz-Security-Token", "token/+=".to_owned()));
        let names = "SignedHeaders=host;x-amz-content-sha256;x-amz-date;x-amz-security-token,";
        assert!(signed.0[3].1.contains(names), "{signed:?}");
    }

    #[test]
    fn a_request_that_cannot_be_signed_safely_fails() {
        let nul = message("GET", "/", &[("X-A", "a\0b")]);
        let line = message("GET", "/", &[("X-A", "a\r\nhost: evil")]);
        let control = "a signed header contains the control character";
        let hostless = Message { headers: Vec::new(), ..message("GET", "/", &[]) };
        let get = || message("GET", "/", &[]);
        let table = [
            (sign(&nul, "x-a", EMPTY, DAY), control),
            (sign(&line, "x-a", EMPTY, DAY), control),
            (sign(&hostless, "", EMPTY, DAY), "the request has no Host"),
            (sign(&message("", "/", &[]), "", EMPTY, DAY), "the request has no valid method"),
            (sign(&message("GET\nHEAD", "/", &[]), "", EMPTY, DAY), "the request has no valid method"),
            (sign(&message("GET", "/%4", &[]), "", EMPTY, DAY), "the URL has a %"),
            (sign(&message("OPTIONS", "*", &[]), "", EMPTY, DAY), "the URL has no path"),
            (sign(&get(), "", EMPTY, -1.0), "the clock shows -1 seconds since 1970"),
            (sign(&get(), "x-amz-date", EMPTY, DAY), "the header x-amz-date is part of the signature"),
            (sign(&get(), "Authorization", EMPTY, DAY), "the header authorization is part of the signature"),
            (sign(&get(), "a:b", EMPTY, DAY), "\"a:b\" is not the name of a header"),
            (sign(&get(), "a\nb", EMPTY, DAY), "\"a\\nb\" is not the name of a header"),
        ];
        for (found, why) in table {
            let found = found.expect_err(why);
            assert!(found.starts_with(why), "{found}");
        }
        // Lines that are not signed do not matter.
        assert!(sign(&line, "", EMPTY, DAY).is_ok());
    }

    #[test]
    fn lines_of_one_name_are_joined_and_absent_ones_left_out() {
        let twice = message("GET", "/", &[("X-A", " 1  2 "), ("x-a", "3")]);
        let once = message("GET", "/", &[("X-A", "1 2,3")]);
        let shown = |m: &Message| sign(m, "x-a x-b x-a", EMPTY, DAY).expect("it is signed").0;
        assert_eq!(shown(&twice), shown(&once));
        assert!(shown(&once)[2].1.contains("SignedHeaders=host;x-a;x-amz-content-sha256;x-amz-date,"));
    }
}
